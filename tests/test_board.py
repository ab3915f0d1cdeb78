"""Event files for TensorBoard hold the losses, the validation scores and pictures."""

import struct
import sys

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from mtnet.build import init_members
from mtnet.cli import main
from mtnet.config import configure
from mtnet.report.board import FOLDER, Board
from mtnet.storage.run_folder import Run
from mtnet.training.loop import Progress

TINY = {"width": 4, "depth": 1, "meta_batch": 2, "iterations": 6}


def events(folder):
    """(step, tag, value) of every entry; the value of a picture is its width."""
    (path,) = folder.glob("events*")
    data, found = path.read_bytes(), []
    while data:  # each record: its length, a checksum, the event, a checksum
        (length,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12 : 12 + length])
        data = data[16 + length :]
        for value in event.summary.value:
            shown = value.image.width if value.HasField("image") else value.simple_value
            found.append((event.step, value.tag, shown))
    return found


def test_losses_scores_and_pictures_of_every_member(tmp_path):
    config = configure(method="maml", seeds=(0, 3), **TINY)
    theta = init_members(config).theta
    with Board(Run(tmp_path, config)) as board:
        board.show(Progress(2, np.array([4.0, 5.0]), None, theta))
        board.show(Progress(6, np.array([1.0, 2.0]), None, theta))
    found = events(tmp_path / FOLDER)
    assert [entry for entry in found if entry[1].startswith("loss")] == [
        (2, "loss/seed_0", 4.0),
        (2, "loss/seed_3", 5.0),
        (6, "loss/seed_0", 1.0),
        (6, "loss/seed_3", 2.0),
    ]
    ((step, _, width),) = [entry for entry in found if entry[1].startswith("tasks/")]
    assert step == 6
    assert width > 100


def test_a_run_without_iterations_leaves_no_folder(tmp_path):
    """So that the same command can use its folder again."""
    with Board(Run(tmp_path, configure(**TINY))):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "command", ["train --family sine", "fit rows.csv --task g --inputs x --target y"]
)
def test_without_the_extra_one_line_says_what_to_install(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert main([*command.split(), "--tensorboard"]) == 2
    assert "pip install 'mtnet[tensorboard]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
