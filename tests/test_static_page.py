"""`mtnet page`: the static page is written, and learns in a real browser."""

import functools
import http.server
import io
import json
import shutil
import sys
import threading
from contextlib import contextmanager

import jax
import numpy as np
import pytest
from browser import draw_shapes, open_page
from PIL import Image, ImageFilter, ImageOps
from serving import SHAPES, picture, text

from mtnet.adapted_tasks import TaskSupport
from mtnet.cli import main
from mtnet.errors import InputError
from mtnet.static_page import runtime
from mtnet.static_page.check import graph_answer
from mtnet.userdata.drawings import drawing
from mtnet.userdata.open_image import Upload

MT_NET, CURVES = "omniglot-any-mt-net", "sine-mt-net"
GRAPHS = ("learn", "predict")
NS = b"http://www.w3.org/"
"""The name of SVG, which is no address."""


def test_a_wrong_call_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    (tmp_path / "dist").mkdir()
    for file in runtime.FILES:
        (tmp_path / "dist" / file.source).write_text("another version")
    monkeypatch.setenv("PATH", "")
    for words, says in {
        f"{tmp_path}/full": "has other files",
        f"{tmp_path}/new --networks {CURVES}": "npm is missing",
        f"{tmp_path}/new --networks {CURVES} --runtime {tmp_path}/full": "has no ort.wasm",
        f"{tmp_path}/new --networks {CURVES} --runtime {tmp_path}": "is not the file of",
        f"{tmp_path}/new --networks sine": "pretrained network",
    }.items():
        with jax.enable_x64(False):
            assert main(["page", *words.split()]) == 2
        message = capsys.readouterr().err
        assert says in message
        assert message.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_npm_says_why_it_fails(tmp_path, monkeypatch):
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho 'npm warn old' >&2\necho 'npm error code E404' >&2\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"could not fetch .* \(npm error code E404\)"):
        runtime.runtime_files(None)


def test_without_the_extra_one_line_says_what_to_install(tmp_path, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith("mtnet.static_page.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["page", str(tmp_path / "new")]) == 2
    assert "page needs onnx: pip install 'mtnet[cli,onnx]'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The files of onnxruntime-web, as npm fetches them."""
    try:
        found = runtime.runtime_files(None)
    except InputError as error:
        if "npm" not in str(error).split(":")[0]:
            raise
        pytest.skip(f"no onnxruntime-web: {error}")
    folder = tmp_path_factory.mktemp("package")
    for file in runtime.FILES:
        (folder / file.source).write_bytes(found[file.name])
    return folder


@pytest.fixture(scope="module")
def site(package, tmp_path_factory):
    """The static page, in a folder below the root of its server."""
    root = tmp_path_factory.mktemp("root")
    words = ["--networks", MT_NET, CURVES, "--runtime", package]
    with jax.enable_x64(False):
        assert main(["page", str(root / "page"), *map(str, words)]) == 0
    return root / "page"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextmanager
def publish(folder):
    """A server of plain files; gives the address of the folder."""
    handler = functools.partial(Quiet, directory=folder.parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/{folder.name}/"
        finally:
            server.shutdown()


@pytest.fixture
def page(site):
    with publish(site) as address, open_page(address) as page:
        yield page


SEEN = """async (files) => {
  const pixels = async (file) => {
    const image = new Image();
    image.src = `data:image/png;base64,${file}`;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 28;
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    return [...context.getImageData(0, 0, 28, 28).data].filter((_, i) => i % 4 === 0);
  };
  return Promise.all(files.map(pixels));
}"""
CALL = """async ([images, queries, network]) => {
  const { call } = await import("./page/engine.js");
  const post = async (path, body) => (await call("POST", path, body)).json();
  const task = await post("/v1/tasks", { network, images });
  return { task, found: await post(`/v1/tasks/${task.id}/predict`, { images: queries }) };
}"""


def test_five_shapes_are_drawn_and_one_is_recognised_without_a_server(page):
    from playwright.sync_api import expect

    draw_shapes(page, timeout=30000)
    expect(page.locator("#examples-before")).to_have_text("20 %")
    expect(page.locator("#download")).to_be_hidden()
    page.locator("#tab-curve").click()
    page.locator("#random-points").click()
    expect(page.locator("#curve-answer")).to_contain_text("on 10 points after 10 steps")


def test_the_browser_sees_and_says_what_python_does(page, site):
    """Drawings of several sizes and tones: the same pixels, then the same probabilities."""
    files = [picture(strokes) for strokes in SHAPES.values()]
    queries = [picture(strokes, 12) for strokes in SHAPES.values()] + odd_pictures()
    urls = [[f"data:image/png;base64,{text(data)}" for data in some] for some in (files, queries)]
    labels = sorted(SHAPES)
    images = [{"image": url, "label": name} for url, name in zip(urls[0], SHAPES, strict=True)]
    said = page.evaluate(CALL, [images, urls[1], MT_NET])

    pixels = [np.stack([seen_by_python(data) for data in some]) for some in (files, queries)]
    y = np.array([labels.index(name) for name in SHAPES], np.int32)
    graphs = [(site / "networks" / f"{MT_NET}.{name}.onnx").read_bytes() for name in GRAPHS]
    expected = graph_answer(graphs, TaskSupport(pixels[0], y, tuple(labels)), pixels[1])
    for step, probabilities in zip(said["found"]["by_step"], expected.predictions, strict=True):
        found = [[query["probabilities"][label] for label in labels] for query in step]
        np.testing.assert_allclose(found, probabilities, atol=1e-4)
    np.testing.assert_allclose(said["task"]["losses"], expected.losses, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose([*said["task"]["moved"].values()], expected.moved, rtol=1e-3)
    seen = page.evaluate(SEEN, said["found"]["seen"])
    np.testing.assert_array_equal(np.reshape(seen, pixels[1].shape), pixels[1])


def seen_by_python(data):
    ink = drawing(Upload("image", data, 10**6))
    return np.round(255 * np.moveaxis(ink, 0, -1)).astype(np.uint8)


def odd_pictures():
    """Small, light on dark, coloured, soft, and with ink along the border."""
    first, second = (Image.open(io.BytesIO(picture(SHAPES[name]))) for name in ("cross", "zigzag"))
    odd = [
        first.resize((23, 31)),
        ImageOps.invert(second),
        ImageOps.colorize(first, (180, 20, 60), (210, 240, 190)),
        second.filter(ImageFilter.GaussianBlur(6)),
        first.crop((60, 60, 140, 200)),
    ]
    files = [io.BytesIO() for _ in odd]
    for image, file in zip(odd, files, strict=True):
        image.save(file, "PNG")
    return [file.getvalue() for file in files]


def test_the_folder_names_no_other_address_and_can_be_written_again(site, package, tmp_path):
    site = shutil.copytree(site, tmp_path / "site")
    listed = json.loads((site / "networks" / "index.json").read_text())
    assert [network["name"] for network in listed] == [MT_NET, CURVES]
    own = [*site.glob("page/*"), site / "index.html"]
    assert not [path.name for path in own if b"http://" in path.read_bytes().replace(NS, b"")]
    shutil.rmtree(site / "runtime")
    with jax.enable_x64(False):
        words = [str(site), "--networks", CURVES, "--runtime", str(package)]
        assert main(["page", *words]) == 0
    assert (site / "runtime" / "ort.wasm").is_file()
    graphs = sorted(path.name for path in site.glob("networks/*.onnx"))
    assert graphs == [f"{CURVES}.learn.onnx", f"{CURVES}.predict.onnx"]
