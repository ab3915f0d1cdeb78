"""`mtnet reproduce`: repeat a table or figure of the paper."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from mtnet.commands.common import check_positive, console, core_count, duration, print_in_parts
from mtnet.commands.parse import Flag, OptionalInt, OptionalStr, Strings, run as run_command
from mtnet.commands.pool import choose_cluster
from mtnet.commands.progress import Bars
from mtnet.errors import Stopped, check_name
from mtnet.experiments import EXPERIMENTS
from mtnet.experiments.page import report
from mtnet.experiments.run import Plan, reproduce as run_experiment
from mtnet.files import write_atomically
from mtnet.report.tables import grid

PLACES = ("--runs", "--results")


def main(arguments: Sequence[str]) -> None:
    run_command(reproduce, "reproduce", arguments)


def reproduce(
    experiment: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="EXPERIMENT")],
    quick: Flag = False,
    methods: Strings = (),
    budget: OptionalStr = None,
    seeds: OptionalInt = None,
    tasks: OptionalInt = None,
    jobs: OptionalInt = None,
    ray: OptionalStr = None,
    ray_cpus: int = 1,
    ray_gpus: int = 0,
    runs: Path = Path("runs"),
    results: Path = Path("results"),
) -> None:
    """Repeat a table or figure of the paper: train, measure, compare, report.

    Args:
        experiment: table1, table2, figure4 or table3-...; mtnet list shows all.
        quick: Few iterations and seeds, for a first look within minutes.
        methods: Only these methods, or trainings such as 'mt-net, 5 shots'. Default: all.
        budget: Stop each training after this time, e.g. 60m or 1.5h.
        seeds: Networks per method. Default: set by the experiment.
        tasks: Test tasks per seed. Default: set by the experiment.
        jobs: Trainings at the same time, one core each. Default: one per core.
        ray: Address of a Ray cluster that trains, e.g. auto (docs/scale.md).
        ray_cpus: CPUs of the cluster per run.
        ray_gpus: GPUs of the cluster per run.
        runs: Folder of the trainings; finished ones are not trained again.
        results: Folder for the JSON file and the HTML page.
    """
    check_name("experiment", experiment, EXPERIMENTS)
    check_positive(seeds=seeds, tasks=tasks)
    cluster = choose_cluster(ray, ray_cpus, ray_gpus, jobs)
    plan = Plan(
        EXPERIMENTS[experiment],
        command=command_to_repeat(sys.argv[1:]),
        quick=quick,
        seeds=seeds,
        tasks=tasks,
        methods=methods,
        budget=duration(budget),
        jobs=jobs or core_count(),
        ray=cluster,
        runs=runs / experiment,
        results=results,
    )
    totals = {name: config.outer.iterations for name, config in plan.chosen.items()}
    with Bars(totals, console) as bars:
        try:
            measured, trained = run_experiment(plan, bars.reached)
        except KeyboardInterrupt:
            raise Stopped("stopped; the same command resumes its trainings") from None
    print_results(measured)
    page = plan.path.with_suffix(".html")
    write_atomically(page, report(plan.experiment, measured, trained).encode())
    console.print(f"Wrote {plan.path} and {page}", highlight=False)


def command_to_repeat(arguments: Sequence[str]) -> str:
    """The command without the folders it writes to, which are those of one machine."""
    kept: list[str] = []
    after_place = False
    for argument in arguments:
        if not after_place and argument.partition("=")[0] not in PLACES:
            kept.append(argument)
        after_place = argument in PLACES
    return shlex.join(["mtnet", *kept])


def print_results(results: dict[str, Any]) -> None:
    """The table and the notes; what all rows share is one sentence instead of a column."""
    header, lines = grid(results)
    tested = {line[-1] for line in lines}
    if header[-1] == "tested on" and len(tested) == 1:
        header, lines = header[:-1], [line[:-1] for line in lines]
        console.print(f"Tested on {tested.pop()}.", highlight=False)
    lines = [[text.replace(" (", "\n(") for text in line] for line in lines]
    title = f"{results['experiment']}: ours ± 95 % (published)"
    print_in_parts(title, header, lines, console.width)
    for note in results["notes"]:
        console.print(f"- {note}", highlight=False)
