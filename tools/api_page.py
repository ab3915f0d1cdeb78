"""docs/api.md: every public name with its signature and the first line of its docstring.

Read from the source as text, so that signatures stand as they are written.
"""

import ast
from pathlib import Path
from typing import Any, NamedTuple

INTRO = """# API

Every public name of `mtnet`, by topic. Written by `python tools/docs.py` from the source; the
docstrings (`help(mtnet.mt_net)`) have all arguments and return values.
"""
TOPICS = {
    "types": "Types",
    "methods": "Methods",
    "training": "Training and adaptation",
    "nets": "Networks",
    "tasks": "Tasks",
    "losses": "Losses",
    "estimators": "Estimators",
    "files": "Files",
}
PLACES = {
    "core.types": "types",
    "core.inner": "types",
    "core.options": "types",
    "errors": "types",
    "core.losses": "losses",
    "core.norms": "nets",
    "core.cells": "nets",
    "core.initialise": "nets",
    "version": "files",
    "storage": "files",
    "core": "training",
}
"""Modules whose topic is not the name of their room."""
CONSTANTS = {"__version__": "The version of mtnet, a string."}
WIDTH = 88


class Definition(NamedTuple):
    module: str
    node: Any


def api_page(package: Path) -> str:
    entries: dict[str, list[str]] = {topic: [] for topic in TOPICS}
    for name in public_names(package):
        found = find(package, "api", name)
        entries[topic(found.module)].append(entry(name, found.node))
    parts = [INTRO]
    for key, title in TOPICS.items():
        if entries[key]:
            parts += [f"## {title}\n", *entries[key]]
    return "\n".join(parts)


def public_names(package: Path) -> list[str]:
    for node in parse(package, "api").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value), key=str.lower)
    raise ValueError("mtnet/api.py has no __all__")


def parse(package: Path, module: str) -> ast.Module:
    path = package.joinpath(*module.split(".")) if module else package
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text())


def find(package: Path, module: str, name: str) -> Definition:
    """Where a name is defined, through the imports that lead there."""
    for node in ast.walk(parse(package, module)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return Definition(module, node)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mtnet."):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return find(package, (node.module or "")[len("mtnet.") :], alias.name)
        if isinstance(node, ast.Assign) and name in {
            n.id for n in ast.walk(node.targets[0]) if isinstance(n, ast.Name)
        }:
            return Definition(module, node)
    raise ValueError(f"mtnet.{module} does not define {name}")


def topic(module: str) -> str:
    for place in (module, module.split(".")[0]):
        if place in PLACES:
            return PLACES[place]
        if place in TOPICS:
            return place
    raise ValueError(f"no topic for mtnet.{module}: add it to PLACES in tools/api_page.py")


def entry(name: str, node: Any) -> str:
    text = CONSTANTS[name] if isinstance(node, ast.Assign) else ast.get_docstring(node) or ""
    line = " ".join(text.partition("\n\n")[0].split())
    return f"### {name}\n\n```text\n{signature(name, node)}\n```\n\n{line}\n"


def signature(name: str, node: Any) -> str:
    if isinstance(node, ast.FunctionDef):
        return call(name, parameters(node.args), node.returns)
    if isinstance(node, ast.ClassDef):
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                return call(name, parameters(item.args)[1:], None)
        return call(name, fields(node), None)
    return name


def parameters(a: ast.arguments) -> list[str]:
    plain = [*a.posonlyargs, *a.args]
    missing: list[ast.expr | None] = [None] * (len(plain) - len(a.defaults))
    shown = [
        parameter(arg, default) for arg, default in zip(plain, [*missing, *a.defaults], strict=True)
    ]
    if a.vararg:
        shown.append(f"*{parameter(a.vararg, None)}")
    elif a.kwonlyargs:
        shown.append("*")
    shown += [parameter(k, d) for k, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)]
    return [*shown, f"**{parameter(a.kwarg, None)}"] if a.kwarg else shown


def parameter(arg: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {ast.unparse(arg.annotation)}" if arg.annotation else ""
    if default is None:
        return arg.arg + annotation
    equals = " = " if annotation else "="
    return f"{arg.arg}{annotation}{equals}{ast.unparse(default)}"


def fields(node: ast.ClassDef) -> list[str]:
    return [
        ast.unparse(item)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and not ast.unparse(item.target).startswith("_")
    ]


def call(name: str, arguments: list[str], returns: ast.expr | None) -> str:
    arrow = f" -> {ast.unparse(returns)}" if returns else ""
    line = f"{name}({', '.join(arguments)}){arrow}"
    if len(line) <= WIDTH or not arguments:
        return line
    inside = "".join(f"    {argument},\n" for argument in arguments)
    return f"{name}(\n{inside}){arrow}"
