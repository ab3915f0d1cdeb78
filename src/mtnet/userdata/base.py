"""A pooled model below the network: gradient boosting on the rows of all training groups.

Its prediction is one more input, the last, to which the network adds. Rows of training groups get
predictions of trees that have not seen their group, so that the network learns to correct what it
will find in a new group.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from mtnet.errors import InputError
from mtnet.userdata.schema import add_base, add_waves
from mtnet.userdata.tables import TableTasks
from mtnet.userdata.trees import Trees, predict_trees, take_trees

Base = Literal["none", "boosting"]
FOLDS = 5


def fit_trees(x: np.ndarray, y: np.ndarray) -> Trees:
    """Gradient boosting with scikit-learn's defaults, as in the baselines of `mtnet fit`.

    On one core: more are rarely faster for tables of this size, and much slower if they are busy.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError:
        raise InputError("--base needs scikit-learn: pip install 'mtnet[cli]'") from None
    with threadpool_limits(1, "openmp"):
        return take_trees(HistGradientBoostingRegressor(random_state=0).fit(x, y))


def out_of_fold(x: np.ndarray, y: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Predictions of each row by trees fitted to other groups.

    Args:
        x: Encoded inputs.
        y: Targets, a vector.
        groups: The group of each row.
    """
    from sklearn.model_selection import GroupKFold

    predicted = np.zeros(len(y))
    folds = GroupKFold(min(FOLDS, len(np.unique(groups))))
    for others, own in folds.split(x, y, groups):
        predicted[own] = predict_trees(fit_trees(x[others], y[others]), x[own])
    return predicted


def widen(table: TableTasks, base: Base, waves: int) -> TableTasks:
    """The table with more inputs: waves of its numbers, and the prediction of a base."""
    schema = replace(table.schema, waves=waves)
    wide = table._replace(
        rows=table.rows._replace(x=add_waves(schema, table.rows.x)), schema=schema
    )
    return wide if base == "none" else with_base(wide)


def with_base(table: TableTasks) -> TableTasks:
    """The table with the prediction of boosted trees as its last input."""
    if table.classes:
        name = table.schema.target.name
        raise InputError(f"--base is for numbers, and the target {name!r} has classes: remove it")
    if len(table.splits["train"]) < 2:
        raise InputError("--base needs at least 2 training groups: remove it, or give more groups")
    x, y = table.rows.x, np.asarray(table.rows.y, np.float64).reshape(-1)
    group = np.repeat(np.arange(len(table.rows.count)), table.rows.count)
    train = np.isin(group, table.splits["train"])
    raw = x[:, : table.schema.raw_width]
    trees = fit_trees(raw[train], y[train])
    wide = add_base(trees, x)
    wide[train, -1] = out_of_fold(raw[train], y[train], group[train])
    return table._replace(
        rows=table.rows._replace(x=wide), schema=replace(table.schema, base=trees)
    )
