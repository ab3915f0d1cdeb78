"""The recipe of CONTRIBUTING for an image set: a description and a line in each of two tables."""

import jax
import pytest
from test_data_prepare import FILES, SETS, as_folders

from mtnet.cli import main
from mtnet.datasets import IMAGE_SETS
from mtnet.tasks import FAMILIES


@pytest.fixture
def originals(tmp_path, monkeypatch):
    """An image set called "birds", added as the recipe says; returns its original files."""
    monkeypatch.setenv("MTNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    images = SETS["mini-imagenet"]._replace(name="birds")
    monkeypatch.setitem(IMAGE_SETS, "birds", images)
    shape = (images.parts["train"], images.examples, *images.shape)
    monkeypatch.setitem(FAMILIES, "birds", FAMILIES["mini-imagenet"]._replace(shape=shape))
    (tmp_path / "originals").mkdir()
    return as_folders(tmp_path / "originals", FILES["mini-imagenet"])


def test_a_new_image_set_is_prepared_shown_and_trained_on(originals, capsys):
    assert main(["data", "get", "birds", "--from", str(originals)]) == 0
    assert main("data show birds --ways 2 --queries 1 --episodes 1".split()) == 0
    options = "--ways 2 --queries 2 --filters 2 --steps 1 --iterations 2 --meta-batch 1"
    more = "--log-every 1 --validate-every 2 --out run"
    with jax.enable_x64(False):
        assert main(f"train --family birds {options} {more}".split()) == 0
        assert main("evaluate run --tasks 4 --steps 1".split()) == 0
    assert "mt-net on birds" in capsys.readouterr().out
