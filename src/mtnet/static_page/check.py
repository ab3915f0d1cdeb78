"""The graphs of a network, compared with the programs of `mtnet serve` before they are written."""

from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import onnx
import onnxruntime

from mtnet.adapted_tasks import TaskSupport
from mtnet.core.cells import Cells
from mtnet.errors import InputError
from mtnet.plain.apply import softmax
from mtnet.serve.networks import ServedNetwork
from mtnet.serve.programs import Programs
from mtnet.static_page.cells import problem_of
from mtnet.static_page.graphs import learn_graph, predict_graph

TOLERANCE = 1e-4
"""Largest difference: of probabilities, or of numbers, in parts of the largest if it exceeds 1."""
QUERIES = 8
SIZES = ((2, 1), (5, 1), (3, 2))
"""Classes, and examples of each, of the tasks of the comparison."""


class Graphs(NamedTuple):
    """The graphs of a network as files."""

    learn: bytes
    predict: bytes
    cells: list[str]
    """Names of what `moved` counts."""


class Answer(NamedTuple):
    """What learning a task gives, after 0, 1, ... steps."""

    predictions: np.ndarray
    losses: np.ndarray
    moved: np.ndarray


def checked_graphs(network: ServedNetwork) -> Graphs:
    """The graphs; an InputError if the network has none, or if their answers differ."""
    files = graph_files(network)
    error, cells = largest_difference(network, files)
    if not error <= TOLERANCE:
        raise InputError(
            f"the graphs of {network.name} differ from the network by {error:.2g}: they are not "
            "written; leave it out with --networks, and please report this"
        )
    return Graphs(files[0], files[1], cells)


def graph_files(network: ServedNetwork) -> list[bytes]:
    """The graphs that learn and predict, not compared yet."""
    problem = problem_of(network)
    if problem is not None:
        raise InputError(problem)
    learn = learn_graph(network)
    layers = sum(output.name.startswith("layer") for output in learn.graph.output)
    models = learn, predict_graph(network, layers)
    for model in models:
        onnx.checker.check_model(model, full_check=True)
    return [model.SerializeToString() for model in models]


def largest_difference(network: ServedNetwork, files: list[bytes]) -> tuple[float, list[str]]:
    """Over a few random tasks; and the names of the cells that move."""
    programs, draw, errors = Programs(network), np.random.default_rng(0), []
    cells: list[str] = []
    for task, queries in random_tasks(network, draw):
        expected, cells = served_answer(programs, task, queries)
        found = graph_answer(files, task, queries)
        for a, b in zip(found, expected, strict=True):
            errors.append(np.max(np.abs(a - b), initial=0.0) / max(1.0, np.abs(b).max(initial=0.0)))
    return float(np.max(errors)), cells  # nan if there is one


def served_answer(
    programs: Programs, task: TaskSupport, queries: np.ndarray
) -> tuple[Answer, list[str]]:
    """What the server answers, and the names of the cells."""
    learned, ways = programs.learn([task])[0], len(task.labels)
    moved: Cells[Any] = learned.moved
    outputs = []
    for step in range(len(learned.losses)):
        net = jax.tree.map(lambda a, i=step: a[i] if eqx.is_array(a) else a, learned.nets)
        outputs.append(programs.answer(net, queries))
    values = np.stack(outputs)
    if ways:
        values = softmax(values[..., :ways].astype(np.float64) / programs.network.temperature)
    return Answer(values, np.asarray(learned.losses), np.array([*moved.values()])), [*moved]


def graph_answer(files: list[bytes], task: TaskSupport, queries: np.ndarray) -> Answer:
    """What onnxruntime computes."""
    learn, predict = (
        onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]) for file in files
    )
    y = np.eye(len(task.labels), dtype=np.float32)[task.y] if task.labels else task.y
    names = [output.name for output in learn.get_outputs()]
    found = dict(zip(names, learn.run(None, {"x": as_inputs(task.x), "y": y}), strict=True))
    layers = {name: value for name, value in found.items() if name.startswith("layer")}
    (predictions,) = predict.run(None, {"x": as_inputs(queries)} | layers)
    return Answer(predictions, found["losses"], found["moved"])


def as_inputs(x: np.ndarray) -> np.ndarray:
    """Pixels as numbers from 0 to 1, channels first; numbers as they are."""
    return np.moveaxis(x, -1, 1).astype(np.float32) / 255 if x.dtype == np.uint8 else x


def random_tasks(
    network: ServedNetwork, draw: np.random.Generator
) -> list[tuple[TaskSupport, np.ndarray]]:
    """Examples and queries: drawings, or points of sine waves."""
    if network.is_table:
        return [_wave(draw, ways * shots) for ways, shots in SIZES]
    fixed = not network.config.any_ways
    sizes = [(network.ways or 0, shots) for shots in (1, 2)] if fixed else SIZES
    size = network.spec.inputs[1]
    return [_characters(draw, ways, shots, size) for ways, shots in sizes]


def _wave(draw: np.random.Generator, count: int) -> tuple[TaskSupport, np.ndarray]:
    x = draw.uniform(-5, 5, (count + QUERIES, 1)).astype(np.float32)
    return TaskSupport(x[:count], 3 * np.sin(x[:count] + 1)), x[count:]


def _characters(
    draw: np.random.Generator, ways: int, shots: int, size: int
) -> tuple[TaskSupport, np.ndarray]:
    kinds = [draw.uniform(0.15, 0.85, (4, 2)) for _ in range(ways)]
    y = np.repeat(np.arange(ways, dtype=np.int32), shots)
    x = np.stack([_strokes(draw, kinds[k], size) for k in y])
    queries = np.stack([_strokes(draw, kinds[i % ways], size) for i in range(QUERIES)])
    return TaskSupport(x, y, tuple(map(str, range(ways)))), queries


def _strokes(draw: np.random.Generator, corners: np.ndarray, size: int) -> np.ndarray:
    """Lines from corner to corner, two pixels wide; each drawing is a little different."""
    places = (corners + draw.uniform(-0.08, 0.08, corners.shape)) * size
    image = np.zeros((size, size, 1), np.uint8)
    for a, b in pairwise(places):
        for row, column in np.linspace(a, b, 2 * size).astype(int):
            image[row : row + 2, column : column + 2] = 255
    return image
