"""What an estimator has learned across tasks, and the learner that it belongs to."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mtnet.core.initialise import truncated_normal
from mtnet.core.losses import cross_entropy, mse
from mtnet.core.types import Learner
from mtnet.methods import known, make
from mtnet.nets.spec import NetSpec, build_net

Numbers = np.ndarray


@dataclass(frozen=True)
class Scale:
    """(x - mean) / spread, a number a column."""

    mean: Numbers
    spread: Numbers

    def __call__(self, x: Numbers) -> Numbers:
        return ((x - self.mean) / self.spread).astype(np.float32)

    def undo(self, x: Numbers) -> Numbers:
        return x.astype(np.float64) * self.spread + self.mean


def scale_of(x: Numbers) -> Scale:
    spread = x.std(axis=0)
    return Scale(x.mean(axis=0), np.where(spread > 0, spread, 1.0))


@dataclass(frozen=True, eq=False, repr=False)
class Learned:
    """What meta_fit leaves behind."""

    theta: Any
    x: Scale
    y: Scale
    """Of the targets; for classes it leaves them as they are."""
    outputs: int
    made: tuple[str, int, int]
    """Method, width and depth, which cannot change any more."""

    def __repr__(self) -> str:
        return f"Learned({len(self.x.mean)} inputs, {self.outputs} outputs)"


@lru_cache(maxsize=64)
def learner_for(
    plan: NetSpec, method: str, classes: bool, inner: tuple[tuple[str, Any], ...]
) -> Learner:
    """One for each shape of problem, so that compiled programs are found again."""
    options: dict[str, Any] = dict(inner) | {"initialise": truncated_normal(plan.width**-0.5)}
    options |= {"loss": cross_entropy, "shared_head": plan.head} if classes else {"loss": mse}
    return make(method, build_net(plan), **known(method, options))
