"""[-1, 1] and uint8, grids, and pictures that are never half written."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gan.images import (
    LAST,
    alike,
    encoded,
    grid,
    load_picture,
    save_film,
    save_morph,
    save_picture,
    text_of,
    to_pixels,
    to_tensor,
)

ALL = torch.arange(256, dtype=torch.uint8)


def all_values() -> torch.Tensor:
    """One picture (1, 16, 16, 3) with all 256 values in each channel, in three orders."""
    return torch.stack([ALL, ALL.flip(0), ALL.roll(100)], -1).reshape(1, 16, 16, 3)


def test_all_values_survive_the_way_to_the_network_and_back() -> None:
    pixels = all_values()
    assert np.array_equal(to_pixels(to_tensor(pixels)), pixels.numpy())
    assert np.array_equal(to_pixels(to_tensor(pixels).contiguous()), pixels.numpy())


def test_values_become_minus_one_to_one_in_even_steps() -> None:
    images = to_tensor(all_values())
    assert (images.shape, images.dtype) == ((1, 3, 16, 16), torch.float32)
    assert (images.min().item(), images.max().item()) == (-1.0, 1.0)
    torch.testing.assert_close(images[0, 0].flatten(), torch.linspace(-1, 1, 256), rtol=0, atol=1e-6)


def test_making_tensors_leaves_the_pixels_alone_and_is_channels_last() -> None:
    pixels = all_values().repeat(2, 1, 1, 1)
    before = pixels.clone()
    images = to_tensor(pixels)
    assert torch.equal(pixels, before)
    assert images.is_contiguous(memory_format=torch.channels_last)


def test_making_pixels_rounds_clamps_and_leaves_the_images_alone() -> None:
    values = [-9.0, -1.0, -1 + 0.4 / 127.5, -1 + 0.6 / 127.5, 0.0, 1 - 0.6 / 127.5, 1 - 0.4 / 127.5, 9.0]
    images = torch.tensor(values).expand(1, 3, 1, 8).clone()
    before = images.clone()
    assert to_pixels(images)[0, 0, :, 0].tolist() == [0, 0, 0, 1, 128, 254, 255, 255]
    assert torch.equal(images, before)


def test_pixels_of_half_precision_images_with_a_graph_are_contiguous_uint8() -> None:
    pixels = to_pixels(torch.zeros(2, 3, 4, 5, dtype=torch.bfloat16, requires_grad=True))
    assert (pixels.shape, pixels.dtype, pixels.flags.c_contiguous) == ((2, 4, 5, 3), np.uint8, True)


@pytest.mark.parametrize(
    ("n", "columns", "rows_and_columns"),
    [(1, None, (1, 1)), (2, None, (1, 2)), (5, None, (2, 3)), (64, None, (8, 8)), (5, 2, (3, 2)), (2, 4, (1, 4))],
)
def test_grid_lays_pictures_out_in_rows_on_white(
    n: int, columns: int | None, rows_and_columns: tuple[int, int]
) -> None:
    height, width, gap = 3, 4, 2
    pictures = np.random.default_rng(0).integers(0, 255, (n, height, width, 3), np.uint8)  # none is white
    sheet = grid(pictures, columns, gap)
    rows, across = rows_and_columns
    assert sheet.shape == (rows * (height + gap) + gap, across * (width + gap) + gap, 3)
    for i, picture in enumerate(pictures):
        top, left = gap + i // across * (height + gap), gap + i % across * (width + gap)
        assert np.array_equal(sheet[top : top + height, left : left + width], picture)
    assert (sheet == 255).sum() == sheet.size - pictures.size


def test_picture_is_saved_as_it_is_and_its_folder_made(tmp_path: Path) -> None:
    picture = all_values().numpy()[0]
    path = tmp_path / "a" / "b" / "face.png"
    save_picture(picture, path)
    assert np.array_equal(np.asarray(Image.open(path)), picture)
    assert os.listdir(path.parent) == ["face.png"]


@pytest.mark.parametrize("suffix", [".jpg", ".jpeg", ".webp", ".PNG"])
def test_suffix_decides_the_format(tmp_path: Path, suffix: str) -> None:
    save_picture(np.full((8, 8, 3), 100, np.uint8), tmp_path / f"face{suffix}")
    with Image.open(tmp_path / f"face{suffix}") as saved:
        assert saved.format == {".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP", ".PNG": "PNG"}[suffix]
        assert abs(np.asarray(saved).astype(int) - 100).max() <= 3


def test_grey_pictures_stay_grey_alone_and_become_coloured_on_a_sheet(tmp_path: Path) -> None:
    grey = np.arange(4 * 4, dtype=np.uint8).reshape(1, 4, 4, 1)
    save_picture(grey[0], tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert image.mode == "L"
        assert np.array_equal(np.asarray(image), grey[0, :, :, 0])
    sheet = grid(grey)
    assert sheet.shape == (8, 8, 3)
    assert np.array_equal(sheet[2:6, 2:6], np.broadcast_to(grey[0], (4, 4, 3)))


def test_failing_write_leaves_the_old_picture_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "face.png"
    save_picture(all_values().numpy()[0], path)
    before = path.read_bytes()

    def fail(self: object, to: Path, **_: object) -> None:
        Path(to).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        save_picture(np.zeros((4, 4, 3), np.uint8), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["face.png"]


def test_a_picture_too_large_for_its_format_is_an_oserror_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="16383"):
        save_picture(np.zeros((16384, 1, 3), np.uint8), tmp_path / "tall.webp")
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_made_is_an_oserror(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        save_picture(np.zeros((4, 4, 3), np.uint8), tmp_path / "file" / "face.png")


@pytest.mark.parametrize("suffix", [".webp", ".gif"])
def test_a_film_shows_its_pictures_in_turn_and_the_last_for_longest(tmp_path: Path, suffix: str) -> None:
    frames = [tmp_path / f"{i}.png" for i in range(5)]
    for i, frame in enumerate(frames):
        Image.new("RGB", (20, 10), (50 * i, 0, 0)).save(frame)

    assert save_film(frames, tmp_path / f"film{suffix}", seconds=2.0) == 5

    shown, durations = [], []
    with Image.open(tmp_path / f"film{suffix}") as film:
        assert film.info["loop"] == 0
        for i in range(film.n_frames):  # pyright: ignore[reportAttributeAccessIssue]
            film.seek(i)
            film.load()
            shown.append(film.convert("RGB").getpixel((3, 3)))
            durations.append(film.info["duration"])
    assert np.abs(np.array(shown)[:, 0] - 50 * np.arange(5)).max() < 12
    assert durations == [400, 400, 400, 400, 2400]


def preview(path: Path, size: int, value: int) -> Path:
    save_picture(np.full((size, size, 3), value, np.uint8), path)
    return path


def test_a_film_takes_so_many_pictures_and_none_too_large(tmp_path: Path) -> None:
    large = [preview(tmp_path / f"large-{i}.png", 900, i) for i in range(2)]
    assert save_film(large, tmp_path / "large.gif") == 2
    with Image.open(tmp_path / "large.gif") as film:
        assert film.size == (800, 800)
    frames = [preview(tmp_path / f"{i:03}.png", 90, i) for i in range(150)]
    assert save_film(frames, tmp_path / "film.gif", seconds=2.0) == 60
    with Image.open(tmp_path / "film.gif") as film:
        assert film.size == (90, 90)
        assert film.n_frames == 60  # pyright: ignore[reportAttributeAccessIssue]
        assert film.convert("RGB").getpixel((3, 3)) == (0, 0, 0)
        film.seek(59)
        assert film.convert("RGB").getpixel((3, 3)) == (149, 149, 149)


@pytest.mark.parametrize("suffix", [".webp", ".gif", ".mp4"])
def test_a_film_leaves_pictures_of_another_size_out(tmp_path: Path, suffix: str) -> None:
    if suffix == ".mp4":
        pytest.importorskip("av")
    frames = [preview(tmp_path / f"{i}.png", 64 if i < 2 else 48, 40 * i) for i in range(5)]
    assert save_film(frames, tmp_path / f"film{suffix}") == 3


def test_a_film_as_mp4_plays_its_pictures_and_stays_at_the_last(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    frames = [preview(tmp_path / f"{i}.png", 49, 40 * i) for i in range(5)]  # odd sides lose a line
    assert save_film(frames, tmp_path / "film.mp4", seconds=2.0) == 5
    with av.open(str(tmp_path / "film.mp4")) as film:
        shown = [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]
        assert (film.streams.video[0].codec.name, film.streams.video[0].codec_context.pix_fmt) == ("h264", "yuv420p")
        assert float(film.duration / av.time_base) == pytest.approx(2.0 + LAST / 1000, abs=0.5)
    assert shown[0].shape == (48, 48, 3)
    values = [int(picture.mean()) for picture in shown]
    assert values[:5] == pytest.approx([0, 40, 80, 120, 160], abs=4)
    assert values[-1] == pytest.approx(160, abs=4)


def test_a_picture_goes_into_a_page_and_comes_back(tmp_path: Path) -> None:
    pixels = np.full((20, 30, 3), (200, 100, 50), np.uint8)
    (tmp_path / "a.jpg").write_bytes(encoded(pixels))
    assert np.abs(load_picture(tmp_path / "a.jpg").astype(int) - pixels).max() < 8


def test_a_film_leaves_pictures_out_that_were_cut_short(tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.png" for i in range(4)]
    for i, file in enumerate(files):
        save_picture(np.full((8, 8, 3), 50 * i, np.uint8), file)
    files[0].write_bytes(b"")
    files[3].write_bytes(files[3].read_bytes()[:-30])
    assert alike(files) == files[1:]
    save_picture(np.zeros((4, 4, 3), np.uint8), files[2])
    assert alike(files) == [files[1], files[3]]
    save_picture(np.full((8, 8, 3), 100, np.uint8), files[2])
    assert save_film(files, tmp_path / "film.gif") == 2
    with pytest.raises(OSError, match="none of its pictures"):
        save_film(files[:1], tmp_path / "none.gif")


def test_a_picture_whose_end_became_zeros_is_left_out_too(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (3, 400, 400, 3), np.uint8)
    files = [tmp_path / f"{i}.png" for i in range(3)]
    for pixels, file in zip(noise, files, strict=True):
        save_picture(pixels, file)
    whole = files[1].read_bytes()
    files[1].write_bytes(whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2))
    with pytest.raises(OSError, match=r"1\.png: broken PNG file"):  # Pillow's own is a SyntaxError
        load_picture(files[1])
    assert save_film(files, tmp_path / "film.gif") == 2


def test_a_film_that_fails_leaves_nothing(tmp_path: Path) -> None:
    Image.new("RGB", (20, 10)).save(tmp_path / "0.png")
    (tmp_path / "film.webp").mkdir()

    with pytest.raises(OSError, match="film"):
        save_film([tmp_path / "0.png"], tmp_path / "film.webp")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.png", "film.webp"]


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
@pytest.mark.parametrize("fps", [7, 15, 30])
def test_a_film_of_faces_runs_as_long_as_it_says(tmp_path: Path, suffix: str, fps: int) -> None:
    faces = [np.full((32, 32, 3), 20 + 7 * i, np.uint8) for i in range(30)]
    save_morph(faces, tmp_path / f"film{suffix}", fps)
    with Image.open(tmp_path / f"film{suffix}") as film:
        shown = 0
        for i in range(getattr(film, "n_frames", 1)):
            film.seek(i)
            film.load()
            shown += film.info["duration"]
    assert shown == pytest.approx(1000 * 30 / fps, abs=10)


def test_a_text_of_a_png_is_read_by_its_keyword(tmp_path: Path) -> None:
    pixels = np.full((4, 4, 3), 9, np.uint8)
    save_picture(pixels, tmp_path / "a.png", {"recipe": "seed 3"})
    save_picture(pixels, tmp_path / "a.jpg", {"recipe": "seed 3"})
    with Image.open(tmp_path / "a.png") as picture:
        picture.save(tmp_path / "dpi.png", dpi=(90, 90))  # whose value is no text
    assert text_of(tmp_path / "a.png", "recipe") == "seed 3"
    assert text_of(tmp_path / "a.png", "other") is None
    assert text_of(tmp_path / "a.jpg", "recipe") is None
    assert text_of(tmp_path / "dpi.png", "dpi") is None
    (tmp_path / "a.png").write_bytes(b"broken")
    with pytest.raises(OSError, match="cannot identify"):
        text_of(tmp_path / "a.png", "recipe")
