"""What a task has changed: A' = T W + T[:, rows] D, the rows being those with mask 1.

Steps on W change rows whose mask is 1 and no others (eq. mt_update), so a task is described by the
rows of W that it changed, even though T spreads the change over all of A = T W.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from mtnet.core.cells import Cells, Weights

RANK_BELOW = 1e-6
"""Eigenvalues of T M T' below this fraction of the largest count as zero."""


class TaskDelta(NamedTuple):
    """The change of one cell."""

    rows: np.ndarray
    D: tuple[np.ndarray, ...]
    """Change of these rows of W (and of b)."""


def task_delta(T: Array | None, M: Any, before: Weights, after: Weights) -> TaskDelta:
    """The change of one cell, from A before and after."""
    n = before[0].shape[0]
    row_mask = M is not None and not isinstance(M, tuple)
    rows = np.flatnonzero(np.broadcast_to(M, n)) if row_mask else np.arange(n)
    E = [_double(b) - _double(a) for a, b in zip(before, after, strict=True)]
    if T is None or T.ndim == 3:  # with blocks the change in A is as compact
        rows = rows if T is None else np.arange(n)
        return TaskDelta(rows, tuple(e[rows].astype(np.float32) for e in E))
    flat = np.concatenate([e.reshape(n, -1) for e in E], axis=1)
    D = np.linalg.lstsq(_double(T)[:, rows], flat, rcond=None)[0]
    ends = np.cumsum([e[0].size for e in E])[:-1]
    parts = np.split(D, ends, axis=1)
    shaped = (p.reshape(len(rows), *e.shape[1:]) for p, e in zip(parts, E, strict=True))
    return TaskDelta(rows, tuple(p.astype(np.float32) for p in shaped))


def apply_delta(T: Array | None, A: Weights, change: TaskDelta) -> tuple[np.ndarray, ...]:
    """A' = A + T[:, rows] D."""
    columns = np.eye(len(A[0]), dtype=np.float32)[:, change.rows]
    if T is not None and T.ndim == 2:
        columns = _double(T)[:, change.rows]
    moved = (np.tensordot(columns, D, axes=1) for D in change.D)
    return tuple(np.asarray(a + m, a.dtype) for a, m in zip(A, moved, strict=True))


class CellSummary(NamedTuple):
    """What `mtnet inspect` prints for a cell."""

    rows: int
    updated: float
    """Number of rows with mask 1, or its expectation."""
    rank: int
    """Of T M T'."""
    spectrum: list[float]
    """Its eigenvalues, largest first."""
    step: float
    """alpha times the mean eigenvalue: the mean step size."""
    moved: float | None
    """|A' - A| / |A|, for an adapted network."""


def cell_summary(
    T: Array | None, M: Any, alpha: Any, before: Weights, after: Weights | None = None
) -> CellSummary:
    """The summary of one cell; `after` is its A after adaptation, if there was one."""
    n = before[0].shape[0]
    m = np.ones(n) if M is None else np.broadcast_to(_by_row(M), n)
    if T is None:
        spectrum = np.sort(m)[::-1]
    else:
        blocks = _double(T).reshape(-1, *T.shape[-2:])
        TM = blocks * m.reshape(len(blocks), 1, -1)
        spectrum = np.sort(np.linalg.eigvalsh(TM @ blocks.swapaxes(1, 2)).ravel())[::-1]
    spectrum = np.maximum(spectrum, 0)
    rate = np.mean([np.mean(a) for a in alpha]) if isinstance(alpha, tuple) else float(alpha)
    moved = None
    if after is not None:
        change = (_double(b) - _double(a) for a, b in zip(before, after, strict=True))
        moved = float(_norm(change) / _norm(before))
    return CellSummary(
        n,
        float(m.sum()),
        int((spectrum > RANK_BELOW * max(spectrum.max(), 1e-30)).sum()),
        [float(v) for v in spectrum],
        float(rate * spectrum.mean()),
        moved,
    )


def cell_summaries(
    T: Cells[Array],
    M: Cells[Any],
    alpha: Any,
    before: Cells[Weights],
    after: Cells[Weights] | None = None,
) -> Cells[CellSummary]:
    """The summary of every cell."""
    rates = alpha if isinstance(alpha, dict) else dict.fromkeys(before, alpha)
    return {
        c: cell_summary(T.get(c), M.get(c), rates[c], A, after[c] if after else None)
        for c, A in before.items()
    }


def _by_row(M: Any) -> np.ndarray:
    """Mask per row; the mean of the row if every weight has its own entry."""
    if not isinstance(M, tuple):
        return _double(M)
    return np.mean(np.concatenate([_double(m).reshape(len(m), -1) for m in M], 1), axis=1)


def _norm(arrays: Any) -> float:
    return float(np.sqrt(sum(np.sum(np.square(_double(a))) for a in arrays)))


def _double(a: Any) -> np.ndarray:
    return np.asarray(a, np.float64)
