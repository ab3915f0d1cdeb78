"""What the server says about a request that is wrong or doubtful, in one line."""

import asyncio
import json

import jax
import pytest

from mtnet.build import build_learner
from mtnet.config import configure
from mtnet.serve.app import build_app
from mtnet.serve.limits import Limits
from mtnet.serve.networks import PICTURES, _served
from mtnet.serve.service import Service
from mtnet.userdata.schema import Column, Schema, to_plain

LONG = "a" * 81
ROW = {"station": "roof", "height": 1.0}
JSON = {"content-type": "application/json", "host": "localhost"}


@pytest.fixture(scope="module")
def app():
    """A network for one column of one category, and one for drawings, which learns nothing here."""
    schema = Schema("task", (Column("station", levels=("roof",)),), Column("height"))
    table = configure(family="sine", method="maml", width=4)
    drawings = configure(family="omniglot", method="prototypical", filters=4)
    with jax.enable_x64(False):
        networks = {
            name: _served(
                name,
                name,
                config,
                build_learner(config).init(jax.random.key(0)),
                inputs,
                1,
                {},
                1.0,
                {},
            )
            for name, config, inputs in (
                ("table", table, {"kind": "table", "schema": to_plain(schema)}),
                ("drawings", drawings, PICTURES["omniglot"]),
            )
        }
        yield build_app(Service(networks, Limits(connections=2), None), None, ("localhost",))


def call(app, method, path, body=None, headers=JSON):
    """Status and answer of a request, which must be JSON."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    path, _, query = path.partition("?")
    sent, raised = [], None
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode()}
    scope |= {"query_string": query.encode(), "http_version": "1.1", "scheme": "http"}
    scope["headers"] = [(k.encode(), v.encode()) for k, v in headers.items()]

    async def receive():
        return {"type": "http.request", "body": data}

    async def send(message):
        sent.append(message)

    try:
        asyncio.run(app(scope, receive, send))
    except ZeroDivisionError as error:
        raised = error
    kinds = [v for k, v in sent[0]["headers"] if k == b"content-type"]
    assert kinds == [b"application/json"]
    assert (raised is not None) == (sent[0]["status"] == 500)
    return sent[0]["status"], json.loads(b"".join(m.get("body", b"") for m in sent[1:]))


def rows(*values):
    return {"network": "table", "rows": list(values)}


def images(*values):
    return {"network": "drawings", "images": list(values)}


BODIES = {
    "no json": (b'{"network": }', "the body is not JSON: line 1, column 13: expecting value"),
    "cut": (b'{\n "a": [1,', "the body is not JSON: line 2, column 10: expecting value"),
    "nothing": (b"", "the body is missing: send a JSON object"),
    "a list": ([1], "the body must be a JSON object, not a list"),
    "nan": (b"NaN", "the body must be a JSON object, not NaN"),
    "deep": (b"[" * 50_000, "the body has too many lists inside each other"),
    "digits": (b"1" * 5000, "the body cannot be read: a number in it has too many digits"),
    "no network": ({}, "network: missing"),
    "a number": ({"network": 1}, "network: must be a text, not 1"),
    "a long name": ({"network": LONG}, "network: 81 characters are too many: at most 80"),
    "no rows": ({"network": "table"}, "rows: missing; table needs rows"),
    "images": (images() | rows(ROW), "images: an empty list: send at least one"),
    "rows": (rows(ROW) | {"network": "drawings"}, "rows: drawings needs images, not rows"),
    "empty": (rows(), "rows: an empty list: send at least one"),
    "an object": ({"network": "table", "rows": {}}, "rows: must be a list, not an object"),
    "a text": (rows(ROW, "x"), 'rows.1: must be an object, not "x"'),
    "too many": (rows(*[ROW] * 1025), "rows: 1025 are too many: at most 1024"),
    "nested": (
        rows(ROW, ROW | {"height": [1]}),
        "rows.1.height: must be a number, a text, true, false or null, not a list",
    ),
    "infinite": (
        b'{"network": "table", "rows": [{"height": 1e999}]}',
        "rows.0.height: not a finite number: send null if it is missing",
    ),
    "a long text": (
        rows({"station": "a" * 1001}),
        "rows.0.station: a text of 1001 characters is too long: at most 1000",
    ),
    "a column without a name": (
        rows({"": 1}),
        "rows.0: the name of a column must have 1 to 80 characters",
    ),
    "no columns": (rows({}), "rows has no column 'station', which the network needs"),
    "a column missing": (
        rows({"station": "roof", "width": 1}),
        "rows has no column 'height', which the network needs; it has: station, width",
    ),
    "a column misspelt": (
        rows({"stattion": "roof", "height": 1}),
        "rows: unknown column 'stattion'; did you mean 'station'?",
    ),
    "a column in capitals": (
        rows({"station": "roof", "HEIGHT": 1}),
        "rows: unknown column 'HEIGHT'; did you mean 'height'?",
    ),
    "a field misspelt": (
        {"netwrok": "table", "network": "table"},
        "netwrok: there is no such field; did you mean network?",
    ),
    "another field": (
        rows(ROW) | {"steps": True},
        "steps: there is no such field; there are: images, rows, network",
    ),
    "no label": (images({"image": "a"}), "images.0.label: missing"),
    "a label of nothing": (
        images({"image": "a", "label": ""}),
        "images.0.label: must not be empty",
    ),
    "another field of an image": (
        images({"image": "a", "label": "a", "path": "b"}),
        "images.0.path: there is no such field; there are: image, label",
    ),
    "no base64": (
        images({"image": "%%%", "label": "a"}),
        "images.0: not base64 of a PNG or JPEG file",
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_wrong_body_is_described_in_one_line(app, name):
    body, words = BODIES[name]
    status, answer = call(app, "POST", "/v1/tasks", body)
    assert answer == {"detail": words}
    assert status == (400 if name in ("deep", "digits") else 422)


@pytest.fixture(scope="module")
def task(app):
    return call(app, "POST", "/v1/tasks", rows(ROW, ROW))[1]


QUERIES = {
    "a level": ({"interval": 2}, "interval: must be less than 1; it is 2"),
    "a text": ({"interval": "a"}, 'interval: must be a number, not "a"'),
    "no bool": ({"steps": "maybe"}, 'steps: must be true or false, not "maybe"'),
    "no value": (
        {"rows": [ROW, {"station": None}]},
        "rows, row 2, column 'station': the value is missing",
    ),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_wrong_query_is_described_in_one_line(app, task, name):
    body, words = QUERIES[name]
    status, answer = call(app, "POST", f"/v1/tasks/{task['id']}/predict", {"rows": [ROW]} | body)
    assert (status, answer) == (422, {"detail": words})


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "words"),
    [
        ("GET", "/nowhere", {}, 404, "there is nothing at /nowhere: /docs lists what there is"),
        ("GET", "/v1/tasks/short", {}, 404, "there is no such task"),
        ("DELETE", "/v1/tasks/" + "a" * 22, {}, 404, "there is no such task"),
        ("PUT", "/v1/tasks", {}, 405, "/v1/tasks does not take PUT: use POST"),
        ("PATCH", "/v1/tasks/x", {}, 405, "/v1/tasks/x does not take PATCH: use DELETE or GET"),
        ("GET", "/readyz?all=perhaps", {}, 422, 'all: must be true or false, not "perhaps"'),
        ("GET", "/readyz", {}, 503, "compiling"),
        (
            "GET",
            "/healthz",
            {"host": "evil.example"},
            400,
            "not called 'evil.example': use localhost",
        ),
        ("GET", "/healthz", {"host": "localhost.evil.example:80"}, 400, "not called"),
        (
            "POST",
            "/v1/tasks",
            {"content-type": "text/plain"},
            422,
            "application/json, not text/plain",
        ),
        ("POST", "/v1/tasks", {"content-type": ""}, 422, "application/json, which is missing"),
        ("POST", "/v1/tasks", {"content-length": "9000000"}, 413, "more than 8000000 bytes"),
    ],
)
def test_other_refusals_are_json_too(app, method, path, headers, status, words):
    found, answer = call(app, method, path, rows(ROW), JSON | headers)
    assert found == status
    assert words in answer["detail"]


def test_a_body_without_a_length_that_is_too_large_is_told_so(app):
    body = json.dumps({"network": "a" * 8_000_000}).encode()
    status, answer = call(app, "POST", "/v1/tasks", body)
    assert (status, answer["detail"]) == (413, "the body has more than 8000000 bytes: send less")


def test_the_port_and_capitals_of_a_host_do_not_matter(app):
    assert call(app, "GET", "/healthz", headers={"host": "LocalHost:8000"})[0] == 200


def test_too_many_requests_at_the_same_time_are_told(app):
    app.active = 2
    try:
        status, answer = call(app, "GET", "/healthz")
    finally:
        app.active = 0
    assert (status, answer["detail"]) == (503, "more than 2 requests at the same time: try again")
    assert call(app, "GET", "/healthz")[0] == 200
    assert app.active == 0


def test_an_error_of_the_server_is_json_and_is_raised_for_its_log(app, task, monkeypatch):
    monkeypatch.setattr("mtnet.serve.app.predictions", lambda *arguments: 1 / 0)
    status, answer = call(app, "POST", f"/v1/tasks/{task['id']}/predict", {"rows": [ROW]})
    assert (status, "not of the request" in answer["detail"]) == (500, True)


def test_levels_of_no_training_group_are_warned_about(app, task):
    new = {"station": "tower", "height": 2.0}
    words = ["rows, column 'station': 'tower' was in no training group: encoded as zeros"]
    path = f"/v1/tasks/{task['id']}"
    assert task["warnings"] == []
    assert call(app, "POST", "/v1/tasks", rows(ROW, new))[1]["warnings"] == words
    assert call(app, "POST", f"{path}/examples", {"rows": [new]})[1]["warnings"] == words
    found = call(app, "POST", f"{path}/predict", {"rows": [{"station": "tower"}]})[1]
    assert (len(found["predictions"]), found["warnings"]) == (1, words)
    known = call(app, "POST", f"{path}/predict", {"rows": [{"station": "roof"}]})[1]
    assert known["warnings"] == []


def test_columns_that_are_not_used_are_warned_about(app, task):
    rows = [ROW | {"colour": "red"}, ROW]
    _, learned = call(app, "POST", "/v1/tasks", {"network": "table", "rows": rows})
    assert learned["warnings"] == ["column 'colour' is not used"]
    _, found = call(app, "POST", f"/v1/tasks/{task['id']}/predict", {"rows": [ROW]})
    assert found["warnings"] == []


def test_rows_without_a_target_are_warned_about(app):
    found = call(app, "POST", "/v1/tasks", rows(ROW, {"station": "roof"}))[1]
    assert found["warnings"] == ["rows: 1 rows without 'height' are skipped"]
