"""Results as Markdown: `python tools/docs.py` writes docs/results.md with it."""

from collections.abc import Sequence
from typing import Any

from mtnet.report.tables import grid, per_seed


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def section(results: dict[str, Any]) -> str:
    """One experiment: commands, a table per group of columns, notes, the mean of each seed."""
    commands = dict.fromkeys(r.get("command", results["command"]) for r in results["rows"])
    parts = [f"## {results['experiment']}\n", "\n".join(f"    {c}" for c in commands) + "\n"]
    parts += _commits(results)
    header, rows = grid(results)
    for picked in _groups(header):
        parts.append(table([header[i] for i in picked], [[r[i] for i in picked] for r in rows]))
    parts += [f"{note}\n" for note in results["notes"]]
    parts += ["Mean over tasks, by seed:\n", table(*per_seed(results))]
    return "\n".join(parts)


def _groups(header: Sequence[str]) -> list[list[int]]:
    """Column indices of each table.

    Columns named `a, b` are grouped by the half that gives fewer groups; others are in every table.
    """
    halves = {i: column.partition(", ")[::2] for i, column in enumerate(header) if ", " in column}
    if not halves:
        return [list(range(len(header)))]
    side = min((0, 1), key=lambda s: len({half[s] for half in halves.values()}))
    groups: dict[str, list[int]] = {}
    for i, half in halves.items():
        groups.setdefault(half[side], []).append(i)
    others = [i for i in range(1, len(header)) if i not in halves]
    return [[0, *group, *others] for group in groups.values()]


def plain(results: dict[str, Any]) -> str:
    """Every row unchanged: benchmarks, comparisons, examples."""
    rows = results["rows"]
    header = [key for key in rows[0] if not isinstance(rows[0][key], (dict, list))]
    body = [[_cell(row.get(key)) for key in header] for row in rows]
    top = [f"## {results['experiment']}\n", f"    {results['command']}\n"]
    return "\n".join([*top, *_commits(results), table(header, body)])


def _commits(results: dict[str, Any]) -> list[str]:
    """The commits that the rows were made with, if they are known."""
    commits = dict.fromkeys(row.get("commit", results.get("commit")) for row in results["rows"])
    names = ", ".join(f"`{commit}`" for commit in commits if commit)
    return [f"Made with commit {names}.\n"] if names else []


def document(all_results: Sequence[dict[str, Any]]) -> str:
    """The page with every stored result."""
    text = ["# All results\n", "Written from `results/` by `python tools/docs.py`.\n"]
    text.append("Mean ± 95 % interval; the paper's value in brackets where it has one.\n")
    for results in all_results:
        text.append(section(results) if "notes" in results else plain(results))
    return "\n".join(text)


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
