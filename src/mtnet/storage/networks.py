"""Meta-trained networks in one file, with their settings and their measured accuracy."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from mtnet.build import build_family, build_learner, load_data, net_spec
from mtnet.config import Config, to_dict
from mtnet.core.cells import split
from mtnet.core.types import Batch, Learner, MetaParams
from mtnet.errors import InputError
from mtnet.files import fill_tree, leaves_by_name, write_arrays
from mtnet.methods.body import Body, scale_body, take_body
from mtnet.nets.conv4 import fold_norms, scale_features
from mtnet.nets.spec import NetSpec, build_net
from mtnet.storage.pretrained import find_file, not_its_network, read_network_file
from mtnet.storage.run_folder import load_best_member, open_run
from mtnet.tasks import FAMILIES

IMAGES = 256
"""Images whose statistics folded norms use."""


class TrainedNetwork(NamedTuple):
    """A meta-trained network, as `mtnet.load` returns it; its method `adapt(x, y, seed=0)` returns
    a network adapted to the examples of a new task."""

    config: Config
    """The settings of its training."""
    learner: Learner
    theta: MetaParams
    """The meta-parameters."""
    about: dict[str, Any]
    """How it was trained and what it scored."""

    def adapt(self, x: Array, y: Array, *, seed: int = 0) -> Any:
        """A network adapted to the task of these examples; apply it with `mtnet.predict`.

        Images may have any number of classes, 0, 1, ..., if the network was trained for that.
        """
        self._check_examples(x, y)
        learner = self._learner_of(y) if FAMILIES[self.config.family].images else self.learner
        return learner.adapt(self.theta, Batch(x, y), jax.random.key(seed))

    def _check_examples(self, x: Array, y: Array) -> None:
        found, wanted = np.shape(x), net_spec(self.config).inputs
        if found[1:] != wanted:
            takes = ", ".join(map(str, ("examples", *wanted)))
            raise InputError(f"x has shape {found}; this network takes ({takes})")
        if np.ndim(y) == 0 or not hasattr(y, "shape"):
            raise InputError(f"y is {y!r}: give an array with one target per example")

    def _learner_of(self, y: Array) -> Learner:
        """The learner of a task with the classes of y."""
        own = self.config.tasks.ways
        ways = own if isinstance(y, jax.core.Tracer) else int(np.max(y)) + 1
        if self.config.any_ways:
            return build_learner(self.config, ways=ways)
        if ways > own:
            raise InputError(f"this network is for {own} classes; y has {ways}")
        return self.learner


def load_network(path: Path) -> TrainedNetwork:
    config, theta, about = read_network(path)
    return TrainedNetwork(config, build_learner(config), theta, about)


def read_network(path: Path) -> tuple[Config, MetaParams, dict[str, Any]]:
    """Settings, meta-parameters and description of a network file; no network is built."""
    config, arrays, about = read_network_file(path)
    like = jax.eval_shape(lambda: build_learner(config).init(jax.random.key(0)))
    try:
        return config, fill_tree(like, arrays), about
    except ValueError as error:
        raise not_its_network(path, error) from None


def network_of_run(folder: Path) -> TrainedNetwork:
    """The best network of a run folder, first seed."""
    run = open_run(folder)
    iteration, theta = load_best_member(run)
    learner = build_learner(run.config, run.config.members[0][1])
    return TrainedNetwork(run.config, learner, theta, {"measured_at": iteration})


def find_network(name: str) -> TrainedNetwork:
    """The network of a run folder or a file, or the pretrained one of this name."""
    path = Path(name)
    return network_of_run(path) if path.is_dir() else load_network(find_file(name))


def load_body(config: Config) -> Body | None:
    """The weights that a training starts from (`--init-from`), or None."""
    if not config.net.init_from:
        return None
    source = find_network(config.net.init_from)
    mine, theirs = net_spec(config), net_spec(source.config)
    if _body(mine, config) != _body(theirs, config):
        name = config.net.init_from
        raise InputError(
            f"init_from: {name} is {_described(theirs)}; this network is {_described(mine)}"
        )
    if config.net.fold_norms and (theirs.norms or config.net.body_scale != 1):
        return _without_norms(source, config)
    same_method = source.config.method == config.method
    body = take_body(source.theta, mine.head, same_method=same_method)
    return scale_body(body, config.net.body_scale)


def _without_norms(source: TrainedNetwork, config: Config) -> Body:
    """The body without norms, for any method, with its features multiplied."""
    spec = net_spec(source.config)
    body = take_body(source.theta, spec.head)
    net = split(build_net(spec._replace(outputs=None))).join(body.W, body.rest)
    if spec.norms:
        net = fold_norms(net, _training_images(config).reshape(-1, *spec.inputs))
    parts = split(scale_features(net, config.net.body_scale))
    return Body(parts.W, parts.rest, {})


def _training_images(config: Config) -> Array:
    """Images of `IMAGES` examples or a few more, drawn from training tasks."""
    family = build_family(config, load_data(config), augment=config.tasks.augment)
    per_task = len(jax.eval_shape(family.draw, jax.random.key(0)).support.y)
    keys = jax.random.split(jax.random.key(0), -(-IMAGES // per_task))
    return jax.jit(jax.vmap(lambda key: family.draw(key).support.x))(keys)


def _body(spec: NetSpec, config: Config) -> NetSpec:
    """What two networks must share; norms may be folded on the way from one to the other."""
    return spec._replace(outputs=None, centre=False, norms=spec.norms and not config.net.fold_norms)


def _described(spec: NetSpec) -> str:
    inputs = "x".join(map(str, spec.inputs))
    if spec.kind == "mlp":
        return f"an mlp of width {spec.width}, depth {spec.depth} and {inputs} inputs"
    pool = " and pooling" if spec.pool else ""
    norms = "" if spec.norms else ", norms folded"
    return f"a conv4 for {inputs} images with {spec.width} filters{pool}{norms}"


def save_network(path: Path, config: Config, theta: MetaParams, about: dict[str, Any]) -> None:
    """Write one member's meta-parameters; `load_network` reads them."""
    write_arrays(path, "network", leaves_by_name(theta), config=to_dict(config), about=about)
