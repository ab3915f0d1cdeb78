"""Fine-tuning (Ravi & Larochelle 2017), and its settings chosen on validation tasks."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import arrays, assert_close, shaken

from mtnet import Batch, cross_entropy
from mtnet.config import configure
from mtnet.core.types import SPLITS
from mtnet.evaluation import choose, measure
from mtnet.methods import METHODS, make

KEY = jax.random.key(7)
SUPPORT = Batch(jax.random.normal(KEY, (5, 2)), jnp.array([0, 1, 2, 2, 1]))
NET = eqx.nn.MLP(2, 4, 5, 1, activation=jnp.tanh, key=jax.random.key(1))


@pytest.mark.parametrize("head_only", [False, True])
def test_fine_tuning_is_gradient_descent_on_network_and_new_head(head_only):
    """Step t has size alpha decay^t; the head starts at zero, the network as pretrained."""
    alpha, decay, steps = 0.5, 0.7, 3
    options = {"alpha": alpha, "decay": decay, "steps": steps, "head_only": head_only}
    made = make("fine-tune", NET, features=4, outputs=6, ways=3, **options)
    theta = shaken(made.init(KEY))

    @jax.jit
    def slope(net, W, b):
        def loss(parameters):
            net, W, b = parameters
            f = jax.vmap(eqx.combine(net, NET))(SUPPORT.x)
            return cross_entropy(f @ W.T + b, SUPPORT.y)

        return jax.grad(loss)((net, W, b))

    parameters = theta.net, jnp.zeros((3, 4)), jnp.zeros(3)
    for t in range(steps):
        down = lambda w, g, t=t: w - alpha * decay**t * g  # noqa: E731
        moved = jax.tree.map(down, parameters, slope(*parameters))
        parameters = (theta.net, *moved[1:]) if head_only else moved
    model = eqx.filter_jit(made.adapt)(theta, SUPPORT, KEY)
    assert_close((arrays(model.net), model.W, model.b), parameters)


def test_the_settings_of_fine_tuning_belong_to_it_alone():
    names = {"decay", "head_only"}
    assert [name for name, method in METHODS.items() if names & method.takes] == ["fine-tune"]


CONFIG = configure(
    **{"method": "fine-tune", "family": "omniglot", "ways": 2, "filters": 2, "queries": 1},
    **{"alpha": 0.1, "steps": 1, "rotations": False},
)
GRID = [
    {"alpha": alpha, "decay": decay, "steps": steps}
    for alpha in (0.1, 5.0)
    for decay in (1.0, 0.5)
    for steps in (0, 2)
]


@pytest.fixture
def theta(monkeypatch):
    """An untrained network, and classes of noise in every split."""
    pixels = np.random.default_rng(0).integers(0, 255, (4, 3, 28, 28, 1)).astype(np.uint8)
    load = lambda config, split: jnp.asarray(pixels) + SPLITS.index(split)  # noqa: E731
    monkeypatch.setattr(measure, "load_data", load)
    theta = measure.build_learner(CONFIG).init(KEY)
    return jax.tree.map(lambda a: a[None], theta)


def test_a_grid_measures_each_setting_as_if_it_were_the_config(theta):
    measured = choose.measure_grid(CONFIG, theta, GRID, tasks=3)
    assert [{k: m[k] for k in GRID[0]} for m in measured] == GRID
    last, config = measured[-1], CONFIG.replace(**GRID[-1])
    score = measure.compile_scores(config, "validation", tasks=3, steps=last["steps"])
    network, key = jax.tree.map(lambda a: a[0], theta), jax.random.key(choose.SEED)
    alone = score(network, last["alpha"], key)
    np.testing.assert_allclose(last["validation"], alone[:, -1].mean(), rtol=1e-6)
    assert measured[0]["validation"] == measured[4]["validation"]  # no steps: alpha is not used


def test_the_best_settings_win_and_the_first_of_equals():
    scores = [20.0, 50.0, None, 50.0]
    measured = [g | {"validation": v, "ci95": 1.0} for g, v in zip(GRID, scores, strict=False)]
    assert choose.best_settings(CONFIG, measured) == GRID[1]
    errors = configure(method="fine-tune", family="sine")
    assert choose.best_settings(errors, measured) == GRID[0]
    unknown = [g | {"validation": None, "ci95": None} for g in GRID]
    assert choose.best_settings(CONFIG, unknown) == GRID[0]
