"""What the documents say is true: their code runs, their numbers are those of results/."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from mtnet.report.markdown import document

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/images.md"])
def test_code_runs(name):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
    assert blocks
    namespace: dict = {}
    for block in blocks:
        exec(compile(block, name, "exec"), namespace)


def steps(text):
    """Python blocks and commands of a page, in order."""
    for found in re.finditer(
        r"```python\n(.*?)```|^    (mtnet [^\n]*)$", text, re.DOTALL | re.MULTILINE
    ):
        yield found.groups()


@pytest.mark.parametrize(
    "name", ["docs/your-network.md", "docs/your-table.md", "docs/your-pictures.md"]
)
def test_a_page_can_be_followed_from_top_to_bottom(name, tmp_path, monkeypatch):
    text = (ROOT / name).read_text()
    monkeypatch.chdir(tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    namespace: dict = {}
    for block, command in steps(text):
        if block:
            with jax.enable_x64(False):
                exec(compile(block, name, "exec"), namespace)
        else:
            told = subprocess.run(
                command,
                shell=True,
                env=os.environ | {"PATH": path},
                capture_output=True,
                text=True,
            )
            assert told.returncode == 0, f"{command}\n{told.stdout}{told.stderr}"


def test_results_page_is_what_the_results_give():
    results = [json.loads(p.read_text()) for p in sorted((ROOT / "results").glob("*.json"))]
    committed = [r for r in results if not r["protocol"].get("quick")]
    assert committed
    assert (ROOT / "docs" / "results.md").read_text() == document(committed)


def test_readme_quotes_only_the_results():
    """Every table row of README that names a method stands in docs/results.md as well."""
    quoted = [
        line
        for line in (ROOT / "README.md").read_text().splitlines()
        if line.startswith("| ") and "±" in line
    ]
    page = (ROOT / "docs" / "results.md").read_text().splitlines()
    assert quoted
    assert set(quoted) <= set(page)
