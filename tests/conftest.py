"""Shapes and types are checked while the tests run, and numbers are float64."""

import atexit
import gc
import os
import shutil
import tempfile

# Programs that several tests (or the processes they start) compile are compiled once per run.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    folder = os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="mtnet-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
# Most of the time is compilation: compile quickly, here and in the processes that tests start.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
os.environ["XLA_FLAGS"] = " ".join(
    [
        "--xla_cpu_use_fusion_emitters=false",
        "--xla_cpu_parallel_codegen_split_count=1",
        os.environ.get("XLA_FLAGS", ""),  # a flag given twice has its last value
    ]
)

# Nothing is read from, or written to, the cache of the person who runs the tests.
os.environ["MTNET_CACHE"] = tempfile.mkdtemp(prefix="mtnet-cache-")

import jax
import jaxtyping
from hypothesis import settings

# With Python's threshold of 700 objects, collecting garbage takes a twentieth of the time.
gc.set_threshold(50_000)
jaxtyping.install_import_hook("mtnet", "beartype.beartype")
jax.config.update("jax_enable_x64", True)
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
