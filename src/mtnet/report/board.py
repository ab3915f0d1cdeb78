"""Event files for TensorBoard: losses, validation scores and pictures of adapted tasks."""

from types import TracebackType
from typing import Any

import jax
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mtnet.build import is_classification, load_data
from mtnet.config import Config
from mtnet.core.types import MetaParams
from mtnet.errors import InputError
from mtnet.report.held_out import draw_classes, draw_groups, draw_numbers
from mtnet.report.image_tasks import image_tasks
from mtnet.report.images import predictions
from mtnet.report.plots import adapted_curves
from mtnet.storage.run_folder import Run
from mtnet.tasks import FAMILIES
from mtnet.tasks.groups import select_groups
from mtnet.training.loop import Progress
from mtnet.userdata import schema as schemas
from mtnet.userdata.dataset import open_dataset

FOLDER = "tensorboard"
SHOWN = 3
"""Tasks of a user's data that are drawn."""


def summary_writer() -> Any:
    """The class that writes event files; an InputError says what to install."""
    try:
        from tensorboardX import SummaryWriter
    except ModuleNotFoundError:
        raise InputError(
            "--tensorboard needs tensorboardX: pip install 'mtnet[tensorboard]'"
        ) from None
    return SummaryWriter


class Board:
    """The event files of a run, in its folder `tensorboard`, written while it trains."""

    def __init__(self, run: Run) -> None:
        self._run, self._make = run, summary_writer()
        self._writer: Any = None
        members = run.config.members
        sweeps = len({alpha for _, alpha in members}) > 1
        self._names = [f"seed_{s}_alpha_{a:g}" if sweeps else f"seed_{s}" for s, a in members]

    def show(self, progress: Progress) -> None:
        """Write what is known after a chunk of iterations."""
        step = progress.iteration
        if self._writer is None:  # now: a folder without iterations may be used by another run
            self._writer = self._make(str(self._run.folder / FOLDER), purge_step=step)
        scores = {"loss": progress.loss}
        if progress.validation is not None:
            scores["validation"] = progress.validation
        for kind, values in scores.items():
            for name, value in zip(self._names, values, strict=True):
                self._writer.add_scalar(f"{kind}/{name}", float(value), step)
        if progress.validation is not None or step == self._run.config.outer.iterations:
            theta = jax.tree.map(lambda a: a[0], progress.theta)
            for name, figure in task_figures(self._run.config, theta).items():
                self._writer.add_image(f"tasks/{name}", pixels_of(figure), step, dataformats="HWC")
        self._writer.flush()

    def __enter__(self) -> "Board":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._writer is not None:
            self._writer.close()


def pixels_of(figure: Figure) -> np.ndarray:
    """A figure as an image, (height, width, 3)."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


def task_figures(config: Config, theta: MetaParams) -> dict[str, Figure]:
    """Pictures of adapted tasks that are not trained on, by name.

    Args:
        config: The training.
        theta: Meta-parameters of its first member.
    """
    family, alpha = FAMILIES[config.family], config.members[0][1]
    if not family.own:
        if family.images:
            return {"validation": predictions(config, theta, alpha, split="validation")}
        return {"new tasks": adapted_curves(config, theta, alpha)}
    about = open_dataset(config.tasks.data).about
    names = about["splits"]["validation"]
    if not names:
        return {}
    rows = load_data(config, "validation")
    if family.images:
        sheets = image_tasks(config, theta, rows, names, tasks=1)
        return {"validation": sheets[0][0]}
    schema, names = schemas.from_plain(about["schema"]), names[:SHOWN]
    chosen = select_groups(rows, list(range(len(names))))
    drawn = draw_groups(config, theta, chosen, names, schema)
    if is_classification(config):
        return {task.name: draw_classes(task) for task in drawn}
    return {task.name: draw_numbers(task, schema) for task in drawn}
