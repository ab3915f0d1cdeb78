"""The options of the inner loop and constants of methods; this file does not import JAX."""

from dataclasses import dataclass
from typing import Literal, get_args

from mtnet.errors import InputError

Relaxation = Literal["hard", "soft"]
AtTest = Literal["sample", "expected", "threshold"]
Draw = Literal["task", "step"]
StatisticsMode = Literal["transductive", "inductive"]
EPSILON = 1e-3
"""Added to the variance in a batch norm."""
COSINE_SCALE = 10.0
"""Factor of the cosine similarities. The published value is 1: a softmax of numbers in [-1, 1] is
almost flat, and training is slow."""
FAR = 1e6
"""Each feature of the mean of a class without examples: no example is near it."""
NEVER = -1e6
"""The logit of a class without examples."""
CHOICES = {
    "relaxation": get_args(Relaxation),
    "draw": get_args(Draw),
    "at_test": get_args(AtTest),
    "statistics": get_args(StatisticsMode),
}


@dataclass(frozen=True)
class AdaptConfig:
    """Options of the inner loop; docs/protocol.md compares them with the paper's."""

    alpha: float = 0.01
    """Step size of the inner loop (for meta-sgd: its initial value)."""
    steps: int = 1
    """Gradient steps per task in meta-training."""
    first_order: bool = False
    """Treat the task's gradient as a constant in meta-training (no second derivatives)."""
    query_scale: float = 1.0
    """Factor of the outputs in the meta-training loss of the query set, for classes."""
    relaxation: Relaxation = "hard"
    """Masks in meta-training: hard (0 or 1, straight-through) or soft (between 0 and 1, eq. gs)."""
    temperature: float = 1.0
    """Temperature of the Gumbel-softmax."""
    draw: Draw = "task"
    """Draw masks once per task, or once per step."""
    at_test: AtTest = "sample"
    """Masks on new tasks: sample (as in training), expected (probability), threshold (at 0.5)."""
    zeta_mean: float = 0.0
    """Mean of the initial mask logits: each row moves with probability sigmoid(zeta_mean)."""
    zeta_sd: float = 0.0
    """Standard deviation of the initial mask logits (the published code: 0.1 for "-full")."""
    statistics: StatisticsMode = "transductive"
    """Norms use the statistics of a task's queries, as published, or of its support set only."""
    remat: bool = False
    """Recompute each step in the backward pass: less memory, more time."""
    decay: float = 1.0
    """Factor of the step size from step to step: step t has size alpha decay^t."""
    head_only: bool = False
    """Train the new head only, on fixed features."""
    distance_scale: float = 1.0
    """Factor of the squared distances of prototypical in the meta-training loss."""
    invariant: float | None = None
    """Set T = c S, W = V / c with alpha c^2 of this value: training does not depend on alpha."""

    def __post_init__(self) -> None:
        for name in ("alpha", "query_scale", "temperature", "decay", "distance_scale", "invariant"):
            value = getattr(self, name)
            if isinstance(value, (int, float)) and not 0 < value < float("inf"):
                raise InputError(f"{name} must be a positive number; it is {value}")
        for name in ("steps", "zeta_sd"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(f"{name} must be 0 or more; it is {getattr(self, name)}")
        if not abs(self.zeta_mean) < float("inf"):
            raise InputError(f"zeta_mean must be a number; it is {self.zeta_mean}")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise InputError(
                    f"{name} must be one of {', '.join(choices)}; it is {getattr(self, name)!r}"
                )
