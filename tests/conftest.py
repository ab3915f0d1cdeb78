"""Shapes and types are checked while the tests run, and numbers are float64."""

import os
import tempfile

# Programs that several tests (or the processes they start) compile are compiled once per run.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", tempfile.mkdtemp(prefix="mtnet-tests-"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")

# Nothing is read from, or written to, the cache of the person who runs the tests.
os.environ["MTNET_CACHE"] = tempfile.mkdtemp(prefix="mtnet-cache-")

import jax
import jaxtyping
from hypothesis import settings

jaxtyping.install_import_hook("mtnet", "beartype.beartype")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)  # most of the time is compilation
settings.register_profile("mtnet", deadline=None, derandomize=True, database=None, max_examples=25)
settings.load_profile("mtnet")

import helpers  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture(scope="session")
def net():
    """Two inputs, a hidden layer of five, two outputs, and a scale that is no cell."""
    return helpers.small_net()


@pytest.fixture(scope="session")
def episode():
    return helpers.small_episode()


@pytest.fixture
def unchecked():
    """Leave the type checks out: what is tested is our own answer to a wrong value."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
