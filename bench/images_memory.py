"""What a compiled step on mini-ImageNet holds at most, and what remat costs in time."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

from images_ours import ONE, contender, looked_at, settings
from report import row
from timing import in_turns

from mtnet.training.compiled import compile_training

STEPS = (1, 2, 5, 10)


def memory(rounds: int, tasks: int | None, steps: tuple[int, ...] = STEPS) -> dict[str, Any]:
    with ThreadPoolExecutor(2) as pool:  # compiling is all that is done here
        found = list(pool.map(lambda a: peak(tasks, *a), product(steps, (False, True))))
    configs = {
        ONE: settings("mini-imagenet", tasks=tasks),
        f"{ONE}, remat": settings("mini-imagenet", tasks=tasks, remat=True),
    }
    own = [contender(c, name, compile_training(c).go_on, 1) for name, c in configs.items()]
    times = in_turns(own, rounds)
    return {"rows": [row(c, times, ONE) for c in own], "memory": found}


def peak(tasks: int | None, steps: int, remat: bool) -> dict[str, Any]:
    used = looked_at(
        settings("mini-imagenet", tasks=tasks, steps=steps, remat=remat)
    ).memory_analysis()
    parts = {
        "temporary_mb": used.temp_size_in_bytes / 1e6,
        "arguments_mb": used.argument_size_in_bytes / 1e6,
        "output_mb": used.output_size_in_bytes / 1e6,
    }
    return {"inner_steps": steps, "remat": remat, "peak_mb": sum(parts.values())} | parts
