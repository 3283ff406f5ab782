"""Turn any collection of pictures into clean faces and a report: python prepare.py SOURCE... --out=data/faces."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which python -I and PYTHONSAFEPATH=1 leave out
from config import COLOURS, ConfigError, DataError

# isort: split

import contextlib
import csv
import dataclasses
import hashlib
import io
import json
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import IO, Any, TypeVar

import numpy as np
from tqdm import tqdm

from gan import processors
from gan.command_line import BARE, command_line, log
from gan.data import cleaning, cleaning_report, detection, listing
from gan.data.cleaning import KINDS, SIZE, Candidate, Picture, PrepareConfig
from gan.data.faces import RESERVE
from gan.data.labels import FILE
from gan.data.pictures import CHUNK, in_processes
from gan.files import as_word, printable, replacing_folder, tidy, write_text
from gan.language import text, why
from gan.presets import suggested

T = TypeVar("T")
MANIFEST = "manifest.json"  # in the folder of clean faces; lists the files that this program wrote and their sources
UNREAD = ("refused", "unreadable", "truncated")  # kinds of findings whose reason is told at once
SAY = 3.0  # seconds from one word on how far it is to the next, where there is no progress bar
LITTER = ("._", ".DS_Store", "Thumbs.db", "desktop.ini")  # how files begin that file managers put into any folder


def main(config: PrepareConfig, typed: Mapping[str, Any]) -> None:
    """Run `python prepare.py`: inspect pictures, select and crop faces, and write the report."""
    if "margin" in typed and config.detect is None:
        raise ConfigError("--margin is for --detect; leave it out, or add --detect")
    check(config)
    pictures, refused, others = cleaning.pictures_in(config.sources, config.out)
    if not pictures and not refused:
        named = text(", ").join(printable(str(path)) for path in config.sources)
        raise DataError("no pictures in {}; expected a folder, a zip or pictures", named)
    if config.detect is not None:
        cascade = detection.cascade(None if str(config.detect) == BARE else config.detect)
        config = dataclasses.replace(config, detect=cascade)
    log(text("{:,} pictures; inspecting them").format(len(pictures)))
    try:
        with tempfile.TemporaryFile(dir=existing(config.report)) as file:
            prepared(config, pictures, refused, others, file)
    except OSError as error:  # of the report or the temporary file; other writes handle their own errors
        raise DataError(
            "cannot write {}, or the temporary file beside it (28 KB a picture): {}; give another place: "
            "--report=FILE.html",
            printable(str(config.report)),
            why(error),
        ) from error


def prepared(
    config: PrepareConfig, pictures: Sequence[Picture], refused: list[Candidate], others: int, file: IO[bytes]
) -> None:
    """Do the work of `main`; `file` is a temporary file for the pictures at 96x96 pixels."""
    candidates = list(refused)
    one = dataclasses.replace(config, sources=config.sources[:1])  # sent with each chunk; there may be many sources
    at_once = CHUNK if config.detect is None else CHUNK // 8  # finding faces takes long
    for some, data in spread(cleaning.inspect, pictures, one, text("inspecting"), at_once):
        candidates += some
        file.write(data)
    file.flush()
    rows = {i: row for row, i in enumerate(i for i, face in enumerate(candidates) if face.digest)}
    shape = len(rows), SIZE, SIZE, 3
    pixels = np.memmap(file, np.uint8, "r", shape=shape) if rows else np.empty(shape, np.uint8)
    gone, there = deleted_from(config.out)
    found, kept_kinds = select(candidates, pixels, rows, config, gone, there)
    gone = [] if "deleted" in kept_kinds else gone
    manifest, labels = ([], {}) if config.dry_run else write_faces(candidates, pixels, rows, config, gone)
    kept = len({cleaning.name_of(face) for face in candidates if not face.kind})
    result = {
        "sources": [printable(str(path)) for path in config.sources],
        "out": printable(str(config.out)),
        "dry_run": config.dry_run,
        "min_size": config.min_size,
        "counts": {
            "pictures": len(pictures) + len(refused),
            "kept": kept,
            "oblong": sum(max(face.size) > detection.OBLONG * min(face.size) for face in candidates if not face.kind),
            "other_files": others,
        },
        "found": found,
        "kept_kinds": kept_kinds,
        "findings": [
            {"file": f.picture.about, "kind": f.kind, "why": f.why, "box": f.box} for f in candidates if f.kind
        ],
        "manifest": manifest,
        "labels": labels,
    }
    write_text(config.report, cleaning_report.page(result, candidates, pixels, rows))
    write_json(config.report.with_suffix(".json"), result)
    tell(config, result)


def check(config: PrepareConfig) -> None:
    """Check that the user's files are safe and the outputs can be written.

    Raises:
        DataError: a check failed.
    """
    out = Path(os.path.realpath(config.out))
    sources = [Path(os.path.realpath(given.expanduser())) for given in config.sources]
    for given, path in zip(config.sources, sources, strict=True):
        if any(listing.same_file(folder, out) for folder in (path, *path.parents)):
            raise DataError(
                "--out={} is, or contains, the source {}, which must not change; give another folder", config.out, given
            )
    if not config.dry_run and Path.cwd().is_relative_to(out):
        raise DataError(
            "--out={} is, or contains, the folder where you are, and is made afresh; give a folder of its own, such as "
            "--out=my_faces",
            config.out,
        )
    for path in (config.report, config.report.with_suffix(".json")):
        real = Path(os.path.realpath(path))
        if any(real.is_relative_to(folder) for folder in (*sources, out)):
            raise DataError(
                "{} would lie in a source, which must not change, or in --out, which holds faces alone; give "
                "another place: --report=FILE.html",
                path,
            )
        if os.path.exists(real) and not is_report(real):
            raise DataError("{} exists and is not a report of prepare.py; give another name: --report=FILE.html", path)
    if not config.dry_run:
        if os.path.exists(out) and not os.path.isdir(out):
            raise DataError("--out={} is a file; expected a folder, or a new name", config.out)
        tidy(out)
        if os.path.isdir(out):
            check_own(out, config.out)
    for option, path in (("--report", config.report), *([] if config.dry_run else [("--out", out)])):
        folder = existing(path)
        if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
            raise DataError(
                "{}={} cannot be written: {} is not a writable folder; give another place", option, path, folder
            )
    if config.labels and not COLOURS.is_file():
        raise DataError("{}: no such file; it guesses labels; fetch it again with git checkout -- checkpoints", COLOURS)


def check_own(folder: Path, called: Path) -> None:
    """Check that a folder, which the user calls `called`, holds only files of an earlier call, unchanged.

    Raises:
        DataError: it holds another file; the message names the first.
    """
    rows = rows_in(folder / MANIFEST)

    def unreadable(error: OSError) -> None:
        raise DataError("--out={} cannot be read: {}; give another folder: --out=FOLDER", called, why(error)) from error

    for place, subfolders, files in os.walk(folder, onerror=unreadable):
        subfolders.sort()
        links = [name for name in subfolders if os.path.islink(os.path.join(place, name))]
        for name in (*links, *sorted(files)):
            path = Path(place, name)
            inside = path.relative_to(folder).as_posix()
            if name.startswith(LITTER) or (inside == MANIFEST and rows is not None):
                continue
            if rows is None or inside not in rows or digest(path) != rows[inside]["sha256"]:
                raise DataError(
                    "{} was not written by prepare.py, or was changed since; move it away, or give another "
                    "folder: --out=FOLDER",
                    printable(str(called / inside)),
                )


def digest(path: Path) -> str:
    """Return the SHA-256 of a file; empty if it cannot be read, or is a link or a pipe."""
    with contextlib.suppress(OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
    return ""


def rows_in(manifest: Path) -> dict[str, dict[str, Any]] | None:
    """Return the rows of a manifest by file, or None if there is none or this program did not write it."""
    try:
        rows = json.loads(manifest.read_text(encoding="utf-8"))
        return {row["file"]: row for row in rows if row["sha256"]} if isinstance(rows, list) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def deleted_from(folder: Path) -> tuple[list[dict[str, Any]], set[str]]:
    """Return the manifest's rows of the faces that the user has deleted, and the names of those that are there.

    If all were deleted, there are no rows, to begin anew. Those deleted before an earlier call are marked in the
    manifest. They alone do not make a folder an emptied one: it may have been a call that found no faces.
    """
    rows = [row for row in (rows_in(folder / MANIFEST) or {}).values() if "source" in row]
    gone = [row for row in rows if not os.path.lexists(folder / row["file"])]
    emptied = len(gone) == len(rows) and not all("deleted" in row for row in rows)
    return [] if emptied else gone, {row["file"] for row in rows} - {row["file"] for row in gone}


def existing(path: Path) -> Path:
    """Return the nearest existing parent of a path."""
    above = Path(os.path.abspath(path)).parents
    return next((folder for folder in above if os.path.lexists(folder)), above[-1])  # even the drive may not exist


def is_report(path: Path) -> bool:
    """Return whether a file is a report of an earlier call."""
    try:
        content = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".json":
            return {"kept_kinds", "manifest"} <= json.loads(content).keys()
        return cleaning_report.MARK in content
    except (OSError, ValueError, AttributeError):
        return False


def spread(
    function: Callable[..., T], pictures: Sequence[Any], argument: object, what: str, size: int = CHUNK
) -> Iterator[T]:
    """Run a function on `size` pictures at a time, in a process per core, and say how far it is.

    Yields its results in order.
    """
    work = [(pictures[i : i + size], argument) for i in range(0, len(pictures), size)]
    with contextlib.closing(in_processes(function, work, processors.number())) as done:
        for _, result in zip(in_chunks(pictures, what, text(" pictures"), size), done, strict=True):
            yield result


def select(
    candidates: list[Candidate],
    pixels: np.ndarray,
    rows: Mapping[int, int],
    config: PrepareConfig,
    gone: Sequence[Mapping[str, Any]],
    there: Collection[str],
) -> tuple[dict[str, int], list[str]]:
    """Mark faces that the user deleted, duplicates and outliers, and clear the marks of the kinds that are kept.

    `rows` maps an index in `candidates` to a row of `pixels`, (N, 96, 96, 3); `gone` and `there` are of `deleted_from`.
    Returns the number of findings of each kind, and the kinds that are kept.
    """
    keep = {kind.strip() for kind in config.keep.split(",") if kind.strip()}
    colourless = {"grey", "dark", "blank", "unfinished"}  # pictures of the last three were not checked for grey
    faces = [face for face in candidates if face.digest and face.kind != "faceless"]
    coloured = sum(not colourless & face.faults.keys() for face in faces)
    if sum("grey" in face.faults for face in candidates) > coloured:  # most pictures are grey, so it is intended
        keep.add("grey")
    found: Counter[str] = Counter()
    for face in candidates:
        found.update(list(face.faults) or [face.kind])
        if face.faults:
            face.kind = next((kind for kind in face.faults if kind not in keep), "")
            face.why = face.faults.get(face.kind, "")

    def settle(*kinds: str) -> None:
        for face in candidates:
            if face.kind in kinds:
                found[face.kind] += 1
                if face.kind in keep:
                    face.kind = face.why = ""

    cleaning.mark_deleted(candidates, gone, there)
    settle("deleted")
    cleaning.mark_duplicates(candidates)
    settle("duplicate", "near_duplicate")
    left = [i for i, face in enumerate(candidates) if not face.kind]
    if len(left) >= cleaning.LEAST:
        distances = neighbour_distances(pixels, [rows[i] for i in left])
        cleaning.mark_outliers([candidates[i] for i in left], distances)
        settle("outlier")
    return {kind: found[kind] for kind in KINDS if found[kind]}, sorted(keep & set(found))


def write_faces(
    candidates: Sequence[Candidate],
    pixels: np.ndarray,
    rows: Mapping[int, int],
    config: PrepareConfig,
    gone: Sequence[Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], dict[str, dict[str, tuple[str, float]]]]:
    """Crop and write the kept faces, with labels if asked for, into a new folder that takes the place of the old one.

    The other arguments are as in `select`. Returns the manifest's rows of the faces, and what `guessed` returns.

    Raises:
        DataError: a picture can no longer be read, there is not enough room, the folder cannot be written, or it holds
            other files by now.
    """
    out, labels = Path(os.path.realpath(config.out)), {}
    kept = {cleaning.name_of(face): face for face in candidates if not face.kind}
    need = sum(face.size[0] * face.size[1] * 3 for face in kept.values())  # more than the files will take
    digests: dict[str, str] = {}
    try:
        if (free := shutil.disk_usage(existing(out)).free) < min(need, 2**34) // 4 + RESERVE:
            raise DataError(
                "no room for {:,} faces: {:,.0f} MB free on the disk of {}; free some, or give a folder on "
                "another disk: --out=FOLDER",
                len(kept),
                free / 1e6,
                config.out,
            )
        with replacing_folder(out, lambda old: check_own(old, config.out)) as new:
            for found in spread(cleaning.write, list(kept.items()), new, text("writing")):
                digests |= found
            manifest = [cleaning.row(name, face, digests[name]) for name, face in kept.items()]
            others = [{**row, "deleted": True} for row in gone]
            if config.labels and manifest:
                labels, table = guessed(candidates, pixels, rows, config)
                (new / FILE).write_bytes(table)
                others.append({"file": FILE, "sha256": hashlib.sha256(table).hexdigest()})
            write_json(new / MANIFEST, manifest + others)
    except OSError as error:
        raise DataError(
            "cannot write to {}: {}; it is as it was; make the folder above it writable and make room, then run "
            "the same command again; or give another folder: --out=FOLDER",
            config.out,
            why(error),
        ) from error
    return manifest, labels


def guessed(
    candidates: Sequence[Candidate], pixels: np.ndarray, rows: Mapping[int, int], config: PrepareConfig
) -> tuple[dict[str, dict[str, tuple[str, float]]], bytes]:
    """Predict labels of the kept faces, and report how many faces have one.

    `pixels` and `rows` are as in `select`. Returns, by file and column, the label, empty if it is doubtful, and its
    probability, from 0 to 1; and the content of labels.csv.
    """
    from gan.device import choose_device  # here, because importing torch takes seconds
    from gan.quality import colours

    classifier = colours.load(choose_device(None, log=lambda line: None))
    names = {cleaning.name_of(face): rows[i] for i, face in enumerate(candidates) if not face.kind}
    found: dict[str, dict[str, tuple[str, float]]] = {}
    for some in in_chunks(sorted(names), text("guessing labels"), text(" faces")):
        codes, sure = classifier(pixels[[names[name] for name in some]])
        for name, code, chance in zip(some, codes, sure, strict=True):
            columns = zip(classifier.vocabulary, code.tolist(), chance.tolist(), strict=True)
            of = {known[0]: (known[number] if number else "", round(share, 3)) for known, number, share in columns}
            found[name] = {column: of[column] for column in config.labels}
    table = io.StringIO()
    lines = [[name, *(label for label, _ in of.values())] for name, of in found.items()]
    csv.writer(table, lineterminator="\n").writerows([["file", *config.labels], *lines])
    for column in config.labels:
        labelled = sum(bool(of[column][0]) for of in found.values())
        line = text("{:7,} of {:,} faces have a label for {} in {}")
        log(line.format(labelled, len(found), column, printable(str(config.out / FILE))))
    return found, table.getvalue().encode("utf-8-sig")  # so that Excel reads names in any language


def neighbour_distances(pixels: np.ndarray, rows: Sequence[int]) -> np.ndarray:
    """Return the distance of each given row of `pixels` to its 20th neighbour in the face encoder's features: (N,)."""
    import torch  # here, because it takes seconds

    from gan.device import choose_device
    from gan.quality import features, metrics

    extractor = features.load("faces", choose_device(None, log=lambda line: None))
    found = torch.cat([extractor(pixels[some]) for some in in_chunks(rows, text("comparing"), text(" pictures"))])
    return metrics.radii(found, cleaning.NEAREST).numpy()


def in_chunks(things: Sequence[T], what: str, unit: str, size: int = 256) -> Iterator[Sequence[T]]:
    """Yield batches of `size` items, with a progress bar, or a line now and then where nobody sees one."""
    with tqdm(desc=what, total=len(things), unit=unit, disable=None) as bar:
        said = time.monotonic()
        for start in range(0, len(things), size):
            some = things[start : start + size]
            yield some
            bar.update(len(some))
            if bar.disable and time.monotonic() - said > SAY:
                said = time.monotonic()
                log(f"{what}: {start + len(some):,} / {len(things):,}")


def write_json(path: Path, content: object) -> None:
    """Write JSON, indented for people to read."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False))


def tell(config: PrepareConfig, result: Mapping[str, Any]) -> None:
    """Print a summary of the findings, and the next command."""
    for kind, number in result["found"].items():
        line = text("{:7,} {:<14}  kept: {}") if kind in result["kept_kinds"] else text("{:7,} {:<14}  left out: {}")
        log(line.format(number, text(kind), text(KINDS[kind]).format(config.min_size)))
    unread = [(found["file"], found["why"]) for found in result["findings"] if found["kind"] in UNREAD]
    if unread:
        log(text("not read: {}").format(listing.told(unread)))
    kept = result["counts"]["kept"]
    done = text("{:7,} would be kept") if config.dry_run else text("{:7,} faces in {}")
    log(text("{}; {} shows what was found").format(done.format(kept, config.out), config.report))
    if config.dry_run:
        return
    if not kept:
        raise DataError("kept none of {:,} files; {} says why of each", result["counts"]["pictures"], config.report)
    if config.detect is None and not config.centre:
        whole = text("whole pictures were copied; if they are not cut-out faces yet: --detect, see docs/data.md")
        if 2 * result["counts"]["oblong"] > kept:
            whole = text("most of them are not square, so they are hardly cut-out faces: --detect, see docs/data.md")
        log(f"        {whole}")
    report, out = (printable(str(path)) for path in (config.report.absolute(), config.out))
    log(text("look:    open {} and delete bad faces from {}").format(report, out))
    command = f"python train.py --data_path={printable(as_word(config.out))} {suggested(kept)}"
    log(text("train:   {}").format(command))
    log(text("         if they are not drawn faces: --budget=60 instead of these options"))


if __name__ == "__main__":
    command_line(PrepareConfig, main)
