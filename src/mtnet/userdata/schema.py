"""The columns that a model knows: their names, scales and categories.

Computed on the training groups, stored with the model, and used for every later file.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from mtnet.errors import InputError

Missing = Literal["refuse", "mean"]
NEARLY_ALL = 0.8
"""A text column with at least this fraction of numbers should have numbers only."""


@dataclass(frozen=True)
class Column:
    """A numeric column (mean and standard deviation), or a category (its levels, sorted)."""

    name: str
    mean: float = 0.0
    spread: float = 1.0
    levels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Schema:
    task: str
    inputs: tuple[Column, ...]
    target: Column
    missing: Missing = "refuse"


def fit_column(name: str, values: np.ndarray, category: bool = False) -> Column:
    """The scale of a numeric column, or the levels of a category; text is a category."""
    if category or values.dtype == object:
        return Column(name, levels=tuple(sorted({level_name(v) for v in values if present(v)})))
    finite = values[np.isfinite(values)]
    if not len(finite):
        raise InputError(f"column {name!r} has no numbers in the training groups")
    spread = float(finite.std())
    return Column(name, float(finite.mean()), spread if spread > 0 else 1.0)


def present(value: Any) -> bool:
    return value is not None and value == value  # nan is not itself


def level_name(value: Any) -> str:
    """The name of a level: 3, not 3.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def nearly_numbers(values: np.ndarray) -> bool:
    """Whether a text column is numeric with a few mistakes, and not a category."""
    known = [v for v in values.tolist() if present(v)]
    return bool(known) and sum(map(is_number, known)) >= NEARLY_ALL * len(known)


def is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)


def encode(
    column: Column, values: np.ndarray, source: str, missing: Missing = "refuse"
) -> np.ndarray:
    """(rows, width): scaled numbers, or one column per level; an unknown level is all zeros."""
    if column.levels is None:
        return encode_numbers(column, values, source, missing)[:, None]
    one_hot = np.zeros((len(values), len(column.levels)), np.float32)
    place = {level: i for i, level in enumerate(column.levels)}
    for row, value in enumerate(values.tolist()):
        if not present(value):
            if missing == "refuse":
                raise missing_value(source, column.name, row)
        elif level_name(value) in place:
            one_hot[row, place[level_name(value)]] = 1
    return one_hot


def encode_all(schema: Schema, columns: dict[str, np.ndarray], source: str) -> np.ndarray:
    """All inputs concatenated, (rows, width)."""
    parts = [encode(c, columns[c.name], source, schema.missing) for c in schema.inputs]
    return np.concatenate(parts, axis=1)


def encode_numbers(column: Column, values: np.ndarray, source: str, missing: Missing) -> np.ndarray:
    numbers = as_numbers(column.name, values, source)
    bad = ~np.isfinite(numbers)
    if bad.any() and missing == "refuse":
        raise missing_value(source, column.name, int(np.argmax(bad)))
    scaled = (numbers - column.mean) / column.spread
    return np.where(bad, 0.0, scaled).astype(np.float32)


def as_numbers(name: str, values: np.ndarray, source: str) -> np.ndarray:
    """Numbers; an error names the first row that is not a number."""
    if values.dtype != object:
        return values
    numbers = np.full(len(values), np.nan)
    for row, value in enumerate(values.tolist()):
        try:
            numbers[row] = np.nan if value is None else float(value)
        except (TypeError, ValueError):
            raise InputError(
                f"{source}, row {row + 1}, column {name!r}: {value!r} is not a number"
            ) from None
    return numbers


def missing_value(source: str, name: str, row: int) -> InputError:
    return InputError(
        f"{source}, row {row + 1}, column {name!r}: the value is missing; fill it in, remove the "
        "row, or fit with --missing mean"
    )


def decode(column: Column, scaled: np.ndarray) -> np.ndarray:
    """Predictions in the target's own unit."""
    return scaled.astype(np.float64) * column.spread + column.mean


def to_plain(schema: Schema) -> dict[str, Any]:
    return asdict(schema)


def from_plain(values: dict[str, Any]) -> Schema:
    def column(v: dict[str, Any]) -> Column:
        levels = v["levels"]
        return Column(v["name"], v["mean"], v["spread"], None if levels is None else tuple(levels))

    inputs = tuple(column(v) for v in values["inputs"])
    return Schema(values["task"], inputs, column(values["target"]), values["missing"])
