"""Predict the temperatures of a year in a new city from the readings of 10 days.

    python examples/city_temperature.py [--quick] [--out results/city_temperature.json]

A task is one year of one city. 220 cities are for training, the others for testing. All methods get
the same 10 days of a task and predict its other days. Data: daily mean temperatures of 324 cities,
1995 to 2014 (University of Dayton archive), as city_temperature/city_daily_temp.npz in $MTNET_DATA.
Takes about seven minutes on one core; --quick takes about one, with few iterations and tasks.
"""

import json
import os
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from matplotlib.figure import Figure
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, ExpSineSquared, WhiteKernel
from sklearn.linear_model import LinearRegression, Ridge

import mtnet
from mtnet import MTNetRegressor
from mtnet.revision import git_commit

DAYS, CITIES = 10, 220
"""Support days per task, and number of training cities."""
HARMONICS = 3
Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(known days, their temperatures, days to predict) -> predicted temperatures"""


class CityYear(NamedTuple):
    city: str
    year: int
    day: np.ndarray
    degrees: np.ndarray


def city_years(path: Path, least: int = 350) -> list[CityYear]:
    """All years of all cities with readings on at least `least` days, in degrees Celsius."""
    with np.load(path) as data:
        tenths, missing = data["temp_tenths_F"], int(data["missing"])
        codes, start = data["code"], date.fromisoformat(str(data["start"]))
    dates = [start + timedelta(days=i) for i in range(tenths.shape[1])]
    year = np.array([d.year for d in dates])
    day = np.array([d.timetuple().tm_yday for d in dates])
    years = []
    for city, readings in zip(codes, tenths, strict=True):
        known = readings != missing
        for y in np.unique(year):
            rows = known & (year == y)
            if rows.sum() >= least:
                degrees = (readings[rows] / 10 - 32) / 1.8
                years.append(CityYear(str(city), int(y), day[rows], degrees))
    return years


def waves(day: np.ndarray, harmonics: int = HARMONICS) -> np.ndarray:
    """Cosine and sine of the day of the year, one pair per harmonic."""
    angle = 2 * np.pi * np.asarray(day)[:, None] * np.arange(1, harmonics + 1) / 365.25
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1)


# Models of one city. Their hyperparameters are tuned on the training cities.


def sinusoid() -> Predict:
    def predict(day: np.ndarray, degrees: np.ndarray, ask: np.ndarray) -> np.ndarray:
        return LinearRegression().fit(waves(day, 1), degrees).predict(waves(ask, 1))

    return predict


def ridge(strength: float) -> Predict:
    def predict(day: np.ndarray, degrees: np.ndarray, ask: np.ndarray) -> np.ndarray:
        return Ridge(alpha=strength).fit(waves(day), degrees).predict(waves(ask))

    return predict


def gaussian_process(signal: float, length: float) -> Predict:
    """Periodic kernel (one year) around the mean of the readings; noise variance 1."""
    kernel = ConstantKernel(signal) * ExpSineSquared(length, 365.25) + WhiteKernel(1.0)

    def predict(day: np.ndarray, degrees: np.ndarray, ask: np.ndarray) -> np.ndarray:
        model = GaussianProcessRegressor(kernel, optimizer=None)
        middle = degrees.mean()
        return middle + model.fit(day[:, None], degrees - middle).predict(ask[:, None])

    return predict


# Models that are trained on many cities.


def average(train: list[CityYear]) -> Predict:
    x = np.concatenate([waves(c.day) for c in train])
    model = LinearRegression().fit(x, np.concatenate([c.degrees for c in train]))
    return lambda day, degrees, ask: model.predict(waves(ask))


def bayesian(train: list[CityYear]) -> Predict:
    """Linear model on three harmonics; the prior has the mean and covariance of the cities."""
    with_one = lambda day: np.column_stack([np.ones(len(day)), waves(day)])  # noqa: E731
    fits = [np.linalg.lstsq(with_one(c.day), c.degrees, rcond=None)[0] for c in train]
    mean, S = np.mean(fits, axis=0), np.cov(np.transpose(fits))
    rest = [c.degrees - with_one(c.day) @ w for c, w in zip(train, fits, strict=True)]
    noise = np.mean(np.concatenate(rest) ** 2)

    def predict(day: np.ndarray, degrees: np.ndarray, ask: np.ndarray) -> np.ndarray:
        X = with_one(day)
        K = X @ S @ X.T + noise * np.eye(len(day))
        w = mean + S @ X.T @ np.linalg.solve(K, degrees - X @ mean)
        return with_one(ask) @ w

    return predict


def few_shot(method: str, train: list[CityYear], iterations: int, seed: int) -> Predict:
    model = MTNetRegressor(
        method,
        alpha=0.05,
        steps=5,
        queries=50,
        iterations=iterations,
        random_state=seed,
        held_out=0.0,  # train on all cities, as the other methods
    )
    model.meta_fit(
        np.concatenate([waves(c.day) for c in train]),
        np.concatenate([c.degrees for c in train]),
        np.repeat(np.arange(len(train)), [len(c.day) for c in train]),
    )
    return lambda day, degrees, ask: model.fit(waves(day), degrees).predict(waves(ask))


def errors(predict: Predict, tests: list[CityYear], seed: int = 0) -> np.ndarray:
    """Root mean square error per city-year, with the same 10 support days for every method."""
    values = []
    for i, c in enumerate(tests):
        order = np.random.default_rng((seed, i)).permutation(len(c.day))
        known, asked = order[:DAYS], order[DAYS:]
        predicted = predict(c.day[known], c.degrees[known], c.day[asked])
        values.append(np.sqrt(np.mean((predicted - c.degrees[asked]) ** 2)))
    return np.array(values)


def best(make: Callable[..., Predict], grid: list[tuple[float, ...]], some: list[CityYear]) -> Any:
    """The grid entry with the lowest mean error on some of the training city-years."""
    scores = [errors(make(*entry), some, seed=1).mean() for entry in grid]
    return grid[int(np.argmin(scores))]


def floor(tests: list[CityYear]) -> np.ndarray:
    """Three harmonics fitted to the whole year: a lower bound for such models."""
    fit = lambda c: LinearRegression().fit(waves(c.day), c.degrees)  # noqa: E731
    return np.array(
        [np.sqrt(np.mean((fit(c).predict(waves(c.day)) - c.degrees) ** 2)) for c in tests]
    )


def contenders(
    train: list[CityYear], iterations: int, seeds: range, tune_on: int
) -> dict[str, list[Predict]]:
    """All methods by name; the few-shot methods have one predictor per seed.

    Hyperparameters of the other methods are tuned on `tune_on` training city-years.
    """
    some = [train[i] for i in np.random.default_rng(2).permutation(len(train))[:tune_on]]
    strength = best(ridge, [(a,) for a in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)], some)
    signals, lengths = (10.0, 30.0, 100.0, 300.0, 1000.0), (1.0, 2.0, 4.0, 8.0)
    grid = [(signal, length) for signal in signals for length in lengths]
    gp = best(gaussian_process, grid, some)
    print(f"tuned on training cities: ridge {strength}, Gaussian process {gp}")
    return {
        "average of the training cities": [average(train)],
        "sinusoid, least squares": [sinusoid()],
        "ridge on three harmonics": [ridge(*strength)],
        "Gaussian process": [gaussian_process(*gp)],
        "Bayesian linear, learned prior": [bayesian(train)],
        "maml": [few_shot("maml", train, iterations, s) for s in seeds],
        "mt-net": [few_shot("mt-net", train, iterations, s) for s in seeds],
    }


ALONE = ("sinusoid, least squares", "ridge on three harmonics", "Gaussian process")


def main(quick: bool = False, seeds: int = 2, out: Path | None = None) -> None:
    """Compare few-shot learners with other models on city temperatures.

    Args:
        quick: Few iterations and 50 city-years, as a smoke test.
        seeds: Number of networks per few-shot method.
        out: JSON file to write; a plot with the same name is written next to it.
    """
    path = Path(os.environ.get("MTNET_DATA", "../shared/data"))
    every = city_years(path / "city_temperature" / "city_daily_temp.npz")
    order = np.random.default_rng(0).permutation(sorted({c.city for c in every})).tolist()
    learn_from = set(order[:CITIES])
    train = [c for c in every if c.city in learn_from]
    tests = [c for c in every if c.city not in learn_from]
    tests = tests[:: len(tests) // 50] if quick else tests
    print(f"{len(train)} training city-years of {CITIES} cities, {len(tests)} test city-years")
    iterations, tune_on = (200, 20) if quick else (10_000, 200)
    began, errors_by_name, predictors_by_name = time.time(), {}, {}
    for name, predictors in contenders(train, iterations, range(seeds), tune_on).items():
        errors_by_name[name] = np.mean([errors(p, tests) for p in predictors], axis=0)
        predictors_by_name[name] = predictors[0]
    errors_by_name["(three harmonics fitted to the whole year)"] = floor(tests)
    rows = [
        summary(name, of_years, errors_by_name["mt-net"])
        for name, of_years in errors_by_name.items()
    ]
    for row in rows:
        apart = f"{row['minus_mt_net']:+.3f} ± {row['minus_mt_net_ci95']:.3f}"
        print(f"{row['method']:44s} {row['mean']:.3f} ± {row['ci95']:.3f}   {apart}")
    results = {
        "experiment": "city_temperature",
        "mtnet_version": mtnet.__version__,
        "commit": git_commit(),
        "command": "python examples/city_temperature.py --out results/city_temperature.json",
        "protocol": {
            "metric": "root mean square error in degrees Celsius of a city-year, mean over them",
            "ci95": "1.96 standard errors over city-years",
            "minus_mt_net": "mean difference on the same city-years, with its interval",
            "pooled": "root of the mean square over city-years",
            "support": f"{DAYS} random days, the same for all methods; the others are queries",
            "train": f"{len(train)} city-years of {CITIES} cities; test cities are different",
            "tasks": len(tests),
            "seeds": seeds,
            "iterations": iterations,
            "quick": quick,
        },
        "rows": rows,
        "minutes": (time.time() - began) / 60,
    }
    if out is not None:
        out.write_text(json.dumps(results, indent=1) + "\n")
        plot(predictors_by_name, tests).savefig(out.with_suffix(".png"), dpi=110)
        print(f"written to {out} and {out.with_suffix('.png')}")


def summary(name: str, of_years: np.ndarray, mt_net: np.ndarray) -> dict[str, Any]:
    half = lambda values: float(1.96 * values.std(ddof=1) / np.sqrt(len(values)))  # noqa: E731
    return {
        "method": name,
        "mean": float(of_years.mean()),
        "ci95": half(of_years),
        "minus_mt_net": float((of_years - mt_net).mean()),
        "minus_mt_net_ci95": half(of_years - mt_net),
        "pooled": float(np.sqrt(np.mean(of_years**2))),
    }


def plot(predictors: dict[str, Predict], tests: list[CityYear]) -> Figure:
    """Four test cities: the year, the ten support days, and three predictions."""
    figure = Figure(figsize=(11, 6), layout="constrained")
    chosen = [tests[i] for i in np.random.default_rng(3).permutation(len(tests))[:4]]
    days = np.arange(1, 366)
    for axes, c in zip(figure.subplots(2, 2, sharex=True).flat, chosen, strict=True):
        known = np.random.default_rng(4).permutation(len(c.day))[:DAYS]
        axes.plot(c.day, c.degrees, ".", ms=2, color="0.75", label="the year")
        for name, colour in (("sinusoid, least squares", "C1"), ("maml", "C0"), ("mt-net", "C2")):
            axes.plot(
                days,
                predictors[name](c.day[known], c.degrees[known], days),
                color=colour,
                label=name,
            )
        axes.plot(c.day[known], c.degrees[known], "k.", ms=8, label="the ten days")
        axes.set(title=f"{c.city}, {c.year}")
        axes.set_ylim(c.degrees.min() - 6, c.degrees.max() + 6)
    figure.axes[0].legend(fontsize=7)
    figure.supxlabel("day of the year")
    figure.supylabel("degrees Celsius")
    return figure


if __name__ == "__main__":
    tyro.cli(main)
