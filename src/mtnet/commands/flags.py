"""The flags of `mtnet train` and `mtnet fit`: those settings that family and method use."""

import ast
import dataclasses
import inspect
import itertools
import re
import textwrap
from typing import Annotated, Any, get_type_hints

import tyro

from mtnet.config import GROUPS, NAMES, Config, to_dict
from mtnet.core.rules import RULES
from mtnet.methods import METHODS
from mtnet.tasks import FAMILIES

MASKS = ("relaxation", "temperature", "draw", "at_test", "zeta_mean", "zeta_sd")
IMAGE_NETS = ("filters", "pool", "head_sd")
CURVE_NETS = ("width", "depth", "W_sd")
TITLES = {"tasks": "task", "net": "network", "outer": "meta-training", "inner": "adaptation"}


def used_settings(family: str, method: str) -> list[str]:
    """Flat names of the settings that change anything for this family and method."""
    return [name for name in NAMES if _is_used(name, family, method)]


def _is_used(name: str, family: str, method: str) -> bool:
    entry, able, rule = FAMILIES[family], METHODS[method], RULES.get(method)
    classes = entry.images or entry.own
    match NAMES[name]:
        case "tasks":
            if name == "train_ways":
                return entry.images
            return (name == "data" and entry.own) or name in _parameters(family)
        case "net" if name == "shared_head":
            return classes and name in able.takes
        case "net" if name == "init_from":
            return True
        case "net" if name == "fold_norms":
            return entry.images
        case "net" if name in ("body_scale", "centre"):
            return entry.images and able.steps
        case "net":
            return name in (IMAGE_NETS if entry.images else CURVE_NETS)
        case "outer":
            return name != "validate_every" or entry.splits
        case "inner" if name == "statistics":
            return entry.images and name in able.takes
        case "inner" if name == "query_scale":
            return classes and name in able.takes
        case "inner" if name in MASKS:
            return rule is not None and rule.mask is not None
        case "inner" if name == "invariant":
            return rule is not None and rule.T
        case "inner":
            return name in able.takes
    return name != "sweep" or "step_size" in able.takes


def _parameters(family: str) -> list[str]:
    return list(inspect.signature(FAMILIES[family].make).parameters)


def flags_for(names: list[str], default: Config) -> Any:
    """A type whose fields tyro turns into flags, one group per part of the config."""
    values = {
        **vars(default),
        **{k: v for g in GROUPS for k, v in vars(getattr(default, g)).items()},
    }
    top = [_flag(name, Config, values) for name in names if NAMES[name] is None]
    for group, kind in GROUPS.items():
        fields = [_flag(name, kind, values) for name in names if NAMES[name] == group]
        if fields:
            part = dataclasses.make_dataclass(group, fields, frozen=True)
            part.__doc__ = (kind.__doc__ or "").partition("\n")[0]
            top.append((group, _group(part, TITLES[group]), dataclasses.field(default=part())))
    flags = dataclasses.make_dataclass("Settings", top, frozen=True)
    flags.__doc__ = "What to train."
    return flags


def _group(part: Any, title: str) -> Any:
    return Annotated[part, tyro.conf.arg(name=title)]


def _flag(name: str, kind: type, values: dict[str, Any]) -> tuple[str, Any, Any]:
    """(name, type with help, default) of one flag."""
    hint = "" if values[name] in (None, (), "") else None
    text = _help(kind)[name]
    if hint is None:  # the family's preset has a value, which tyro shows
        text = re.sub(r"[.;] [Dd]efault: [^.]*", "", text)
    about = tyro.conf.arg(help=text, help_behavior_hint=hint)
    return (
        name,
        Annotated[get_type_hints(kind)[name], about],
        dataclasses.field(default=values[name]),
    )


def _help(kind: type) -> dict[str, str]:
    """The docstring below each field of a dataclass."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in itertools.pairwise(body.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def flat_values(flags: Any) -> dict[str, Any]:
    """Settings by their flat names, from an instance of `flags_for`."""
    flat: dict[str, Any] = {}
    for name, value in vars(flags).items():
        flat |= vars(value) if name in GROUPS else {name: value}
    return flat


def changed_values(flags: Any, default: Config) -> dict[str, Any]:
    """Those that differ from the defaults they started from."""
    before = to_dict(default)
    plain = lambda v: list(v) if isinstance(v, tuple) else v  # noqa: E731
    return {n: v for n, v in flat_values(flags).items() if plain(v) != before[n]}


def why_unused(name: str, family: str, method: str) -> str | None:
    """Why a setting is not a flag here; None if it is no setting at all."""
    if name.removeprefix("no_") in NAMES:
        flag = f"--{name.replace('_', '-')}"
        return f"{flag} changes nothing for {method} on {family} tasks: remove it"
    return None
