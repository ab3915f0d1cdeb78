"""The networks that a server adapts: those that come with mtnet, files and run folders."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mtnet.build import is_classification, net_spec
from mtnet.config import Config
from mtnet.core.conformal import Calibration
from mtnet.core.types import MetaParams
from mtnet.errors import InputError, check_name
from mtnet.evaluation.calibration import run_calibration
from mtnet.methods import METHODS
from mtnet.nets.spec import NetSpec
from mtnet.serve.limits import LIMITS
from mtnet.storage.models import fingerprint
from mtnet.storage.networks import find_network, read_network
from mtnet.storage.pretrained import find_file, pretrained_names
from mtnet.storage.run_folder import open_run
from mtnet.storage.supports import adaptation_settings
from mtnet.tasks import FAMILIES
from mtnet.userdata.dataset import inputs_header
from mtnet.userdata.new_tasks import Support
from mtnet.userdata.schema import Column, Schema, from_plain, to_plain
from mtnet.userdata.support_sets import number_as_trained

CURVE = Schema("task", (Column("x"),), Column("y"))
"""The columns of a network for curves."""
PICTURES = {
    "omniglot": {"kind": "drawings", "size": 28, "colour": False, "invert": False},
    "mini-imagenet": {"kind": "images", "size": 84, "colour": True, "invert": False},
}
"""How images are read, by the family that a network was trained on."""


class ServedNetwork(NamedTuple):
    """A meta-trained network, and what is needed to adapt and to describe it."""

    name: str
    config: Config
    theta: MetaParams
    inputs: dict[str, Any]
    """What a model says about its inputs: kind, and schema or size of images."""
    steps: int
    ways: int | None
    """Largest number of classes; None for numbers, and if classes are those of training."""
    about: dict[str, Any]
    temperature: float
    intervals: dict[int, Calibration]
    origin: dict[str, Any]
    classifies: bool
    spec: NetSpec
    """The network with as many outputs as classes are possible."""

    @property
    def is_table(self) -> bool:
        return self.inputs["kind"] == "table"

    @property
    def fixed_classes(self) -> bool:
        """Whether it has one output per class of the training table."""
        return self.is_table and self.classifies and not self.config.any_ways

    def labels(self, support: Support) -> list[str]:
        """The classes of a task, in the order of the outputs; none for numbers."""
        if self.fixed_classes:
            return list(from_plain(self.inputs["schema"]).target.levels or ())
        return list(support.labels)

    def numbered(self, support: Support) -> Support:
        """The same examples, with classes numbered as the outputs are."""
        if not self.fixed_classes:
            return support
        return number_as_trained(from_plain(self.inputs["schema"]), support, "the examples")

    def describe(self) -> dict[str, Any]:
        """What `GET /v1/networks` says about it."""
        config = self.config
        about: dict[str, Any] = {"name": self.name, "method": config.method, "steps": self.steps}
        about |= {"family": config.family, "kind": self.inputs["kind"]}
        about |= {"about": METHODS[config.method].about, "adapts": METHODS[config.method].adapts}
        if self.is_table:
            schema = self.inputs["schema"]
            about["columns"] = [column["name"] for column in schema["inputs"]]
            about["target"] = schema["target"]["name"]
        if self.classifies:
            fixed = None if config.any_ways else self.ways
            about["ways"] = [fixed or 2, fixed or LIMITS.ways]
        known = ("accuracy", "error", "iterations", "statistics", "test classes")
        return about | {"measured": {k: self.about[k] for k in known if k in self.about}}


def served_networks(
    names: Sequence[str], models: Sequence[Path], warn: Callable[[str], None]
) -> dict[str, ServedNetwork]:
    """Networks that come with mtnet, then those of files and run folders, by name.

    Args:
        names: Pretrained networks. Default: all.
        models: Files and run folders.
        warn: Is told of problems that are not errors.
    """
    for name in names:
        check_name("pretrained network", name, pretrained_names())
    networks = {name: from_network(name) for name in names or pretrained_names()}
    for path in models:
        own = path.is_dir() and FAMILIES[open_run(path).config.family].own
        network = from_run(path, warn) if own else from_network(str(path), path.stem)
        if network.name in networks:
            raise InputError(f"{path}: there are two networks called {network.name}: rename one")
        networks[network.name] = network
    return networks


def from_network(source: str, name: str | None = None) -> ServedNetwork:
    """A pretrained network, a file of `mtnet export`, or a run of a family that mtnet has."""
    if Path(source).is_dir():
        config, _, theta, about = find_network(source)
    else:
        config, theta, about = read_network(find_file(source))
    if config.family in PICTURES:
        inputs = PICTURES[config.family]
    elif net_spec(config).inputs == (1,):
        inputs = {"kind": "table", "schema": to_plain(CURVE)}
    else:
        raise InputError(f"{source} was trained on {config.family}, which serve does not read")
    measured = (about.get("accuracy") or about.get("error") or [{}])[0]
    steps = measured.get("steps", config.inner.steps)
    temperature = about.get("temperature", 1.0)
    return _served(name or source, source, config, theta, inputs, steps, about, temperature, {})


def from_run(folder: Path, warn: Callable[[str], None]) -> ServedNetwork:
    """A run of `mtnet fit`."""
    run = open_run(folder)
    trained = find_network(str(folder))
    calibration = run_calibration(run, trained.theta, warn)
    steps, inputs = run.config.inner.steps, inputs_header(run.config)
    temperature = calibration.temperature or 1.0
    name, source = folder.resolve().name, str(folder.resolve())
    return _served(
        name,
        source,
        run.config,
        trained.theta,
        inputs,
        steps,
        trained.about,
        temperature,
        calibration.intervals,
    )


def _served(
    name: str,
    source: str,
    config: Config,
    theta: MetaParams,
    inputs: dict[str, Any],
    steps: int,
    about: dict[str, Any],
    temperature: float,
    intervals: dict[int, Calibration],
) -> ServedNetwork:
    """With norms that use the support set only, so that one query does not change another."""
    settings = adaptation_settings(config)
    config = config.replace(statistics="inductive")
    classifies, ways = is_classification(config), None
    if classifies:
        ways = LIMITS.ways if config.any_ways else net_spec(config).outputs
    origin = {"run": source, "sha256": fingerprint(theta), "settings": settings}
    return ServedNetwork(
        *(name, config, theta, inputs, steps, ways, about, temperature, intervals, origin),
        *(classifies, net_spec(config, ways)),
    )
