"""`mtnet reproduce`."""

import shlex
import sys
from pathlib import Path

import tyro
from rich.table import Table

from mtnet.commands.common import check_positive, console, cores, duration
from mtnet.commands.progress import Bars
from mtnet.errors import check_name
from mtnet.experiments import EXPERIMENTS
from mtnet.files import write_atomically


def reproduce(
    experiment: tyro.conf.Positional[str],
    quick: bool = False,
    methods: tuple[str, ...] = (),
    budget: str | None = None,
    seeds: int | None = None,
    tasks: int | None = None,
    jobs: int | None = None,
    runs: Path = Path("runs"),
    results: Path = Path("results"),
) -> None:
    """Repeat an experiment of the paper: train, measure, compare, report.

    Args:
        experiment: table1, table2, figure4 or table3-...; `mtnet list` names them.
        quick: Few iterations and few seeds: minutes, for a first look.
        methods: Only these; where left out, all of the experiment.
        budget: End each training after this time, e.g. 60m or 1.5h, and say so in the results.
        seeds: How many networks of each kind; where left out, what the experiment says.
        tasks: Test tasks for each seed; where left out, what the experiment says.
        jobs: Trainings at a time, one core each; where left out, one a core.
        runs: Where the trainings are kept: what is finished there is not trained again.
        results: Where the JSON and the HTML report go.
    """
    check_name("experiment", experiment, EXPERIMENTS)
    seconds = duration(budget)
    check_positive(seeds=seeds, tasks=tasks, jobs=jobs)
    from mtnet.experiments.page import report
    from mtnet.experiments.run import of_methods, reproduce as run_experiment
    from mtnet.report.tables import grid

    chosen = EXPERIMENTS[experiment]
    trainings = of_methods(chosen.trainings(quick, seeds or chosen.seeds[quick]), methods)
    with Bars({name: c.outer.iterations for name, c in trainings.items()}, console) as bars:
        found, done, path = run_experiment(
            chosen,
            command=shlex.join(["mtnet", *sys.argv[1:]]),
            quick=quick,
            seeds=seeds,
            methods=methods,
            budget=seconds,
            tasks=tasks or chosen.tasks[quick],
            jobs=jobs or cores(),
            runs=runs,
            results=results,
            report=bars.reached,
        )
    header, lines = grid(found)
    tested = {line[-1] for line in lines}
    if header[-1] == "tested on" and len(tested) == 1:  # one sentence for all, and a slimmer table
        header, lines = header[:-1], [line[:-1] for line in lines]
        console.print(f"Tested on {tested.pop()}.", highlight=False)
    shown = Table(title=f"{experiment}: ours ± 95 % (published)")
    for i, column in enumerate(header):
        shown.add_column(column, overflow="fold", no_wrap=i == 0)
    for line in lines:
        shown.add_row(*line)
    console.print(shown)
    for note in found["notes"]:
        console.print(f"- {note}", highlight=False)
    page = path.with_suffix(".html")
    write_atomically(page, report(chosen, found, done).encode())
    console.print(f"Wrote {path} and {page}", highlight=False)
