"""Damaged files, two trainings in one folder, output that cannot be written: nothing is lost, and
whatever is wrong is one line."""

import json
import os
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from hypothesis import given, strategies as st

from mtnet.check_data import check_data, matches, read_json
from mtnet.cli import main
from mtnet.config import configure
from mtnet.datasets import cache, open_images
from mtnet.errors import InputError, printable
from mtnet.files import sweep, write_arrays, write_atomically
from mtnet.storage import run_folder
from mtnet.storage.checkpoints import list_checkpoints, save_state
from mtnet.storage.config_file import read_config
from mtnet.storage.lock import LOCK_FILE, is_locked, locked
from mtnet.training.loop import train
from mtnet.userdata.dataset import open_dataset

TINY = configure(width=2, depth=1, meta_batch=1, shots=2, queries=2, iterations=4, log_every=1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)


@pytest.fixture(autouse=True)
def single_precision():
    with jax.enable_x64(False):
        yield


def line(capsys):
    """What a command said to stderr: one line."""
    error = capsys.readouterr().err
    assert error.startswith("mtnet: ")
    assert error.count("\n") == 1
    return error


@given(JSON)
def test_a_shape_accepts_what_it_describes_and_nothing_else(value):
    def shape_of(value):
        if isinstance(value, dict):
            return {key: shape_of(v) for key, v in value.items() if not key.endswith("?")}
        if isinstance(value, list):
            return [tuple(shape_of(v) for v in value)] if value else []
        return None if value is None else type(value)

    finite = "NaN" not in json.dumps(value) and "Infinity" not in json.dumps(value)
    assert matches(value, shape_of(value)) or not finite
    assert not matches(value, {"no such key": int})
    with pytest.raises(InputError, match=r"^file: .*; write it again$"):
        check_data(
            {"a": [{"b": value}]}, {"a": [{"b": {"no such key": int}}]}, "file", "write it again"
        )


def test_a_wrong_value_is_named_by_file_key_and_remedy(tmp_path):
    (tmp_path / "x.json").write_text('{"rows": [{"mean": 1}, {"mean": "2"}]}')
    with pytest.raises(InputError, match=r"x\.json: rows\[1\]\.mean is '2', not a f.*; go"):
        read_json(tmp_path / "x.json", {"rows": [{"mean": float}]}, "go")
    for text in (b"\xff{}", b"{", b"[" * 100_000, b"", b"1" * 5000):
        (tmp_path / "x.json").write_bytes(text)
        with pytest.raises(InputError, match=r"x\.json is not") as info:
            read_json(tmp_path / "x.json", {}, "go")
        assert "\n" not in str(info.value)


@pytest.mark.parametrize("at", range(4))
def test_one_bad_byte_in_the_metrics_costs_one_line(tmp_path, at):
    """All others stay, the file as it was is kept, and the best network stays the best."""
    run = run_folder.create_run(tmp_path / "run", TINY)
    train(run)
    before = run_folder.read_metrics(run)
    lines = run.metrics.read_bytes().splitlines(keepends=True)
    lines[at] = b"\xff" + lines[at][1:]
    run.metrics.write_bytes(b"".join(lines))
    messages = []
    train(run, warn=messages.append)
    assert run_folder.read_metrics(run) == before[:at] + before[at + 1 :]
    assert f"line {at + 1} of {run.metrics} is damaged" in messages[0]
    assert (run.folder / "metrics.jsonl.damaged").read_bytes() == b"".join(lines)


def test_the_best_network_survives_the_loss_of_its_score(tmp_path, monkeypatch):
    """A later network with a lower score does not replace it."""
    scores = iter([3.0, 5.0, 4.0, 4.5])
    config = TINY.replace(iterations=2)
    run = run_folder.create_run(tmp_path / "run", config)
    validate = lambda state: np.array([-next(scores)])  # noqa: E731  (an error: lower is better)
    object.__setattr__(config.outer, "validate_every", 1)
    monkeypatch.setattr("mtnet.training.loop.compile_validation", lambda config: validate)
    monkeypatch.setattr("mtnet.training.loop._sign", lambda config: -1)
    train(run)
    assert list(list_checkpoints(run.best)) == [2]
    lines = run.metrics.read_bytes().splitlines(keepends=True)
    run.metrics.write_bytes(lines[0] + b"\xff" + lines[1])
    object.__setattr__(config.outer, "iterations", 4)
    train(run, warn=lambda _: None)
    assert list(list_checkpoints(run.best)) == [2]


@pytest.mark.parametrize(
    "text", [b"\xff", b"[]", b"{", b'{"data": 3}', b'{"seeds": [1e99]}', b'{"width": 1e5}', b"null"]
)
def test_a_wrong_config_is_one_line(tmp_path, text, capsys):
    (tmp_path / "config.json").write_bytes(text)
    with pytest.raises(InputError, match=r"config\.json"):
        read_config(tmp_path / "config.json")
    for command in (["train", "--resume", tmp_path], ["export", tmp_path, tmp_path / "x"]):
        assert main(list(map(str, command))) == 2
        assert "config.json" in line(capsys)


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({}, "splits is missing"),
        ({"splits": {"train": ["a"], "validation": [], "test": [1]}}, r"splits\.test\[0\]"),
        ({"splits": {"train": ["a"], "validation": [], "test": []}}, "its arrays"),
    ],
)
def test_a_wrong_header_of_a_dataset_is_one_line(tmp_path, about, says):
    path = tmp_path / "data.safetensors"
    write_arrays(path, "dataset", {"x": np.zeros((3, 1)), "count": np.int32([3])}, about=about)
    with pytest.raises(InputError, match=says):
        open_dataset(str(path))


def test_a_wrong_header_of_a_model_is_one_line(tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    spec = {"kind": "mlp", "inputs": [1], "outputs": 1, "width": 2, "depth": 1, "pool": False}
    about = {"spec": spec, "frozen_stats": False, "compact": False, "method": "maml", "cells": {}}
    wrong = [None, [], {}, about | {"spec": spec | {"depth": 10**9}}, about | {"kind": "table"}]
    wrong += [about | {"spec": spec | {"kind": "x"}}, about | {"spec": spec | {"inputs": []}}]
    for about in wrong:
        write_arrays(path, "model", {}, about=about)
        assert main(["predict", str(path), "rows.csv"]) == 2
        assert "model.safetensors" in line(capsys)


def test_a_changed_image_set_is_noticed_when_it_is_opened(tmp_path, monkeypatch):
    """The checksum is computed once per file, and again if size, time or inode differ."""
    monkeypatch.setenv("MTNET_CACHE", str(tmp_path))
    splits = {"train": ["a"], "validation": ["b"], "test": ["c"]}
    blocks = np.arange(12, dtype=np.uint8).reshape(3, 2, 2, 1, 1)
    cache.write_images("toys", blocks, blocks.shape, splits, "here")
    computed = []
    digest = cache.digest
    monkeypatch.setattr(cache, "digest", lambda pixels: computed.append(1) or digest(pixels))
    for _ in range(3):
        np.testing.assert_array_equal(open_images("toys", "test").pixels[0], blocks[2])
    assert len(computed) == 1
    file = cache.folder("toys") / "images.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    time.sleep(0.01)
    file.write_bytes(data)
    for _ in range(2):
        with pytest.raises(InputError, match="checksum is wrong"):
            open_images("toys", "train")


def test_a_second_training_is_told_who_holds_the_folder(tmp_path, capsys):
    run = run_folder.create_run(tmp_path / "run", TINY)
    hold = (
        "import sys; from pathlib import Path; from mtnet.storage.lock import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(run.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout.readline() == b"held\n"
            assert is_locked(run.folder)
            assert main(["train", "--resume", str(run.folder)]) == 2
            assert f"in use by process {holder.pid} on " in line(capsys)
            assert not run_folder.is_free(run.folder, TINY)
        finally:
            holder.kill()
        holder.wait()
    assert not is_locked(run.folder)  # the kernel has released it
    assert run_folder.is_free(run.folder, TINY)
    with locked(run.folder), pytest.raises(InputError, match="in use"), locked(run.folder):
        pass


def test_left_over_temporary_files_are_deleted(tmp_path):
    run = run_folder.create_run(tmp_path / "run", TINY)
    save_state(run.checkpoints, 9, {"a": np.zeros(1)})
    (run.checkpoints / "000000009.safetensors").unlink()
    left = [run.folder / ".config.json.99", run.checkpoints / ".000000001.safetensors.99"]
    for path in left:
        path.write_text("")
    (run.folder / ".notes").write_text("mine")
    train(run)
    assert not any(path.exists() for path in left)
    assert (run.folder / ".notes").exists()
    assert (run.folder / LOCK_FILE).exists()


def test_writing_deletes_old_temporary_files_of_the_same_name_only(tmp_path):
    old, new, other = (tmp_path / name for name in (".a[1].99", ".a[1].98", ".b.97"))
    for path in (old, new, other):
        path.write_text("")
    for path in (old, other):
        os.utime(path, (time.time() - 7200,) * 2)
    write_atomically(tmp_path / "a[1]", b"")
    assert [path.exists() for path in (old, new, other)] == [False, True, True]
    sweep(tmp_path)
    assert os.listdir(tmp_path) == ["a[1]"]


@pytest.mark.parametrize("arguments", ["--version", "--help", "list", "train --help", "data"])
def test_a_full_device_is_one_line(arguments):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "mtnet", *arguments.split()]
        told = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert told.returncode == 1
    assert told.stderr == "mtnet: cannot read or write output: No space left on device\n"


def test_texts_of_users_are_no_markup(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "[/bold][red]:smile:"
    run_folder.create_run(tmp_path / name, TINY)
    assert main(["train", "--resume", name]) == 0
    assert name in capsys.readouterr().out.replace("\n", "")
    assert main(["export", name, "[/x]"]) == 0
    assert "[/x].safetensors" in capsys.readouterr().out
    assert main(["evaluate", "[/bold]"]) == 2
    assert "[/bold]" in line(capsys)


@pytest.mark.parametrize(
    "arguments",
    [
        "evaluate RUN --tasks 999999999999999999999",
        "compare RUN RUN --tasks 999999999999999999999",
        "reproduce table1 --tasks 999999999999999999999",
        "train --width 999999999999999999999",
        "train --seeds 999999999999999999999",
        "train --depth 99999999",
        "data show omniglot --episodes 999999999999999999999",
    ],
)
def test_numbers_that_are_too_large_are_one_line(tmp_path, arguments, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_folder.create_run(tmp_path / "RUN", TINY)
    assert main(arguments.split()) == 2
    assert "9999" in line(capsys)


@given(st.text())
def test_a_message_is_one_printable_line(text):
    assert printable(text).isprintable()
    assert printable(text) == text or not text.isprintable()
