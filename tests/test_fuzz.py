"""Random arguments, tables, images, headers and settings: no traceback, no hang, no silent change.

Every case is a call of `mtnet.cli.main` that ends before anything is compiled. MTNET_FUZZ=20 runs
twenty times as many cases, with new random numbers.
"""

import json
import os
import signal
from contextlib import contextmanager
from pathlib import Path

import jax
import jaxtyping
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from PIL import Image

import mtnet
from mtnet.cli import COMMANDS, main
from mtnet.config import NAMES, configure, to_dict
from mtnet.errors import InputError
from mtnet.files import pack, read_arrays
from mtnet.storage.config_file import read_config
from mtnet.storage.run_folder import Run, create_run, read_metrics
from mtnet.userdata.open_image import open_image

TIMES = int(os.environ.get("MTNET_FUZZ", "1"))
SECONDS = 20
"""A case that takes longer hangs."""


def cases(count):
    """This many cases; new ones in the longer mode."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(
        max_examples=count * TIMES, derandomize=TIMES == 1, suppress_health_check=checks
    )


@pytest.fixture(autouse=True)
def as_users_run_it(tmp_path, monkeypatch):
    """In an empty folder, in single precision, without the type checks of the tests."""
    monkeypatch.chdir(tmp_path)
    jaxtyping.config.update("jaxtyping_disable", True)
    with jax.enable_x64(False):
        yield
    jaxtyping.config.update("jaxtyping_disable", False)


@contextmanager
def limited():
    def hang(*_):
        raise AssertionError(f"no answer after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def refused(capsys, arguments):
    """Run a command that must fail: one line, and an exit status that says so."""
    with limited():
        status = main(list(map(str, arguments)))
    told = capsys.readouterr().err
    assert status in (1, 2), (status, told)
    assert told.endswith("\n")
    assert all(line.startswith("mtnet: ") for line in told.split("\n")[:-1])
    return told


def answer(function, path):
    """The result, or None if the file is refused in one line that names it."""
    with limited():
        try:
            return function(path)
        except InputError as error:
            told = str(error)
    assert Path(path).stem in told
    assert len(told.splitlines()) == 1
    return None


WORDS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8
)
NUMBERS = st.sampled_from(["0", "-1", "1e9", "nan", "inf", "9" * 21, "1.5", "", "[/b]", "é", "\n"])
FLAGS = st.sampled_from([f"--{name.replace('_', '-')}" for name in NAMES] + ["--out", "--tasks"])
ARGUMENTS = st.lists(FLAGS | NUMBERS | WORDS, max_size=4)
HELP = {"-h", "--help", "--version"}
NEEDS_A_FILE = ["adapt", "predict", "inspect", "export", "evaluate", "compare", "fit", "classify"]


@cases(400)
@given(command=st.sampled_from(NEEDS_A_FILE), words=ARGUMENTS)
def test_arguments(command, words, capsys):
    """No file that is named exists, so every call fails."""
    if not HELP & set(words):
        refused(capsys, [command, "missing", *words])


@cases(100)
@given(words=st.lists(WORDS, min_size=1, max_size=3))
def test_commands(words, capsys):
    if any(words[0] in group for group in COMMANDS.values()) or words[0] in HELP:
        return
    assert "command" in refused(capsys, words)


@cases(20)
@given(words=ARGUMENTS)
def test_train_arguments(words, capsys):
    if not HELP & set(words):
        refused(capsys, ["train", *words, "--iterations", "0"])


CELLS = st.one_of(
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(['"', '"a\n', "---", "[/bold]", "é", "\x00", "1e999", "", ";", "\ufeff"]),
    st.text(max_size=4),
)
TABLES = st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=5).map(
    lambda rows: "\n".join(["group,x,y", *(",".join(row) for row in rows)]).encode(
        "utf-8", "surrogatepass"
    )
)


@cases(80)
@given(data=TABLES | st.binary(max_size=200))
def test_tables(data, capsys):
    """Five rows are too few to fit, whatever they hold."""
    Path("rows.csv").write_bytes(data)
    columns = ["--task", "group", "--inputs", "x", "--target", "y", "--out", "run"]
    refused(capsys, ["fit", "rows.csv", *columns])
    assert not Path("run").exists()


@pytest.fixture(scope="module")
def image_bytes(tmp_path_factory):
    """One small image in each format."""
    folder = tmp_path_factory.mktemp("images")
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (12, 9, 3), np.uint8))
    data = []
    for suffix in ("png", "jpg", "bmp", "gif", "webp", "tif"):
        image.save(folder / f"x.{suffix}")
        data.append((folder / f"x.{suffix}").read_bytes())
    return data


CHANGES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=6)


def changed(data, changes, cut):
    data = bytearray(data[: int(len(data) * cut)])
    for place, byte in changes if data else ():
        data[int(place * (len(data) - 1))] = byte
    return bytes(data)


@cases(700)
@given(which=st.integers(0, 5), changes=CHANGES, cut=st.just(1.0) | st.floats(0, 1))
def test_images(which, changes, cut, image_bytes):
    """Decoded with the size that the file says, or refused in one line."""
    path = Path("x.png")
    path.write_bytes(changed(image_bytes[which], changes, cut))
    image = answer(open_image, path)
    assert image is None or image.mode in ("L", "RGB")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One file of each kind, and its content."""
    folder = tmp_path_factory.mktemp("files")
    mtnet.save(mtnet.MTNetRegressor(width=3), folder / "estimator")
    spec = {"kind": "mlp", "inputs": [1], "outputs": 1, "width": 2, "depth": 1, "pool": False}
    about = {"spec": spec, "frozen_stats": False, "compact": False, "method": "maml"}
    about |= {"cells": {}, "kind": "images", "size": 3, "colour": True, "labels": ["a", "b"]}
    model = pack("model", {"x": np.zeros(3, np.float32)}, about=about)
    header = {"config": to_dict(configure(width=2, depth=1)), "about": {}}
    network = pack("network", {"x": np.zeros(3, np.float32)}, **header)
    splits = {"splits": {"train": ["a"], "validation": [], "test": []}}
    arrays = {"x": np.zeros((2, 1)), "y": np.zeros((2, 1)), "count": np.int32([2])}
    dataset = pack("dataset", arrays, about=splits)
    return [(folder / "estimator.safetensors").read_bytes(), model, network, dataset]


@cases(500)
@given(which=st.integers(0, 3), changes=CHANGES, cut=st.just(1.0) | st.floats(0, 1))
def test_damaged_files(which, changes, cut, files):
    """A file is what was written, or refused: there is no third case."""
    data = changed(files[which], changes, cut)
    path = Path("file.safetensors")
    path.write_bytes(data)
    found = answer(read_arrays, path)
    if found is not None:
        path.write_bytes(files[which])
        expected, header = read_arrays(path)
        assert found[1] == header
        assert found[0].keys() == expected.keys()
        assert all(np.array_equal(found[0][name], expected[name]) for name in expected)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.just(10**30) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


def replaced(value, path, new):
    """A copy of plain data with the value at one place changed; places are counted modulo."""
    if isinstance(value, dict) and value and path:
        key = sorted(value)[path[0] % len(value)]
        return value | {key: replaced(value[key], path[1:], new)}
    if isinstance(value, list) and value and path:
        at = path[0] % len(value)
        return [*value[:at], replaced(value[at], path[1:], new), *value[at + 1 :]]
    return new


@cases(150)
@given(
    which=st.integers(0, 3),
    path=st.lists(st.integers(0, 20), min_size=1, max_size=4),
    new=PLAIN,
)
def test_crafted_headers(which, path, new, files, capsys):
    """With a right checksum and a wrong header; the arrays belong to no network."""
    Path("file.safetensors").write_bytes(files[which])
    arrays, header = read_arrays(Path("file.safetensors"))
    kind = header["kind"]
    plain = {n: v for n, v in header.items() if n not in ("kind", "format", "mtnet_version")}
    crafted = replaced(plain, path, new)
    Path("file.safetensors").write_bytes(pack(kind, arrays, **crafted))
    answer(mtnet.load, "file")
    refused(capsys, ["predict", "file", "x.png", "--out", "y.csv"])


@cases(250)
@given(
    changes=st.dictionaries(st.sampled_from(sorted(NAMES)) | st.text(max_size=4), PLAIN, max_size=3)
)
def test_settings(changes):
    """A setting is used as it is written, or refused; none is changed in silence."""
    Path("config.json").write_text(json.dumps(changes))
    config = answer(read_config, Path("config.json"))
    if config is not None:
        read = json.loads(json.dumps(to_dict(config)))
        ignored = {"mtnet_version", "data"}
        assert all(read[name] == v for name, v in changes.items() if name not in ignored)


@cases(200)
@given(data=st.binary(max_size=60), toml=st.booleans())
def test_config_files(data, toml, capsys):
    path = Path("settings.toml" if toml else "settings.json")
    path.write_bytes(data)
    refused(capsys, ["train", "--config", path, "--iterations", "0"])


@cases(200)
@given(changes=CHANGES, cut=st.just(1.0) | st.floats(0, 1))
def test_metrics(changes, cut):
    """Lines that were not touched are read as they were written."""
    folder = Path("run")
    run = Run(folder, configure()) if folder.exists() else create_run(folder, configure())
    lines = [{"iteration": i, "loss": [i / 7], "seconds": i / 3} for i in range(1, 6)]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    run.metrics.write_bytes(changed(text, changes, cut))
    damaged = run.metrics.read_bytes()
    whole = [line for line in lines if (json.dumps(line) + "\n").encode() in damaged]
    read = read_metrics(run)
    assert [line for line in read if line in whole] == whole
