"""Programs outside the package use names of mtnet that exist."""

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAMS = sorted(
    path for folder in ("bench", "examples", "tools") for path in (ROOT / folder).glob("*.py")
)


def mtnet_imports(source):
    """(module, name) of every import from mtnet; name None: the module itself."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            found += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
    return [(module, name) for module, name in found if module.split(".")[0] == "mtnet"]


def resolves(module, name):
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] == "mtnet":
            return False
        raise
    if name is None or hasattr(found, name):
        return True
    return hasattr(found, "__path__") and importlib.util.find_spec(f"{module}.{name}") is not None


def test_imports_that_do_not_resolve_are_found():
    source = "import mtnet.nowhere\nfrom mtnet.config import configure, preset\nimport numpy\n"
    found = mtnet_imports(source)
    assert [pair for pair in found if not resolves(*pair)] == [
        ("mtnet.nowhere", None),
        ("mtnet.config", "preset"),
    ]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_imports_from_mtnet_resolve(path):
    missing = [pair for pair in mtnet_imports(path.read_text()) if not resolves(*pair)]
    assert not missing


def test_there_are_programs_that_import_mtnet():
    folders = {p.parent.name for p in PROGRAMS if mtnet_imports(p.read_text())}
    assert folders == {"bench", "examples", "tools"}


def test_the_model_of_many_processes(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    model = importlib.import_module("scale_model")
    network = model.fit(0.001, 0.011, 4_000_000)  # two processes: one number, a million numbers
    assert model.exchange(2, 0, network) == pytest.approx(0.001)
    assert model.exchange(2, 4_000_000, network) == pytest.approx(0.011)
    counts = (2, 8, 64, 512)
    parts = [model.efficiency(n, 0.1, 1_000_000, network, 0.05) for n in counts]
    assert parts[0] < 1
    assert parts == sorted(parts, reverse=True)
    for n in counts:
        at = lambda work, n=n: model.efficiency(n, work, 1_000_000, network, 0.0)  # noqa: E731
        assert at(0.01) < at(0.1) < at(1e9)
        assert at(1e9) == pytest.approx(1)
        delayed = model.efficiency(n, 0.1, 1_000_000, network, 0.0, delay=0.1)
        assert 1 / delayed == pytest.approx(1 / at(0.1) + 1)  # as much time as the work
