"""Commands answer at once: no JAX where none is needed, and few compilations where it is."""

import os
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close
from PIL import Image
from test_export import table_network

from mtnet import Batch, BatchNorm, adapted, t_net
from mtnet.adapted import Model, adapt_model
from mtnet.build import build_learner
from mtnet.config import configure
from mtnet.core.adapt import adapt
from mtnet.core.losses import cross_entropy, padded_cross_entropy, predict
from mtnet.core.padding import pad_rows, padded_size
from mtnet.methods import METHODS
from mtnet.program_cache import trim_programs
from mtnet.storage.models import save_model
from mtnet.tasks import FAMILIES
from mtnet.tasks.groups import Groups
from mtnet.userdata.dataset import write_dataset

WITHOUT = """
import sys
from mtnet.cli import main
for package in ("jax", "jaxlib", "equinox", "optax"):
    sys.modules[package] = None  # importing it fails
sys.exit(main(sys.argv[1:]))
"""


NEEDS_NONE = [
    "--help",
    "list",
    "predict model rows.csv",
    "classify --support a.png b.png --query a.png",
]


@pytest.mark.parametrize("words", NEEDS_NONE)
def test_these_need_no_jax(words, tmp_path):
    net, network = table_network()
    with jax.enable_x64(False):
        save_model(tmp_path / "model.safetensors", Model(net, network.about))
    (tmp_path / "rows.csv").write_text("day,kind\n1,a\n")
    for i, name in enumerate(("a.png", "b.png")):
        pixels = np.full((40, 40), 255, np.uint8)
        pixels[10:30, 10 + 8 * i : 14 + 8 * i] = 0
        Image.fromarray(pixels).save(tmp_path / name)
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT, *words.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_says_of_itself_is_true(name):
    """It is known without importing the method."""
    assert METHODS[name].shares_head == ("shared_head" in METHODS[name].takes)


def test_every_place_of_a_family_is_a_function():
    assert all(callable(family.make) for family in FAMILIES.values())


def table_config(tmp_path, classes, method):
    """A run on a table of six groups."""
    draw = np.random.default_rng(0)
    count = np.full(6, 24, np.int32)
    y = draw.integers(0, 3, 144).astype(np.int32) if classes else draw.normal(size=(144, 1))
    rows = Groups(draw.normal(size=(144, 2)), y, np.cumsum(count) - count, count)
    splits = {"train": [0, 1, 2, 3], "validation": [4], "test": [5]}
    path = tmp_path / "data.safetensors"
    write_dataset(path, rows, list("abcdef"), splits, classes=3 if classes else None)
    return configure(family="table", method=method, data=str(path), width=5, steps=3)


@pytest.mark.parametrize(("classes", "method"), [(False, "mt-net"), (True, "maml")])
def test_a_padded_support_set_gives_the_same_network_and_is_compiled_once(
    tmp_path, monkeypatch, classes, method
):
    config = table_config(tmp_path, classes, method)
    learner = build_learner(config)
    theta = jax.jit(learner.init)(jax.random.key(1))
    compiled = []

    def counted(*args, **options):
        compiled.append(args)
        return build_learner(*args, **options)

    monkeypatch.setattr(adapted, "build_learner", counted)
    draw = np.random.default_rng(1)
    for rows in (5, 8):
        y = draw.integers(0, 3, rows).astype(np.int32) if classes else draw.normal(size=(rows, 1))
        support = Batch(jnp.asarray(draw.normal(size=(rows, 2))), jnp.asarray(y))
        model = adapt_model(config, theta, support, None)
        assert_close(model.net, adapt(learner, theta, support, jax.random.key(adapted.KEY)))
    assert len(compiled) == 1


def test_padding_keeps_the_rows_and_adds_targets_that_do_not_count():
    assert [padded_size(n) for n in (1, 8, 9, 16, 17)] == [8, 8, 16, 16, 32]
    x, y = pad_rows(np.ones((3, 2)), np.arange(3), 8)
    assert (x[:3] == 1).all()
    assert y.tolist() == [0, 1, 2, *[-1] * 5]
    assert np.isnan(pad_rows(np.ones((3, 2)), np.ones((3, 1)), 8)[1][3:]).all()


def test_the_cache_keeps_what_was_used_last(tmp_path):
    for i in range(6):
        (tmp_path / f"{i}-cache").write_bytes(bytes(100))
        os.utime(tmp_path / f"{i}-cache", (1_000 + i, 1_000))
    os.utime(tmp_path / "0-cache", (2_000, 1_000))
    trim_programs(tmp_path, bound=350)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0-cache", "4-cache", "5-cache"]
    trim_programs(Path(tmp_path / "no such folder"), bound=0)


class Normed(eqx.Module):
    """Two layers with a norm between them."""

    first: eqx.nn.Linear
    norm: BatchNorm
    last: eqx.nn.Linear

    def __call__(self, x):
        return self.last(jnp.tanh(self.norm(self.first(x))))


@pytest.mark.parametrize("statistics", ["inductive", "transductive"])
def test_norms_do_not_count_the_examples_that_fill_up_a_support_set(statistics):
    keys = jax.random.split(jax.random.key(0), 4)
    first, last = eqx.nn.Linear(3, 4, key=keys[0]), eqx.nn.Linear(4, 3, key=keys[1])
    net = Normed(first, BatchNorm(4), last)
    x, y = jax.random.normal(keys[2], (5, 3)), jnp.array([0, 1, 2, 0, 1])
    options = {"steps": 2, "alpha": 0.3, "statistics": statistics}
    plain = t_net(net, loss=cross_entropy, **options)
    padded = t_net(net, loss=padded_cross_entropy, **options)
    theta, more = jax.jit(plain.init)(keys[3]), Batch(*map(jnp.asarray, pad_rows(x, y, 8)))
    found = adapt(padded, theta, more, keys[3])
    assert_close(found, adapt(plain, theta, Batch(x, y), keys[3]))
    without = predict(found, x)
    present = jnp.arange(8) < 5
    assert_close(predict(found, more.x, present=present.astype(float))[:5], without)
