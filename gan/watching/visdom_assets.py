"""The files that visdom's page loads but its package lacks, in the user's cache folder. Independent of visdom."""

from __future__ import annotations

import filecmp
import shutil
from pathlib import Path

from gan import downloads, npm
from gan.files import replacing

MARK = "animegan"  # name of a file that identifies visdom servers started by this program

ASSETS = npm.listed("""
jquery 3.1.1 dist/jquery.min.js js/jquery.min.js 85556761a8800d14ced8fcd41a6b8b26bf012d44a318866c0d81a62092efd9bf
bootstrap 3.3.7 dist/js/bootstrap.min.js js/bootstrap.min.js 53964478a7c634e8dad34ecc303dd8048d00dce4993906de1bacf67f663486ef
bootstrap 3.3.7 dist/css/bootstrap.min.css css/bootstrap.min.css f75e846cc83bd11432f4b1e21a45f31bc85283d11d372f7b19accd1bf6a2635c
bootstrap 3.3.7 dist/fonts/glyphicons-halflings-regular.woff2 fonts/glyphicons-halflings-regular.woff2 fe185d11a49676890d47bb783312a0cda5a44c4039214094e7957b4c040ef11c
react 16.2.0 umd/react.production.min.js js/react-react.min.js c28b91922bca297037cba02ec85c1c0dc179d1a942355f0b6e085f6021fa67df
react-dom 16.2.0 umd/react-dom.production.min.js js/react-dom.min.js f61ac9c43e0842c58774da732e424a606898fd211914925252ac9e64f34a77c8
react-modal 3.1.10 dist/react-modal.min.js js/react-modal.min.js 096ce258905585d06758012ec6261a5dc52b11d82e112450670666109bbc6f35
plotly.js-dist-min 2.11.1 plotly.min.js js/plotly-plotly.min.js dd146b2db18d4ced4743018fa65ada14b723bf1aae08b559a5576ba8116cd889
sjcl 1.0.7 sjcl.js js/sjcl.js d09a8688f37c7442bb1e6699b46efb191d9281ef05a492586fa0f54dc4e5110a
layout-bin-packer 1.4.0 dist/layout-bin-packer.js js/layout_bin_packer.js 312ed1834f78f497ac3c9e943ce4657679d26ad8cd62d7f722912d26c9d0ed29
d3 3.5.17 d3.min.js js/d3.v3.min.js 76c39718d1c0a3fb321676b3b7e29306c0907919a5716d5728bd1b08ae0169e7
d3-selection-multi 1.0.1 build/d3-selection-multi.js js/d3-selection-multi.v1.js 22f89270afc6f231f8b974e37172a15525f28035276ca960f8ccdce622700315
save-svg-as-png 1.4.17 lib/saveSvgAsPng.js js/saveSvgAsPng.js 71c46f2411daf6ba2a4e38ec563d92f1da42f88da9247a2bdd5c8a10bde93ae3
react-resizable 1.4.6 css/styles.css css/react-resizable-styles.css 7c9122a97c86b4be7839fd3d23c37d06aec1ece3ef830f8bae3a8c121056d528
react-grid-layout 0.16.3 css/styles.css css/react-grid-layout-styles.css 4ec035a50c31ec008bab5794e88ef056043e63aaa8dcbb24d36e5a73780b4dbc
mathjax 2.7.5 MathJax.js js/mathjax/2.7.5/MathJax.js 9ef249bfdc162849bcf2abe8425f5e90bd89fa4fd1588b1a492731c65b2bbfc9
mathjax 2.7.5 config/Safe.js js/mathjax/2.7.5/config/Safe.js c3d9f149afb82798a73d14a9737a82b5cb8bb8d217de631030a702d4ae0c1d8e
mathjax 2.7.5 config/TeX-AMS-MML_HTMLorMML.js js/mathjax/2.7.5/config/TeX-AMS-MML_HTMLorMML.js f380ca5d5257b34fc5f0e4cccd7e1447dd3dfa3b65e06ed23f2a4f6af17e19f0
mathjax 2.7.5 extensions/Safe.js js/mathjax/2.7.5/extensions/Safe.js 1b44a7b48d991ab692da9074fe8582cd47d438b57445af064ce30d2eac3871dd
mathjax 2.7.5 jax/output/SVG/fonts/TeX/fontdata.js js/mathjax/2.7.5/jax/output/SVG/fonts/TeX/fontdata.js c23d4bebe304610f617983eaeab7f8aa5e13a45391318f30ccf2650fbff939e1
mathjax 2.7.5 jax/output/SVG/jax.js js/mathjax/2.7.5/jax/output/SVG/jax.js 39d9a95fcde78f560cb5fcf11bb434ca5ad2349d74737b71160c8f473861fb5d
mathjax 2.7.5 jax/output/SVG/fonts/TeX/Size1/Regular/Main.js js/mathjax/2.7.5/jax/output/SVG/fonts/TeX/Size1/Regular/Main.js 3e1c830e9c05a62f9caf86f9e13d926c38c5136b1eba8f6171953e839ce3941f
mathjax 2.7.5 jax/output/SVG/config.js js/mathjax/2.7.5/jax/output/SVG/config.js d680518add37c0d1bf50dea3c93a4cd2aa703d5e1d3e2748a0e016c26aee253c
""")  # noqa: E501
"""The files that the page loads, in the versions that visdom 0.2.4 lists in its server/build.py."""


def folder() -> Path:
    """Return the folder of the files in the user's cache; it may not exist."""
    return downloads.cache("visdom-page")


def page(own: Path) -> Path:
    """Return the folder with everything the page loads, completed with the files that come with visdom.

    Raises:
        OSError: files are neither cached nor available, or the cache folder cannot be written.
    """
    static = folder()
    npm.fetch(ASSETS, static)
    places = {static / asset.place for asset in ASSETS}  # visdom may have downloaded some itself, unverified
    for source in own.rglob("*"):
        target = static / source.relative_to(own)
        wanted = source.is_file() and source.suffix != ".map" and target not in places
        if wanted and not (target.is_file() and filecmp.cmp(source, target, shallow=False)):
            with replacing(target) as temporary:  # a server may be reading it
                shutil.copyfile(source, temporary)
    (static / MARK).touch()
    return static
