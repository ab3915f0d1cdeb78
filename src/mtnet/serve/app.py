"""The routes of the server: a thin layer over `Service`."""

from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Path as PathParameter, Response
from fastapi.responses import HTMLResponse

from mtnet.serve.answers import info, predictions, support_of
from mtnet.serve.docs_page import docs_page
from mtnet.serve.guards import Guard
from mtnet.serve.messages import (
    Examples,
    Network,
    Networks,
    NewTask,
    Predictions,
    Problem,
    Query,
    TaskInfo,
)
from mtnet.serve.problems import NO_TASK, add_problems
from mtnet.serve.service import Service
from mtnet.serve.tasks import Task
from mtnet.version import __version__

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
PAGE = files("mtnet") / "serve" / "page"
Id = Annotated[str, PathParameter(pattern=r"^[A-Za-z0-9_-]{22}$", description="Id of a task.")]
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (400, 401, 413, 422, 503)
}
MISSING: dict[int | str, dict[str, Any]] = {404: {"model": Problem}}


def build_app(service: Service, token: str | None = None, hosts: tuple[str, ...] = ("*",)) -> Any:
    """The server as an ASGI app.

    Args:
        service: What it serves.
        token: Bearer token that requests need; None: none.
        hosts: Names of the server that requests may use.
    """
    app = FastAPI(
        title="mtnet",
        version=__version__,
        summary="Learn a task from a few examples, then predict.",
        docs_url=None,
        redoc_url=None,
        responses=PROBLEMS,
    )
    add_problems(app)
    add_state(app, service)
    add_page(app)
    add_learning(app, service)
    add_tasks(app, service)
    return Guard(app, service.limits, token, service.metrics, hosts)


def add_state(app: FastAPI, service: Service) -> None:
    """Routes about the server."""

    @app.get("/healthz", tags=["server"])
    async def alive() -> dict[str, str]:
        """Whether the server runs."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["server"])
    async def ready(all: bool = False) -> dict[str, str]:
        """Whether the first programs are compiled, or all of them; 503 before."""
        if not (service.compiled if all else service.ready).is_set():
            raise HTTPException(503, "compiling")
        return {"status": "ready"}

    @app.get("/metrics", tags=["server"], response_class=Response)
    async def metrics() -> Response:
        """Counters in the text format of Prometheus."""
        return Response(service.metrics.text(len(service.tasks)), media_type="text/plain")


def add_page(app: FastAPI) -> None:
    """The page at /, its files, and the description of the API at /docs."""
    contents = {p.name: p.read_bytes() for p in PAGE.iterdir() if not p.name.startswith("_")}

    def file(name: str) -> Response:
        if name not in contents:
            raise HTTPException(404, "there is no such file")
        suffix = name[name.rindex(".") :]
        headers = {"cache-control": "no-cache"}
        return Response(contents[name], media_type=TYPES[suffix], headers=headers)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return file("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        return file(name)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()))


def add_learning(app: FastAPI, service: Service) -> None:
    """Routes that list networks and learn new tasks."""

    @app.get("/v1/networks", tags=["networks"], response_model_exclude_none=True)
    async def networks() -> Networks:
        """The networks that learn tasks."""
        found = [Network(**network.describe()) for network in service.networks.values()]
        return Networks(networks=found)

    @app.post("/v1/tasks", tags=["tasks"], status_code=201)
    def create_task(new: NewTask) -> TaskInfo:
        """Learn a task from examples."""
        network = service.network(new.network)
        warnings: list[str] = []
        support = support_of(network, new, warnings.append)
        return info(network, service.create(network, support), warnings)


def add_tasks(app: FastAPI, service: Service) -> None:
    """Routes of one task."""

    def find(id: str) -> Task:
        task = service.tasks.get(id)
        if task is None:
            raise no_task()
        return task

    @app.get("/v1/tasks/{id}", tags=["tasks"], responses=MISSING)
    def show_task(id: Id) -> TaskInfo:
        """A task, and what learning it did."""
        task = find(id)
        return info(service.networks[task.network], task)

    @app.post("/v1/tasks/{id}/examples", tags=["tasks"], responses=MISSING)
    def add_examples(id: Id, examples: Examples) -> TaskInfo:
        """Add examples to a task and learn it again from all of them."""
        task = find(id)
        network = service.networks[task.network]
        warnings: list[str] = []
        support = support_of(network, examples, warnings.append)
        return info(network, service.add(task, support), warnings)

    @app.post(
        "/v1/tasks/{id}/predict",
        tags=["tasks"],
        responses=MISSING,
        response_model_exclude_none=True,
    )
    def predict(id: Id, query: Query) -> Predictions:
        """Predict with the network of a task."""
        task = find(id)
        return predictions(service, service.networks[task.network], task, query)

    @app.get("/v1/tasks/{id}/model", tags=["tasks"], responses=MISSING, response_class=Response)
    def download(id: Id) -> Response:
        """The adapted network and its examples, as a file for `mtnet predict`."""
        name = {"content-disposition": 'attachment; filename="model.safetensors"'}
        return Response(
            service.model_file(find(id)), media_type="application/octet-stream", headers=name
        )

    @app.delete(
        "/v1/tasks/{id}",
        tags=["tasks"],
        responses=MISSING,
        status_code=204,
        response_class=Response,
    )
    def delete_task(id: Id) -> Response:
        """Delete a task."""
        if not service.tasks.delete(id):
            raise no_task()
        return Response(status_code=204)


def no_task() -> HTTPException:
    return HTTPException(404, NO_TASK)
