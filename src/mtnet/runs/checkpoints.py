"""Training state on disk: atomic, verified, the newest whole one wins.

A checkpoint is one safetensors file with a SHA-256 of its arrays in the header. It is written
aside and renamed when it is whole, so that whatever interrupts the writing, no reader ever sees a
part; loading it cannot run code.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from mtnet.core.types import InputError
from mtnet.files import named, packed, restored, unpacked, write_atomically

KEEP = 2


def all_of(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder by iteration, newest first."""
    found = {int(p.stem): p for p in folder.glob("*.safetensors") if p.stem.isdigit()}
    return dict(sorted(found.items(), reverse=True))


def save_state(folder: Path, iteration: int, state: Any, keep: int = KEEP) -> None:
    """Write a checkpoint, then let go of all but the last few."""
    data = packed(named(state))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{iteration:09d}.safetensors", data)
    except OSError as error:
        raise InputError(
            f"could not write checkpoint {iteration} in {folder} ({error.strerror}); earlier ones "
            "are whole: make room, then go on with --resume"
        ) from None
    for path in list(all_of(folder).values())[keep:]:
        path.unlink()


def load_state(folder: Path, like: Any, warn: Callable[[str], None]) -> tuple[int, Any] | None:
    """The newest checkpoint that is whole, or None; says so when a newer one is not."""
    for iteration, path in all_of(folder).items():
        try:
            return iteration, restored(like, unpacked(path)[0])
        except (OSError, SafetensorError, ValueError) as error:
            warn(f"checkpoint {path} is damaged ({error}); taking the one before it")
    return None
