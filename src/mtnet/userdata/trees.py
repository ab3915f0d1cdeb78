"""Regression trees of gradient boosting as plain numbers, and their prediction.

A node is a position in four lists. It sends a row to `left` if its `feature` is at most `number`,
else to `right`; a leaf leads to itself, and its `number` is its value. Children come after their
parents. Inputs are encoded, so that none is missing.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mtnet.errors import InputError

ROWS = 4096
"""Rows that are predicted at the same time."""


@dataclass(frozen=True)
class Trees:
    """The prediction is `first` plus one leaf of each tree."""

    first: float
    roots: tuple[int, ...]
    feature: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    number: tuple[float, ...]
    """In single precision."""


NODES = {"feature": [int], "left": [int], "right": [int], "number": [float]}
TREES = {"first": float, "roots": [int], **NODES}
"""`Trees` in a file."""


def take_trees(model: Any) -> Trees:
    """The trees of a fitted `HistGradientBoostingRegressor` with numeric inputs only."""
    nodes = [tree.nodes for (tree,) in model._predictors]
    sizes = [len(n) for n in nodes]
    starts = np.cumsum([0, *sizes])[:-1].astype(int)
    every = np.concatenate(nodes) if nodes else np.zeros(0, DTYPE)
    leaf, own = every["is_leaf"].astype(bool), np.arange(len(every))
    first_node = np.repeat(starts, sizes).astype(int)
    child = lambda side: np.where(leaf, own, every[side] + first_node)  # noqa: E731
    threshold = round_down(every["num_threshold"])
    number = np.where(leaf, every["value"].astype(np.float32), threshold)
    return Trees(
        float(np.ravel(model._baseline_prediction)[0]),
        tuple(starts.tolist()),
        tuple(np.where(leaf, 0, every["feature_idx"]).tolist()),
        tuple(child("left").tolist()),
        tuple(child("right").tolist()),
        tuple(float(str(n)) for n in number),
    )


DTYPE = [("is_leaf", "u1"), ("left", "u4"), ("right", "u4"), ("feature_idx", "i8")]
DTYPE += [("value", "f8"), ("num_threshold", "f8")]


def round_down(numbers: np.ndarray) -> np.ndarray:
    """The largest float32 that is at most each number: x <= it is the same for every float32 x."""
    near = np.minimum(numbers, np.finfo(np.float32).max).astype(np.float32)
    return np.where(near > numbers, np.nextafter(near, np.float32(-np.inf)), near)


def predict_trees(trees: Trees, x: np.ndarray) -> np.ndarray:
    """The prediction of each row of encoded inputs; more columns than the trees use are ignored."""
    x = np.asarray(x, np.float32)
    feature, left, right = (np.array(a, int) for a in (trees.feature, trees.left, trees.right))
    number, roots = np.array(trees.number, np.float32), np.array(trees.roots, int)
    sums = np.full(len(x), trees.first)
    for begin in range(0, len(x) if len(roots) else 0, ROWS):
        some = x[begin : begin + ROWS]
        rows, node = np.arange(len(some))[:, None], np.tile(roots, (len(some), 1))
        while True:
            below = np.where(some[rows, feature[node]] <= number[node], left[node], right[node])
            if (below == node).all():
                break
            node = below
        sums[begin : begin + ROWS] += number[node].sum(axis=1, dtype=np.float64)
    return sums


def trees_from_plain(values: dict[str, Any], width: int) -> Trees:
    """Trees of a file for `width` inputs; an InputError if they are no trees."""
    lists = {name: tuple(values[name]) for name in TREES if name != "first"}
    trees = Trees(values["first"], **lists)
    count, own = len(trees.number), np.arange(len(trees.number))
    children = [np.array(side, int) for side in (trees.left, trees.right)]
    same = all(len(a) == count for a in (trees.feature, *children))
    if not (
        same
        and all(((own <= side) & (side < count)).all() for side in children)
        and all(0 <= root < count for root in trees.roots)
        and all(0 <= feature < width for feature in trees.feature)
    ):
        raise InputError("the trees of the base are damaged: write the file again with mtnet fit")
    return trees
