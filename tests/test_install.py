"""What an installation without extras can do, and what it says where it cannot."""

import subprocess
import sys

import pytest

EXTRA = ("tyro", "rich", "PIL", "matplotlib", "pyarrow", "sklearn")
BLOCK = f"""
import sys
for name in {EXTRA!r}:
    sys.modules[name] = None  # importing it raises ModuleNotFoundError
"""


def python(code):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_import_mtnet_brings_in_no_extra():
    code = """
import sys
import jax, equinox, optax
before = {name for name in sys.modules if name.startswith("scipy")}
import mtnet.api
after = {name for name in sys.modules if name.startswith("scipy")}
print(sorted(after - before), [name for name in %r if name in sys.modules])
"""
    result = python(code % (EXTRA,))
    assert result.stdout.strip() == "[] []", result.stderr


def test_the_library_works_without_extras():
    code = """
import mtnet
network = mtnet.load("omniglot-5way-mt-net")
print(network.config.family)
"""
    result = python(BLOCK + code)
    assert result.stdout.strip() == "omniglot", result.stderr


def test_estimators_need_scikit_learn_only():
    code = """
import sys
del sys.modules["sklearn"]
import mtnet
print(mtnet.MTNetRegressor.__name__)
"""
    result = python(BLOCK + code)
    assert result.stdout.strip() == "MTNetRegressor", result.stderr


@pytest.mark.parametrize("command", ["train", "fit x.csv", "list", "data get omniglot"])
def test_a_command_without_its_extra_says_what_to_install(command):
    code = f"from mtnet.cli import main\nsys.exit(main({command.split()!r}))"
    result = python(BLOCK + code)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("mtnet: this command needs ")
    assert result.stderr.strip().endswith(": pip install 'mtnet[cli]'")


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_help_and_version_need_no_extra(option):
    result = python(BLOCK + f"from mtnet.cli import main\nsys.exit(main([{option!r}]))")
    assert result.returncode == 0
    assert "mtnet" in result.stdout


def test_the_command_runs_as_installed():
    result = subprocess.run(
        [sys.executable, "-m", "mtnet.cli", "trian"], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 2
    assert result.stderr == "mtnet: there is no command called 'trian'; did you mean train?\n"
