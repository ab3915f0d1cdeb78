"""A head that is the same for every class, so that a task may have any number of them.

Every class begins with the same row of W, the same b and zeta, and learns apart from the others;
T is a multiple of the identity. theta holds that one row, whatever the number of classes: what was
trained on five ways adapts on twenty. A task's own gradient tells its classes apart.
"""

from typing import Any

import jax
import jax.numpy as jnp

from mtnet.core.inner import Theta


def tie(theta: Theta, head: str) -> Theta:
    """Keep one row of the head."""
    return _each(theta, head, lambda a: a[:1])


def untie(theta: Theta, head: str, classes: int) -> Theta:
    """A row for each class."""
    return _each(theta, head, lambda a: jnp.broadcast_to(a, (classes, *a.shape[1:])))


def _each(theta: Theta, head: str, change: Any) -> Theta:
    def of(cells: Any) -> Any:
        return cells | {head: jax.tree.map(change, cells[head])} if head in cells else cells

    W, T, zeta, alpha = (of(cells) for cells in (theta.W, theta.T, theta.zeta, theta.alpha))
    return theta._replace(W=W, T=T, zeta=zeta, alpha=alpha)
