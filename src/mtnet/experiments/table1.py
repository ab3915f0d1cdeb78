"""Table 1: loss on sine waves for seven systems, trained on 10 shots, tested on 5, 10, 20.

    mtnet reproduce table1            60 000 iterations, 5 seeds, meta-batches of 25 and 4
    mtnet reproduce table1 --quick    3 000 iterations, 2 seeds, meta-batch 25
    mtnet reproduce table1-also       the other systems that can learn curves

Published: MT-net 0.76 / 0.49 / 0.33. The MAML and Meta-SGD rows are quoted there from Li et
al. 2017. The meta-batch is not stated; 25 is the MAML code's, 4 the published sine script's.
"""

from mtnet.config import Config, configure
from mtnet.experiments.types import Experiment, Row

SHOTS = (5, 10, 20)
PUBLISHED = {
    "maml": ("1.07 ± 0.11", "0.71 ± 0.07", "0.50 ± 0.05"),
    "meta-sgd": ("0.88 ± 0.14", "0.53 ± 0.09", "0.35 ± 0.06"),
    "m-net-full": ("0.91 ± 0.09", "0.63 ± 0.07", "0.38 ± 0.04"),
    "m-net": ("0.88 ± 0.09", "0.60 ± 0.06", "0.41 ± 0.04"),
    "t-net": ("0.83 ± 0.08", "0.56 ± 0.06", "0.38 ± 0.04"),
    "mt-net-full": ("0.81 ± 0.08", "0.51 ± 0.05", "0.35 ± 0.04"),
    "mt-net": ("0.76 ± 0.09", "0.49 ± 0.05", "0.33 ± 0.04"),
}
ALSO = ("fine-tune", "nearest-neighbour", "meta-lstm", "l-maml")
SLOW = ("meta-lstm b25", "l-maml b25")
"""A step of these takes a hundred times as long as one of MAML's: fewer of them, and two seeds."""


def trainings(quick: bool, seeds: int) -> dict[str, Config]:
    base = configure(seeds=tuple(range(seeds)), iterations=3_000 if quick else 60_000)
    return {
        f"{method} b{meta_batch}": base.replace(method=method, meta_batch=meta_batch)
        for meta_batch in ((25,) if quick else (25, 4))
        for method in PUBLISHED
    }


def also(quick: bool, seeds: int) -> dict[str, Config]:
    """Systems that the paper compares with on pictures only, in the same protocol."""
    base = trainings(quick, seeds)["mt-net b25"]
    each = {f"{method} b25": base.replace(method=method) for method in ALSO}
    if not quick:
        for name in SLOW:
            each[name] = each[name].replace(iterations=2_000, seeds=base.seeds[:2])
    return each


def rows(configs: dict[str, Config]) -> list[Row]:
    return [
        Row(
            method=c.method,
            column=f"{shots}-shot, meta-batch {c.outer.meta_batch}",
            training=name,
            alpha=c.inner.alpha,
            test={"shots": shots},
            published=PUBLISHED[c.method][i] if c.method in PUBLISHED else None,
        )
        for name, c in configs.items()
        for i, shots in enumerate(SHOTS)
    ]


TABLE1 = Experiment(
    "table1", "sine waves, seven systems, 5, 10 and 20 shots", trainings, rows, seeds=(5, 2)
)
TABLE1_ALSO = Experiment(
    "table1-also", "sine waves, the other systems that can learn curves", also, rows, seeds=(5, 2)
)
