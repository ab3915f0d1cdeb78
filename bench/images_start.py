"""Seconds from the launch of `mtnet train` to the first line of its metrics."""

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

TRAIN = "train --family omniglot --method mt-net --iterations 2 --log-every 1 --validate-every 2"
POLL_SECONDS = 0.02


def start() -> dict[str, Any]:
    """With an empty cache of compiled programs, then with that of the first launch."""
    with TemporaryDirectory(prefix="mtnet-start-") as folder:
        found = [
            {"compiled_before": before, "seconds": to_first_line(Path(folder), str(before))}
            for before in (False, True)
        ]
    return {"start": found}


def to_first_line(folder: Path, name: str) -> float:
    run = folder / name
    command = [sys.executable, "-m", "mtnet", *TRAIN.split(), "--out", str(run)]
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(folder / "jax")}
    begin = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        while not has_line(run / "metrics.jsonl"):
            if process.poll():
                raise RuntimeError(f"mtnet train ended with status {process.returncode}")
            time.sleep(POLL_SECONDS)
        return time.perf_counter() - begin


def has_line(path: Path) -> bool:
    return path.exists() and "\n" in path.read_text()
