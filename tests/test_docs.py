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


def test_the_example_on_city_temperatures_runs(tmp_path):
    beside = ROOT.parent / "shared" / "data"
    for root in filter(None, (os.environ.get("MTNET_DATA"), beside)):
        if (Path(root) / "city_temperature").is_dir():
            break
    else:
        pytest.skip("no city_temperature in $MTNET_DATA or ../shared/data")
    out = tmp_path / "found.json"
    command = [sys.executable, ROOT / "examples" / "city_temperature.py", "--quick"]
    environment = os.environ | {"MTNET_DATA": str(root)}
    told = subprocess.run(
        [*command, "--seeds", "1", "--out", out], env=environment, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    errors = {row["method"]: row["mean"] for row in json.loads(out.read_text())["rows"]}
    assert errors["mt-net"] < 0.8 * errors["average of the training cities"]
    assert out.with_suffix(".png").stat().st_size > 10_000


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
