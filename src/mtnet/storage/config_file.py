"""Config files: TOML, or JSON as in a run folder."""

import tomllib
from pathlib import Path

from mtnet.check_data import check_data, parse_json, read_text
from mtnet.config import Config, from_dict
from mtnet.errors import InputError


def read_config(path: Path) -> Config:
    """Read a config file; keys that are missing take the family's preset."""
    text = read_text(path)
    try:
        values = parse_json(text) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise InputError(f"{path} is not valid {kind} ({error}): correct it") from None
    check_data(values, {"data?": str}, str(path), "correct it")
    if values.get("data"):
        values["data"] = str(path.parent / values["data"])
    return from_dict({k: v for k, v in values.items() if k != "mtnet_version"}, str(path))
