"""Turn any pile of pictures into clean faces, and say what was found: python prepare.py SOURCE... --out=data/faces."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from tqdm import tqdm

from config import DataError, PrepareConfig
from gan import cleaning, cleaning_report
from gan.cleaning import KINDS, SIZE, Cut, Picture, Seen
from gan.command_line import command_line
from gan.faces import CHUNK, RESERVE, in_processes

T = TypeVar("T")
MANIFEST = "manifest.json"
"""In the folder of clean faces: which files are ours, and from where."""


def main(config: PrepareConfig, typed: Mapping[str, Any]) -> None:
    """Judge, choose, cut, report."""
    check(config)
    pictures, refused, others = cleaning.pictures_in(config.sources, config.out)
    if not pictures and not refused:
        raise DataError(f"no pictures in {', '.join(map(str, config.sources))}; expected a folder, a zip or pictures")
    print(f"{len(pictures):,} pictures; judging them", flush=True)
    cut = Cut(config.centre, str(config.cascade or ""), config.margin, config.min_size)
    with tempfile.TemporaryFile() as file:
        try:
            seen = refused + judged(pictures, cut, config, lambda data: file.write(data))
        except BrokenProcessPool as error:
            raise DataError(
                "a process that reads pictures died, perhaps for want of memory; lower --num_workers"
            ) from error
        file.flush()
        n = sum(bool(face.digest) for face in seen)
        shape = n, SIZE, SIZE, 3
        pixels = np.memmap(file, np.uint8, "r", shape=shape) if n else np.empty(shape, np.uint8)
        rows = dict(zip((i for i, face in enumerate(seen) if face.digest), range(n), strict=True))
        found, kept_kinds = choose(seen, pixels, rows, config)
        kept = [face for face in seen if not face.kind]
        manifest = [] if config.dry_run or not kept else written(kept, cut, config)
        result = {
            "sources": [str(path) for path in config.sources],
            "out": str(config.out),
            "dry_run": config.dry_run,
            "counts": {
                "pictures": len(pictures) + len(refused),
                "kept": len(kept),
                "other_files": others,
                "animated": sum(face.animated for face in seen),
            },
            "found": found,
            "kept_kinds": kept_kinds,
            "findings": [{"file": f.picture.about, "kind": f.kind, "why": f.why, "box": f.box} for f in seen if f.kind],
            "manifest": manifest,
        }
        places = [i for i in cleaning_report.shown(seen) if i in rows]
        thumbnails = dict(zip(places, cleaning.thumbnails(pixels[[rows[i] for i in places]]), strict=True))
        html = cleaning_report.page(result, seen, thumbnails)
    data = config.report.with_suffix(".json")
    save(config.report, html)
    save(data, json.dumps(result, indent=1, ensure_ascii=False))
    tell(config, result)


def check(config: PrepareConfig) -> None:
    """See that nothing of the sources can be touched, and that what is asked for is installed.

    Raises:
        DataError: the folder to write to is a source or holds one, or the cascade cannot be read.
    """
    out = Path(os.path.realpath(config.out.expanduser()))
    for given in config.sources:
        path = Path(os.path.realpath(given.expanduser()))
        if path == out or out in path.parents:
            raise DataError(
                f"--out={config.out} is, or holds, the source {given}, which is not to be touched; give another folder"
            )
    if config.out.exists() and not config.out.is_dir():
        raise DataError(f"--out={config.out} is a file; expected a folder, or a new name")
    if config.cascade is not None:
        cleaning.check_cascade(config.cascade)


def judged(pictures: Sequence[Picture], cut: Cut, config: PrepareConfig, keep: Callable[[bytes], object]) -> list[Seen]:
    """Judge pictures each for itself, in processes.

    Args:
        pictures: to read.
        cut: how faces are cut from them.
        config: of the call.
        keep: takes the pixels at 96x96 of those that could be read, in order.
    """
    work = [(pictures[i : i + CHUNK], cut) for i in range(0, len(pictures), CHUNK)]
    seen: list[Seen] = []
    for found, data in spread(cleaning.look, work, config, "judging", len(pictures)):
        seen += found
        keep(data)
    return seen


def spread(function: Callable[..., T], work: Sequence[tuple[Any, ...]], config: PrepareConfig, what: str, total: int):
    """The results of a function for chunks of pictures, with a progress bar."""
    workers = config.num_workers or os.cpu_count() or 1
    with (
        contextlib.closing(in_processes(function, work, workers)) as done,
        tqdm(desc=what, total=total, unit=" pictures", disable=None) as bar,
    ):
        for chunk, result in zip(work, done, strict=True):
            yield result
            bar.update(len(chunk[0]))


def choose(
    seen: list[Seen], pixels: np.ndarray, rows: Mapping[int, int], config: PrepareConfig
) -> tuple[dict[str, int], list[str]]:
    """Mark copies and odd ones too, and clear the marks of what is to be kept.

    Args:
        seen: judged each for itself.
        pixels: (N, 96, 96, 3) of those that could be read.
        rows: a face's row in `pixels`, by its place in `seen`.
        config: of the call.

    Returns:
        How many were found of each kind, and the kinds that are kept all the same.
    """
    keep = {kind.strip() for kind in config.keep.split(",")}
    coloured = sum(not face.kind for face in seen)
    if sum(face.kind == "grey" for face in seen) > coloured:  # a set of grey pictures
        keep.add("grey")
    found: Counter[str] = Counter()

    def settle(*kinds: str) -> None:
        for face in seen:
            if face.kind in kinds:
                found[face.kind] += 1
                if face.kind in keep:
                    face.kind = face.why = ""

    settle(*(kind for kind in KINDS if kind not in ("same", "alike", "odd")))
    cleaning.mark_copies(seen)
    settle("same", "alike")
    candidates = [i for i, face in enumerate(seen) if not face.kind]
    if len(candidates) >= cleaning.LEAST:
        odd(seen, candidates, pixels, rows, config)
        settle("odd")
    return {kind: found[kind] for kind in KINDS if found[kind]}, sorted(keep & set(found))


def odd(
    seen: Sequence[Seen], candidates: Sequence[int], pixels: np.ndarray, rows: Mapping[int, int], config: PrepareConfig
) -> None:
    """Mark those that look like none of the others, by what the encoder that comes with the program sees."""
    from gan import features  # brings torch, which takes seconds
    from gan.device import choose_device

    extractor = features.load("faces", None, choose_device(config.gpu, say=lambda text: None))
    found = []
    with tqdm(desc="comparing", total=len(candidates), unit=" pictures", disable=None) as bar:
        for start in range(0, len(candidates), 256):
            some = [rows[i] for i in candidates[start : start + 256]]
            found.append(extractor(pixels[some]).numpy())
            bar.update(len(some))
    cleaning.mark_odd([seen[i] for i in candidates], np.concatenate(found))


def written(kept: Sequence[Seen], cut: Cut, config: PrepareConfig) -> list[dict[str, Any]]:
    """Cut and write what is kept; files of an earlier call that are not among it go.

    Raises:
        DataError: there is no room, or the folder cannot be written.
    """
    try:
        shutil.rmtree(config.out / cleaning.UNFINISHED, ignore_errors=True)  # of a call that was killed
        config.out.mkdir(parents=True, exist_ok=True)
        need = sum(face.size[0] * face.size[1] * 3 for face in kept)  # more than it will be
        if (free := shutil.disk_usage(config.out).free) < min(need, 2**34) // 4 + RESERVE:
            raise DataError(
                f"no room for {len(kept):,} faces: {free / 1e6:,.0f} MB free on the disk of {config.out}; free some, "
                "or give a folder on another disk: --out=FOLDER"
            )
        work = [(kept[i : i + CHUNK], config.out, cut) for i in range(0, len(kept), CHUNK)]
        manifest = [row for rows in spread(cleaning.write, work, config, "writing", len(kept)) for row in rows]
        shutil.rmtree(config.out / cleaning.UNFINISHED, ignore_errors=True)
        remove_earlier(config.out, {row["file"] for row in manifest})
        save(config.out / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False))
    except OSError as error:
        raise DataError(
            f"cannot write to {config.out}: {error.strerror or error}; what is written stays, and the same command "
            "goes on; expected a writable folder with room, else give another: --out=FOLDER"
        ) from error
    return manifest


def remove_earlier(out: Path, files: set[str]) -> None:
    """Remove what an earlier call wrote, nobody has changed since, and this one has no use for."""
    try:
        earlier = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
        gone = {row["file"]: row["sha256"] for row in earlier if row["file"] not in files}
    except (OSError, ValueError, TypeError, KeyError):
        return
    for name, digest in gone.items():
        path = out / name
        if ".." in Path(name).parts or Path(name).is_absolute():
            continue
        with contextlib.suppress(OSError):
            if not path.is_symlink() and hashlib.sha256(path.read_bytes()).hexdigest() == digest:
                path.unlink()


def save(path: Path, text: str) -> None:
    """Write a text; never half a file.

    Raises:
        DataError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror or error}; give another place: --report=FILE.html"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def tell(config: PrepareConfig, result: Mapping[str, Any]) -> None:
    """Say in a few lines what was found, and what to do next."""
    for kind, number in result["found"].items():
        print(f"{number:7,} {kind:<10}  {'kept' if kind in result['kept_kinds'] else 'left out'}: {KINDS[kind]}")
    if animated := result["counts"]["animated"]:
        print(f"{animated:7,} animated    kept: their first picture")
    kept = result["counts"]["kept"]
    print(
        f"{kept:7,} {'would be kept' if config.dry_run else f'faces in {config.out}'}; {config.report} shows them all"
    )
    if kept and not config.dry_run:
        print(f"train:   python train.py --data_path={config.out}")


if __name__ == "__main__":
    command_line(PrepareConfig, main)
