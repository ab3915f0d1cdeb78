"""Plain data from files: read, and checked against a shape; what is wrong is one line.

A shape is a type (`int`, `float`, `str`, `bool`; an int is also a float), a tuple of alternatives
(None stands for null), `[shape]` for a list (`[]`: of anything), `{str: shape}` for any keys, or
`{"key": shape}` for these keys and others; `"key?"` may be missing.
"""

import json
import sys
from pathlib import Path
from typing import Any

from mtnet.errors import InputError

WORDS = {int: "an integer", float: "a finite number", str: "a text", bool: "true or false"}
SHOWN = 60
"""Characters of a wrong value in a message."""


def read_text(path: Path) -> str:
    """The text of a UTF-8 file."""
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8, or restore it"
        ) from None


def parse_json(text: str | bytes) -> Any:
    """A JSON value; ValueError says what is wrong."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path, shape: Any, remedy: str) -> Any:
    """The content of a JSON file, checked."""
    text = read_text(path)
    try:
        value = parse_json(text)
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON ({error}): {remedy}") from None
    return check_data(value, shape, str(path), remedy)


def check_data(value: Any, shape: Any, source: str, remedy: str) -> Any:
    """The value itself; an InputError names the file, the key and the remedy if it differs."""
    problem = _mismatch(value, shape, "")
    if problem:
        raise InputError(f"{source}: {problem}; {remedy}")
    return value


def matches(value: Any, shape: Any) -> bool:
    """Whether a value has this shape."""
    return _mismatch(value, shape, "") is None


def _mismatch(value: Any, shape: Any, key: str) -> str | None:
    """The first part of the value that differs from the shape."""
    if isinstance(shape, tuple):
        if any(_mismatch(value, s, key) is None for s in shape):
            return None
        containers = [s for s in shape if isinstance(value, list | dict) and type(s) is type(value)]
        return _mismatch(value, containers[0], key) if containers else _wrong(value, shape, key)
    if isinstance(shape, dict) and isinstance(value, dict):
        return _mismatch_in_dict(value, shape, key)
    if isinstance(shape, list) and isinstance(value, list):
        parts = (_mismatch(v, s, f"{key}[{i}]") for i, v in enumerate(value) for s in shape[:1])
        return next((part for part in parts if part), None)
    return None if _is_plain(value, shape) else _wrong(value, shape, key)


def _mismatch_in_dict(value: dict[str, Any], shape: dict[Any, Any], key: str) -> str | None:
    if str in shape:
        shape = dict.fromkeys(value, shape[str])
    for name, inner in shape.items():
        plain = name.removesuffix("?")
        path = f"{key}.{plain}" if key else plain
        if plain not in value:
            if plain == name:
                return f"{path} is missing"
        elif problem := _mismatch(value[plain], inner, path):
            return problem
    return None


def _is_plain(value: Any, shape: Any) -> bool:
    if shape is None:
        return value is None
    if shape is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and abs(value) <= sys.float_info.max
    return type(value) is shape


def _wrong(value: Any, shape: Any, key: str) -> str:
    text = repr(value)
    text = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    return f"{key or 'the content'} is {text}, not {_word(shape)}"


def _word(shape: Any) -> str:
    if isinstance(shape, tuple):
        return " or ".join(map(_word, shape))
    if isinstance(shape, list):
        return "a list"
    if isinstance(shape, dict):
        return "a table of keys"
    return "null" if shape is None else WORDS[shape]
