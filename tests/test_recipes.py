"""The recipes of CONTRIBUTING.md work: applied literally to a copy of the source, then used."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
RECIPE = re.compile(r"```python\n# (src/\S+?\.py)(?:: add to (\w+))?\n(.*?)```", re.DOTALL)

USE = """
import contextlib
import io
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
from PIL import Image

from mtnet.cli import main
from mtnet.datasets import IMAGE_SETS
from mtnet.experiments import EXPERIMENTS
from mtnet.experiments.table1 import TABLE1
from mtnet.tasks import FAMILIES


def run(*arguments):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main([str(a) for a in arguments])
    assert status == 0, arguments
    return printed.getvalue()


key = jax.random.key(0)
family = FAMILIES["lines"].make(shots=3, queries=2)
assert eqx.tree_equal(family.sample(key), family.sample(key))
assert not eqx.tree_equal(family.sample(key), family.sample(jax.random.key(1)))

# Nothing joins the published experiments by itself.
assert {c.method for c in TABLE1.trainings(True, 1).values()}.isdisjoint({"masked-sgd"})

listed = run("list")
for name in ("masked-sgd", "offset", "lines", "shapes", "table-lines"):
    assert name in listed, name

draw = np.random.default_rng(0)
for label in range(12):
    folder = Path("shapes", f"{label:02}")
    folder.mkdir(parents=True)
    for i in range(4):
        Image.fromarray(draw.integers(0, 255, (16, 16), np.uint8)).save(folder / f"{i}.png")
run("data", "get", "shapes", "--from", ".")
assert "shapes" in IMAGE_SETS

small = ("--iterations", 1, "--meta-batch", 2)
net = ("--width", 4, "--depth", 1)
run("train", "--method", "masked-sgd", "--family", "lines", *net, *small, "--out", "runs/a")
run("train", "--method", "offset", "--family", "lines", *net, *small, "--out", "runs/b")
few = ("--filters", 4, *small)
run("train", "--method", "prototypical", "--family", "shapes", *few, "--out", "runs/c")

run("evaluate", "runs/b", "--tasks", 20, "--steps", 1, "--shots", 3)

configs = EXPERIMENTS["table-lines"].trainings(True, 1)
assert [c.family for c in configs.values()] == ["lines", "lines"]
assert len(EXPERIMENTS["table-lines"].rows(configs)) == 4
"""


def insert(path: Path, registry: str, block: str) -> None:
    """Add the import lines of a block to the imports, the others to the registry."""
    text = path.read_text()
    lines = [line for line in block.splitlines() if line]
    imports = [line for line in lines if line.startswith(("from ", "import "))]
    entry = "\n".join(line for line in lines if line not in imports).removesuffix(",") + ","
    for node in ast.parse(text).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == registry and node.value:
                at = _end_of_literal(text, node.value)
                break
    else:
        raise AssertionError(f"{path} has no {registry}")
    comma = "" if text[:at].rstrip().endswith((",", "{", "(", "[")) else ","
    text = f"{text[:at]}{comma}\n{entry}\n{text[at:]}"
    first = re.search(r"^(from|import) ", text, re.MULTILINE)
    assert first
    added = "".join(f"{line}\n" for line in imports)
    path.write_text(text[: first.start()] + added + text[first.start() :])


def _end_of_literal(text: str, value: ast.expr) -> int:
    """Where the outermost dictionary, tuple or list of an expression closes."""
    literal = next(n for n in ast.walk(value) if isinstance(n, (ast.Dict, ast.Tuple, ast.List)))
    assert literal.end_lineno
    assert literal.end_col_offset
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    line = text.splitlines()[literal.end_lineno - 1]
    column = len(line.encode()[: literal.end_col_offset].decode())
    return starts[literal.end_lineno - 1] + column - 1


def test_recipes_of_contributing_work(tmp_path):
    shutil.copytree(
        ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    recipes = RECIPE.findall((ROOT / "CONTRIBUTING.md").read_text())
    kinds = {registry for _, registry, _ in recipes if registry}
    assert kinds == {"RULES", "METHODS", "FAMILIES", "IMAGE_SETS", "EXPERIMENTS"}
    for name, registry, block in recipes:
        path = tmp_path / name
        if registry:
            insert(path, registry, block)
        else:
            assert not path.exists(), f"{name} exists already"
            path.write_text(block)
    environment = os.environ | {
        "PYTHONPATH": str(tmp_path / "src"),
        "MTNET_CACHE": str(tmp_path / "cache"),
    }
    laws = ["-m", "pytest", str(ROOT / "tests/test_laws.py"), "-k", "masked-sgd or offset"]
    for arguments in (["-c", USE], [*laws, "-n", "0", "-p", "no:cacheprovider"]):
        told = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert told.returncode == 0, told.stdout + told.stderr
