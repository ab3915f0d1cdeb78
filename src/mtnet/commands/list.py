"""`mtnet list`: every method, family, experiment and pretrained network."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from mtnet.commands.common import console
from mtnet.commands.parse import run as run_command
from mtnet.experiments import EXPERIMENTS
from mtnet.methods import METHODS
from mtnet.storage.pretrained import find_file, pretrained_names, read_network_file
from mtnet.tasks import FAMILIES


def main(arguments: Sequence[str]) -> None:
    run_command(list_, "list", arguments)


def describe_network(name: str) -> str:
    """Method, family and measured accuracy of a pretrained network."""
    config, _, about = read_network_file(find_file(name))
    rows = about.get("accuracy", [])
    scores = [f"{row['mean']:.1f} % ({row['ways']} classes)" for row in rows]
    return ", ".join([f"{config.method} on {config.family}", *scores])


def list_() -> None:
    """Show all methods, families, experiments and pretrained networks.

    For each method: what it adapts to a task, whether it does regression (all do
    classification), and whether the number of classes may differ from training.
    """
    names = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for title, entries in (
        ("Methods", {k: v.about for k, v in METHODS.items()}),
        ("Families", {k: v.about for k, v in FAMILIES.items()}),
        ("Experiments", {k: v.about for k, v in EXPERIMENTS.items()}),
        ("Pretrained networks", {name: describe_network(name) for name in pretrained_names()}),
    ):
        names.add_row(Text(title, "bold"), "")
        for name, about in entries.items():
            names.add_row(f"  {name}", about)
    console.print(names)
    abilities = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("Method", "adapts", "regression", "any number of classes"):
        abilities.add_column(column)
    yes = lambda able: "yes" if able else "no"  # noqa: E731
    for name, method in METHODS.items():
        ways = "with --shared-head" if method.shares_head else yes(method.any_ways)
        abilities.add_row(f"  {name}", method.adapts, yes(method.regression), ways)
    console.print(abilities)
