"""Export a generator for others to use: python export.py --to=html."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which python -I and PYTHONSAFEPATH=1 leave out
from config import RELEASED, ConfigError, check_numbers, option

# isort: split

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from gan import hub
from gan.command_line import command_line
from gan.device import enough_memory
from gan.files import as_word, printable, replacing
from gan.language import speaking, text, why
from gan.play.api import Generator
from gan.quality.sampling import Sampler
from gan.sharing import onnx_file, web_page


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Give a generator away: as a web page that draws faces by itself, as ONNX, or for the Hugging Face hub."""

    examples: ClassVar[tuple[str, ...]] = (
        "--checkpoint=checkpoints/my_run",
        "--to=onnx",
        "--to=safetensors --out=my_model",
    )

    to: Literal["html", "onnx", "safetensors"] = option(
        "html",
        "html: one file that draws faces in any browser, without a network; onnx: for other programs; safetensors: a "
        "folder as on the Hugging Face hub, which generate.py reads, too.",
    )
    checkpoint: Path = option(
        RELEASED,
        "the generator: a checkpoint or a run's folder (its best.pt, else latest.pt); by default released, the one "
        "that comes with the program.",
    )
    out: Path | None = option(
        None, "the file to write, or for safetensors the folder; unset: faces.html, faces.onnx, faces-hub."
    )
    enlarge: int | None = option(
        None,
        "for --to=onnx: faces this many times larger, 2 or 4, see generate.py; the page of --to=html always draws them "
        "4 times larger.",
        choices=(2, 4),
    )
    push: str | None = option(
        None, "upload the folder of --to=safetensors to the Hugging Face hub, under this name: USER/MODEL."
    )

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.push is not None and self.to != "safetensors":
            raise ConfigError("--push uploads what --to=safetensors writes; got --to={}", self.to)
        if self.enlarge is not None and self.to != "onnx":
            raise ConfigError("--enlarge goes with --to=onnx; got --to={}; leave it out", self.to)
        if self.out is not None and self.to != "safetensors" and self.out.suffix.lower() != f".{self.to}":
            raise ConfigError("--out: expected a name ending in .{}; got '{}'", self.to, self.out)

    @property
    def place(self) -> Path:
        """The file or folder to write."""
        return self.out or Path(f"faces.{self.to}" if self.to != "safetensors" else "faces-hub")


@enough_memory("out of memory: stop other programs that use it")
def main(config: ExportConfig, typed: Mapping[str, Any]) -> None:
    """Export a generator in the format that `config` requests, and report the result.

    Raises:
        CheckpointError: the checkpoint cannot be used.
        ConfigError: a package is missing, or the output cannot be written.
    """
    sampler, path = Generator.load(config.checkpoint).sampler, config.place
    shown = printable(str(path))
    try:
        if config.to == "html":
            web_page.write(sampler, path)
            told = text("open it in a browser, or send it to a friend")
        elif config.to == "onnx":
            with replacing(path) as temporary:
                onnx_file.write(sampler, temporary, config.enlarge or 1)
                furthest = onnx_file.compared(sampler, temporary, config.enlarge or 1)
            told = text("checked; numbers differ from PyTorch's by {:.1g} at most").format(furthest)
        else:
            about = hub.described(sampler.model, sampler.images_seen, sampler.classes.content(), sampler.digest)
            named = hub.write(path, sampler.generator.state_dict(), about, card(sampler, config.checkpoint))
            told = f"model.safetensors, config.json, README.md; python generate.py --checkpoint={as_word(path)}"
            if not named:
                line = text(
                    "{}: README.md was there and is kept, but it does not name this generator, {}; complete it, or "
                    "delete it and export again"
                )
                print(line.format(shown, sampler.digest))
        if path.is_file():
            told = f"{path.stat().st_size / 1e6:.1f} MB" + text("; ") + told
        print(f"{shown}: {told}")
        if config.push is not None:
            print(text("uploaded to {}").format(hub.push(path, config.push)))
    except OSError as error:
        raise ConfigError("could not write {}: {}; choose another --out", shown, why(error)) from error


def card(sampler: Sampler, checkpoint: Path) -> str:
    """Return the model card, in Markdown."""
    with speaking("en"):  # as all files
        size, classes = sampler.model.image_size, sampler.classes.table()
    weights = sum(one.numel() for one in sampler.generator.parameters())
    name = "the released generator of anime faces" if checkpoint == RELEASED else "a run"
    parts = [
        "---\npipeline_tag: unconditional-image-generation\ntags: [gan, image-generation, faces]\n---",
        f"# A generator of {size}x{size} faces",
        f"Made of {name}, after {sampler.images_seen:,} images of training.\n"
        f"It has {weights:,} weights; their digest is {sampler.digest}.",
        *(["Classes:", "\n".join(f"- {line}" for line in classes.splitlines())] if classes else []),
        "## Use",
        "In the folder of the AnimeGAN program:",
        "```bash\npython generate.py --checkpoint=THIS_FOLDER --nogen 64\n```",
        "```python\nfrom gan import Generator",
        'faces = Generator.load("THIS_FOLDER").sample(16, seed=1, truncation=0.8)\n```',
        "## Limits",
        "It reproduces its training data, including biases, and some faces are broken. Before you publish it,\n"
        "say what it was trained on, and under which licence.",
    ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    command_line(ExportConfig, main)
