"""`mtnet list`: every method, family and experiment."""

from rich.table import Table

from mtnet.commands.common import console
from mtnet.experiments import EXPERIMENTS
from mtnet.methods import METHODS
from mtnet.tasks import FAMILIES


def list_() -> None:
    """Show every method, family and experiment.

    Of a method: what it adapts to a task, whether it does curves (regression) and classes, and
    whether tasks may have another number of classes than those of training.
    """
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for title, entries in (
        ("Methods", {k: v.about for k, v in METHODS.items()}),
        ("Families", {k: v.about for k, v in FAMILIES.items()}),
        ("Experiments", {k: v.about for k, v in EXPERIMENTS.items()}),
    ):
        table.add_row(f"[bold]{title}", "")
        for name, about in entries.items():
            table.add_row(f"  {name}", about)
    console.print(table)
    able = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("What methods do", "adapts", "curves", "classes", "other ways than in training"):
        able.add_column(column)
    yes = lambda able: "yes" if able else "-"  # noqa: E731
    for name, m in METHODS.items():
        ways = "with --shared-head" if "shared_head" in m.takes else yes(m.any_ways)
        able.add_row(f"  {name}", m.adapts, yes(m.regression), "yes", ways)
    console.print(able)
