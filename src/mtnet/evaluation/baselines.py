"""What mtnet is compared with after a fit: simple predictors of one task from its support rows.

A baseline is a pure function `(support, query inputs) -> query predictions`, in NumPy; targets are
vectors of numbers or of classes. Those that need scikit-learn import it when they are called.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mtnet.core.evaluate import summarise
from mtnet.core.types import Episode
from mtnet.evaluation.measure import finite
from mtnet.userdata.base import fit_trees
from mtnet.userdata.trees import predict_trees


class Support(NamedTuple):
    """Support rows of one task."""

    x: np.ndarray
    y: np.ndarray


Baseline = Callable[[Support, np.ndarray], np.ndarray]

RIDGE_PENALTIES = 10.0 ** np.arange(-6, 4)
LENGTHS = 2.0 ** np.arange(-3, 5, 0.5)
"""Length scales of the Gaussian process, per square root of the number of inputs."""
NOISES = 10.0 ** np.arange(-8, 1)
"""Noise variances of the Gaussian process, per variance of the function."""
TONES = 8
"""Levels per channel of a colour histogram."""


def mean_target(support: Support, x: np.ndarray) -> np.ndarray:
    """The mean of the support targets."""
    return np.full(len(x), support.y.mean())


def ridge(support: Support, x: np.ndarray) -> np.ndarray:
    """Linear regression; the penalty has the smallest leave-one-out error."""
    if len(support.y) < 3:  # too few to leave one out
        return mean_target(support, x)
    from sklearn.linear_model import RidgeCV

    return RidgeCV(RIDGE_PENALTIES).fit(*support).predict(x)


def neighbours(support: Support, x: np.ndarray) -> np.ndarray:
    """Mean target of the k nearest support rows; k has the smallest leave-one-out error."""
    if len(support.y) < 3:
        return mean_target(support, x)
    apart = squared_distances(support.x, support.x)
    np.fill_diagonal(apart, np.inf)  # so that a row is the last of its own neighbours
    left_out = nearest_means(apart, support.y)[:, :-1]
    k = np.argmin(np.mean((left_out - support.y[:, None]) ** 2, axis=0))
    return nearest_means(squared_distances(x, support.x), support.y)[:, k]


def nearest_means(apart: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Mean target of the 1, 2, ..., n nearest rows; `apart` is (queries, n)."""
    nearest = y[np.argsort(apart, axis=1, kind="stable")]
    return np.cumsum(nearest, axis=1) / np.arange(1, len(y) + 1)


def gaussian_process(support: Support, x: np.ndarray) -> np.ndarray:
    """Squared-exponential kernel and noise, around the mean of the support targets.

    Length scale and noise are those of a grid with the largest marginal likelihood; the variance
    that maximises it, y' K^-1 y / n, is known.
    """
    mean, n = support.y.mean(), len(support.y)
    y, best = support.y - mean, (-np.inf, mean_target(support, x))
    inner, outer = squared_distances(support.x, support.x), squared_distances(x, support.x)
    for length in LENGTHS * np.sqrt(x.shape[1]):
        values, vectors = np.linalg.eigh(np.exp(-inner / (2 * length**2)))
        turned = vectors.T @ y
        to_query = np.exp(-outer / (2 * length**2)) @ vectors
        for noise in NOISES:
            total = np.maximum(values, 0) + noise
            variance = max(np.mean(turned**2 / total), np.finfo(float).tiny)
            likelihood = -0.5 * (n * np.log(variance) + np.log(total).sum())
            if likelihood > best[0]:
                best = likelihood, mean + to_query @ (turned / total)
    return best[1]


def boosting(x: np.ndarray, y: np.ndarray) -> Baseline:
    """Gradient boosting on the rows of all training groups, plus the task's mean residual."""
    trees = fit_trees(x, y)

    def boosted(support: Support, x: np.ndarray) -> np.ndarray:
        residual = support.y - predict_trees(trees, support.x)
        return predict_trees(trees, x) + np.mean(residual)

    return boosted


def nearest_neighbour(support: Support, x: np.ndarray) -> np.ndarray:
    """The class of the nearest support row: the smallest |s|^2 - 2 s x, as |x|^2 is the same."""
    apart = np.sum(support.x**2, axis=1) - 2 * x @ support.x.T
    return support.y[np.argmin(apart, axis=1)]


def logistic_regression(support: Support, x: np.ndarray) -> np.ndarray:
    """Logistic regression, with scikit-learn's default penalty."""
    if len(np.unique(support.y)) == 1:
        return most_frequent(support, x)
    from sklearn.linear_model import LogisticRegression

    axes = np.linalg.qr(support.x.T)[0]  # the best weights are combinations of the rows
    model = LogisticRegression(max_iter=1000).fit(support.x @ axes, support.y)
    return model.predict(x @ axes)


def most_frequent(support: Support, x: np.ndarray) -> np.ndarray:
    """The most frequent class of the support rows."""
    return np.full(len(x), np.argmax(np.bincount(support.y)))


def on_pixels(baseline: Baseline) -> Baseline:
    """A baseline on images (n, channels, height, width), as vectors."""
    flat = lambda x: x.reshape(len(x), -1)  # noqa: E731
    return lambda support, x: baseline(Support(flat(support.x), support.y), flat(x))


def on_histograms(baseline: Baseline) -> Baseline:
    """A baseline on the colours of images; tones for grey ones."""
    return lambda support, x: baseline(Support(histograms(support.x), support.y), histograms(x))


def histograms(x: np.ndarray) -> np.ndarray:
    """Square roots of the shares of `TONES`^channels colours, so that distances are Hellinger's.

    Args:
        x: (n, channels, height, width), from 0 to 1.

    Returns:
        One row per image.
    """
    n, channels = x.shape[:2]
    tones = np.minimum((x * TONES).astype(int), TONES - 1).reshape(n, channels, -1)
    colours = np.einsum("ncp,c->np", tones, TONES ** np.arange(channels))
    counts = [np.bincount(row, minlength=TONES**channels) for row in colours]
    return np.sqrt(np.array(counts) / colours.shape[1])


def squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.sum((a[:, None] - b) ** 2, axis=-1)


def baselines_for(rows: Any, classes: bool, images: bool = False) -> dict[str, Baseline]:
    """The baselines by name.

    Args:
        rows: `Groups` of the training split.
        classes: Whether the targets are classes.
        images: Whether the inputs are images.

    Returns:
        Functions `(support, query inputs) -> query predictions`.
    """
    if images:
        return {
            "nearest neighbour, pixels": on_pixels(nearest_neighbour),
            "nearest neighbour, colours": on_histograms(nearest_neighbour),
            "logistic regression, pixels": on_pixels(logistic_regression),
        }
    if classes:
        return {
            "most frequent class": most_frequent,
            "nearest neighbour": nearest_neighbour,
            "logistic regression": logistic_regression,
        }
    return {
        "mean of the support rows": mean_target,
        "ridge regression": ridge,
        "k-nearest neighbours": neighbours,
        "Gaussian process": gaussian_process,
        "pooled boosting + offset": boosting(np.asarray(rows.x), flat(rows.y)),
    }


def task_scores(baseline: Baseline, tasks: Episode) -> np.ndarray:
    """Accuracy in percent, or mean squared error, on the query rows of each task.

    Args:
        baseline: The baseline.
        tasks: Tasks, stacked along a leading axis.
    """
    (support_x, support_y), (query_x, query_y) = tasks
    scores = []
    for known_x, known_y, x, y in zip(support_x, support_y, query_x, query_y, strict=True):
        support = Support(np.asarray(known_x, np.float64), flat(known_y))
        prediction, target = baseline(support, np.asarray(x, np.float64)), flat(y)
        if target.dtype.kind == "i":
            scores.append(100 * np.mean(prediction == target))
        else:
            scores.append(np.mean((prediction - target) ** 2))
    return np.array(scores)


def flat(y: Any) -> np.ndarray:
    """Classes as they are; numbers as a vector of float64."""
    y = np.asarray(y)
    return y if y.dtype.kind == "i" else y.reshape(-1).astype(np.float64)


def compare_scores(scores: dict[str, np.ndarray], larger_is_better: bool) -> list[dict[str, Any]]:
    """The mean score of each method, and its paired difference from the first.

    Args:
        scores: One score per task, by method; the tasks are the same.
        larger_is_better: As for accuracies.

    Returns:
        One row per method, with `better`: whether it is better than the first, with a 95 %
        interval (over tasks) that excludes zero. Numbers that are not finite are None.
    """
    first = next(iter(scores.values()))
    sign = 1 if larger_is_better else -1
    rows = []
    for name, own in scores.items():
        mean, ci95, *_ = summarise(own)
        with np.errstate(invalid="ignore"):
            difference, difference_ci95, *_ = summarise(own - first)
        if np.isfinite(difference):
            better = sign * difference > difference_ci95
        else:
            better = bool(np.isfinite(mean) and not np.isfinite(first).all())
        row = {"method": name, "mean": finite(mean), "ci95": finite(ci95)}
        row |= {"difference": finite(difference), "difference_ci95": finite(difference_ci95)}
        rows.append(row | {"better": bool(better)})
    return rows
