"""The pretrained network that `mtnet fit --images` starts from."""

from pathlib import Path
from typing import Any, NamedTuple

from mtnet.build import net_spec
from mtnet.commands.common import console
from mtnet.config import Config, configure, to_dict
from mtnet.errors import InputError
from mtnet.methods import METHODS
from mtnet.storage.networks import find_network
from mtnet.storage.pretrained import pretrained_names
from mtnet.userdata.image_folder import images_by_class
from mtnet.userdata.open_image import has_colour

COLOUR, GREY = "mini-imagenet-prototypical-long", "omniglot-any-prototypical"
"""Pretrained networks for photographs and for drawings."""
SIZE = 32
"""Height and width of images without a pretrained network."""
SLOW_BODY: dict[str, Any] = {"head_sd": 0.001, "zeta_mean": 6.0, "body_scale": 5.0}
GRADIENT: dict[str, dict[str, Any]] = {
    COLOUR: SLOW_BODY | {"alpha": 0.01, "steps": 5, "beta": 3e-4},
    GREY: SLOW_BODY | {"alpha": 0.3, "steps": 4, "beta": 2e-4},
}
"""For gradient methods: these networks compare features, so the head must learn more than the
body."""


class Start(NamedTuple):
    """The settings that fit a pretrained network; none without one."""

    size: int
    settings: dict[str, Any]
    """`init_from` and the shape of the network."""
    adaptation: dict[str, Any] = {}  # noqa: RUF012
    """How a gradient method adapts it."""


def pretrained_start(folder: Path, method: str) -> Start:
    """The start for the images of a folder; that of random weights if it cannot be read."""
    try:
        paths = [path for images in images_by_class(folder).values() for path in images]
        name = COLOUR if any(has_colour(path) for path in paths) else GREY
    except InputError:  # `mtnet fit` reads the folder again, and says what is wrong
        return Start(SIZE, {})
    if name not in pretrained_names():
        return Start(SIZE, {})
    spec = net_spec(find_network(name).config)
    settings = {"init_from": name, "filters": spec.width, "pool": spec.pool}
    return Start(spec.inputs[-1], settings, GRADIENT[name] if METHODS[method].shares_head else {})


def choose_start(config: Config, start: Start, size: int, random: bool) -> Config:
    """The config with random weights if they are asked for, or if the chosen network does not fit.

    Args:
        config: The training, with the user's settings.
        start: What `pretrained_start` has chosen.
        size: Height and width of the images.
        random: Whether the user wants random weights.
    """
    name, chosen = config.net.init_from, start.settings.get("init_from")
    if random and name not in ("", chosen):
        raise InputError(f"--random-weights and --init-from {name} exclude each other: remove one")
    own = {"init_from": name, "filters": config.net.filters, "pool": config.net.pool}
    if name and name == chosen and not random and (size, own) != start[:2]:
        pool = " --pool" if start.settings["pool"] else ""
        fitting = f"--size {start.size} --filters {start.settings['filters']}{pool}"
        say(f"Starts from random weights: {name} needs {fitting}")
    elif name and not random:
        say(f"Starts from the network {name}; for random weights add --random-weights")
        return config if name == chosen else config.replace(**_family_settings(config, start))
    else:
        say("Starts from random weights")
    return config.replace(init_from="", **_family_settings(config, start))


def _family_settings(config: Config, start: Start) -> dict[str, Any]:
    """Those of the family, in place of the adaptation settings that the user did not change."""
    mine, family = to_dict(config), to_dict(configure(family=config.family, method=config.method))
    return {name: family[name] for name, value in start.adaptation.items() if mine[name] == value}


def say(text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)
