"""One sentence per training of Table 3: how it was trained, chosen and tested."""

from typing import Any

from mtnet.report.tables import count, value

COLUMNS = ("transductive", "inductive")
"""Norms at test time: with statistics of the queries, as published, or of the support set only."""


def describe(
    rows: dict[str, dict[str, Any]],
    curve: list[dict[str, Any]],
    choices: list[dict[str, Any]] | None = None,
) -> str:
    """What the numbers of one training are: how it was trained, chosen and tested.

    Args:
        rows: Its rows by column.
        curve: Its validation scores.
        choices: Its grid of settings, if it has one.

    Returns:
        One sentence.
    """
    row = rows["transductive"]
    early = row["iterations"] < row["iterations_planned"]
    planned = f" ({row['iterations_planned']} planned, stopped by time)" if early else ""
    parts = [
        f"{row['method']}: {row['iterations']} iterations x {row['per_iteration']}{planned}, "
        f"{row['statistics_in_training']}, in {row['minutes']} minutes on {count(row, 'core')}, "
        f"from {row['init_from'] or 'random weights'}, measured at {row['measured_at']}"
    ]
    if choices:
        names = (name for name in choices[0] if name not in ("validation", "ci95"))
        chosen = ", ".join(f"{name} {row[name]:g}" for name in names)
        parts.append(f"best of {len(choices)} settings on validation tasks: {chosen}")
    means = (f"{name} {value(r)}" for name, r in rows.items() if name in COLUMNS)
    steps = "" if row["steps"] is None else f" after {count(row, 'step')}"
    parts.append(
        f"tested on {row['tasks']} tasks with {row['queries']} query per class{steps}: "
        f"{', '.join(means)} (95 % interval over tasks)"
    )
    if row["steps"] is not None:
        best = max(row["by_step"], key=lambda s: s["mean"])
        parts.append(
            f"best after {count(best, 'step')} ({best['mean']:.2f}), "
            f"before any {row['by_step'][0]['mean']:.2f}"
        )
    parts += _last_hour(curve)
    if row.get("commit"):
        parts.append(f"commit {row['commit'][:7]}")
    return "; ".join(parts) + "."


def _last_hour(curve: list[dict[str, Any]]) -> list[str]:
    """What the last hour of a long training gained on validation tasks."""
    end = curve[-1]["minutes"] if curve else 0
    if not curve or curve[0]["minutes"] > end - 60:
        return []
    best = lambda until: max(m["validation"][0] for m in curve if m["minutes"] <= until)  # noqa: E731
    return [f"its last hour took validation from {best(end - 60):.1f} to {best(end):.1f}"]
