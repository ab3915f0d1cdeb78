"""Coverage of prediction intervals for the temperatures of new cities.

    python examples/city_intervals.py [--quick] [--out results/city_intervals.json]

A task is one year of one city. In each repetition 220 random cities are for meta-training, and the
others for testing. Years of one city are similar, so 40 % of the 220 cities, not of years,
are held out to calibrate the intervals. Coverage is measured on days of the test cities that are
not among the support days. Data: as in city_temperature.py. Takes about five minutes on one core.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from city_temperature import CITIES, CityYear, city_years, waves

import mtnet
from mtnet import MTNetRegressor
from mtnet.revision import git_commit

DAYS = (1, 3, 5, 10, 20, 60)
LEVELS = (0.8, 0.9)
ASKED = 30
"""Days per task that are predicted."""
HELD_OUT = 0.4


def inside_by_city(
    model: MTNetRegressor, tests: list[CityYear], days: int, seed: int
) -> dict[float, tuple[np.ndarray, np.ndarray]]:
    """By level: the share of asked days inside their intervals, per city, and half-widths."""
    share: dict[float, dict[str, list[float]]] = {level: {} for level in LEVELS}
    half: dict[float, list[float]] = {level: [] for level in LEVELS}
    for i, c in enumerate(tests):
        order = np.random.default_rng((seed, days, i)).permutation(len(c.day))
        known, asked = order[:days], order[days : days + ASKED]
        model.fit(waves(c.day[known]), c.degrees[known])
        for level in LEVELS:
            _, lower, upper = model.predict(waves(c.day[asked]), return_interval=level)
            inside = (lower <= c.degrees[asked]) & (c.degrees[asked] <= upper)
            share[level].setdefault(c.city, []).append(float(inside.mean()))
            half[level].append(float(upper[0] - lower[0]) / 2)
    per_city = {level: np.array([np.mean(v) for v in share[level].values()]) for level in LEVELS}
    return {level: (per_city[level], np.array(half[level])) for level in LEVELS}


def repetition(every: list[CityYear], seed: int, iterations: int, per_city: int) -> dict[Any, Any]:
    """Train and calibrate on some cities, and measure on the others."""
    order = np.random.default_rng(seed).permutation(sorted({c.city for c in every})).tolist()
    learn_from = set(order[:CITIES])
    train = [c for c in every if c.city in learn_from]
    model = MTNetRegressor(
        "mt-net", queries=20, iterations=iterations, random_state=seed, held_out=HELD_OUT
    )
    counts = [len(c.day) for c in train]
    model.meta_fit(
        np.concatenate([waves(c.day) for c in train]),
        np.concatenate([c.degrees for c in train]),
        np.repeat(np.arange(len(train)), counts),
        clusters=np.repeat([c.city for c in train], counts),
    )
    tests = []
    for city in order[CITIES:]:
        years = [c for c in every if c.city == city]
        chosen = np.random.default_rng((seed, len(tests))).permutation(len(years))[:per_city]
        tests += [years[i] for i in chosen]
    return {days: inside_by_city(model, tests, days, seed) for days in DAYS}


def main(
    quick: bool = False, seeds: int = 3, iterations: int = 1_500, out: Path | None = None
) -> None:
    """Measure how many temperatures of new cities are inside their prediction intervals.

    Args:
        quick: 100 iterations and one repetition, as a smoke test.
        seeds: Repetitions, with other cities each.
        iterations: Iterations of meta-training.
        out: JSON file to write.
    """
    path = Path(os.environ.get("MTNET_DATA", "../shared/data"))
    every = city_years(path / "city_temperature" / "city_daily_temp.npz")
    seeds, iterations = (1, 100) if quick else (seeds, iterations)
    commit = git_commit()
    began, per_city = time.time(), 2 if quick else 4
    repetitions = [repetition(every, seed, iterations, per_city) for seed in range(seeds)]
    rows = []
    for days in DAYS:
        for level in LEVELS:
            shares = [r[days][level][0] for r in repetitions]
            half = np.concatenate([r[days][level][1] for r in repetitions])
            pooled, means = np.concatenate(shares), [float(100 * s.mean()) for s in shares]
            rows.append(
                {
                    "days": days,
                    "level": 100 * level,
                    "coverage": float(np.mean(means)),
                    "ci95": float(196 * pooled.std(ddof=1) / np.sqrt(len(pooled))),
                    "lowest": min(means),
                    "highest": max(means),
                    "half_width": float(half.mean()),
                    "cities_below": float(100 * np.mean(pooled < level - 0.1)),
                }
            )
            print({name: round(value, 2) for name, value in rows[-1].items()})
    farthest = max(abs(row["coverage"] - row["level"]) for row in rows)
    print(f"farthest from nominal: {farthest:.2f} points")
    results = {
        "experiment": "city_intervals",
        "mtnet_version": mtnet.__version__,
        "commit": commit,
        "command": "python examples/city_intervals.py --out results/city_intervals.json",
        "protocol": {
            "metric": "days inside their intervals in %, mean over test cities and repetitions",
            "ci95": "1.96 standard errors over the test cities of all repetitions",
            "lowest": "the repetition with the lowest coverage; highest: with the highest",
            "half_width": "half of the interval's width in degrees Celsius, mean over tasks",
            "cities_below": "test cities whose own coverage is more than 10 points too low, in %",
            "train": f"{CITIES} cities, of which {HELD_OUT:.0%} calibrate the intervals",
            "test": f"the other cities, {per_city} random years each, {ASKED} days asked per year",
            "method": "mt-net, alpha 0.05, 5 steps, 10 support days in training",
            "seeds": seeds,
            "iterations": iterations,
            "farthest": farthest,
            "quick": quick,
        },
        "rows": rows,
        "minutes": (time.time() - began) / 60,
    }
    if out is not None:
        out.write_text(json.dumps(results, indent=1) + "\n")
        print(f"written to {out}")


if __name__ == "__main__":
    tyro.cli(main)
