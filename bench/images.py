"""Speed and memory of the picture MT-nets' meta-gradient, against PyTorch and mtnet's own MAML.

    python bench/images.py [--rounds N] [--quick] [--only omniglot|mini|memory|cores]

The pictures are random pixels: no data set is needed. Every contender first repeats one
meta-gradient of mtnet's in float64, where kinks of ReLU and max-pooling do not tell two right
answers apart; one that disagrees is not timed. Timed is float32.
"""

import dataclasses
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.metadata import version
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

try:
    import higher  # noqa: F401
    import torch
    import torchopt  # noqa: F401
except ImportError as missing:
    sys.exit(f"{missing.name} is not installed: pip install 'mtnet[bench]'")

import conv_theirs as theirs
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from common import Contender
from jax.extend.core import jaxprs_in_params
from ours import MAML, MT_NET, Reference, rough
from report import PACKAGES, VARIABLES, cpu, row, write
from rich.console import Console
from rich.table import Column, Table
from timing import in_turns, milliseconds, ratio, seconds

import mtnet
from mtnet.config import Config, family_of, learner_of, preset
from mtnet.core.outer import meta_gradient

Part = Literal["omniglot", "mini", "memory", "cores"]
PARTS: tuple[Part, ...] = ("omniglot", "mini", "memory", "cores")
FAMILY = {"omniglot": "omniglot", "mini": "mini-imagenet", "memory": "mini-imagenet"}
FAMILY["cores"] = "omniglot"
PIXELS = {"omniglot": (100, 20, 28, 28, 1), "mini-imagenet": (20, 20, 84, 84, 3)}
TOLERANCE = 1e-6
SIDE = 1024
PRODUCT = f"{SIDE}x{SIDE} product"
UNTUNED = {"xla_backend_optimization_level": 0}
STEPS = (1, 2, 5, 10)
OUT = Path("results/bench_images.json")


# mtnet's side


def settings(family: str, name: str = MT_NET, tasks: int | None = None, **inner: Any) -> Config:
    """The published settings of a family, for one of mtnet's contenders."""
    config = preset(family)
    tasks = tasks or config.meta_batch
    return dataclasses.replace(
        config,
        method="maml" if name == MAML else "mt-net",
        meta_batch=tasks,
        at_once=min(tasks, config.at_once or tasks),
        inner=dataclasses.replace(config.inner, **inner),
    )


@cache
def pixels(family: str) -> jax.Array:
    drawn = np.random.default_rng(0).integers(0, 256, PIXELS[family], np.uint8)
    return jnp.asarray(drawn)


def function(config: Config) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """One meta-gradient on tasks drawn inside, and arguments for it."""
    learner = learner_of(config)

    def gradient(theta, keys, pixels):
        return meta_gradient(learner, family_of(config, pixels), theta, keys, config.at_once)

    keys = jax.random.split(jax.random.key(1), config.meta_batch)
    return gradient, (learner.init(jax.random.key(0)), keys, pixels(config.family))


@cache
def compiled(config: Config) -> tuple[Any, tuple[Any, ...]]:
    gradient, arguments = function(config)
    return jax.jit(gradient).lower(*arguments).compile(), arguments


def looked_at(config: Config) -> Any:
    """The program for its figures only: same buffers, same operations, compiled sooner."""
    gradient, arguments = function(config)
    return jax.jit(gradient, compiler_options=UNTUNED).lower(*arguments).compile()


def mtnet_contender(config: Config, name: str, steps: int | None, error: float = 0.0) -> Contender:
    program, arguments = compiled(config)

    def run(steps: int) -> None:
        for _ in range(steps):  # each to its end: two in flight would share the cores
            jax.block_until_ready(program(*arguments))

    return Contender(name, run, steps, error=error, role="mtnet")


def matrix_product() -> Contender:
    """What the machine can do: one product of two square matrices."""
    a, b = jax.random.normal(jax.random.key(0), (2, SIDE, SIDE))
    product = jax.jit(jnp.matmul)

    def run(steps: int) -> None:
        for _ in range(steps):
            product(a, b).block_until_ready()

    return Contender(PRODUCT, run, role="reference")


def reference(config: Config) -> Reference:
    """One meta-gradient in float64, with its tasks and its mask noise."""
    with jax.enable_x64(True):
        gradient, (theta, keys, pictures) = function(config)
        theta, family = rough(theta, jax.random.key(3)), family_of(config, pictures)
        loss, slope = jax.jit(gradient, compiler_options=UNTUNED)(theta, keys, pictures)
        rows = sum(w[0].shape[0] for w in theta.W.values())

        def drawn(key: jax.Array) -> Any:
            to_draw, to_learn = jax.random.split(key)  # as meta_gradient spends its keys
            return family.sample(to_draw), jax.random.logistic(to_learn, (rows,))

        episodes, noise = jax.tree.map(np.asarray, jax.vmap(drawn)(keys))
        return Reference(theta, episodes.support, episodes.query, noise, float(loss), slope)


# PyTorch's side


def tasks_of(config: Config) -> theirs.Tasks:
    """Tasks made ready beforehand, which spares PyTorch the drawing of them."""
    keys = jax.random.split(jax.random.key(2), config.meta_batch)
    drawn = jax.vmap(family_of(config, pixels(config.family)).sample)(keys)
    return theirs.tasks_of(drawn.support, drawn.query)


def torch_contender(
    config: Config, name: str, make: theirs.Make, threads: int, steps: int | None, error: float
) -> Contender:
    theta = theirs.theta_of(learner_of(config).init(jax.random.key(0)))
    step, tasks = make(theirs.work_of(config), theta), tasks_of(config)

    def run(steps: int) -> None:
        torch.set_num_threads(threads)
        for _ in range(steps):
            theirs.clear(theta)
            step(tasks, theirs.noise_of(theta, config.meta_batch))

    name = f"{name}, {threads} thread{'s'[: threads > 1]}"
    return Contender(name, run, steps, threads, error)


def fastest(contenders: list[Contender]) -> Contender:
    """The one whose second step is shortest."""

    def second(contender: Contender) -> float:
        contender.run(1)
        return seconds(contender.run, 1)

    return min(contenders, key=second) if len(contenders) > 1 else contenders[0]


def torch_contenders(config: Config, truth: Reference, steps: int | None) -> list[Contender]:
    """Every peer as it is fastest: of the ways to write it, and with one thread or with all."""
    cores = len(os.sched_getaffinity(0))
    work = theirs.work_of(config)
    found = []
    for name, makes in theirs.PEERS.items():
        errors = [theirs.error(make, work, truth) for make in makes]
        ways = [
            torch_contender(config, f"{name} ({make.__doc__.split(':')[0]})", make, n, steps, e)
            for make, e in zip(makes, errors, strict=True)
            for n in sorted({1, cores})
        ]
        agree = [c for c in ways if c.error <= TOLERANCE]
        found.append(fastest(agree) if agree else ways[0])
    return found


# The parts


def contest(part: Part, rounds: int, tasks: int | None) -> tuple[list[Any], list[Any], list[Any]]:
    """Contenders of a part, those left out, and the times of all others."""
    family = FAMILY[part]
    slice_steps = None if part == "omniglot" else 1
    config = settings(family, tasks=tasks)
    truth = reference(settings(family, tasks=1))
    others = torch_contenders(config, truth, slice_steps)
    maml = reference(settings(family, MAML, tasks=1))
    off = theirs.error(theirs.plain, theirs.work_of(config), maml)
    best = min(c.error for c in others)
    own = [
        mtnet_contender(config, MT_NET, slice_steps, best),
        mtnet_contender(settings(family, MAML, tasks), MAML, slice_steps, off),
    ]
    every = [*own, *others, matrix_product()]
    left_out = [c for c in every if not c.error <= TOLERANCE]
    if own[0] in left_out:
        sys.exit("mtnet and PyTorch disagree: nothing to compare")
    agreeing = [c for c in every if c not in left_out]
    return agreeing, left_out, in_turns(agreeing, rounds)


def timed(part: Part, rounds: int, tasks: int | None) -> dict[str, Any]:
    """Rows of the contest, and how much of the machine mtnet's step has used."""
    contenders, left_out, times = contest(part, rounds, tasks)
    config = settings(FAMILY[part], tasks=tasks)
    rows = [{"part": part} | row(c, times) for c in contenders]
    return {
        "rows": rows,
        "left_out": [
            {"part": part, "contender": c.name, "relative_error": c.error} for c in left_out
        ],
        "speed": [{"part": part} | speed(config, name, times) for name in (MT_NET, MAML)],
    }


def speed(config: Config, name: str, times: list[dict[str, float]]) -> dict[str, Any]:
    """Operations of a step, their rate, and that rate beside the matrix product's."""
    config = dataclasses.replace(config, method="maml" if name == MAML else "mt-net")
    gradient, arguments = function(config)
    products = product_flops(jax.make_jaxpr(gradient)(*arguments).jaxpr)
    rate = lambda flops, who: flops / milliseconds(times, who) / 1e6  # noqa: E731
    machine = 2 * SIDE**3
    return {
        "contender": name,
        "gflop_in_products": products / 1e9,
        "gflop_by_xla": xla_flops(config, name) / 1e9
        if config.inner.steps == 1 and name == MT_NET
        else None,
        "gflops": rate(products, name),
        "gflops_of_matrix_product": rate(machine, PRODUCT),
        "fraction_of_matrix_product": products / machine / ratio(times, name, PRODUCT),
    }


def xla_flops(config: Config, name: str) -> float:
    """XLA's own count, elementwise work included; it counts a loop's body once, so: no loop."""
    together = settings(config.family, name, config.meta_batch)
    program = looked_at(dataclasses.replace(together, at_once=config.meta_batch))
    return program.cost_analysis()["flops"]


def product_flops(jaxpr: Any) -> int:
    """2 m n k for every matrix product of a program, as often as its loops run."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += 2 * equation.outvars[0].aval.size * prod(left[i] for i in contracted)
        often = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        total += often * sum(map(product_flops, jaxprs_in_params(equation.params)))
    return total


def memory(rounds: int, tasks: int | None, steps: tuple[int, ...] = STEPS) -> dict[str, Any]:
    """What the compiled meta-gradient holds at most, and what remat costs in time."""
    with ThreadPoolExecutor(2) as pool:  # one core each: compiling is all that is done here
        asked = [(tasks, n, remat) for n in steps for remat in (False, True)]
        found = list(pool.map(lambda a: memory_row(*a), asked))
    here = lambda **inner: settings("mini-imagenet", tasks=tasks, **inner)  # noqa: E731
    own = [
        mtnet_contender(here(), MT_NET, 1),
        mtnet_contender(here(remat=True), f"{MT_NET}, remat", 1),
    ]
    times = in_turns(own, rounds)
    return {"rows": [{"part": "memory"} | row(c, times) for c in own], "memory": found}


def memory_row(tasks: int | None, steps: int, remat: bool) -> dict[str, Any]:
    config = settings("mini-imagenet", tasks=tasks, steps=steps, remat=remat)
    used = looked_at(config).memory_analysis()
    parts = {
        "temporary_mb": used.temp_size_in_bytes / 1e6,
        "arguments_mb": used.argument_size_in_bytes / 1e6,
        "output_mb": used.output_size_in_bytes / 1e6,
    }
    return {"inner_steps": steps, "remat": remat, "peak_mb": sum(parts.values())} | parts


def cores(rounds: int, tasks: int | None) -> dict[str, Any]:
    """One process with all tasks on both cores and on one, and two with half of them each."""
    both = sorted(os.sched_getaffinity(0))[:2]
    if len(both) < 2:
        return {"rows": []}
    tasks = tasks or preset("omniglot").meta_batch
    teams = {
        MT_NET: [(both, tasks)],
        f"{MT_NET}, one core": [(both[:1], tasks)],
        f"{MT_NET}, two processes": [([core], tasks // 2) for core in both],
    }
    with ExitStack() as stack:
        workers = {
            name: [stack.enter_context(worker(*member)) for member in team]
            for name, team in teams.items()
        }
        for process in (p for team in workers.values() for p in team):
            answer(process)  # all have compiled
        own = [Contender(n, team_run(w), 4, role="mtnet") for n, w in workers.items()]
        times = in_turns(own, rounds)
    return {"rows": [{"part": "cores"} | row(c, times) for c in own]}


@contextmanager
def worker(on: list[int], tasks: int) -> Iterator[subprocess.Popen]:
    """A process on these cores that waits for a number of steps on its input."""
    code = f"import os; os.sched_setaffinity(0, {on}); import images; images.work({tasks})"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait()


def answer(process: subprocess.Popen) -> None:
    if process.stdout.readline() != "done\n":
        raise RuntimeError("a worker of the cores part has died")


def team_run(processes: list[subprocess.Popen]) -> Callable[[int], None]:
    """All of a team do these steps side by side; the slowest ends it."""

    def run(steps: int) -> None:
        for process in processes:
            process.stdin.write(f"{steps}\n")
            process.stdin.flush()
        for process in processes:
            answer(process)

    return run


def work(tasks: int) -> None:
    """What a worker does: "done" when it is ready and after each lot of steps."""
    own = mtnet_contender(settings("omniglot", tasks=tasks), MT_NET, None)
    own.run(1)
    print("done", flush=True)
    for line in sys.stdin:
        own.run(int(line))
        print("done", flush=True)


# The report


def protocol(load: tuple[float, ...], rounds: int, quick: bool) -> dict[str, Any]:
    """Everything that the numbers depend on."""
    return {
        "omniglot": "5-way 1-shot, 1 query a class, 32 tasks, 1 inner step, 28x28x1, "
        "4 convolutions of 64 filters with stride 2",
        "mini": "5-way 1-shot, 15 queries a class, 4 tasks, 5 inner steps, 84x84x3, "
        "4 convolutions of 32 filters with 2x2 max-pooling",
        "network": "3x3 without bias, SAME padding, norm by the batch with offset, eps 1e-3, ReLU",
        "step": "one second-order meta-gradient, no optimiser; random pixels",
        "precision": "float32",
        "fresh_tasks": "mtnet draws tasks and masks inside the step; PyTorch draws masks, its "
        "tasks are made ready beforehand",
        "timing": "contenders take turns; ms_per_step is the median over rounds, ratio_to_mt_net "
        "the median of the ratios within a round",
        "agreement": "every contender repeats one meta-gradient of mtnet in float64 on one task; "
        "relative_error is the worst over the loss and each array; mtnet's own is against PyTorch",
        "peers": "of vmap or loop, and of one thread or all, the fastest is timed",
        "operations": "gflop_in_products: 2 m n k of every product in the traced program, loops "
        "counted; gflop_by_xla: cost_analysis of the program with all tasks at once",
        "memory": "memory_analysis of the compiled program: temporary + arguments + output; "
        "arguments hold 8.5 MB of pixels",
        "cores": "ms for 32 tasks; two processes have 16 each and exchange no gradients",
        "rounds": rounds,
        "quick": quick,
        "cpu": cpu(),
        "cores_used": len(os.sched_getaffinity(0)),
        "environment": {name: os.environ.get(name) for name in VARIABLES},
        "load_average_before": list(load),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
    }


def merged(found: dict[str, Any], out: Path) -> dict[str, Any]:
    """With the parts of an earlier run that this one has left alone."""
    old = json.loads(out.read_text()) if out.exists() else {}
    measured = {r["part"] for r in found["rows"]}
    for key in ("rows", "left_out", "speed"):
        kept = [r for r in old.get(key, []) if r["part"] not in measured]
        together = kept + found[key]
        found[key] = sorted(together, key=lambda r: PARTS.index(r["part"]))
    found["memory"] = found["memory"] or old.get("memory", [])
    return found


def show(found: dict[str, Any], console: Console) -> None:
    for part in dict.fromkeys(r["part"] for r in found["rows"]):
        table = Table(Column("contender", no_wrap=True), title=f"{part}: one meta-gradient")
        for column in ("ms", "ratio", "error"):
            table.add_column(column, justify="right")
        for r in (r for r in found["rows"] if r["part"] == part):
            numbers = f"{r['ms_per_step']:.1f}", f"{r['ratio_to_mt_net']:.2f}"
            error = f"{r['relative_error']:.0e}" if r["relative_error"] else "-"
            table.add_row(r["contender"], *numbers, error)
        console.print(table)
    for r in found["left_out"]:
        console.print(f"left out: {r['part']}, {r['contender']}: error {r['relative_error']:.1e}")
    for s in found["speed"]:
        console.print(
            f"{s['part']}, {s['contender']}: {s['gflop_in_products']:.2f} GFLOP a step, "
            f"{s['gflops']:.1f} a second: {100 * s['fraction_of_matrix_product']:.0f} % of the "
            f"matrix product's {s['gflops_of_matrix_product']:.1f}",
            highlight=False,
        )
    if found["memory"]:
        show_memory(found["memory"], console)


def show_memory(rows: list[dict[str, Any]], console: Console) -> None:
    table = Table("inner steps", title="mini: peak memory of a meta-gradient, MB")
    for column in ("as it is", "remat"):
        table.add_column(column, justify="right")
    peaks = {(r["inner_steps"], r["remat"]): f"{r['peak_mb']:.0f}" for r in rows}
    for steps in sorted({s for s, _ in peaks}):
        table.add_row(str(steps), peaks[steps, False], peaks[steps, True])
    console.print(table)


def measure(part: Part, rounds: int, quick: bool) -> dict[str, Any]:
    slow_rounds = max(1, rounds // 2)
    if part == "omniglot":
        return timed(part, rounds, 4 if quick else None)
    if part == "cores":
        return cores(rounds, 4 if quick else None)
    if part == "mini":
        return timed(part, slow_rounds, 1 if quick else None)
    return memory(slow_rounds, 1 if quick else None, (5,) if quick else STEPS)


def main(
    rounds: int = 7, quick: bool = False, only: Part | None = None, out: Path | None = None
) -> None:
    """Benchmark the picture MT-nets.

    Args:
        rounds: how often every contender is timed; half as often where a step takes seconds.
        quick: few tasks and one round, to see that all works; nothing is written without --out.
        only: this part; the others stay as they are in the file.
        out: where the results go (results/bench_images.json).
    """
    console, load, rounds = Console(), os.getloadavg(), 1 if quick else rounds
    found: dict[str, Any] = {
        "experiment": "bench_images",
        "mtnet_version": mtnet.__version__,
        "command": "python bench/images.py",
        "protocol": protocol(load, rounds, quick),
        "rows": [],
        "left_out": [],
        "speed": [],
        "memory": [],
    }
    for part in (only,) if only else PARTS:
        begin = perf_counter()
        for key, more in measure(part, rounds, quick).items():
            found[key] += more
        console.print(f"{part}: done in {perf_counter() - begin:.0f} s", highlight=False)
    show(found, console)
    out = out or (None if quick else OUT)
    if out:
        write(merged(found, out), out)
        console.print(f"written to {out}")


if __name__ == "__main__":
    tyro.cli(main)
