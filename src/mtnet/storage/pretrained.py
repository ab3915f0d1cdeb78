"""The networks that come with mtnet, and network files as they are, without JAX."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from mtnet.check_data import check_data
from mtnet.config import Config, from_dict
from mtnet.errors import InputError
from mtnet.files import Arrays, read_arrays
from mtnet.storage.names import SUFFIX, with_suffix

PRETRAINED = files("mtnet") / "pretrained"


def pretrained_names() -> list[str]:
    """The networks that come with mtnet."""
    return sorted(p.name.removesuffix(SUFFIX) for p in PRETRAINED.iterdir())


def pretrained_path(name: str) -> Path | None:
    return Path(str(PRETRAINED / f"{name}{SUFFIX}")) if name in pretrained_names() else None


def find_file(name: str) -> Path:
    """The file of this name, with or without its suffix, or of a pretrained network."""
    path = Path(name)
    if not path.exists():
        path = pretrained_path(name) or with_suffix(path)
    if not path.is_file():
        names = ", ".join(pretrained_names())
        raise InputError(f"there is no file {name}; pretrained networks: {names}")
    return path


def read_network_file(path: Path) -> tuple[Config, Arrays, dict[str, Any]]:
    """The settings, the arrays and the description of a network file."""
    arrays, header = read_arrays(path, "network")
    check_data(header, {"config": {}, "about": {}}, str(path), "write it again with mtnet export")
    return from_dict(header["config"], str(path)), arrays, header["about"]


def not_its_network(path: Path | str, error: Exception) -> InputError:
    """The arrays of a file are not those of its settings."""
    return InputError(f"{path} does not hold the network of its settings: {error}")
