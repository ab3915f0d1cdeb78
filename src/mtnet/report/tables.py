"""Results as tables: one row per method."""

import re
from typing import Any


def value(row: dict[str, Any], key: str = "mean") -> str:
    """`0.46 ± 0.01`, or "not finite"."""
    if row[key] is None:
        return "not finite"
    interval = "" if row["ci95"] is None else f" ± {row['ci95']:.2f}"
    return f"{row[key]:.2f}{interval}"


def count(row: dict[str, Any], noun: str) -> str:
    """`1 step`, `3 steps`: the row's number with its noun."""
    n = row[f"{noun}s"]
    return f"{n} {noun}{'' if n == 1 else 's'}"


def grid(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """One row per method; our value, and the published one in brackets.

    If each method is one training, two more columns say how long it took and how it was tested.
    """
    rows = results["rows"]
    columns = sorted(dict.fromkeys(row["column"] for row in rows), key=_steps_of)
    methods = list(dict.fromkeys(row["method"] for row in rows))
    cells = {(row["method"], row["column"]): row for row in rows}
    one_training = len({(row["method"], row["training"]) for row in rows}) == len(methods)
    described = one_training and all("per_iteration" in row for row in rows)

    def cell(method: str, column: str) -> str:
        row = cells.get((method, column))
        if row is None:
            return ""
        return value(row) + (f" ({row['published']})" if row["published"] else "")

    def about(method: str) -> list[str]:
        row = next(row for row in rows if row["method"] == method)
        return [_trained(row), _tested(row)] if described else []

    header = ["method", *columns, *(["trained", "tested on"] if described else [])]
    return header, [[m, *(cell(m, c) for c in columns), *about(m)] for m in methods]


def _steps_of(column: str) -> int:
    """10 for `transductive after 10 steps`; 0 for columns without a number of steps, which come
    first in the order of the rows."""
    found = re.search(r"after (\d+) steps?$", column)
    return int(found[1]) if found else 0


def _trained(row: dict[str, Any]) -> str:
    """How the network of a row was trained."""
    start = f", from {row['init_from']}" if row["init_from"] else ""
    size = f"{row['iterations']} x {row['per_iteration']}"
    return f"{size}, {row['minutes']:g} min, {count(row, 'core')}{start}"


def _tested(row: dict[str, Any]) -> str:
    """How the first column of a row was measured."""
    queries = f", {row['queries']} query per class" if "queries" in row else ""
    steps = (
        "" if row["steps"] is None else f", {row['steps']} step{'' if row['steps'] == 1 else 's'}"
    )
    return f"{row['tasks']} tasks{queries}{steps}"


def by_step(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Per inner step: the mean, the median, and the number of diverged tasks."""
    steps = [s["steps"] for s in results["rows"][0]["by_step"]]
    lines = []
    for row in results["rows"]:
        for what in ("mean", "median", "diverged"):
            numbers = [s[what] for s in row["by_step"]]
            shown = ["not finite" if n is None else f"{n:.4g}" for n in numbers]
            lines.append([f"{row['method']}, {row['column']}: {what}", *shown])
    return ["inner steps", *map(str, steps)], lines


def choices_table(choices: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Settings of adaptation and their validation scores, one row each."""
    names = [name for name in choices[0] if name not in ("validation", "ci95")]
    lines = [[*(f"{c[name]}" for name in names), value(c, "validation")] for c in choices]
    return [*names, "validation"], lines


def per_seed(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    seeds = [str(s["seed"]) for s in results["rows"][0]["per_seed"]]
    lines: list[list[str]] = []
    for row in results["rows"]:
        shown = ["not finite" if s["mean"] is None else f"{s['mean']:.3f}" for s in row["per_seed"]]
        shown += [""] * (len(seeds) - len(shown))
        lines.append([f"{row['method']}, {row['column']}", *shown])
    return ["seed", *seeds], lines
