"""What an experiment is: trainings, and the numbers of a table that are measured on them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from mtnet.config import Config


class Row(NamedTuple):
    """One number of a table: which members of which training, on which tasks."""

    method: str
    column: str
    training: str
    """Key into the experiment's trainings."""
    alpha: float
    """Which members: those trained with this step size."""
    test: dict[str, Any]
    """Settings of the family that differ from training (`shots=5`)."""
    published: str | None = None
    steps: int | None = None
    """Inner steps at test time. Default: as many as in training."""
    inner: dict[str, Any] = {}  # noqa: RUF012
    """Settings of adaptation that differ from training (`at_test="expected"`)."""


class ReportFigure(NamedTuple):
    """A figure of an experiment's page."""

    heading: str
    figure: Any
    """A matplotlib figure."""
    caption: str


class Experiment(NamedTuple):
    """One table or figure; one file in this folder and one entry in `EXPERIMENTS`."""

    name: str
    about: str
    trainings: Callable[[bool, int], dict[str, Config]]
    """`(quick, seeds) -> trainings by name`; `init_from` may be the name of another of them,
    or of a pretrained network."""
    rows: Callable[[dict[str, Config]], list[Row]]
    seeds: tuple[int, int]
    """Default number of seeds: in full, and with --quick."""
    extra: Callable[[Any, int], dict[str, Any]] = lambda theta, member: {}
    """`(theta, member) -> more numbers per seed`, besides the loss."""
    grid: Callable[[Config], list[dict[str, Any]]] = lambda config: []
    """Settings of adaptation, of which the best on validation tasks is tested. Empty: as trained.

    Each has `alpha` and `steps`, and any other setting of adaptation."""
    protocol: dict[str, Any] = {}  # noqa: RUF012
    """Added to the protocol: e.g. how test tasks are drawn."""
    tasks: tuple[int, int] = (10_000, 1_000)
    """Default number of test tasks per seed: in full, and with --quick."""
    notes: Callable[[dict[str, Any]], list[str]] = lambda results: []
    """Sentences computed from the finished results."""
    figures: Callable[[dict[str, Any]], list[ReportFigure]] = lambda results: []
    """Figures for its page, besides those of every experiment."""
