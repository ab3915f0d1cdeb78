"""What the documents say is true: their code runs, their numbers are those of results/."""

import json
import re
from pathlib import Path

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
