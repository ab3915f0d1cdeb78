"""Cities that share their weather: the MT-net on top of pooled gradient boosting.

    python examples/shared_weather.py [--quick] [--out results/shared_weather.json]

A task is one city in one year; from the readings of 10 days, predict other days. The day is the
only input, so that trees fitted to all training cities know the weather of each day. Two tables:
57 cities in the north-east of the United States, where the days of the cities are alike, and all
cities of the world, where the seasons differ. Every row of the result is `mtnet fit` with its
own test cities. Data: as examples/city_temperature.py. Takes about six minutes on one core.
"""

import csv
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from city_temperature import CityYear, city_years

import mtnet
from mtnet.cli import main as run_mtnet
from mtnet.commands.fit_report import TASKS, all_scores
from mtnet.evaluation.baselines import compare_scores
from mtnet.evaluation.measure import measure
from mtnet.evaluation.units import root_scores, target_unit
from mtnet.revision import git_commit
from mtnet.storage.run_folder import load_best, open_run

YEAR = 2012
STATES = "CT DE IL IN KY MA MD ME MI NC NH NJ NY OH PA RI VA VT WI WV".split()
ELSEWHERE = ("ILREYKJV", "INBOMBAY", "INCALCUT", "INCHENAI", "INDELHI")
"""Cities of other countries whose codes begin like those of a state."""
VARIANTS = {
    "mt-net": [],
    "mt-net, 3 waves": ["--waves", "3"],
    "mt-net, base boosting": ["--base", "boosting"],
}
BOOSTING = "pooled boosting + offset"
COLUMNS = "--task city --inputs day --target degrees --no-baselines".split()


def north_east(c: CityYear) -> bool:
    return c.city[:2] in STATES and c.city not in ELSEWHERE


def write_table(path: Path, cities: list[CityYear]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["city", "day", "degrees"])
        for c in cities:
            degrees = np.round(c.degrees, 1).tolist()
            writer.writerows((c.city, *row) for row in zip(c.day.tolist(), degrees, strict=True))


def scores_of_seed(table: Path, seed: int, iterations: int) -> dict[str, np.ndarray]:
    """Squared errors by method, on the same 500 tasks of test cities, in the scaled unit."""
    scores: dict[str, np.ndarray] = {}
    for name, flags in VARIANTS.items():
        out = table.parent / f"{table.stem}-{seed}-{len(scores)}"
        options = ["--seed", str(seed), "--iterations", str(iterations), "--out", str(out)]
        if run_mtnet(["fit", str(table), *COLUMNS, *flags, *options]):
            raise SystemExit(1)
        run = open_run(out)
        _, theta = load_best(run)
        steps = run.config.inner.steps
        losses = measure(run.config, theta, [0], tasks=TASKS, steps=steps)
        scores[name] = losses[0, :, steps]
    unit, baselines = target_unit(run.config), all_scores(run.config, scores[name])
    assert unit is not None
    del baselines[run.config.method]
    return {n: root_scores(unit, s) for n, s in scores.items()} | baselines


def rows_of_table(path: Path, seeds: int, iterations: int) -> list[dict[str, Any]]:
    """The mean of each method over seeds and tasks, and its difference from boosting."""
    by_seed = [scores_of_seed(path, seed, iterations) for seed in range(seeds)]
    names = [BOOSTING, *(name for name in by_seed[0] if name != BOOSTING)]
    rows = compare_scores({n: np.concatenate([s[n] for s in by_seed]) for n in names}, False)
    per_seed = {n: [float(s[n].mean()) for s in by_seed] for n in names}
    renamed = {"difference": "minus_boosting", "difference_ci95": "minus_boosting_ci95"}
    return [
        {"table": path.stem}
        | {renamed.get(key, key): value for key, value in row.items() if key != "better"}
        | {"per_seed": per_seed[row["method"]]}
        for row in rows
    ]


def main(quick: bool = False, seeds: int = 2, out: Path | None = None) -> None:
    """Compare the MT-net with and without a base on cities that share their weather.

    Args:
        quick: 50 iterations and one seed, as a smoke test.
        seeds: Number of splits into training and test cities, with a network each.
        out: JSON file to write.
    """
    data = Path(os.environ.get("MTNET_DATA", "../shared/data"))
    every = city_years(data / "city_temperature" / "city_daily_temp.npz")
    cities = [c for c in every if c.year == YEAR]
    tables = {"north-east": [c for c in cities if north_east(c)], "world": cities}
    iterations, seeds = (50, 1) if quick else (1_000, seeds)
    commit, began, rows = git_commit(), time.time(), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        for name, own in tables.items():
            path = Path(folder) / f"{name}.csv"
            write_table(path, own)
            rows += rows_of_table(path, seeds, iterations)
    results = {
        "experiment": "shared_weather",
        "mtnet_version": mtnet.__version__,
        "commit": commit,
        "command": "python examples/shared_weather.py --out results/shared_weather.json",
        "protocol": {
            "metric": "root mean square error in degrees Celsius, over all tasks",
            "ci95": "1.96 standard errors over tasks",
            "minus_boosting": "difference on the same tasks, with its interval",
            "tables": {name: f"{len(own)} cities, {YEAR}" for name, own in tables.items()},
            "split": "by mtnet fit: a tenth of the cities for validation, a tenth for testing",
            "tasks": TASKS * seeds,
            "support": "10 random days of a test city; 10 other days are queries",
            "seeds": seeds,
            "iterations": iterations,
            "settings": {name: " ".join(flags) for name, flags in VARIANTS.items()},
            "quick": quick,
        },
        "rows": rows,
        "minutes": (time.time() - began) / 60,
    }
    for row in rows:
        apart = f"{row['minus_boosting']:+.3f} ± {row['minus_boosting_ci95']:.3f}"
        print(f"{row['table']:12s} {row['method']:26s} {row['mean']:.3f}   {apart}")
    if out is not None:
        out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    tyro.cli(main)
