"""Data that does not fit: one line that names the thing and the remedy."""

import inspect
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from helpers import small_net

import mtnet
from mtnet import Batch, InputError
from mtnet.methods import METHODS


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        (jnp.zeros((4, 3)), jnp.zeros((4, 2)), r"inputs of shape \(3,\)"),
        (jnp.zeros((4, 2)), jnp.zeros((4, 1)), r"targets have shape \(4, 1\)"),
        (jnp.zeros((4, 2)), jnp.zeros((3, 2)), "4 inputs and 3 targets"),
        (jnp.zeros((0, 2)), jnp.zeros((0, 2)), "empty"),
        (jnp.zeros((4, 2), int), jnp.zeros((4, 2)), r"astype\(float\)"),
    ],
    ids=["inputs", "targets", "counts", "empty", "integers"],
)
def test_a_support_set_that_does_not_fit(x, y, says):
    learner = mtnet.mt_net(small_net())
    theta = learner.init(jax.random.key(0))
    with pytest.raises(InputError, match=says) as caught:
        learner.adapt(theta, Batch(x, y), jax.random.key(1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("lr", "alpha"),
        ("inner_steps", "steps"),
        ("step_siz", "step_size"),
        ("first", "first_order"),
    ],
)
def test_an_unknown_option_suggests_the_known_one(option, meant):
    with pytest.raises(InputError, match=f"unknown option `{option}`; did you mean `{meant}`"):
        mtnet.mt_net(small_net(), **{option: 0.1})


@pytest.mark.parametrize("name", METHODS)
def test_every_method_refuses_an_unknown_option(name):
    with pytest.raises(InputError, match="unknown option `colour`"):
        METHODS[name].make(small_net(), colour=1)


def test_every_method_has_a_full_signature_and_says_what_it_takes():
    for method in METHODS.values():
        parameters = inspect.signature(method.make).parameters
        kinds = {p.kind for n, p in parameters.items() if n != "net"}
        assert kinds == {inspect.Parameter.KEYWORD_ONLY}
        assert all(f"{name}:" in method.make.__doc__ for name in parameters)


EIGHTH = """
from mtnet.core import rules
rules.RULES["tm-sgd"] = rules.Rule(T=True, mask="row", rates=True)

import jax, mtnet
from mtnet import methods
from mtnet.methods.gradient import by_rule
from mtnet.experiments.table1 import trainings
methods.METHODS["tm-sgd"] = methods.Method("both", by_rule("tm-sgd"))
learner = methods.make("tm-sgd", mtnet.mlp(1, 1, 4, 1), steps=1)
theta, episode = learner.init(jax.random.key(0)), mtnet.sine(3, 3).sample(jax.random.key(1))
slope = jax.jit(jax.grad(learner.loss))(theta, episode, jax.random.key(2))
assert slope.T and slope.zeta and slope.alpha
assert len(trainings(True, 1)) == 7, "Table 1 has seven rows"
"""


def test_an_eighth_rule_is_a_method_by_one_line_and_does_not_join_table_1():
    subprocess.run([sys.executable, "-c", EIGHTH], check=True)
