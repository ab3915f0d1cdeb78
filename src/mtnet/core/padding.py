"""Support sets of any size as support sets of few sizes, so that few programs are compiled."""

from typing import Any

import numpy as np

FEWEST = 8
"""Support sets are padded to at least this many rows."""


def padded_size(rows: int) -> int:
    """The next power of two, so that few sizes are compiled."""
    return max(FEWEST, 1 << (rows - 1).bit_length())


def pad_rows(x: Any, y: Any, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets with `size` rows; targets of added rows are nan, or -1 for classes.

    Losses that know them do not count these rows: `padded_mse` and `padded_cross_entropy`.
    """
    x, y = np.asarray(x), np.asarray(y)
    nothing = np.nan if np.issubdtype(y.dtype, np.floating) else -1
    return _filled(x, size, 0), _filled(y, size, nothing)


def _filled(a: np.ndarray, size: int, value: Any) -> np.ndarray:
    return np.concatenate([a, np.full((size - len(a), *a.shape[1:]), value, a.dtype)])
