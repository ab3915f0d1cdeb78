"""`--tensorboard` of `mtnet train` and `mtnet fit`."""

from contextlib import nullcontext
from typing import Any

from mtnet.storage.run_folder import Run


def check_tensorboard(wanted: bool) -> None:
    """Raise an InputError before anything is written if the extra is not installed."""
    if wanted:
        from mtnet.report.board import summary_writer  # Matplotlib takes long to import

        summary_writer()


def open_board(run: Run, wanted: bool) -> Any:
    """The event files of a run; without --tensorboard a context of None."""
    if not wanted:
        return nullcontext()
    from mtnet.report.board import Board

    return Board(run)
