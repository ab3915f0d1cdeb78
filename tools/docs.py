"""Write what the documents take from the code and from results/.

    python tools/docs.py            rewrite README.md and docs/
    python tools/docs.py --check    change nothing; fail if a document is out of date

Three things are written: docs/results.md (every stored result), docs/api.md (every public name)
and, in README.md and the other pages, numbers and tables with a source. A source is an HTML
comment, which readers of the page do not see:

    0.15<!--table1/mt-net/10-shot, meta-batch 25/by_step/steps=3/mean-->

The path starts with a file of results/ (without .json). A part selects rows that hold this value,
or `key=value`, or takes a field. A path that ends at a row stands for `mean ± ci95`. The number
keeps its count of decimals. A table stands between `<!-- KIND ARGUMENTS -->` and `<!-- end -->`:

    <!-- grid table1 | meta-batch 25 -->           methods and columns (with these texts)
    <!-- steps table1 | 10-shot, meta-batch 25 | 1 3 10 -->   the mean after so many steps
    <!-- rows bench_sine | network: {contender} | ms: {ms_per_step:.2f} -->   one line per row
    <!-- rows bench_scale/growth | ... -->          of another list than "rows"
    <!-- notes figure4 -->                          the notes (those that start with a text)
    <!-- curves table1 | 25 50 75 100 | maml -->    validation after so many percent of a training
                                                    (of these methods)
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from api_page import api_page

from mtnet.report.markdown import document, table
from mtnet.report.tables import grid

ROOT = Path(__file__).parent.parent
NUMBER = re.compile(r"(?P<text>-?\d[\d.]*(?: ± \d[\d.]*)?)<!--(?P<path>[\w-]+/[^>]+)-->")
BLOCK = re.compile(
    r"(<!-- (grid|steps|rows|notes|curves) ([^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL
)


@cache
def results(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def lookup(path: str) -> Any:
    """The value, or the row, that a path names."""
    name, *parts = path.split("/")
    whole = results(name)
    node: Any = whole if parts[0] in whole else whole["rows"]
    for part in parts:
        if isinstance(node, list):
            if rows := [row for row in node if _matches(row, part)]:
                node = rows
                continue
            node = _only(node, path)
        if part not in node:
            raise KeyError(f"{path}: there is no {part!r}")
        node = node[part]
    return _only(node, path) if isinstance(node, list) else node


def _matches(row: dict[str, Any], part: str) -> bool:
    key, equals, value = part.partition("=")
    if equals and key in row:
        return str(row[key]) == value
    return part in row.values()


def _only(rows: list[Any], path: str) -> Any:
    if len(rows) != 1:
        raise KeyError(f"{path}: {len(rows)} rows match")
    return rows[0]


def quoted(text: str, path: str) -> str:
    """The number at a path, with as many decimals as the text has."""
    value = lookup(path)
    decimals = len(text.split(" ")[0].partition(".")[2])
    if isinstance(value, dict):
        return f"{value['mean']:.{decimals}f} ± {value['ci95']:.{decimals}f}"
    return value if isinstance(value, str) else f"{value:.{decimals}f}"


def grid_table(name: str, columns: str = "", methods: str = "") -> str:
    header, rows = grid(results(name))
    wanted = [text.strip() for text in columns.split(";")]
    picked = [i for i, c in enumerate(header) if "," not in c or any(text in c for text in wanted)]
    names = [m.strip() for m in methods.split(";")] if methods else [row[0] for row in rows]
    chosen = [[row[i] for i in picked] for row in rows if row[0] in names]
    return table([header[i] for i in picked], chosen)


def steps_table(name: str, column: str, steps: str) -> str:
    wanted = [int(step) for step in steps.split()]
    rows = [row for row in results(name)["rows"] if row["column"] == column]
    lines = []
    for row in rows:
        at = {step["steps"]: step for step in row["by_step"]}
        lines.append([row["method"], *(_step(at[step]) for step in wanted)])
    return table(["method", *(f"{n} step{'s' * (n != 1)}" for n in wanted)], lines)


def _step(step: dict[str, Any]) -> str:
    if step["mean"] is None:
        mean = "not finite"
    else:
        mean = f"{step['mean']:.2f}" if step["mean"] < 1000 else f"{step['mean']:.0e}"
    return f"{mean} ({step['diverged']} diverged)" if step["diverged"] else mean


def rows_table(name: str, *columns: str) -> str:
    name, _, key = name.partition("/")
    if not (ROOT / "results" / f"{name}.json").exists():
        return "Not measured yet.\n"
    where = [c for c in columns if c.startswith("where ")]
    fields = [c.split(": ", 1) for c in columns if c not in where]
    rows = results(name)[key or "rows"]
    for condition in where:
        rows = [row for row in rows if _matches(row, condition.removeprefix("where "))]
    lines = [[form.format(**row) for _, form in fields] for row in rows]
    return table([head for head, _ in fields], lines)


def notes(name: str, start: str = "") -> str:
    return "\n\n".join(n for n in results(name)["notes"] if n.startswith(start)) + "\n"


def curves_table(name: str, percentages: str, methods: str = "") -> str:
    """Per training: its minutes, and the validation score after these parts of its iterations."""
    parts, names = [int(part) for part in percentages.split()], methods.split()
    lines = []
    for training, points in results(name)["curves"].items():
        if points and (not names or training.partition(",")[0] in names):
            ends = [part / 100 * points[-1]["iteration"] for part in parts]
            reached = [next(p for p in points if p["iteration"] >= end) for end in ends]
            scores = [f"{p['validation'][0]:.1f}" for p in reached]
            lines.append([training, f"{points[-1]['minutes']:g}", *scores])
    return table(["training", "minutes", *(f"{part} %" for part in parts)], lines)


KINDS: dict[str, Callable[..., str]] = {
    "grid": grid_table,
    "steps": steps_table,
    "rows": rows_table,
    "notes": notes,
    "curves": curves_table,
}


def fill(text: str) -> str:
    """A page with its numbers and tables as results/ has them."""

    def block(match: re.Match[str]) -> str:
        start, kind, arguments, end = match.groups()
        return f"{start}{KINDS[kind](*(a.strip() for a in arguments.split('|')))}{end}"

    text = BLOCK.sub(block, text)
    return NUMBER.sub(lambda m: f"{quoted(m['text'], m['path'])}<!--{m['path']}-->", text)


def pages() -> Iterator[tuple[Path, str]]:
    """Every document that is written here, and what it should say."""
    docs = ROOT / "docs"
    stored = [results(path.stem) for path in sorted((ROOT / "results").glob("*.json"))]
    yield docs / "results.md", document([r for r in stored if not r["protocol"].get("quick")])
    yield docs / "api.md", api_page(ROOT / "src" / "mtnet")
    for path in (ROOT / "README.md", *sorted(docs.glob("*.md"))):
        if path.name not in ("results.md", "api.md"):
            yield path, fill(path.read_text())


def main() -> int:
    check, stale = "--check" in sys.argv[1:], 0
    for path, text in pages():
        if not path.exists() or path.read_text() != text:
            stale += 1
            print(f"{path.relative_to(ROOT)}: {'out of date' if check else 'written'}")
            if not check:
                path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
