"""From command to answer: how long short commands take, against an earlier commit.

    python bench/start.py [--rounds N] [--before COMMIT] [--out F]

Every command is a process of its own. In each round both contenders start with an empty cache: the
first call of a command compiles, the second finds the programs of the first. The earlier commit is
taken from the history of the repository. The images and the table are random. Run it while nothing
else runs.
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
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import tyro
from PIL import Image, ImageDraw

import mtnet
from mtnet.revision import git_commit

ROOT = Path(__file__).parents[1]
BEFORE = "3cc21fa"
"""The last commit at which every command imported JAX."""
GROUPS, ROWS, SHOTS = 20, 24, 10
FIT = "fit groups.csv --task group --inputs x kind --target y --iterations 20 --no-baselines"
FIVE_IMAGES = "--support 0.png 1.png 2.png 3.png 4.png --query 5.png"
FIVE = f"classify --network omniglot-5way-mt-net {FIVE_IMAGES}"


class Command(NamedTuple):
    name: str
    words: str
    seconds: float
    """At most, on a machine that does nothing else."""


COMMANDS = (
    Command("--help", "--help", 0.5),
    Command("list", "list", 0.5),
    Command("adapt, first call", "adapt run new.csv --out model", 5.0),
    Command("adapt, second call", "adapt run new.csv --out model", 2.5),
    Command("adapt, another number of rows", "adapt run fewer.csv --out other", 2.5),
    Command("predict", "predict model ask.csv", 1.5),
    Command("classify 5 classes, first call", FIVE, 5.0),
    Command("classify 5 classes, second call", FIVE, 2.5),
    Command("classify 5 classes, more queries", f"{FIVE} 6.png 7.png", 2.5),
    Command("classify 3 classes", "classify --support 0.png 1.png 2.png --query 5.png", 5.0),
)
"""In this order: later ones use the files and programs of earlier ones."""


@contextmanager
def sources(commit: str) -> Iterator[dict[str, Path]]:
    """The code of the earlier commit, and of this one."""
    with TemporaryDirectory(prefix="mtnet-before-") as folder:
        archive = subprocess.check_output(["git", "archive", commit, "src"], cwd=ROOT)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        yield {"before": Path(folder) / "src", "after": ROOT / "src"}


def write_inputs(folder: Path) -> None:
    """A table of groups, new rows of one, rows to predict for, and drawings."""
    draw = np.random.default_rng(0)
    lines = ["group,x,kind,y"]
    for group in range(GROUPS):
        height, phase = draw.uniform(1, 5), draw.uniform(0, 3)
        for x in draw.uniform(-5, 5, ROWS):
            lines.append(f"g{group},{x:.3f},{'ab'[group % 2]},{height * np.sin(x + phase):.3f}")
    (folder / "groups.csv").write_text("\n".join(lines) + "\n")
    rows = [f"{x:.3f},a,{np.sin(x):.3f}" for x in draw.uniform(-5, 5, SHOTS)]
    (folder / "new.csv").write_text("\n".join(["x,kind,y", *rows]) + "\n")
    (folder / "fewer.csv").write_text("\n".join(["x,kind,y", *rows[:-1]]) + "\n")
    (folder / "ask.csv").write_text("x,kind\n" + "\n".join(f"{x},b" for x in range(-5, 6)) + "\n")
    for i in range(8):
        image = Image.new("L", (60, 60), 255)
        for ends in draw.integers(5, 55, (4, 4)).tolist():
            ImageDraw.Draw(image).line(ends, fill=0, width=3)
        image.save(folder / f"{i}.png")


def call(words: str, source: Path, folder: Path, home: Path) -> float:
    """Seconds of one command."""
    hidden = ("JAX_COMPILATION_CACHE_DIR", "MTNET_CACHE", "PYTHONDONTWRITEBYTECODE")
    environment = {n: v for n, v in os.environ.items() if n not in hidden}
    began = perf_counter()
    subprocess.run(
        [sys.executable, "-m", "mtnet", *words.split()],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(source), "HOME": str(home)},
        check=True,
        capture_output=True,
    )
    return perf_counter() - began


def one_round(source: Path, folder: Path) -> dict[str, float]:
    """Seconds of every command, from an empty cache."""
    with TemporaryDirectory(prefix="mtnet-home-") as home:
        return {c.name: call(c.words, source, folder, Path(home)) for c in COMMANDS}


def row(command: Command, times: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Medians, and how many times as fast the command has become."""
    before, after = ([t[who][command.name] for t in times] for who in ("before", "after"))
    ratio = median(b / a for b, a in zip(before, after, strict=True))
    return {
        "command": command.name,
        "seconds_before": round(median(before), 2),
        "seconds_after": round(median(after), 2),
        "times_as_fast": round(ratio, 2),
        "target_seconds": command.seconds,
        "met": median(after) <= command.seconds,
    }


def main(
    rounds: int = 5, before: str = BEFORE, out: Path = Path("results/bench_start.json")
) -> None:
    """Benchmark the start of short commands.

    Args:
        rounds: How often each command is timed.
        before: The commit to compare with.
        out: Where the results go.
    """
    load, times = os.getloadavg(), []
    with sources(before) as both, TemporaryDirectory(prefix="mtnet-bench-") as name:
        for who, source in both.items():  # each has its own run: files may have changed
            folder = Path(name) / who
            folder.mkdir()
            write_inputs(folder)
            call(f"{FIT} --out run", source, folder, folder)
        for i in range(rounds):
            turn = list(both.items()) if i % 2 else list(both.items())[::-1]
            times.append({who: one_round(source, Path(name) / who) for who, source in turn})
            print(json.dumps(times[-1]), flush=True)
    rows = [row(command, times) for command in COMMANDS]
    results = {
        "experiment": "bench_start",
        "mtnet_version": mtnet.__version__,
        "commit": git_commit(),
        "command": "python bench/start.py",
        "protocol": {
            "rounds": rounds,
            "before": before,
            "load_before": load,
            "cores": len(os.sched_getaffinity(0)),
            "commands": {command.name: f"mtnet {command.words}" for command in COMMANDS},
            "times_as_fast": "median over rounds of seconds before / seconds after",
        },
        "rows": rows,
    }
    out.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    tyro.cli(main)
