"""Images of any mode keep their tones and colours; what cannot be read is one line."""

import os
import socket
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image

from mtnet.errors import InputError
from mtnet.userdata import open_image as module
from mtnet.userdata.drawings import drawing
from mtnet.userdata.image_folder import cached_images, read_image
from mtnet.userdata.open_image import has_colour, image_header, open_image

RAMP = np.linspace(0, 255, 16).astype(np.uint8).reshape(4, 4)
COLOURS = np.random.default_rng(0).integers(0, 256, (4, 4, 3), np.uint8)


def saved(path, image, **options):
    image.save(path, **options)
    return path


def grey(path):
    return np.asarray(open_image(path).convert("L"), int)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("sixteen.png", RAMP.astype(np.uint16) * 257),
        ("sixteen.tif", RAMP.astype(np.uint16) * 257),
        ("unit.tif", RAMP.astype(np.float32) / 255),
        ("floats.tif", RAMP.astype(np.float32)),
        ("wide.tif", RAMP.astype(np.float32) * 1e5 - 3e6),
        ("integers.tif", RAMP.astype(np.int32) * 257),
        ("far.tif", RAMP.astype(np.int32) * 70_000),
    ],
)
def test_deep_grey_keeps_its_tones(tmp_path, name, array):
    path = saved(tmp_path / name, Image.fromarray(array))
    assert np.abs(grey(path) - RAMP).max() <= 1
    assert not has_colour(path)


def test_every_mode_is_the_image_that_was_saved(tmp_path):
    """Palette, RGBA and CMYK say the same as plain RGB."""
    rgb = Image.fromarray(COLOURS)
    palette = rgb.quantize(16)  # as many colours as pixels
    paths = [
        saved(tmp_path / "rgba.png", rgb.convert("RGBA")),
        saved(tmp_path / "palette.png", palette),
        saved(tmp_path / "cmyk.tif", rgb.convert("CMYK")),
    ]
    for path, expected in zip(paths, (rgb, palette.convert("RGB"), rgb), strict=True):
        assert np.abs(np.asarray(open_image(path), int) - np.asarray(expected, int)).max() <= 1
        assert has_colour(path)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_pixels_are_white(tmp_path, mode):
    if mode == "P":
        image = Image.new("P", (4, 4), 0)
        image.putpalette([0, 0, 0])
        path = saved(tmp_path / "t.png", image, transparency=0)
    else:
        path = saved(tmp_path / "t.png", Image.new(mode, (4, 4), (0,) * len(mode)))
    assert (grey(path) == 255).all()
    assert (read_image(path, 2, colour=True) == 255).all()


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_applied(tmp_path, suffix, orientation):
    """Cropped and resized images are upright as well."""
    blocks = np.kron(np.arange(1, 5).reshape(2, 2) * 60, np.ones((16, 16))).astype(np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    turned = Image.fromarray(blocks)
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # the transposition that viewers undo
    if orientation > 1:
        turned = turned.transpose(Image.Transpose(undo[orientation]))
    quality = {"quality": 100} if suffix in ("jpg", "webp") else {}
    path = saved(tmp_path / f"turned.{suffix}", turned, exif=exif, **quality)
    assert np.abs(read_image(path, 2, colour=False)[..., 0] - [[60, 120], [180, 240]]).max() <= 4


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_with(*chunks):
    header = struct.pack(">IIBBBBB", 4, 4, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0\0\0\0\0" * 4)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", pixels), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def refused(path):
    for read in (open_image, has_colour, drawing):
        with pytest.raises(InputError, match=path.name) as info:
            read(path)
        assert "\n" not in str(info.value)
    return str(info.value)


def test_only_listed_formats_are_decoded(tmp_path):
    (tmp_path / "eps.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    assert "PNG, JPEG" in refused(tmp_path / "eps.png")


def test_text_chunks_that_unpack_to_much_are_refused(tmp_path):
    big = zlib.compress(bytes(200_000_000), 9)
    text = (b"zTXt", b"Comment\0\0" + big)
    (tmp_path / "text.png").write_bytes(png_with(text))
    tracemalloc.start()
    try:
        refused(tmp_path / "text.png")
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_too_many_pixels_are_refused_before_decoding(tmp_path):
    header = struct.pack(">IIBBBBB", 12_000, 12_000, 8, 2, 0, 0, 0)
    data = png_with().replace(chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 0, 0, 0, 0)), b"")
    (tmp_path / "huge.png").write_bytes(data[:8] + chunk(b"IHDR", header) + data[8:])
    assert "12000 x 12000" in refused(tmp_path / "huge.png")


def test_special_files_are_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket.png"))
        for name in ("pipe", "folder", "zero", "socket"):
            assert "not a regular file" in refused(tmp_path / f"{name}.png")


def test_pixels_that_are_not_finite_are_refused(tmp_path):
    path = saved(tmp_path / "nan.tif", Image.fromarray(np.full((4, 4), np.nan, np.float32)))
    with pytest.raises(InputError, match="not finite"):
        open_image(path)


def test_a_large_drawing_is_the_small_one(tmp_path):
    """Reduced before its ink is found; the reduction is exact for whole blocks."""
    ink = np.full((200, 200), 255, np.uint8)
    ink[50:150, 90:110] = ink[90:110, 50:150] = 0
    small = saved(tmp_path / "small.png", Image.fromarray(ink))
    large = saved(tmp_path / "large.png", Image.fromarray(np.kron(ink, np.ones((8, 8), np.uint8))))
    np.testing.assert_array_equal(drawing(large), drawing(small))
    assert image_header(large) == ("L", (1600, 1600))


def test_decoded_images_are_kept_until_a_file_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("MTNET_CACHE", str(tmp_path / "cache"))
    paths = [saved(tmp_path / f"{i}.png", Image.fromarray(COLOURS // (i + 1))) for i in range(3)]
    opened = []
    original = module._read
    monkeypatch.setattr(
        module, "_read", lambda path, use: opened.append(path) or original(path, use)
    )
    first = cached_images(paths, 2, True)
    np.testing.assert_array_equal(cached_images(paths, 2, True), first)
    assert opened == paths  # the second time from the cache
    saved(paths[0], Image.new("RGB", (4, 4), "red"))
    changed = cached_images(paths, 2, True)
    assert (changed[0] == (255, 0, 0)).all()
    np.testing.assert_array_equal(changed[1:], first[1:])
    for file in (tmp_path / "cache" / "images").iterdir():  # damaged: decoded again
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    np.testing.assert_array_equal(cached_images(paths, 2, True), changed)
