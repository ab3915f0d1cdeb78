"""Trained networks in one file: safetensors, with the settings and the measured accuracy in it."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jaxtyping import Array
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from mtnet.config import Config, learner_of
from mtnet.core.types import Batch, InputError, Learner, Theta
from mtnet.runs.checkpoints import digest, named, write_atomically
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
    try:
        with safe_open(path, "numpy") as file:
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            header = file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    if digest(arrays) != header.get("sha256"):
        raise InputError(f"{path} is damaged: its checksum does not fit")
    config = from_dict(json.loads(header["config"]), str(path))
    learner = learner_of(config)
    like = jax.eval_shape(learner.init, jax.random.key(0))
    leaves = [jax.numpy.asarray(arrays[key]) for key in named(like)]
    theta = jax.tree.unflatten(jax.tree.structure(like), leaves)
    return Trained(config, learner, theta, json.loads(header["about"]))


def store(path: Path, config: Config, theta: Theta, about: dict[str, Any]) -> None:
    """Write what `load` reads; `theta` is one member's."""
    arrays = {key: jax.device_get(leaf) for key, leaf in named(theta).items()}
    header = {
        "sha256": digest(arrays),
        "config": json.dumps(to_dict(config)),
        "about": json.dumps(about),
    }
    write_atomically(path, save(arrays, header))
