"""Trained networks in one file: safetensors, with the settings and the measured accuracy in it."""

from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jaxtyping import Array

from mtnet.config import Config, learner_of
from mtnet.core.types import Batch, InputError, Learner, Theta
from mtnet.files import named, read, restored, write
from mtnet.settings import from_dict, to_dict

BOX = files("mtnet") / "box"


class Trained(NamedTuple):
    """A meta-trained learner, ready for new tasks."""

    config: Config
    learner: Learner
    theta: Theta
    about: dict[str, Any]
    """How it was trained and what it scored."""

    def adapt(self, x: Array, y: Array, *, seed: int = 0) -> Any:
        """A network of its own for the task of these examples; call it through `mtnet.predict`."""
        return self.learner.adapt(self.theta, Batch(x, y), jax.random.key(seed))


def load(name: str | Path) -> Trained:
    """A network that comes with mtnet, by name, or one of your own, by path."""
    path = Path(name)
    if not path.suffix:
        inside = sorted(p.name.removesuffix(".safetensors") for p in BOX.iterdir())
        if str(name) not in inside:
            raise InputError(f"there is no network called {name!r}; there are: {', '.join(inside)}")
        path = Path(str(BOX / f"{name}.safetensors"))
    arrays, header = read(path)
    config = from_dict(header["config"], str(path))
    learner = learner_of(config)
    like = jax.eval_shape(learner.init, jax.random.key(0))
    return Trained(config, learner, restored(like, arrays), header["about"])


def store(path: Path, config: Config, theta: Theta, about: dict[str, Any]) -> None:
    """Write what `load` reads; `theta` is one member's."""
    write(path, named(theta), config=to_dict(config), about=about)
