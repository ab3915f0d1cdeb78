"""The graphs of the static page learn what the server learns."""

import jax
import numpy as np
import pytest

from mtnet.build import build_learner
from mtnet.config import configure
from mtnet.errors import InputError
from mtnet.serve.networks import CURVE, PICTURES, _served
from mtnet.serve.programs import Programs
from mtnet.static_page import check
from mtnet.static_page.check import (
    checked_graphs,
    graph_answer,
    graph_files,
    random_tasks,
    served_answer,
)
from mtnet.userdata.schema import to_plain


def small(steps=2, **settings):
    """A small network with random weights, T, masks and offsets."""
    images = settings["family"] == "omniglot"
    config = configure(statistics="inductive", **settings | ({"filters": 4} if images else {}))
    theta = build_learner(config).init(jax.random.key(1))
    keys = iter(jax.random.split(jax.random.key(2), 100))
    theta = jax.tree.map(lambda a: a + 0.1 * jax.random.normal(next(keys), a.shape), theta)
    inputs = PICTURES["omniglot"] if images else {"kind": "table", "schema": to_plain(CURVE)}
    return _served("small", "small", config, theta, inputs, steps, {}, 1.7, {})


SINE = {"family": "sine", "width": 6, "alpha": 0.1}
NETWORKS = {
    "any classes": {"family": "omniglot", "method": "mt-net", "shared_head": True, "alpha": 2.0},
    "five classes": {"family": "omniglot", "method": "mt-net", "ways": 5, "steps": 1},
    "class means": {"family": "omniglot", "method": "prototypical"},
    "plain": SINE | {"method": "maml"},
    "rates": SINE | {"method": "meta-sgd"},
    "full masks": SINE | {"method": "mt-net-full", "draw": "step"},
    "invariant": SINE | {"method": "t-net", "invariant": 0.02},
}


@pytest.mark.parametrize("settings", NETWORKS.values(), ids=NETWORKS)
def test_the_graphs_learn_what_the_server_learns(settings):
    with jax.enable_x64(False):
        network = small(**settings)
        files, programs = graph_files(network), Programs(network)
        for task, queries in random_tasks(network, np.random.default_rng(7)):
            expected, _ = served_answer(programs, task, queries)
            found = graph_answer(files, task, queries)
            np.testing.assert_allclose(found.predictions, expected.predictions, atol=1e-4)
            np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(found.moved, expected.moved, rtol=1e-3, atol=1e-6)
            if network.steps and len(expected.losses) > 1:  # there was something to learn
                assert np.abs(expected.predictions[-1] - expected.predictions[0]).max() > 1e-2


def test_a_graph_that_differs_is_not_written(monkeypatch):
    with jax.enable_x64(False):
        network = small(family="sine", method="maml", width=6)
        theta = network.theta
        other = theta._replace(W=jax.tree.map(lambda w: 1.01 * w, theta.W))
        wrong = check.learn_graph(network._replace(theta=other))
        monkeypatch.setattr(check, "learn_graph", lambda _: wrong)
        with pytest.raises(InputError, match="differ from the network by"):
            checked_graphs(network)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"family": "omniglot", "method": "matching"}, "which does not learn in a browser"),
        ({"family": "omniglot", "method": "maml", "pool": True}, "is for no tab of the page"),
    ],
)
def test_other_networks_are_refused(settings, says):
    with pytest.raises(InputError, match=says):
        graph_files(small(**settings))
