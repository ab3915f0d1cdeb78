"""The columns that a model knows: their names, scales and categories.

Computed on the training groups, stored with the model, and used for every later file.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from mtnet.errors import InputError
from mtnet.userdata.trees import Trees, predict_trees, trees_from_plain

Missing = Literal["refuse", "mean"]
MAX_WAVES = 100
FARTHEST = 1e6
"""Standard deviations from the training mean; networks overflow at larger inputs."""
LARGEST = 1e100
"""Larger numbers, whose squares would overflow, are refused."""


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
    na: tuple[str, ...] = ()
    """Texts that stand for missing values."""
    waves: int = 0
    """Pairs of sine and cosine per numeric input."""
    base: Trees | None = None
    """A pooled model whose prediction is the last input."""

    def __post_init__(self) -> None:
        if not 0 <= self.waves <= MAX_WAVES:
            raise InputError(f"waves must be from 0 to {MAX_WAVES}; it is {self.waves}")

    @property
    def raw_width(self) -> int:
        """Encoded inputs without waves and base; they come first."""
        return sum(1 if c.levels is None else len(c.levels) for c in self.inputs)


def fit_column(name: str, values: np.ndarray, category: bool = False) -> Column:
    """The scale of a numeric column, or the levels of a category; text is a category."""
    if category or values.dtype == object:
        levels = {level_name(v) for v in values.tolist() if present(v)}
        return Column(name, levels=tuple(sorted(levels)))
    known = values[~np.isnan(values)]
    if not len(known):
        raise InputError(f"column {name!r} has no numbers in the training groups")
    spread = float(known.std())
    return Column(name, float(known.mean()), spread if spread > 0 else 1.0)


def new_levels(column: Column, values: np.ndarray) -> list[str]:
    """Levels of a category that were in no training group."""
    if column.levels is None:
        return []
    levels = {level_name(v) for v in values.tolist() if present(v)}
    return sorted(levels - set(column.levels))


def present(value: Any) -> bool:
    return value is not None and value == value  # nan is not itself


def is_present(values: np.ndarray) -> np.ndarray:
    """Whether each value of a column is there."""
    return np.array([present(v) for v in values.tolist()], bool)


def level_name(value: Any) -> str:
    """The name of a level: 3, not 3.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def is_number(value: Any) -> bool:
    if isinstance(value, bool) or "_" in str(value):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def encode(column: Column, values: np.ndarray, source: str) -> np.ndarray:
    """(rows, width): scaled numbers, or one column per level.

    A missing number is encoded as the mean, a missing or unknown level as zeros.
    """
    if column.levels is None:
        return _encode_numbers(column, values, source)[:, None]
    one_hot = np.zeros((len(values), len(column.levels)), np.float32)
    place = {level: i for i, level in enumerate(column.levels)}
    for row, value in enumerate(values.tolist()):
        if present(value) and level_name(value) in place:
            one_hot[row, place[level_name(value)]] = 1
    return one_hot


def encode_all(schema: Schema, columns: dict[str, np.ndarray], source: str) -> np.ndarray:
    """All inputs concatenated, then waves and the prediction of the base: (rows, width)."""
    x = np.concatenate([encode(c, columns[c.name], source) for c in schema.inputs], axis=1)
    return add_inputs(schema, x)


def add_inputs(schema: Schema, x: np.ndarray) -> np.ndarray:
    """Encoded columns, then their waves and the prediction of the base."""
    x = add_waves(schema, x)
    return x if schema.base is None else add_base(schema.base, x)


def add_waves(schema: Schema, x: np.ndarray) -> np.ndarray:
    """Encoded inputs, and sines and cosines of the numeric ones at `schema.waves` frequencies.

    The slowest has one period in the range of a uniform column, 2 sqrt(3) standard deviations.
    """
    numeric = [c.levels is None for c in schema.inputs for _ in c.levels or (0,)]
    frequency = np.arange(1, schema.waves + 1) * np.pi / np.sqrt(3)
    angle = np.multiply.outer(x[:, numeric], frequency).reshape(len(x), -1)
    return np.concatenate([x, np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)


def add_base(trees: Trees, x: np.ndarray) -> np.ndarray:
    """Encoded inputs with one more column: the prediction of the trees, in the scaled unit."""
    return np.column_stack([x, predict_trees(trees, x)]).astype(np.float32)


def _encode_numbers(column: Column, values: np.ndarray, source: str) -> np.ndarray:
    scaled = (as_numbers(column.name, values, source) - column.mean) / column.spread
    far = np.abs(scaled) > FARTHEST
    if far.any():
        row = int(np.argmax(far))
        raise InputError(
            f"{source}, row {row + 1}, column {column.name!r}: {values[row]} is too far from the "
            f"training values (mean {column.mean:.4g}, standard deviation {column.spread:.4g})"
        )
    return np.where(np.isnan(scaled), 0.0, scaled).astype(np.float32)


def as_numbers(name: str, values: np.ndarray, source: str) -> np.ndarray:
    """Numbers; an error names the first row that is not a number."""
    if values.dtype != object:
        return values
    for row, value in enumerate(values.tolist()):
        if present(value) and not is_number(value):
            raise InputError(
                f"{source}, row {row + 1}, column {name!r}: {value!r} is not a number; correct it, "
                "or leave it blank"
            )
    numbers = np.array([float(v) if present(v) else np.nan for v in values.tolist()])
    check_size(name, numbers, source)
    return numbers


def check_size(name: str, numbers: np.ndarray, source: str) -> None:
    """Raise an InputError that names the first number that is infinite or too large."""
    large = np.abs(numbers) > LARGEST
    if large.any():
        row = int(np.argmax(large))
        raise InputError(
            f"{source}, row {row + 1}, column {name!r}: {numbers[row]:g} is too large: correct it, "
            "or leave it blank"
        )


def has_all(schema: Schema, columns: dict[str, np.ndarray]) -> np.ndarray:
    """Whether each row has a value in every input column."""
    return np.all([is_present(columns[c.name]) for c in schema.inputs], axis=0)


def refuse_missing(
    schema: Schema, columns: dict[str, np.ndarray], rows: np.ndarray, source: str
) -> None:
    """Raise an InputError for the first missing input of these rows, if `fit` refuses them."""
    for column in schema.inputs if schema.missing == "refuse" else ():
        known = is_present(columns[column.name][rows])
        if not known.all():
            raise missing_value(source, column.name, int(rows[np.argmin(known)]))


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
    task, missing, na = values["task"], values["missing"], tuple(values.get("na", ()))
    schema = Schema(task, inputs, column(values["target"]), missing, na, values.get("waves", 0))
    trees = values.get("base")
    return replace(schema, base=trees and trees_from_plain(trees, schema.raw_width))
