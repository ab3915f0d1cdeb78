"""What an experiment is: trainings, and cells of a table that are read off them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from mtnet.config import Config
from mtnet.core.types import MetaParams


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
    """Inner steps at test time; where None, as many as in training."""


class ReportFigure(NamedTuple):
    """A figure of an experiment's page."""

    heading: str
    figure: Any
    """A matplotlib figure."""
    caption: str


class Experiment(NamedTuple):
    name: str
    about: str
    trainings: Callable[[bool, int], dict[str, Config]]
    """`(quick, seeds) -> trainings by name`."""
    rows: Callable[[dict[str, Config]], list[Row]]
    seeds: tuple[int, int]
    """How many when nothing else is said: in full, and with --quick."""
    extra: Callable[[MetaParams, int], dict[str, Any]] = lambda theta, member: {}
    """What else a trained member has to tell, besides its loss."""
    protocol: dict[str, Any] = {}  # noqa: RUF012
    """What a reader must know besides: how test tasks are drawn, what networks see of them."""
    tasks: tuple[int, int] = (10_000, 1_000)
    """Test tasks for each seed when nothing else is said: in full, and with --quick."""
    notes: Callable[[dict[str, Any]], list[str]] = lambda results: []
    """Sentences computed from the finished results."""
    figures: Callable[[dict[str, Any]], list[ReportFigure]] = lambda results: []
    """Figures of its own, besides those of every experiment."""
