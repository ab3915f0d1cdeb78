"""Plain layers, applied with NumPy, are the network that JAX applies."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import shaken

from mtnet import Batch
from mtnet.core.adapt import adapt, predict_compiled
from mtnet.core.norms import freeze_batch_stats
from mtnet.files import arrays_of
from mtnet.methods import make
from mtnet.nets.spec import NetSpec, build_net
from mtnet.plain.apply import apply_layers, softmax
from mtnet.plain.batches import Support, batch_outputs, compare, trained_layers
from mtnet.plain.layers import plain_layers

TABLES = {
    "one hidden layer": NetSpec("mlp", (3,), 2, 5, depth=1),
    "three hidden layers": NetSpec("mlp", (3,), 2, 5, depth=3),
    "a corrected prediction": NetSpec("mlp", (3,), 1, 4, depth=2, skip=True),
}
IMAGES = {
    "strides": NetSpec("conv4", (2, 9, 14), 3, 4),
    "pooling": NetSpec("conv4", (3, 35, 18), 3, 4, pool=True),
    "centred": NetSpec("conv4", (2, 9, 14), 3, 4, centre=True),
    "pooling, centred": NetSpec("conv4", (3, 35, 18), 3, 4, pool=True, centre=True),
    "folded, centred": NetSpec("conv4", (3, 35, 18), 3, 4, pool=True, norms=False, centre=True),
}
ROWS, WAYS = 7, 3


def network(spec, seed=0):
    """The network with random weights."""
    arrays, static = eqx.partition(build_net(spec), eqx.is_inexact_array)
    return eqx.combine(shaken(arrays, seed, size=0.5), static)


def inputs(spec, rows=ROWS, seed=1):
    return np.asarray(jax.random.normal(jax.random.key(seed), (rows, *spec.inputs)))


def header(spec, **more):
    return {"spec": spec._asdict(), "frozen_stats": True, "method": "mt-net"} | more


def assert_same(found, net, x):
    np.testing.assert_allclose(found, predict_compiled(net, jnp.asarray(x)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("spec", TABLES.values(), ids=TABLES)
def test_perceptrons(spec):
    net, x = network(spec), inputs(spec)
    assert_same(apply_layers(plain_layers(arrays_of(net), header(spec)), x), net, x)


@pytest.mark.parametrize("spec", IMAGES.values(), ids=IMAGES)
def test_images_with_norms_as_part_of_their_convolution_or_of_the_batch(spec):
    net, x = network(spec), inputs(spec)
    frozen = eqx.filter_jit(freeze_batch_stats)(net, jnp.asarray(inputs(spec, seed=2)))
    layers = plain_layers(arrays_of(frozen), header(spec))
    assert_same(apply_layers(layers, x), frozen, x)
    together = header(spec, frozen_stats=False)
    assert plain_layers(arrays_of(net), together) is None
    assert_same(batch_outputs(arrays_of(net), together)(x), net, x)


def test_images_without_norms_need_no_other_images():
    spec = IMAGES["strides"]._replace(norms=False)
    net, x = network(spec), inputs(spec)
    for frozen in (True, False):
        about = header(spec, frozen_stats=frozen)
        assert_same(apply_layers(plain_layers(arrays_of(net), about), x), net, x)


CASES = [
    (TABLES["one hidden layer"], "prototypical", "inductive"),
    (TABLES["one hidden layer"]._replace(skip=True), "prototypical", "inductive"),
    (TABLES["three hidden layers"], "matching", "transductive"),
    (TABLES["three hidden layers"]._replace(skip=True), "matching", "transductive"),
    (IMAGES["strides"], "prototypical", "transductive"),
    (IMAGES["strides"], "matching", "inductive"),
    (IMAGES["pooling"], "prototypical", "inductive"),
]


@pytest.mark.parametrize(("spec", "method", "statistics"), CASES)
def test_methods_that_compare_features(spec, method, statistics):
    """Probabilities are the same: a class mean is a row of a linear layer."""
    spec = spec._replace(outputs=None)
    theta, net, support, x = adapted(
        make(method, network(spec), ways=WAYS, statistics=statistics), spec
    )
    memory = {"ways": WAYS, "rows": ROWS, "statistics": statistics}
    about = header(spec, method=method, memory=memory)
    expected = jax.nn.softmax(predict_compiled(net, jnp.asarray(x)))
    layers = plain_layers(arrays_of(net), about)
    assert (layers is None) == (spec.kind == "conv4" and statistics == "transductive")
    found = apply_layers(layers, x) if layers else batch_outputs(arrays_of(net), about)(x)
    np.testing.assert_allclose(softmax(found), expected, rtol=1e-8, atol=1e-12)
    if spec.kind == "conv4":  # the same from meta-parameters and examples, as `mtnet classify`
        layers = trained_layers(arrays_of(theta), spec)
        found = compare(method, layers, support, x, together=statistics == "transductive")
        np.testing.assert_allclose(softmax(found), expected, rtol=1e-8, atol=1e-12)


def adapted(learner, spec):
    """Meta-parameters, the predictor of a task, its examples, and queries."""
    support = Support(inputs(spec, seed=3), np.arange(ROWS, dtype=np.int32) % WAYS, WAYS)
    theta = eqx.filter_jit(learner.init)(jax.random.key(0))
    batch = Batch(jnp.asarray(support.x), jnp.asarray(support.y))
    net = adapt(learner, theta, batch, jax.random.key(0))
    return theta, net, support, inputs(spec, rows=4)


def test_the_nearest_neighbour():
    spec = IMAGES["strides"]._replace(outputs=None)
    learner = make("nearest-neighbour", network(spec), ways=WAYS, features=4, outputs=6)
    theta, net, support, x = adapted(learner, spec)
    layers = trained_layers(arrays_of(theta), spec)
    assert_same(compare("nearest-neighbour", layers, support, x, together=True), net, x)


def test_arrays_of_another_network_are_refused():
    spec = TABLES["one hidden layer"]
    arrays = arrays_of(network(spec))
    for wrong in (spec._replace(width=6), spec._replace(depth=2), spec._replace(inputs=(4,))):
        with pytest.raises(ValueError, match=r"\.layers\["):
            plain_layers(arrays, header(wrong))
