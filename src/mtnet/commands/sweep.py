"""`mtnet sweep`: train with many settings and seeds, and compare them."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from mtnet.commands.common import (
    console,
    core_count,
    duration,
    print_in_parts,
    save_figure,
)
from mtnet.commands.flags import used_settings, why_unused
from mtnet.commands.parse import OptionalInt, OptionalPath, OptionalStr, run as run_command
from mtnet.commands.pool import choose_cluster
from mtnet.commands.progress import Bars
from mtnet.errors import InputError, Stopped
from mtnet.experiments.sweep import Sweep, run_sweep
from mtnet.experiments.sweep_file import Point, read_sweep, short
from mtnet.report.sweep import sweep_figure
from mtnet.training.ray_pool import pool_on


def main(arguments: Sequence[str]) -> None:
    run_command(sweep, "sweep", arguments)


def sweep(
    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")],
    out: OptionalPath = None,
    budget: OptionalStr = None,
    jobs: OptionalInt = None,
    ray: OptionalStr = None,
    ray_cpus: int = 1,
    ray_gpus: int = 0,
) -> None:
    """Train with many settings and seeds, and compare them on validation tasks.

    The TOML file has the settings of all runs, a grid of values, and ranges to draw
    from; docs/scale.md shows one. The same command resumes an interrupted sweep.

    Args:
        file: TOML file with [settings], [grid], [ranges], seeds and draws.
        out: Folder of the runs, the table and the plot. Default: runs/ and the file's name.
        budget: Stop each run after this training time, e.g. 60m or 1.5h.
        jobs: Runs at the same time, one core each. Default: one per core.
        ray: Address of a Ray cluster that trains, e.g. auto (docs/scale.md).
        ray_cpus: CPUs of the cluster per run.
        ray_gpus: GPUs of the cluster per run.
    """
    cluster = choose_cluster(ray, ray_cpus, ray_gpus, jobs)
    points = read_sweep(file)
    check_used(file, points)
    command = shlex.join(["mtnet", *sys.argv[1:]])
    plan = Sweep(points, out or Path("runs") / file.stem, command, duration(budget))
    pool = pool_on(cluster, min(jobs or core_count(), len(plan.runs)))
    results = train_with_bar(plan, pool)
    print_sweep(results)
    plot = plan.out / "sweep.png"
    save_figure(sweep_figure(results), plot)
    console.print(f"Wrote {plan.out / 'sweep.json'} and {plot}", highlight=False)
    best = results["rows"][0]["per_seed"][0]["run"]
    console.print(f"Next: mtnet evaluate {best}", highlight=False)


def check_used(file: Path, points: list[Point]) -> None:
    """Raise an InputError if a setting is varied that changes nothing."""
    for point in points:
        config = next(iter(point.configs.values()))
        used = used_settings(config.family, config.method)
        for name in point.varied.keys() - set(used):
            reason = why_unused(name, config.family, config.method)
            raise InputError(f"{file}: {str(reason).removeprefix('--')}")


def train_with_bar(plan: Sweep, pool: Any) -> dict[str, Any]:
    """Run a sweep with one bar for all runs."""
    count = len(plan.runs)
    name = f"{count} run{'s' * (count != 1)}"
    at: dict[str, int] = {}
    with Bars({name: sum(c.outer.iterations for c in plan.runs.values())}, console) as bars:

        def report(run: str, iteration: int) -> None:
            at[run] = iteration
            bars.reached(name, sum(at.values()))

        try:
            return run_sweep(plan, pool, report)
        except KeyboardInterrupt:
            raise Stopped("stopped; the same command resumes its runs") from None


def print_sweep(results: dict[str, Any]) -> None:
    """One line per combination of settings, the best first."""
    about, varied = results["protocol"], results["varied"]
    seeds = len(about["seeds"])
    title = f"{about['metric']}, {about['better']} is better"
    header = [*varied, "score", *(["± 95 %"] if seeds > 1 else []), "minutes"]
    lines = []
    for row in results["rows"]:
        score = "not finite" if row["mean"] is None else f"{row['mean']:.4g}"
        interval = "" if row["ci95"] is None else f"{row['ci95']:.2g}"
        time = f"{sum(s['minutes'] for s in row['per_seed']):.1f}"
        cells = [short(row["settings"][name]) for name in varied]
        lines.append([*cells, score, *([interval] if seeds > 1 else []), time])
    print_in_parts(title, header, lines, console.width)
    console.print(f"Score: {about['score']}.", highlight=False)
