"""Calibration of class probabilities: softmax(logits / temperature)."""

import numpy as np

COLDEST, HOTTEST = 0.02, 1000.0
BINS = 15


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature with the smallest log loss; 1 if the logits are not finite.

    Args:
        logits: (..., classes).
        labels: (...), from 0.
    """
    logits, labels = _flat(logits, labels)
    if not np.isfinite(logits).all():
        return 1.0
    low, high = 1 / HOTTEST, 1 / COLDEST  # the loss is convex in 1 / temperature
    for _ in range(60):
        middle = np.sqrt(low * high)
        slope = np.mean(np.sum(_softmax(middle * logits) * logits, axis=1) - _own(logits, labels))
        low, high = (low, middle) if slope > 0 else (middle, high)
    found = float(f"{1 / middle:.5g}")
    return found if log_loss(logits / found, labels) < log_loss(logits, labels) else 1.0


def log_loss(logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean negative logarithm of the probability of the true class."""
    logits, labels = _flat(logits, labels)
    top = logits.max(axis=1)
    total = top + np.log(np.sum(np.exp(logits - top[:, None]), axis=1))
    return float(np.mean(total - _own(logits, labels)))


def calibration_error(logits: np.ndarray, labels: np.ndarray) -> float:
    """Expected calibration error in percent: |accuracy - probability| of predicted classes.

    Predictions are put into 15 bins of equal width by their probability.
    """
    logits, labels = _flat(logits, labels)
    p = _softmax(logits)
    sure, right = p.max(axis=1), p.argmax(axis=1) == labels
    place = np.minimum((sure * BINS).astype(int), BINS - 1)
    apart = np.bincount(place, weights=right - sure, minlength=BINS)
    return float(100 * np.abs(apart).sum() / len(sure))


def _flat(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(logits, np.float64).reshape(-1, logits.shape[-1]), labels.reshape(-1)


def _softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _own(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
