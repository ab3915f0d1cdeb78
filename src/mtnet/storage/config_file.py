"""Config files: TOML, or JSON as in a run folder."""

import json
import tomllib
from pathlib import Path

from mtnet.config import Config, from_dict
from mtnet.errors import InputError


def read_config(path: Path) -> Config:
    """Read a config file; keys that are missing take the family's preset."""
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
