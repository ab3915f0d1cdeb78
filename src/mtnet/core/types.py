"""The nouns of the library: batches, episodes, learners and families of tasks."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Key, Scalar

from mtnet.errors import InputError

MetaParams = Any  # meta-parameters: a PyTree of arrays, the learner's own business
Predictor = Any  # maps one example: a callable, or a pair of a module or function and its arrays
Loss = Callable[[Array, Array], Scalar]  # (predictions, targets) -> scalar
SPLITS = ("train", "validation", "test")


class Batch(NamedTuple):
    """Examples of one task; the leading axis of both arrays counts them."""

    x: Array
    y: Array


class Episode(NamedTuple):
    """One task: D_train (support) and D_test (query)."""

    support: Batch
    query: Batch


class AdaptInfo(NamedTuple):
    """What an adaptation drew and did."""

    masks: Any
    """M per cell; empty without masks. With `draw="step"`, a leading axis counts the steps."""
    losses: Array
    """Support loss after 0, 1, ..., `steps` steps."""


class Learner(NamedTuple):
    """A way to learn from tasks (section 2.1): pure functions, randomness from keys only."""

    init: Callable[[Key[Array, ""]], MetaParams]
    """Meta-parameters before meta-training."""
    adapt: Callable[[MetaParams, Batch, Key[Array, ""]], Predictor]
    """The task's own predictor, learned from its support set."""
    loss: Callable[[MetaParams, Episode, Key[Array, ""]], Scalar]
    """What meta-training minimises: the query loss after adaptation."""
    trajectory: Callable[[MetaParams, Batch, Key[Array, ""], int], Predictor]
    """Predictors after 0, 1, ..., n steps, stacked along a leading axis.

    One alone where a learner has no steps."""
    precompute: Callable[[MetaParams], MetaParams] = lambda theta: theta
    """theta with what all tasks share computed already; the other functions take either."""
    info: Callable[[MetaParams, Batch, Key[Array, ""]], tuple[Predictor, AdaptInfo]] | None = None
    """`adapt`, with what it drew and did. Default: the learner does not tell."""


class Family(NamedTuple):
    """p(T), a distribution over tasks, with the loss that its tasks are learned by."""

    name: str
    sample: Callable[[Key[Array, ""]], Any]
    """`key -> Episode`, or plain tuples `((x, y), (x, y))` of support and query."""
    loss: Loss
    metric: Loss

    def draw(self, key: Key[Array, ""]) -> Episode:
        """`sample`, as an Episode."""
        return to_episode(self.sample(key))


def to_episode(task: Any) -> Episode:
    """An Episode from any pair of pairs `((x, y), (x, y))`."""
    try:
        support, query = (Batch(*batch) for batch in task)
    except (TypeError, ValueError):
        raise InputError(
            "Family.sample must return ((x, y), (x, y)), support and query; "
            f"it returned {type(task).__name__}"
        ) from None
    return Episode(support, query)
