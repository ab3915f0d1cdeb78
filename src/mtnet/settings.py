"""Settings as plain data: published ones by name, and those of files and runs."""

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

from mtnet.config import Config, nearest
from mtnet.core.inner import Inner
from mtnet.core.types import InputError
from mtnet.tasks import FAMILIES


def preset(family: str) -> Config:
    """The published settings of a family."""
    nearest("family", family, FAMILIES)
    return from_dict({"family": family}, family)


def to_dict(config: Config) -> dict[str, Any]:
    """Plain data, flat as the flags are."""
    values = dataclasses.asdict(config)
    return json.loads(json.dumps(values | values.pop("inner")))


def from_dict(values: dict[str, Any], source: str) -> Config:
    """A config from plain data; an unknown key is an error that names it.

    What is left out is as published for the family.
    """
    if values.get("family") in FAMILIES:
        values = FAMILIES[values["family"]].preset | values
    outer = {f.name for f in dataclasses.fields(Config)} - {"inner"}
    inside = {f.name for f in dataclasses.fields(Inner)}
    for key in values:
        try:
            nearest("setting", key, [*outer, *inside])
        except InputError as error:
            raise InputError(f"{source}: {error}") from None
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    for key, value in values.items():
        default = to_dict(Config())[key]
        if not _fits(value, default):
            raise InputError(f"{source}: {key} cannot be {value!r}; write it like {default!r}")
    inner = Inner(**{k: v for k, v in values.items() if k in inside})
    return Config(**{k: v for k, v in values.items() if k in outer}, inner=inner)


def _fits(value: Any, default: Any) -> bool:
    """Is a value from a file of its default's kind? Whole numbers may stand for others."""
    if isinstance(default, list):
        return isinstance(value, tuple) and all(_fits(v, 0.0) for v in value)
    if default is None or isinstance(default, float):
        optional = default is None and value is None
        return optional or (isinstance(value, (int, float)) and not isinstance(value, bool))
    return type(value) is type(default)


def read(path: Path) -> Config:
    """A config file: TOML, or JSON as a run directory holds it."""
    try:
        text = path.read_text()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    try:
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise InputError(f"{path} is not valid {path.suffix or 'TOML'}: {error}") from None
    if values.get("data"):
        values["data"] = str(path.parent / values["data"])
    return from_dict({k: v for k, v in values.items() if k != "mtnet_version"}, str(path))
