"""One training on two cores: two processes against one, and against the pool that they replaced.

    python bench/processes.py [--rounds N] [--seconds S] [--out F]

The contenders take turns: `mtnet train` on one core, `mtnet train --processes 2`, and `mtnet train
--cores 2` of the last commit that had it (a pool to which every iteration pickled the
meta-parameters), taken from the history of the repository. Times are those of metrics.jsonl,
without the first chunk, which compiles. The images are random. Run it while nothing else runs.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import tyro

import mtnet
from mtnet.datasets.cache import write_images
from mtnet.revision import git_commit
from mtnet.tasks import FAMILIES

ROOT = Path(__file__).parents[1]
POOL_COMMIT = "a6f06b5"
"""The last commit with `mtnet train --cores`."""
SETS = {"omniglot": 5, "mini-imagenet": 1}
"""Families, and iterations per line of metrics."""
CLASSES = {"train": 20, "validation": 5, "test": 5}
EXAMPLES = 20
BARS = {"one process": (">=", 1.7), "pool": (">=", 1 / 1.1)}


class Contender(NamedTuple):
    name: str
    source: Path
    flags: tuple[str, ...] = ()
    cores: int = 2


@contextmanager
def contenders() -> Iterator[list[Contender]]:
    """This commit with one and two processes, and the pool of the old one."""
    with TemporaryDirectory(prefix="mtnet-pool-") as folder:
        archive = subprocess.check_output(["git", "archive", POOL_COMMIT, "src"], cwd=ROOT)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        new, old = ROOT / "src", Path(folder) / "src"
        yield [
            Contender("one process", new, cores=1),
            Contender("two processes", new, ("--processes", "2")),
            Contender("pool", old, ("--cores", "2")),
        ]


@contextmanager
def random_images() -> Iterator[None]:
    """`$MTNET_CACHE` is a temporary folder with image sets of random pixels."""
    with (
        TemporaryDirectory(prefix="mtnet-bench-") as folder,
        patch.dict(os.environ, MTNET_CACHE=folder),
    ):
        splits = {split: [f"{split} {i}" for i in range(n)] for split, n in CLASSES.items()}
        for name in SETS:
            shape = (sum(CLASSES.values()), EXAMPLES, *(FAMILIES[name].shape or ())[2:])
            pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
            write_images(name, pixels, shape, splits, "random pixels")
        yield


def milliseconds(contender: Contender, family: str, seconds: float) -> float:
    """Time of an iteration, in a training that is stopped so long after its first chunk."""
    cores = set(sorted(os.sched_getaffinity(0))[: contender.cores])
    command = [sys.executable, "-m", "mtnet", "train", "--family", family, *contender.flags]
    with TemporaryDirectory() as folder:
        metrics = Path(folder) / "run" / "metrics.jsonl"
        process = subprocess.Popen(
            [*command, "--log-every", str(SETS[family]), "--out", str(metrics.parent)],
            env={**os.environ, "PYTHONPATH": str(contender.source)},
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            sleep(0.1)
        sleep(seconds)
        process.terminate()  # stops after the chunk
        process.wait()
        first, *_, last = map(json.loads, metrics.read_text().splitlines())
    return 1e3 * (last["seconds"] - first["seconds"]) / (last["iteration"] - first["iteration"])


def row(family: str, times: list[dict[str, float]]) -> dict[str, Any]:
    """Medians, and how many times as fast two processes are."""
    two = "two processes"
    faster = {n: median(t[n] / t[two] for t in times) for n in BARS}
    return {
        "family": family,
        "tasks": FAMILIES[family].preset["meta_batch"],
        "milliseconds": {n: round(median(t[n] for t in times), 1) for n in times[0]},
        "speed_of_two_processes_relative_to": {n: round(x, 2) for n, x in faster.items()},
        "bars": {n: f"{sign} {bound:.2f}" for n, (sign, bound) in BARS.items()},
        "met": {n: bool(faster[n] >= bound) for n, (_, bound) in BARS.items()},
    }


def main(
    rounds: int = 5, seconds: float = 30, out: Path = Path("results/bench_processes.json")
) -> None:
    """Benchmark one training on two cores.

    Args:
        rounds: How often each contender is timed.
        seconds: How long, without compilation.
        out: Where the results go.
    """
    load, rows = os.getloadavg(), []
    with random_images(), contenders() as all_contenders:
        for family in SETS:
            times = []
            for i in range(rounds):
                turn = all_contenders if i % 2 else all_contenders[::-1]
                times.append({c.name: milliseconds(c, family, seconds) for c in turn})
                print(family, {name: round(t, 1) for name, t in times[-1].items()}, flush=True)
            rows.append(row(family, times))
            print(json.dumps(rows[-1], indent=1), flush=True)
    results = {
        "experiment": "bench_processes",
        "mtnet_version": mtnet.__version__,
        "commit": git_commit(),
        "command": "python bench/processes.py",
        "protocol": {
            "rounds": rounds,
            "seconds": seconds,
            "load_before": load,
            "cores": len(os.sched_getaffinity(0)),
            "pool": f"mtnet train --cores 2 at commit {POOL_COMMIT}",
            "ratio": "median over rounds of time / time of two processes",
        },
        "rows": rows,
    }
    out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    tyro.cli(main)
