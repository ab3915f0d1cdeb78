"""Every family of tasks by name; those of mtnet are imported when they are used."""

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any, NamedTuple


class FamilyEntry(NamedTuple):
    about: str
    source: Callable[..., Any] | str
    """`(**settings) -> Family`, or its place, `module:function` in this package."""
    preset: dict[str, Any] = {}  # noqa: RUF012
    """Settings that differ from those of section 6.1, `alpha` and `steps` included."""
    shape: tuple[int, int, int, int, int] | None = None
    """Of the training images (class, example, height, width, channel), for an image set."""
    tests: dict[str, Any] = {"shots": (5, 10, 20), "tasks": 10_000}  # noqa: RUF012
    """Defaults of `mtnet evaluate`."""
    images: bool = False
    own: bool = False
    """The data are the user's, in the file that `mtnet fit` writes."""

    @property
    def make(self) -> Callable[..., Any]:
        """`(**settings) -> Family`."""
        if isinstance(self.source, str):
            return resolve_name(f"{__name__}.{self.source}")
        return self.source

    @property
    def splits(self) -> bool:
        """Whether training, validation and test have classes or groups of their own."""
        return self.shape is not None or self.own


IMAGES: dict[str, Any] = {"ways": 5, "shots": 1, "tasks_per_vmap": 1, "validate_every": 500}
IMAGE_TESTS: dict[str, Any] = {"shots": (1,), "tasks": 2_000}

FAMILIES: dict[str, FamilyEntry] = {
    "sine": FamilyEntry(
        "sine waves of varying height, frequency and phase (section 6.1)", "sine:sine"
    ),
    "polynomial": FamilyEntry("polynomials of one order (section 6.3)", "polynomial:polynomial"),
    "omniglot": FamilyEntry(
        "handwritten characters, one drawing each (section 6.4)",
        "episodes:image_episodes",
        IMAGES
        | {"queries": 1, "rotations": True, "filters": 64, "head_sd": 1.0, "meta_batch": 32}
        # 0.4 on a loss summed over 5 classes is 2 on its mean
        | {"alpha": 2.0, "iterations": 40_000, "log_every": 50},
        (1100, 20, 28, 28, 1),
        IMAGE_TESTS,
        images=True,
    ),
    "mini-imagenet": FamilyEntry(
        "small colour photographs, one of each class (section 6.4)",
        "episodes:image_episodes",
        IMAGES
        | {"queries": 15, "rotations": False, "filters": 32, "pool": True, "meta_batch": 4}
        # 0.01 on a sum over 5 classes; gradients clipped at 10 on a sum over 75 queries
        | {"alpha": 0.05, "steps": 5, "clip": 10 / 75, "log_every": 10},
        (64, 600, 84, 84, 3),
        IMAGE_TESTS,
        images=True,
    ),
    "table": FamilyEntry(
        "your own table, one task per group of rows (mtnet fit FILE)",
        "groups:group_tasks",
        {"iterations": 10_000, "alpha": 0.05, "steps": 5, "W_sd": 0.1, "at_test": "expected"}
        | {"schedule": "cosine", "validate_every": 1_000},
        tests={"shots": (10,), "tasks": 2_000},
        own=True,
    ),
    "images": FamilyEntry(
        "your own folders of images, one per class (mtnet fit --images)",
        "groups:ragged_episodes",
        IMAGES
        | {
            "queries": 5,
            "head_sd": 0.1,
            "alpha": 0.5,
            "steps": 3,
            "meta_batch": 8,
            "shared_head": True,
        }
        | {"iterations": 3_000, "log_every": 50, "statistics": "inductive"}
        | {"at_test": "expected", "schedule": "cosine"},
        tests=IMAGE_TESTS,
        images=True,
        own=True,
    ),
}
