"""`mtnet data ...` on small sets of the same layouts."""

import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image
from test_data_prepare import FILES, SETS, as_archives

from mtnet.commands import data as commands
from mtnet.datasets import IMAGE_SETS, cache, open_images
from mtnet.datasets.image_set import Original
from mtnet.errors import InputError
from mtnet.files import cache_root


def data(*arguments):
    commands.main([str(a) for a in arguments])


@pytest.fixture(autouse=True)
def at(tmp_path, monkeypatch):
    """Small sets, an empty cache; returns a folder with the archives of both."""
    monkeypatch.setenv("MTNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "QUERIES", 1)
    for name, images in SETS.items():
        monkeypatch.setitem(IMAGE_SETS, name, images)
        (tmp_path / name).mkdir()
        as_archives(tmp_path / name, FILES[name])
    return tmp_path


@pytest.mark.parametrize("name", SETS)
def test_get_then_check_then_show(name, at, capsys):
    data("get", name, "--from", at / name)
    data("check", name, "--tasks", 20)
    data("show", name, "--ways", 2, "--queries", 2, "--episodes", 3)
    said = capsys.readouterr().out
    assert "names and checksum are right" in said
    assert f"Wrote {name}-episodes.png" in said
    with Image.open(f"{name}-episodes.png") as image:
        assert len(np.unique(np.asarray(image))) > 2
    data("get", name)
    assert "is already prepared" in capsys.readouterr().out


def test_get_makes_a_damaged_copy_again(at, monkeypatch):
    data("get", "omniglot", "--from", at / "omniglot")
    whole = np.array(open_images("omniglot", "train").pixels)
    file = cache.folder("omniglot") / "images.npy"
    broken = bytearray(file.read_bytes())
    broken[-1] ^= 1
    file.write_bytes(broken)
    with pytest.raises(InputError, match="checksum"):
        data("check", "omniglot")
    monkeypatch.setattr(commands, "_fetch", lambda images: at / "omniglot")
    data("get", "omniglot")
    data("check", "omniglot", "--tasks", 20)
    assert np.array_equal(open_images("omniglot", "train").pixels, whole)


def test_get_downloads_the_originals(at, monkeypatch, capsys):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    served = at / "omniglot"
    handler = partial(Quiet, directory=str(served))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        originals = tuple(
            Original(
                f"http://127.0.0.1:{server.server_port}/{path.name}",
                hashlib.md5(path.read_bytes()).hexdigest(),
            )
            for path in sorted(served.iterdir())
        )
        images = SETS["omniglot"]._replace(originals=originals)
        monkeypatch.setitem(IMAGE_SETS, "omniglot", images)
        data("get", "omniglot")
        server.shutdown()
        thread.join()
    about, _ = cache.verify("omniglot")
    assert about["source"] == " ".join(original.url for original in originals)
    assert f"Downloading {originals[0].url}" in capsys.readouterr().out


def test_mini_imagenet_says_how_to_get_it():
    with pytest.raises(InputError, match=r"terms.*--from PATH.*<split>/<wnid>/<name>\.jpg"):
        data("get", "mini-imagenet")
    assert not cache_root().exists()


@pytest.mark.parametrize("command", ["check", "show"])
def test_what_is_not_prepared_is_said(command):
    with pytest.raises(InputError, match="not prepared on this machine: run mtnet data get omni"):
        data(command, "omniglot")


def test_check_names_another_split(at, monkeypatch):
    data("get", "omniglot", "--from", at / "omniglot")
    other = SETS["omniglot"]._replace(fingerprint="0" * 64)
    monkeypatch.setitem(IMAGE_SETS, "omniglot", other)
    with pytest.raises(InputError, match="not those of omniglot's split"):
        data("check", "omniglot")
    monkeypatch.setitem(IMAGE_SETS, "omniglot", SETS["omniglot"]._replace(examples=5))
    with pytest.raises(InputError, match="its array is"):
        data("check", "omniglot")


def test_check_fails_where_the_neighbour_reads_something_else(at, monkeypatch, capsys):
    data("get", "omniglot", "--from", at / "omniglot")
    odd = SETS["omniglot"]._replace(nearest={2: (200.0, 300.0)})
    monkeypatch.setitem(IMAGE_SETS, "omniglot", odd)
    with pytest.raises(InputError, match="2-way accuracy is outside"):
        data("check", "omniglot", "--tasks", 20)
    assert "200 to 300 %" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--episodes", 0], "episodes must be at least 1"),
        (["--ways", 9], "ways must be from 2 to the 2 classes"),
        (["--ways", 2, "--queries", 9], "there are 4"),
        (["--ways", 2, "--out", "no/where.png"], "cannot write no/where.png"),
        (["--ways", 2, "--out", "a.what"], "cannot write a.what: Format 'what' is not"),
    ],
)
def test_wrong_settings_are_refused(arguments, message, at):
    data("get", "omniglot", "--from", at / "omniglot")
    with pytest.raises(InputError, match=message):
        data("show", "omniglot", *arguments)


def test_a_check_needs_tasks():
    with pytest.raises(InputError, match="tasks must be at least 2"):
        data("check", "omniglot", "--tasks", 1)
