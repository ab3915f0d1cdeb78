"""A head that is the same for every class, so that a task may have any number of them.

Every class starts with the same row of W and the same b; the task's gradient separates them. T is a
multiple of the identity. All rows share one mask entry: two classes whose rows do not move could
not be separated. theta holds one row for any number of classes, so a learner trained on five ways
adapts on twenty.
"""

from typing import Any

import jax
import jax.numpy as jnp

from mtnet.core.inner import Theta


def collapse_head(theta: Theta, head: str) -> Theta:
    """Keep one row of the head."""
    collapsed = _each(theta, head, lambda a: a[:1])
    return collapsed._replace(zeta=_of(theta.zeta, head, lambda a: a[:1]))


def expand_head(theta: Theta, head: str, classes: int) -> Theta:
    """One row per class; zeta keeps the one row for all classes."""
    return _each(theta, head, lambda a: jnp.broadcast_to(a, (classes, *a.shape[1:])))


def _each(theta: Theta, head: str, change: Any) -> Theta:
    W, T, alpha = (_of(cells, head, change) for cells in (theta.W, theta.T, theta.alpha))
    return theta._replace(W=W, T=T, alpha=alpha)


def _of(cells: Any, head: str, change: Any) -> Any:
    return cells | {head: jax.tree.map(change, cells[head])} if head in cells else cells
