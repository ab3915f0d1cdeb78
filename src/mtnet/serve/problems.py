"""Errors as answers: `{"detail": ...}`, one line that says what is wrong, and where."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from mtnet.errors import InputError, printable, suggest
from mtnet.serve.guards import TooLarge
from mtnet.serve.messages import Body, ImageExample

NO_TASK = "there is no such task: it was deleted, or never made"
CELL = "must be a number, a text, true, false or null"
KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "true or false"),
    ((int, float), "a number"),
    (str, "a text"),
    (list, "a list"),
    (dict, "an object"),
)
SHORT = 40
"""Characters of a value that a message shows."""
Error = Mapping[str, Any]


def add_problems(app: FastAPI) -> None:
    """Answer every error with one line."""
    app.exception_handler(InputError)(_input_error)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(HTTPException)(_refused)
    app.exception_handler(Exception)(_failed)


def problem_answer(
    status: int, text: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse({"detail": printable(text)}, status, headers=headers)


async def _input_error(request: Request, error: Exception) -> Response:
    return problem_answer(422, str(error))


async def _failed(request: Request, error: Exception) -> Response:
    return problem_answer(500, "an error of the server, not of the request: its log says which")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, text = request.url.path, str(error.detail)
    if isinstance(error.__cause__, TooLarge):  # found while the body was read
        return problem_answer(413, str(error.__cause__), {"connection": "close"})
    if error.status_code == 404 and text == "Not Found":
        text = f"there is nothing at {path}: /docs lists what there is"
    elif error.status_code == 405:
        text = f"{path} does not take {request.method}: use {' or '.join(_methods(request))}"
    elif error.status_code == 400 and error.__cause__ is not None:
        text = unreadable(error.__cause__)
    return problem_answer(error.status_code, text, error.headers)


def _methods(request: Request) -> list[str]:
    """The methods that the path of a request takes."""
    routes = [r for r in request.app.routes if r.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in routes for method in route.methods or ()})


async def _invalid(request: Request, error: Exception) -> Response:
    """The first of the problems that the schema finds."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["loc"][0] == "path":  # no task has such an id
        return problem_answer(404, NO_TASK)
    if isinstance(error.body, bytes):
        kind = request.headers.get("content-type")
        sent = f"not {kind}" if kind else "which is missing"
        return problem_answer(422, f"send the header content-type: application/json, {sent}")
    return problem_answer(422, schema_problem(first, error.body, _known(request, first["loc"])))


def unreadable(cause: BaseException) -> str:
    """Why a body cannot be parsed, other than being no JSON."""
    if isinstance(cause, RecursionError):
        return "the body has too many lists inside each other"
    if isinstance(cause, UnicodeDecodeError):
        return f"the body is not UTF-8 text: byte {cause.start + 1}"
    return "the body cannot be read: a number in it has too many digits"


def schema_problem(error: Error, body: Any, known: tuple[str, ...] = ()) -> str:
    """One line for an error of the schema.

    Args:
        error: As pydantic describes it.
        body: The body, or its text if it is no JSON.
        known: The fields that there are where an unknown one was found.
    """
    kind, place = error["type"], tuple(error["loc"])[1:]
    if kind == "json_invalid":
        return not_json(str(body), int(place[0]), str(error["ctx"]["error"]))
    if not place:
        return _whole_body(kind, error["input"])
    if place[-1] == "[key]":
        where, text = place[:-2], "the name of a column must have 1 to 80 characters"
    elif place[0] == "rows" and len(place) > 3:  # one error for each type that it could be
        where, text = place[:3], wrong_cell(error["input"])
    elif kind == "extra_forbidden":
        where, text = place, f"there is no such field; {suggest(str(place[-1]), known, 0.7)}"
    else:
        where, text = place, _said(error)
    return f"{'.'.join(map(str, where))}: {text}"


def not_json(text: str, position: int, reason: str) -> str:
    """Where a text stops being JSON."""
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    reason = reason[:1].lower() + reason[1:]
    return f"the body is not JSON: line {line}, column {column}: {reason}"


def _whole_body(kind: str, value: Any) -> str:
    if kind == "missing":
        return "the body is missing: send a JSON object"
    return f"the body must be a JSON object, not {named(value)}"


def wrong_cell(value: Any) -> str:
    """What is wrong with a value of a column."""
    if isinstance(value, float) and not math.isfinite(value):
        return "not a finite number: send null if it is missing"
    if isinstance(value, str):
        return f"a text of {len(value)} characters is too long: at most 1000"
    return f"{CELL}, not {named(value)}"


SAY: dict[str, Callable[[dict[str, Any], Any], str]] = {
    "missing": lambda c, v: "missing",
    "string_type": lambda c, v: f"must be a text, not {named(v)}",
    "string_unicode": lambda c, v: "not valid Unicode",
    "string_too_short": lambda c, v: "must not be empty",
    "string_too_long": lambda c, v: f"{len(v)} characters are too many: at most {c['max_length']}",
    "list_type": lambda c, v: f"must be a list, not {named(v)}",
    "too_short": lambda c, v: "an empty list: send at least one",
    "too_long": lambda c, v: f"{len(v)} are too many: at most {c['max_length']}",
    "dict_type": lambda c, v: f"must be an object, not {named(v)}",
    "model_attributes_type": lambda c, v: f"must be an object, not {named(v)}",
    "bool_type": lambda c, v: f"must be true or false, not {named(v)}",
    "bool_parsing": lambda c, v: f"must be true or false, not {named(v)}",
    "float_type": lambda c, v: f"must be a number, not {named(v)}",
    "float_parsing": lambda c, v: f"must be a number, not {named(v)}",
    "greater_than": lambda c, v: f"must be greater than {c['gt']:g}; it is {named(v)}",
    "less_than": lambda c, v: f"must be less than {c['lt']:g}; it is {named(v)}",
    "finite_number": lambda c, v: "not a finite number",
}
"""What to say for each type of error of pydantic, from its context and the value."""


def _said(error: Error) -> str:
    if error["type"] in SAY:
        return SAY[error["type"]](error.get("ctx", {}), error["input"])
    text = str(error["msg"])
    return text[:1].lower() + text[1:]


def named(value: Any) -> str:
    """A value in a message: itself if it is short, else what kind of value it is."""
    if value is None:
        return "null"
    kind = next((name for types, name in KINDS if isinstance(value, types)), "something else")
    if isinstance(value, list | dict):
        return kind
    text = json.dumps(value)
    return text if len(text) <= SHORT else kind


def _known(request: Request, place: tuple[Any, ...]) -> tuple[str, ...]:
    """The fields that a request can have, at the place of an unknown one."""
    if len(place) > 2:
        return tuple(ImageExample.model_fields)
    hints = getattr(request.scope.get("endpoint"), "__annotations__", {}).values()
    bodies = (hint for hint in hints if isinstance(hint, type) and issubclass(hint, Body))
    return tuple(next(bodies, Body).model_fields)
