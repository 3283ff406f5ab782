"""Turn any collection of pictures into clean faces and a report: python prepare.py SOURCE... --out=data/faces."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import hashlib
import io
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from tqdm import tqdm

from config import COLOURS, ConfigError, DataError
from gan.command_line import command_line, show
from gan.data import cleaning, cleaning_report
from gan.data.cleaning import KINDS, SIZE, Candidate, Picture, PrepareConfig
from gan.data.faces import RESERVE, unfinished_beside
from gan.data.labels import FILE
from gan.data.pictures import CHUNK, in_processes, is_visible
from gan.files import as_word, move, printable, replacing, write_text

T = TypeVar("T")
MANIFEST = "manifest.json"  # in the folder of clean faces; lists the files that this program wrote and their sources


def main(config: PrepareConfig, typed: Mapping[str, Any]) -> None:
    """Run `python prepare.py`: inspect pictures, select and crop faces, and write the report."""
    if "margin" in typed and config.detect is None:
        raise ConfigError("--margin is for --detect; leave it out, or give --detect=FILE")
    check(config)
    pictures, refused, others = cleaning.pictures_in(config.sources, config.out)
    if not pictures and not refused:
        named = ", ".join(printable(str(path)) for path in config.sources)
        raise DataError(f"no pictures in {named}; expected a folder, a zip or pictures")
    show(f"{len(pictures):,} pictures; inspecting them")
    try:
        with tempfile.TemporaryFile(dir=existing(config.report)) as file:
            prepared(config, pictures, refused, others, file)
    except OSError as error:  # of the report or the temporary file; other writes handle their own errors
        raise DataError(
            f"cannot write {printable(str(config.report))}, or the temporary file beside it (28 KB a picture): "
            f"{error.strerror or error}; give another place: --report=FILE.html"
        ) from error


def prepared(
    config: PrepareConfig, pictures: Sequence[Picture], refused: list[Candidate], others: int, file: IO[bytes]
) -> None:
    """Do the work of `main`; `file` is a temporary file for the pictures at 96x96 pixels."""
    candidates = list(refused)
    one = dataclasses.replace(config, sources=config.sources[:1])  # sent with each chunk; there may be many sources
    for some, data in spread(cleaning.inspect, pictures, one, "inspecting", config.num_workers):
        candidates += some
        file.write(data)
    file.flush()
    rows = {i: row for row, i in enumerate(i for i, face in enumerate(candidates) if face.digest)}
    shape = len(rows), SIZE, SIZE, 3
    pixels = np.memmap(file, np.uint8, "r", shape=shape) if rows else np.empty(shape, np.uint8)
    found, kept_kinds = select(candidates, pixels, rows, config)
    manifest = [] if config.dry_run else written(candidates, config)
    labels = guessed(candidates, pixels, rows, config) if config.labels and manifest else {}
    if lost := [face for face in candidates if face.kind == "unreadable" and face.digest]:  # changed since inspection
        found["unreadable"] = found.get("unreadable", 0) + len(lost)
    kept = len({cleaning.name_of(face) for face in candidates if not face.kind})
    result = {
        "sources": [printable(str(path)) for path in config.sources],
        "out": printable(str(config.out)),
        "dry_run": config.dry_run,
        "counts": {
            "pictures": len(pictures) + len(refused),
            "kept": kept,
            "other_files": others,
            "animated": len({face.picture for face in candidates if face.animated and not face.kind}),
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
    """Check that the user's files are safe, the outputs can be written, and the cascade works.

    Raises:
        DataError: a check failed.
    """
    out = Path(os.path.realpath(config.out))
    sources = [Path(os.path.realpath(given.expanduser())) for given in config.sources]
    for given, path in zip(config.sources, sources, strict=True):
        if any(cleaning.same_file(folder, out) for folder in (path, *path.parents)):
            raise DataError(
                f"--out={config.out} is, or contains, the source {given}, which must not change; give another folder"
            )
        if out.is_relative_to(path) and not os.path.exists(out / MANIFEST) and holds_files(out):
            raise DataError(
                f"--out={config.out} lies in the source {given} and holds files of yours; give another folder"
            )
    if os.path.exists(out) and not os.path.isdir(out):
        raise DataError(f"--out={config.out} is a file; expected a folder, or a new name")
    for path in (config.report, config.report.with_suffix(".json")):
        real = Path(os.path.realpath(path))
        if any(real.is_relative_to(source) for source in sources) and not real.is_relative_to(out):
            raise DataError(
                f"{path} would lie in a source, which must not change; give another place: --report=FILE.html"
            )
        if real == out / MANIFEST or (os.path.exists(real) and not is_report(real)):
            raise DataError(f"{path} exists and is not a report of prepare.py; give another name: --report=FILE.html")
    manifest = out / MANIFEST
    if not config.dry_run and os.path.exists(manifest) and rows_in(manifest) is None:
        raise DataError(f"{manifest} exists and was not written by prepare.py; give another folder: --out=FOLDER")
    for option, path in (("--report", config.report), *([] if config.dry_run else [("--out", config.out)])):
        folder = existing(path / MANIFEST if option == "--out" else path)
        if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
            raise DataError(f"{option}={path} cannot be written: {folder} is not a writable folder; give another place")
    if config.labels and os.path.lexists(table := out / FILE) and not is_ours(table, manifest):
        raise DataError(
            f"{table} exists, and was not written by prepare.py or was changed since; rename it, or leave --label out"
        )
    if config.labels and not COLOURS.is_file():
        raise DataError(f"{COLOURS}: no such file; it guesses labels; fetch it again with git checkout -- checkpoints")
    if config.detect is not None:
        cleaning.check_cascade(config.detect)


def existing(path: Path) -> Path:
    """Return the nearest existing parent of a path."""
    above = Path(os.path.abspath(path)).parents
    return next((folder for folder in above if os.path.lexists(folder)), above[-1])  # even the drive may not exist


def is_report(path: Path) -> bool:
    """Return whether a file is a report of an earlier call."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".json":
            return {"kept_kinds", "manifest"} <= json.loads(text).keys()
        return cleaning_report.TITLE in text
    except (OSError, ValueError, AttributeError):
        return False


def spread(
    function: Callable[..., T], pictures: Sequence[Any], argument: object, what: str, workers: int | None
) -> Iterator[T]:
    """Run a function on chunks of pictures in several processes, with a progress bar. Yield its results in order."""
    work = [(pictures[i : i + CHUNK], argument) for i in range(0, len(pictures), CHUNK)]
    with contextlib.closing(in_processes(function, work, workers or os.cpu_count() or 1)) as done:
        for _, result in zip(in_lots(pictures, what, " pictures", CHUNK), done, strict=True):
            yield result


def select(
    candidates: list[Candidate], pixels: np.ndarray, rows: Mapping[int, int], config: PrepareConfig
) -> tuple[dict[str, int], list[str]]:
    """Mark duplicates and outliers, and clear the marks of the kinds that are kept.

    `rows` maps an index in `candidates` to a row of `pixels`, (N, 96, 96, 3). Returns the number of findings of each
    kind, and the kinds that are kept.
    """
    keep = {kind.strip() for kind in config.keep.split(",") if kind.strip()}
    colourless = {"grey", "dark", "blank", "unfinished"}  # pictures of the last three were not checked for grey
    coloured = sum(bool(face.digest) and not colourless & face.faults.keys() for face in candidates)
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

    cleaning.mark_duplicates(candidates)
    settle("duplicate", "near_duplicate")
    left = [i for i, face in enumerate(candidates) if not face.kind]
    if len(left) >= cleaning.LEAST:
        distances = neighbour_distances(pixels, [rows[i] for i in left], config)
        cleaning.mark_outliers([candidates[i] for i in left], distances)
        settle("outlier")
    return {kind: found[kind] for kind in KINDS if found[kind]}, sorted(keep & set(found))


def guessed(
    candidates: Sequence[Candidate], pixels: np.ndarray, rows: Mapping[int, int], config: PrepareConfig
) -> dict[str, dict[str, tuple[str, float]]]:
    """Predict labels of the kept faces, write labels.csv beside them, and report the number of labelled faces.

    `pixels` and `rows` are as in `select`. Returns, by file and column, the label, empty if it is doubtful, and its
    probability, from 0 to 1.
    """
    from gan.device import choose_device  # here, because importing torch takes seconds
    from gan.quality import colours

    guesser = colours.load(choose_device(config.gpu, say=lambda text: None))
    names = {cleaning.name_of(face): rows[i] for i, face in enumerate(candidates) if not face.kind}
    found: dict[str, dict[str, tuple[str, float]]] = {}
    for some in in_lots(sorted(names), "guessing labels", " faces"):
        codes, sure = guesser(pixels[[names[name] for name in some]])
        for name, code, chance in zip(some, codes, sure, strict=True):
            columns = zip(guesser.vocabulary, code.tolist(), chance.tolist(), strict=True)
            of = {known[0]: (known[number] if number else "", round(share, 3)) for known, number, share in columns}
            found[name] = {column: of[column] for column in config.labels}
    known, table = rows_in(config.out / MANIFEST) or {}, config.out / FILE
    before = table.read_bytes() if table.is_file() else b""
    earlier = csv.DictReader(io.StringIO(before.decode("utf-8-sig")))
    lines = {name: [label for label, _ in of.values()] for name, of in found.items()}
    rest = known.keys() - lines.keys()
    others = {row["file"]: row for row in earlier if row["file"] in rest}
    more = {column for row in others.values() for column, label in row.items() if label} - {"file", *config.labels}
    columns = [*config.labels, *sorted(more)]
    cells = [[name, *(row.get(column, "") for column in columns)] for name, row in others.items()]
    cells += [[name, *line, *("" for _ in more)] for name, line in lines.items()]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["file", *columns], *sorted(cells)])
    content = text.getvalue().encode("utf-8-sig")  # so that Excel reads names in any language
    try:
        # The manifest names the table before it is written, so that it is known as ours even if this is interrupted.
        own = {"file": FILE, "sha256": hashlib.sha256(content).hexdigest(), "source": ""}
        own |= {} if before in (b"", content) else {"before": hashlib.sha256(before).hexdigest()}
        write_json(config.out / MANIFEST, list((known | {FILE: own}).values()))
        with replacing(table) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise DataError(
            f"cannot write {printable(str(config.out / FILE))}: {error.strerror or error}; make room, then run the "
            "same command again"
        ) from error
    for place, column in enumerate(config.labels):
        labelled = sum(bool(line[place]) for line in lines.values())
        show(f"{labelled:7,} of {len(found):,} faces have a label for {column} in {printable(str(config.out / FILE))}")
    if others:
        show(f"{len(others):7,} faces of earlier calls keep theirs")
    return found


def is_ours(table: Path, manifest: Path) -> bool:
    """Return whether a labels.csv is unchanged since an earlier call wrote it."""
    row = (rows_in(manifest) or {}).get(FILE)
    with contextlib.suppress(OSError):
        digest = hashlib.sha256(table.read_bytes()).hexdigest()
        return row is not None and digest in (row["sha256"], row.get("before"))
    return False


def neighbour_distances(pixels: np.ndarray, rows: Sequence[int], config: PrepareConfig) -> np.ndarray:
    """Return the distance of each given row of `pixels` to its 20th neighbour in the face encoder's features: (N,)."""
    import torch  # here, because it takes seconds

    from gan.device import choose_device
    from gan.quality import features, metrics

    extractor = features.load("faces", choose_device(config.gpu, say=lambda text: None))
    found = torch.cat([extractor(pixels[some]) for some in in_lots(rows, "comparing", " pictures")])
    return metrics.radii(found, cleaning.NEAREST).numpy()


def in_lots(things: Sequence[T], what: str, unit: str, size: int = 256) -> Iterator[Sequence[T]]:
    """Yield batches of `size` items, with a progress bar."""
    with tqdm(desc=what, total=len(things), unit=unit, disable=None) as bar:
        for start in range(0, len(things), size):
            some = things[start : start + size]
            yield some
            bar.update(len(some))


def written(candidates: Sequence[Candidate], config: PrepareConfig) -> list[dict[str, Any]]:
    """Crop and write the kept faces; delete faces of earlier calls from the same pictures that are no longer kept.

    Faces are written to a hidden folder, and moved once all are there and the manifest lists them. A file that the
    manifest does not list, or lists with other content, belongs to the user. Pictures that can no longer be read are
    marked. Returns the manifest's rows of the kept faces.

    Raises:
        DataError: there is not enough room, or the folder cannot be written.
    """
    out = config.out
    for face in candidates:
        if not face.kind and leads_out(out / cleaning.name_of(face), out):
            face.kind, face.why = "unreadable", f"{face.picture.folder} is a link that leads out of {out}"
    kept = {cleaning.name_of(face): face for face in candidates if not face.kind}
    earlier = rows_in(out / MANIFEST) or {}
    table = {FILE: earlier.pop(FILE)} if FILE in earlier else {}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for left in [path for name in (MANIFEST, FILE) for path in out.glob(f".{name}.[0-9]*")]:
            left.unlink()  # left by a killed call
        digests = {name: earlier[name]["sha256"] for name in kept.keys() & earlier if (out / name).is_file()}
        new = [(name, face) for name, face in kept.items() if not digests.get(name)]
        need = sum(face.size[0] * face.size[1] * 3 for _, face in new)  # more than the files will take
        if (free := shutil.disk_usage(out).free) < min(need, 2**34) // 4 + RESERVE:
            raise DataError(
                f"no room for {len(new):,} faces: {free / 1e6:,.0f} MB free on the disk of {out}; free some, "
                "or give a folder on another disk: --out=FOLDER"
            )
        with unfinished_beside(out / ".faces") as unfinished:
            for found, lost in spread(cleaning.write, new, unfinished, "writing", config.num_workers):
                digests |= found
                for name, why in lost.items():
                    kept[name].kind, kept[name].why = "unreadable", why
            rows = {name: cleaning.row(name, face, digests[name]) for name, face in kept.items() if not face.kind}
            write_json(out / MANIFEST, list((earlier | rows | table).values()))
            for name, _ in new:
                if name in rows and not os.path.lexists(out / name):  # otherwise that file is the user's
                    (out / name).parent.mkdir(parents=True, exist_ok=True)
                    move(unfinished / name, out / name)
        # A picture that cannot be read now may have been intact when its faces were cropped, so they stay.
        inspected = {os.path.normcase(cleaning.place(face)) for face in candidates if face.kind not in cleaning.NEVER}
        contents = {row["sha256"] for row in rows.values()}

        def stays(row: Mapping[str, Any]) -> bool:
            if os.path.normcase(row["source"]) in inspected:
                return False
            return row["sha256"] not in contents or not is_gone(row["source"], config)  # otherwise it has moved

        others = {name: row for name, row in earlier.items() if name not in rows and stays(row)}
        remove({name: row for name, row in earlier.items() if name not in rows | others}, out)
        write_json(out / MANIFEST, list((others | rows | table).values()))
    except OSError as error:
        raise DataError(
            f"cannot write to {out}: {error.strerror or error}; make it writable and make room, then run the same "
            "command again; or give another folder: --out=FOLDER"
        ) from error
    if others:
        show(f"{len(others):,} faces of earlier calls, from other pictures, stay in {printable(str(out))}")
    return list(rows.values())


def is_gone(picture: str, config: PrepareConfig) -> bool:
    """Return whether a picture that an earlier call found in one of the sources is no longer there."""
    roots = [os.path.abspath(given.expanduser()) for given in config.sources]
    return not os.path.lexists(picture) and any(map(Path(picture).is_relative_to, roots))


def write_json(path: Path, content: object) -> None:
    """Write JSON, indented for people to read."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False))


def rows_in(manifest: Path) -> dict[str, dict[str, Any]] | None:
    """Return the rows of a manifest by file, or None if there is none or this program did not write it."""
    try:
        rows = json.loads(manifest.read_text(encoding="utf-8"))
        named = {row["file"]: row for row in rows if row["source"] is not None and row["sha256"] is not None}
        return named if isinstance(rows, list) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def holds_files(folder: Path) -> bool:
    """Return whether there are visible files in a folder; a killed call may leave hidden ones."""
    for _, subfolders, files in os.walk(folder):
        subfolders[:] = filter(is_visible, subfolders)
        if any(map(is_visible, files)):
            return True
    return False


def leads_out(path: Path, out: Path) -> bool:
    """Return whether the folder of `path` lies outside `out` after links are resolved."""
    return not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(out))


def remove(rows: Mapping[str, Mapping[str, Any]], out: Path) -> None:
    """Delete the files of a manifest's rows, except those that were changed since."""
    gone = 0
    for name, row in rows.items():
        path = out / name
        ours = not path.is_symlink() and not leads_out(path, out)
        with contextlib.suppress(OSError):
            if ours and hashlib.sha256(path.read_bytes()).hexdigest() == row["sha256"]:
                path.unlink()
                gone += 1
                path.parent.rmdir()  # fails, and is ignored, unless it is empty now
    if gone:
        show(f"{gone:,} faces of an earlier call deleted from {printable(str(out))}: this one leaves them out")


def tell(config: PrepareConfig, result: Mapping[str, Any]) -> None:
    """Print a summary of the findings, and the next command."""
    for kind, number in result["found"].items():
        show(f"{number:7,} {kind:<14}  {'kept' if kind in result['kept_kinds'] else 'left out'}: {KINDS[kind]}")
    if animated := result["counts"]["animated"]:
        show(f"{animated:7,} animated        kept: their first picture")
    kept = result["counts"]["kept"]
    done = "would be kept" if config.dry_run else f"faces in {config.out}"
    show(f"{kept:7,} {done}; {config.report} shows what was found")
    if kept and not config.dry_run:
        if config.detect is None and not config.centre:
            show(
                "        whole pictures were copied; if they are not cut-out faces yet: --detect=FILE, see docs/data.md"
            )
        show(f"train:   python train.py --data_path={printable(as_word(config.out))} --budget=60")


if __name__ == "__main__":
    command_line(PrepareConfig, main)
