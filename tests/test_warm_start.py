"""Training from the body of another network, and augmented images."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, shaken

from mtnet import Batch, InputError, predict
from mtnet.build import build_learner, init_members
from mtnet.config import configure
from mtnet.core.norms import freeze_batch_stats
from mtnet.experiments import EXPERIMENTS
from mtnet.experiments.run import Plan
from mtnet.methods.body import put_body, scale_body, take_body
from mtnet.storage import networks
from mtnet.storage.networks import load_body, save_network
from mtnet.tasks.episodes import image_episodes, vary

KEY = jax.random.key(7)
SETTINGS = {"family": "omniglot", "filters": 2, "ways": 3, "meta_batch": 1}
SOURCES = ("mt-net", "meta-sgd", "prototypical", "nearest-neighbour")


def theta_of(method, key):
    return build_learner(configure(method=method, **SETTINGS)).init(key)


def shaken_theta(method):
    """Meta-parameters away from their initial values, T included."""
    return shaken(theta_of(method, KEY))


def features(method, theta):
    """Of the plain network with the meta-parameters' body; `prototypical` has no head."""
    body = take_body(theta, "head")
    plain = put_body(theta_of("prototypical", jax.random.key(9)), body)
    return plain.net


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", SOURCES)
def test_a_body_is_the_same_network_in_every_method(source, target):
    old = shaken_theta(source)
    new = put_body(theta_of(target, jax.random.key(5)), take_body(old, "head"))
    assert_close(features(target, new), features(source, old))


@pytest.mark.parametrize("target", ["mt-net", "nearest-neighbour"])
def test_the_head_is_drawn_anew(target):
    body = take_body(shaken_theta("mt-net"), "head")
    assert "head" not in body.W
    fresh = theta_of(target, jax.random.key(5))
    new = put_body(fresh, body)
    if target == "mt-net":
        assert_close((new.W["head"], new.T, new.zeta), (fresh.W["head"], fresh.T, fresh.zeta))
    else:
        assert_close((new.W, new.b), (fresh.W, fresh.b))


@pytest.mark.parametrize("method", ["maml", "meta-sgd", "t-net", "mt-net", "mt-net-full"])
def test_a_body_of_the_same_method_brings_what_else_it_learned(method, tmp_path):
    """With as many classes and the head copied too, nothing is lost: all of theta is the same."""
    file, old = tmp_path / "body.safetensors", shaken_theta(method)
    save_network(file, configure(method=method, **SETTINGS), old, {})
    body = load_body(configure(method=method, init_from=str(file), **SETTINGS))
    fresh = theta_of(method, jax.random.key(5))
    new = put_body(fresh, body)
    for name in ("W", "T", "zeta", "alpha"):
        mine, theirs = getattr(new, name), getattr(old, name)
        assert_close(mine, theirs | {c: getattr(fresh, name)[c] for c in mine if c == "head"})
    assert_close(new.rest, old.rest)


def test_training_starts_from_a_file(tmp_path):
    file = tmp_path / "body.safetensors"
    source, theta = configure(method="prototypical", **SETTINGS), shaken_theta("prototypical")
    save_network(file, source, theta, {})
    config = configure(method="mt-net", init_from=str(file), seeds=(0, 1), **SETTINGS)
    state = init_members(config, load_body(config))
    for member in range(2):
        mine = jax.tree.map(lambda a: a[member], state.theta)  # noqa: B023
        assert_close(features("mt-net", mine), theta.net)
    heads = state.theta.W["head"][0]
    assert not np.array_equal(heads[0], heads[1])


@pytest.mark.parametrize("method", ["maml", "mt-net", "meta-sgd"])
def test_a_scaled_body_computes_the_same_and_moves_less(method):
    """Relative to its size, one inner step moves it by 1 / factor^2; norms cancel the factor."""
    factor = 7.0
    learner = build_learner(configure(method=method, alpha=1e-4, **SETTINGS))
    theta = learner.init(KEY)
    body = take_body(theta, "head")
    support = Batch(jax.random.normal(KEY, (6, 1, 28, 28)), jnp.arange(6) % 3)

    def outputs_and_move(theta):
        models = learner.trajectory(theta, support, KEY, 1)
        first = jax.tree.map(lambda a: a[0] if eqx.is_array(a) else a, models)
        W0, W1 = models.convolutions[2].weight
        return predict(first, support.x), jnp.linalg.norm(W1 - W0) / jnp.linalg.norm(W0)

    y, move = outputs_and_move(theta)
    scaled_y, scaled_move = outputs_and_move(put_body(theta, scale_body(body, factor)))
    np.testing.assert_allclose(scaled_y, y, rtol=0.05, atol=0.05)
    np.testing.assert_allclose(scaled_move * factor**2, move, rtol=0.1)


@pytest.mark.parametrize("source", ["mt-net", "prototypical"])
def test_a_body_with_folded_norms_is_the_body_with_fixed_norms(source, tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 255, (6, 9, 28, 28, 1), dtype=np.uint8)
    monkeypatch.setattr(networks, "load_data", lambda config: jnp.asarray(pixels))
    file, theta = tmp_path / "body.safetensors", shaken_theta(source)
    save_network(file, configure(method=source, **SETTINGS), theta, {})
    fold = {"init_from": str(file), "fold_norms": True}
    body = load_body(configure(method="mt-net", **fold, **SETTINGS))
    learner = build_learner(configure(method="prototypical", **fold, **SETTINGS))
    folded = put_body(learner.init(KEY), body).net
    x = jnp.asarray(pixels.reshape(-1, 1, 28, 28)) / 255.0
    frozen = freeze_batch_stats(features(source, theta), x)  # as many of all, not of 256
    np.testing.assert_allclose(predict(folded, x), predict(frozen, x), rtol=0.2, atol=0.2)
    alone = jnp.stack([predict(folded, one[None])[0] for one in x[:3]])
    assert_close(alone, predict(folded, x)[:3])
    scaled = load_body(configure(method="mt-net", body_scale=3.0, **fold, **SETTINGS))
    assert_close(predict(put_body(learner.init(KEY), scaled).net, x), 3 * predict(folded, x))


def test_folded_norms_and_scales_are_of_a_body():
    with pytest.raises(InputError, match="add init_from"):
        configure(fold_norms=True, **SETTINGS)


def test_another_network_is_refused(tmp_path):
    file = tmp_path / "body.safetensors"
    save_network(file, configure(method="mt-net", **SETTINGS), shaken_theta("mt-net"), {})
    wider = configure(method="mt-net", init_from=str(file), **SETTINGS | {"filters": 4})
    with pytest.raises(InputError, match="init_from"):
        load_body(wider)
    with pytest.raises(InputError, match="init_from"):
        put_body(theta_of("meta-lstm", KEY), take_body(shaken_theta("mt-net"), "head"))


def test_varied_images_are_flipped_and_shifted():
    """Every row of the result is a row of the mirrored image, forwards or backwards."""
    image = np.arange(400).reshape(1, 20, 20, 1)
    many = vary(KEY, jnp.asarray(np.repeat(image, 64, 0)))
    padded = np.pad(image[0], [(2, 2), (2, 2), (0, 0)], mode="reflect")
    windows = [padded[i : i + 20, j : j + 20] for i in range(5) for j in range(5)]
    flipped = np.pad(image[0][:, ::-1], [(2, 2), (2, 2), (0, 0)], mode="reflect")
    windows += [flipped[i : i + 20, j : j + 20] for i in range(5) for j in range(5)]
    allowed = {w.tobytes() for w in map(np.ascontiguousarray, windows)}
    seen = {np.asarray(x, image.dtype).tobytes() for x in many}
    assert seen <= allowed
    assert len(seen) > 10


def test_augmented_episodes_differ_from_plain_ones():
    pixels = np.random.default_rng(0).integers(0, 255, (4, 3, 20, 20, 1), dtype=np.uint8)
    plain = image_episodes(pixels, ways=2).sample(KEY)
    varied = image_episodes(pixels, ways=2, augment=True).sample(KEY)
    assert plain.support.x.shape == varied.support.x.shape
    assert not np.array_equal(plain.support.x, varied.support.x)


def test_an_experiment_trains_first_what_others_start_from():
    """A training may start from another one of the experiment, by its name."""
    experiment = EXPERIMENTS["table3-mini-imagenet"]

    def trainings(quick, seeds):
        every = experiment.trainings(quick, seeds)
        first = {m: every[m].replace(init_from="nearest-neighbour") for m in ("mt-net", "maml")}
        return every | first

    places = (Path("runs"), Path("results"), "mtnet")
    methods = ("mt-net", "maml")
    plan = Plan(experiment._replace(trainings=trainings), *places, methods=methods)
    assert list(plan.sources) == ["nearest-neighbour"]
    [start] = {plan.trainings[m].net.init_from for m in methods}
    assert start.startswith("runs/nearest-neighbour-")
    assert not Plan(experiment, *places, methods=methods).sources


@pytest.mark.parametrize("column", ["omniglot-5way", "omniglot-20way", "mini-imagenet"])
def test_gradient_methods_are_compared_on_equal_terms(column):
    trainings = EXPERIMENTS[f"table3-{column}"].trainings(False, 1)
    gradient = [trainings[method] for method in ("maml", "meta-sgd", "t-net", "mt-net")]
    assert len({config.replace(method="maml") for config in gradient}) == 1
