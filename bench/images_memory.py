"""Memory of a compiled meta-step on mini-ImageNet, and the time that remat costs."""

from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import product
from typing import Any

from images_ours import UNTUNED, settings, traced, training
from ours import MT_NET
from pinned import alone
from report import row
from timing import in_turns

STEPS = (5, 10)
"""Inner steps."""
ONE = f"{MT_NET}, one process"


def memory(
    first: Executor, rounds: int, tasks: int | None, steps: tuple[int, ...] = STEPS
) -> dict[str, Any]:
    with ThreadPoolExecutor(2) as pool:  # the programs are compiled, not run
        found = list(pool.map(lambda a: peak(tasks, *a), product(steps, (False, True))))
    configs = {
        ONE: settings("mini-imagenet", tasks=tasks),
        f"{ONE}, remat": settings("mini-imagenet", tasks=tasks, remat=True),
    }
    own = [
        alone(first, training, config, name, 1, role="mtnet") for name, config in configs.items()
    ]
    times = in_turns(own, rounds)
    return {"rows": [row(c, times, ONE) for c in own], "memory": found}


def peak(tasks: int | None, steps: int, remat: bool) -> dict[str, Any]:
    config = settings("mini-imagenet", tasks=tasks, steps=steps, remat=remat)
    used = traced(config).lower().compile(UNTUNED).memory_analysis()
    parts = {
        "temporary_mb": used.temp_size_in_bytes / 1e6,
        "arguments_mb": used.argument_size_in_bytes / 1e6,
        "output_mb": used.output_size_in_bytes / 1e6,
    }
    return {"inner_steps": steps, "remat": remat, "peak_mb": sum(parts.values())} | parts
