"""Results as tables: one row per method."""

from typing import Any


def value(row: dict[str, Any], key: str = "mean") -> str:
    """`0.46 ± 0.01`, or "not finite"."""
    if row[key] is None:
        return "not finite"
    interval = "" if row["ci95"] is None else f" ± {row['ci95']:.2f}"
    return f"{row[key]:.2f}{interval}"


def grid(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """One row per method; our value, and the published one in brackets.

    If each method is one training, two more columns say how long it took and how it was tested.
    """
    rows = results["rows"]
    columns = list(dict.fromkeys(r["column"] for r in sorted(rows, key=lambda r: r["steps"])))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    cells = {(row["method"], row["column"]): row for row in rows}
    one_training = len({(row["method"], row["training"]) for row in rows}) == len(methods)
    described = one_training and all("statistics" in row for row in rows)

    def cell(method: str, column: str) -> str:
        row = cells.get((method, column))
        if row is None:
            return ""
        return value(row) + (f" ({row['published']})" if row["published"] else "")

    def about(method: str) -> list[str]:
        row = next(row for row in rows if row["method"] == method)
        return [f"{row['iterations']} in {row['minutes']:g} min", _tested(row)] if described else []

    header = ["method", *columns, *(["trained", "tested on"] if described else [])]
    return header, [[m, *(cell(m, c) for c in columns), *about(m)] for m in methods]


def _tested(row: dict[str, Any]) -> str:
    """The protocol of one row."""
    queries = f", {row['queries']} query per class, {row['statistics']}" if "queries" in row else ""
    return f"{row['tasks']} tasks{queries}"


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


def per_seed(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    seeds = [str(s["seed"]) for s in results["rows"][0]["per_seed"]]
    lines: list[list[str]] = []
    for row in results["rows"]:
        shown = ["not finite" if s["mean"] is None else f"{s['mean']:.3f}" for s in row["per_seed"]]
        shown += [""] * (len(seeds) - len(shown))
        lines.append([f"{row['method']}, {row['column']}", *shown])
    return ["seed", *seeds], lines
