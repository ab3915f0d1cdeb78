"""The TOML file of `mtnet sweep`: which settings are fixed, and which are varied.

seeds = [0, 1, 2]                     # one run per seed and combination of settings
draws = 8                             # of [ranges], together

[settings]                            # of every run
family = "sine"

[grid]                                # every combination of these values
alpha = [0.003, 0.01, 0.03]

[ranges]                              # random values, combined with the grid
beta = { log = [1e-4, 1e-2] }
width = { uniform = [20, 80] }
"""

import itertools
import tomllib
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np

from mtnet.check_data import check_data, matches, read_text
from mtnet.config import GROUPS, NAMES, Config, from_dict
from mtnet.errors import InputError, check_name

Settings = dict[str, Any]
SHAPE = {
    "seeds?": [int],
    "draws?": int,
    "settings?": {"data?": str},
    "grid?": {str: []},
    "ranges?": {str: {}},
}
KEYS = [key.removesuffix("?") for key in SHAPE]
NOT_VARIED = {
    "seeds": "write seeds = [...] at the top of the file",
    "sweep": "write the step sizes as alpha in [grid]",
    "family": "a sweep compares runs of one family: write it in [settings]",
    "data": "a sweep compares runs on the same data: write it in [settings]",
}
LARGEST = 10_000
"""Runs of a sweep."""
DIGITS = 4
"""Of a number that is drawn."""


class Point(NamedTuple):
    """One combination of settings."""

    varied: Settings
    configs: dict[int, Config]
    """By seed."""

    @property
    def name(self) -> str:
        return describe(self.varied)


def describe(varied: Settings) -> str:
    """`alpha 0.01, width 40`."""
    return ", ".join(f"{name} {short(value)}" for name, value in varied.items()) or "as given"


def short(value: Any) -> str:
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else str(value)


def read_sweep(path: Path) -> list[Point]:
    """All combinations of settings in a file, each with one config per seed."""
    try:
        file = tomllib.loads(read_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML ({error}): correct it") from None
    for key in file:
        check_name(f"part of {path}", key, KEYS)
    check_data(file, SHAPE, str(path), "correct it")
    fixed, grid, ranges = (file.get(key, {}) for key in ("settings", "grid", "ranges"))
    _check_varied(path, fixed, grid, ranges)
    if "data" in fixed:
        fixed["data"] = str(path.parent / fixed["data"])
    seeds, draws = list(dict.fromkeys(file.get("seeds", [0]))), file.get("draws", 1)
    if not seeds:
        raise InputError(f"{path}: seeds must name at least one seed, e.g. seeds = [0]")
    if bool(ranges) != ("draws" in file):
        raise InputError(f"{path}: [ranges] and draws = NUMBER go together: add or remove one")
    if draws < 1:
        raise InputError(f"{path}: draws must be at least 1; it is {draws}")
    count = draws * len(seeds)
    for values in grid.values():
        count *= len(values)
    if count > LARGEST:
        raise InputError(f"{path}: {count} runs are more than {LARGEST}: vary fewer settings")
    points: dict[str, Point] = {}
    for drawn in draw_ranges(ranges, draws):  # whole numbers may be drawn twice
        for values in itertools.product(*grid.values()):
            varied = dict(zip(grid, values, strict=True)) | drawn
            one = {s: from_dict(fixed | varied | {"seeds": [s]}, str(path)) for s in seeds}
            points.setdefault(repr(varied), Point(varied, one))
    return list(points.values())


def _check_varied(path: Path, fixed: Settings, grid: Settings, ranges: Settings) -> None:
    varied = [*grid, *ranges]
    for name in varied:
        if name in NOT_VARIED:
            raise InputError(f"{path}: {name} cannot be varied; {NOT_VARIED[name]}")
        try:
            check_name("setting", name, NAMES)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        if name in fixed or varied.count(name) > 1:
            raise InputError(f"{path}: {name} is given twice: remove one of them")
    for name in {"seeds", "sweep"} & fixed.keys():
        raise InputError(f"{path}: {name} cannot be in [settings]; {NOT_VARIED[name]}")
    for name, values in grid.items():
        if not values:
            raise InputError(f"{path}: {name} in [grid] has no values: add some, or remove it")
    for name, limits in ranges.items():
        _check_range(path, name, limits)


def _check_range(path: Path, name: str, limits: Settings) -> None:
    problem = f"{path}: {name} in [ranges] must be like {{ log = [1e-4, 1e-2] }} or"
    problem += f" {{ uniform = [20, 80] }}; it is {limits}"
    if len(limits) != 1 or not matches(limits, {"log?": [float], "uniform?": [float]}):
        raise InputError(problem)
    [(kind, ends)] = limits.items()
    if kind not in ("log", "uniform") or len(ends) != 2 or not ends[0] < ends[1]:
        raise InputError(problem)
    if kind == "log" and ends[0] <= 0:
        raise InputError(f"{path}: {name} has a log range, which must start above 0: {ends}")


def draw_ranges(ranges: dict[str, Settings], draws: int) -> list[Settings]:
    """Random values; always the same, and with more draws the first ones stay."""
    rng = np.random.default_rng(0)
    if not ranges:
        return [{}]

    def draw(name: str) -> int | float:
        [(kind, (low, high))] = ranges[name].items()
        u = rng.uniform()
        value = low * (high / low) ** u if kind == "log" else low + (high - low) * u
        return round(value) if _is_integer(name) else float(f"{value:.{DIGITS}g}")

    return [{name: draw(name) for name in ranges} for _ in range(draws)]


def _is_integer(name: str) -> bool:
    hint = get_type_hints(GROUPS.get(NAMES[name] or "", Config))[name]
    return int in (get_args(hint) or (hint,))
