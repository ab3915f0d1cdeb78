"""The server as a process of its own, over HTTP: what it learns, what it refuses, what it keeps."""

import base64
import io
import json
import signal
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from PIL import Image
from serving import ANY, FIVE, SHAPES, examples, picture, serving, text, wave

from mtnet.cli import main
from mtnet.storage import load


@pytest.fixture(scope="module")
def server():
    with serving("--networks", FIVE, ANY, "sine-mt-net") as running:
        yield running


# What it learns


def test_drawings_are_learned_named_and_added_to(server):
    task = server.learn(FIVE, images=examples())
    assert task["labels"] == sorted(SHAPES)
    assert task["accuracy"][-1] == 100 > task["accuracy"][0]
    assert task["losses"][-1] < task["losses"][0]
    assert max(task["moved"].values()) > 0.01
    for name in SHAPES:
        found = server.predict(task, images=[text(picture(SHAPES[name], 12))], seen=True)
        assert found["predictions"][0]["label"] == name
        assert sum(found["predictions"][0]["probabilities"].values()) == pytest.approx(1, abs=1e-4)
        assert Image.open(io.BytesIO(base64.b64decode(found["seen"][0]))).size == (28, 28)
    path = f"/v1/tasks/{task['id']}"
    status, more = server.call("POST", f"{path}/examples", {"images": examples(["vee"], 9)})
    assert (status, more["examples"]) == (200, 6)
    assert server.call("GET", path)[1] == more
    assert server.call("DELETE", path)[0] == 204
    assert server.call("GET", path)[0] == 404


def test_examples_added_later_give_the_task_of_all_examples(server):
    both = [*examples(), *examples(["vee", "line"], 9)]  # no more than the smallest program takes
    at_once = server.learn(ANY, images=both)
    later = server.learn(ANY, images=both[:5])
    later = server.call("POST", f"/v1/tasks/{later['id']}/examples", {"images": both[5:]})[1]
    assert {k: v for k, v in later.items() if k != "id"} == {
        k: v for k, v in at_once.items() if k != "id"
    }


def test_a_downloaded_model_predicts_as_the_server_does(server, tmp_path, monkeypatch, capsys):
    """With fewer classes than the program was compiled for, so that its padding must be cut."""
    task = server.learn(ANY, images=examples(["vee", "cross", "line"]))
    query = picture(SHAPES["cross"], 12)
    probability = server.predict(task, images=[text(query)])["predictions"][0]["probabilities"]
    status, data = server.call("GET", f"/v1/tasks/{task['id']}/model")
    assert status == 200
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(data)
    (tmp_path / "query.png").write_bytes(query)
    with jax.enable_x64(False):
        assert load("model").about["labels"] == ["cross", "line", "vee"]
        assert main(["predict", "model", "query.png", "--out", "found.csv"]) == 0
    label, p = (tmp_path / "found.csv").read_text().splitlines()[1].split(",")[1:]
    assert label.strip('"') == "cross"
    assert float(p) == pytest.approx(probability["cross"], abs=1e-4)


def test_a_curve_is_fitted_step_by_step(server):
    task = server.learn("sine-mt-net", rows=[wave(x) for x in np.linspace(-4, 4, 10)])
    grid = [{"x": float(x)} for x in np.linspace(-4, 4, 81)]
    truth = np.array([wave(row["x"])["y"] for row in grid])
    found = server.predict(task, rows=grid, steps=True)
    errors = [np.mean(np.square([p["value"] for p in step] - truth)) for step in found["by_step"]]
    assert len(errors) == 11
    assert errors[-1] < 0.3 < errors[0]
    assert found["predictions"] == found["by_step"][-1]


# What it refuses

PNG = text(picture(SHAPES["line"]))
WRONG = {
    "no network": ({"images": examples()}, 422, "network"),
    "another network": ({"network": "nowhere", "images": examples()}, 422, "nowhere"),
    "no examples": ({"network": ANY}, 422, "needs images"),
    "rows for images": ({"network": ANY, "rows": [wave(1)]}, 422, "needs images"),
    "one class": ({"network": ANY, "images": examples(["vee"])}, 422, "one class only"),
    "four classes of five": (
        {"network": FIVE, "images": examples(list(SHAPES)[:4])},
        422,
        "needs 5 classes; there are 4",
    ),
    "many classes": (
        {"network": ANY, "images": [{"image": PNG, "label": str(i)} for i in range(21)]},
        422,
        "at most 20",
    ),
    "many images": (
        {"network": ANY, "images": [{"image": PNG, "label": str(i % 2)} for i in range(129)]},
        422,
        "128",
    ),
    "no base64": ({"network": ANY, "images": [{"image": "%%%", "label": "a"}]}, 422, "base64"),
    "no image": (
        {"network": ANY, "images": [{"image": text(b"hello"), "label": "a"}]},
        422,
        "PNG, JPEG",
    ),
    "another field": ({"network": ANY, "images": examples(), "path": "/etc/passwd"}, 422, "path"),
    "a column missing": ({"network": "sine-mt-net", "rows": [{"x": 1.0}]}, 422, "'y'"),
    "text for a number": (
        {"network": "sine-mt-net", "rows": [{"x": "a", "y": 1.0}, wave(1)]},
        422,
        "not a number",
    ),
    "too large": (b" " * 8_000_001, 413, "8000000"),
    "no json": (b"{", 422, "JSON"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_one_line(server, name):
    body, status, words = WRONG[name]
    found, answer = server.call("POST", "/v1/tasks", body)
    assert found == status
    assert words in answer["detail"]
    assert "\n" not in answer["detail"]


def test_a_large_image_is_refused_before_it_is_decoded(server):
    file = io.BytesIO()
    Image.new("1", (3000, 3000)).save(file, "PNG")
    assert len(file.getvalue()) < 10_000
    body = {"network": ANY, "images": [{"image": text(file.getvalue()), "label": "a"}]}
    status, answer = server.call("POST", "/v1/tasks", body)
    assert (status, "4 million" in answer["detail"]) == (422, True)


def test_malformed_requests_are_refused_and_leave_nothing_behind(server):
    """1000 of them: no 5xx, no growth of memory."""
    rng = np.random.default_rng(0)
    good = json.dumps({"network": "sine-mt-net", "rows": [wave(1), wave(2)]}).encode()
    paths = [
        "/v1/tasks",
        "/v1/tasks/" + "a" * 22,
        "/v1/tasks/../../etc/passwd/predict",
        "/page/..%2f",
    ]
    odd = [b"[" * 50_000, b"\xff\xfe", b'{"network": "\\ud800"}', b"NaN", b"1" * 10_000]
    odd += [good.replace(b"1.0", b"1e999"), good.replace(b"1.0", b"null"), b'"\\u0000"']

    def malformed():
        kind = rng.integers(3)
        if kind == 0:
            return odd[rng.integers(len(odd))]
        data = np.frombuffer(good, np.uint8).copy()
        places = rng.integers(len(data), size=rng.integers(1, 6))
        data[places] = rng.integers(0, 256, len(places))
        return data.tobytes() if kind == 1 else data.tobytes()[: rng.integers(len(data))]

    methods, memory = ["GET", "POST", "DELETE", "PUT", "PATCH"], []
    for i in range(1000):
        path = paths[rng.integers(len(paths))] if rng.random() < 0.3 else paths[0]
        method = methods[rng.integers(len(methods))] if rng.random() < 0.2 else "POST"
        status, _ = server.call(method, path, malformed())
        assert status < 500
        if i % 250 == 249:
            memory.append(server.memory())
    assert server.call("GET", "/healthz")[0] == 200
    assert memory[-1] < memory[0] + 40e6


def test_the_schema_is_kept(server):
    """Random requests of the OpenAPI schema: answers have the status, type and shape it says."""
    schemathesis = pytest.importorskip("schemathesis")
    checks = schemathesis.checks
    names = ["not_a_server_error", "status_code_conformance", "content_type_conformance"]
    chosen = [getattr(checks, name) for name in [*names, "response_schema_conformance"]]
    schema = schemathesis.openapi.from_dict(server.call("GET", "/openapi.json")[1])
    from hypothesis import HealthCheck, given, settings

    tested = 0
    for result in schema.get_all_operations():
        operation = result.ok()

        @given(case=operation.as_strategy())
        @settings(max_examples=5, suppress_health_check=list(HealthCheck), deadline=None)
        def check(case):
            case.call_and_validate(base_url=f"http://127.0.0.1:{server.port}", checks=chosen)

        check()
        tested += 1
    assert tested == 10


def test_only_the_names_of_this_machine_are_answered(server):
    """So that a page of another site cannot reach the server through a name of its own."""
    status, answer = server.call("GET", "/healthz", headers={"host": "evil.example"})
    assert (status, "not called 'evil.example'" in answer["detail"]) == (400, True)


def test_a_half_sent_body_does_not_block_others(server):
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert server.call("GET", "/healthz")[0] == 200


# What it keeps


def test_tasks_in_a_folder_survive_a_kill_and_others_go_when_there_are_too_many(tmp_path):
    arguments = ("--store", tmp_path / "tasks", "--max-tasks", 2, "--networks", "sine-mt-net")
    token = {"authorization": "Bearer secret"}
    query = {"rows": [{"x": 0.5}, {"x": -1.0}]}
    with serving(*arguments, MTNET_TOKEN="secret") as first:
        assert first.call("GET", "/v1/networks")[0] == 401
        assert first.call("GET", "/v1/networks", headers={"authorization": "Bearer x"})[0] == 401
        assert first.call("GET", "/healthz")[0] == 200
        tasks = []
        for phase in range(3):
            rows = [wave(x + phase) for x in np.linspace(-4, 4, 10)]
            body = {"network": "sine-mt-net", "rows": rows}
            tasks.append(first.call("POST", "/v1/tasks", body, token)[1])
        paths = [f"/v1/tasks/{task['id']}" for task in tasks]
        before = [first.call("POST", f"{path}/predict", query, token) for path in paths]
        assert [status for status, _ in before] == [404, 200, 200]
        first.process.send_signal(signal.SIGKILL)
    with serving(*arguments, MTNET_TOKEN="secret") as second:
        after = [second.call("POST", f"{path}/predict", query, token) for path in paths]
        assert after == before
        assert [second.call("GET", path, headers=token)[1] for path in paths[1:]] == tasks[1:]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "set MTNET_TOKEN, or add --public"),
        (["--port", "70000"], "port must be from 0 to 65535"),
        (["--model", "nowhere"], "there is no file nowhere"),
    ],
)
def test_a_server_that_cannot_start_says_why(arguments, words, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MTNET_TOKEN", raising=False)
    with jax.enable_x64(False):
        assert main(["serve", "--networks", "sine-mt-net", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("package", ["fastapi", "prometheus_client", "uvicorn"])
def test_without_its_packages_the_command_says_what_to_install(package):
    """A process of its own, where the package cannot be imported."""
    code = (
        f"import sys; sys.modules[{package!r}] = None; from mtnet.cli import main; main(['serve'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stderr == f"mtnet: serve needs {package}: pip install 'mtnet[serve]'\n"
    assert done.stdout == ""
