"""Table 3: accuracy on characters and photographs, one example per class.

    mtnet reproduce table3-omniglot-5way
    mtnet reproduce table3-omniglot-20way
    mtnet reproduce table3-mini-imagenet
    ... [--methods mt-net prototypical] [--budget 60m] [--quick]

On one core a gradient method takes half an hour to an hour for Omniglot 5-way (the MT-net's 40 000
iterations about two hours), two to three hours for 20-way and for mini-ImageNet; the others take
from ten minutes to an hour and a half.

Published: MT-net 99.5, 96.2 and 51.70 after 40 000 to 60 000 iterations of 32, 16 and 4 tasks. For
Omniglot the settings here reach most of that in a fraction of the work: half the meta-batch, beta
0.002 with cosine decay to zero, and an initial head of standard deviation 0.1 instead of 1. For
mini-ImageNet all methods but meta-lstm start from one classifier of the 64 training classes; the
gradient methods then train with 5 queries per class and one inner step, with flipped and shifted
images. The published settings are the defaults of `mtnet train --family mini-imagenet`.

Numbers for 5 shots: MAML from Finn et al. (2017), prototypical from Snell et al. (2017).
"""

from dataclasses import dataclass, field
from typing import Any

from mtnet.config import Config, configure
from mtnet.experiments.table3_notes import describe
from mtnet.experiments.types import Experiment, Row
from mtnet.methods import METHODS

STEPS = (3, 5, 10)
PUBLISHED: dict[str, tuple[str | None, str | None, str | None]] = {
    "matching": ("98.1", "93.8", "43.56 ± 0.84"),
    "prototypical": ("97.4", "92.0", "46.61 ± 0.78"),
    "map-ssvm": ("98.6", "95.4", "50.32 ± 0.80"),
    "fine-tune": (None, None, "28.86 ± 0.54"),
    "nearest-neighbour": (None, None, "41.08 ± 0.70"),
    "meta-lstm": (None, None, "43.44 ± 0.77"),
    "maml": ("98.7 ± 0.4", "95.8 ± 0.3", "48.70 ± 1.84"),
    "l-maml": (None, None, "49.40 ± 1.83"),
    "meta-sgd": ("99.53 ± 0.26", "95.93 ± 0.38", "50.47 ± 1.87"),
    "t-net": ("99.4 ± 0.3", "96.1 ± 0.3", "50.86 ± 1.82"),
    "mt-net": ("99.5 ± 0.3", "96.2 ± 0.4", "51.70 ± 1.84"),
}
OMNIGLOT: dict[str, Any] = {"head_sd": 0.1, "beta": 2e-3, "schedule": "cosine"}
EPISODES: dict[str, Any] = {"beta": 1e-3, "meta_batch": 1, "queries": 5}
"""For methods that compare embeddings: one large episode per step, Adam with 0.001."""
PRETRAINING: dict[str, Any] = {"beta": 1e-3, "meta_batch": 1, "queries": 19, "log_every": 100}
"""All classes at once, 100 images per step."""
FINE_TUNING: dict[str, Any] = {"alpha": 0.1, "steps": 10}
"""While training; the grid below is measured afterwards."""
GRID: list[dict[str, Any]] = [
    {"alpha": alpha, "decay": decay, "steps": steps}
    for alpha in (0.01, 0.1, 1.0, 3.0)
    for decay in (1.0, 0.8)
    for steps in STEPS
]
"""Fine-tuning as Ravi & Larochelle (2017): step size, its decay and the number of steps are chosen
on validation tasks."""
CHARACTERS: dict[str, dict[str, Any]] = {
    "prototypical": EPISODES | {"train_ways": 60, "iterations": 10_000},
    "matching": EPISODES | {"train_ways": 20, "iterations": 10_000},
    "map-ssvm": EPISODES | {"train_ways": 20, "queries": 9, "iterations": 7_000},
    "fine-tune": PRETRAINING | FINE_TUNING | {"iterations": 4_000},
    "nearest-neighbour": PRETRAINING | {"iterations": 8_000},
    "meta-lstm": {"meta_batch": 1, "beta": 1e-3, "iterations": 1_500, "steps": 5},
    "l-maml": {"meta_batch": 8, "iterations": 600},
}
CLASSIFIER = "nearest-neighbour"
"""The training that every other one on photographs starts from: a classifier of all classes."""
WARM: dict[str, Any] = {"init_from": CLASSIFIER, "augment": True, "validate_every": 500}
PHOTOGRAPHS: dict[str, dict[str, Any]] = {
    "prototypical": WARM | EPISODES | {"train_ways": 20, "iterations": 6_000},
    "matching": WARM | EPISODES | {"train_ways": 10, "iterations": 6_000},
    "map-ssvm": WARM | EPISODES | {"train_ways": 8, "iterations": 3_000},
    "fine-tune": WARM | PRETRAINING | FINE_TUNING | {"iterations": 1_000},
    CLASSIFIER: WARM | PRETRAINING | {"iterations": 8_000, "init_from": "", "log_every": 50},
    "meta-lstm": {"meta_batch": 1, "iterations": 80, "validate_every": 40, "init_from": ""},
    "l-maml": {"iterations": 60, "validate_every": 30},
}
PROTOCOL = {
    "metric": "accuracy on query images in percent; the mean over tasks",
    "test tasks": "classes of the test split only, 1 query image per class, as published",
    "transductive": "as published: norms see the queries of a task together; for methods that "
    "compare features, together with its support set",
    "inductive": "the same network, tested with statistics of the support set only: another "
    "protocol, not to be compared with published numbers",
    "measured state": "the best network on validation classes during training",
    "grids": "settings of adaptation, measured on validation tasks; the best is tested",
}


@dataclass(frozen=True)
class Part:
    """One part of the table: a family, its settings, and where the paper's numbers are."""

    name: str
    about: str
    family: str
    steps: int
    """Inner steps of the published numbers."""
    column: int
    """Which of the `PUBLISHED` values."""
    common: dict[str, Any]
    """Settings of all methods."""
    own: dict[str, dict[str, Any]]
    """Settings of single methods, which override the common ones."""
    quick_iterations: int
    variants: dict[str, tuple[str, dict[str, Any], str | None]] = field(default_factory=dict)
    """More trainings: name -> (method, settings that differ, published number)."""

    def trainings(self, quick: bool, seeds: int) -> dict[str, Config]:
        configs = {method: self.config(method, quick, seeds) for method in PUBLISHED}
        if not quick:
            for name, (method, settings, _) in self.variants.items():
                configs[name] = configs[method].replace(**settings)
        return configs

    def published(self, training: str, method: str) -> str | None:
        if training in self.variants:
            return self.variants[training][2]
        return PUBLISHED[method][self.column]

    def config(self, method: str, quick: bool, seeds: int) -> Config:
        settings = self.common | self.own.get(method, {})
        if quick:
            half = self.quick_iterations // 2
            settings |= {"iterations": self.quick_iterations, "validate_every": half}
        return configure(family=self.family, method=method, seeds=tuple(range(seeds)), **settings)

    def rows(self, configs: dict[str, Config]) -> list[Row]:
        return [row for name, config in configs.items() for row in self.rows_of(name, config)]

    def rows_of(self, training: str, config: Config) -> list[Row]:
        """The published protocol, the same with inductive norms, and other numbers of steps."""
        transductive = Row(
            method=training,
            column="transductive",
            training=training,
            alpha=config.inner.alpha,
            test={"queries": 1},
            published=self.published(training, config.method),
            steps=None if grid(config) else self.steps,  # None: as validation tasks choose
            inner={"statistics": "transductive"},
        )
        inductive = transductive._replace(
            column="inductive", published=None, inner={"statistics": "inductive"}
        )
        others = [
            transductive._replace(
                column=f"transductive after {steps} steps", published=None, steps=steps
            )
            for steps in STEPS
            if steps != self.steps and METHODS[config.method].steps and not grid(config)
        ]
        return [transductive, inductive, *others]

    def notes(self, results: dict[str, Any]) -> list[str]:
        by_training: dict[str, dict[str, Any]] = {}
        for row in results["rows"]:
            by_training.setdefault(row["training"], {})[row["column"]] = row
        return [
            describe(rows, results["curves"][training], results.get("grids", {}).get(training))
            for training, rows in by_training.items()
        ]

    def experiment(self) -> Experiment:
        return Experiment(
            f"table3-{self.name}",
            self.about,
            self.trainings,
            self.rows,
            seeds=(1, 1),
            protocol=PROTOCOL,
            tasks=(2_000, 600),
            notes=self.notes,
            grid=grid,
        )


def grid(config: Config) -> list[dict[str, Any]]:
    """What validation tasks choose from, after training."""
    return GRID if config.method == "fine-tune" else []


PARTS = (
    Part(
        "omniglot-5way",
        "characters, 5 classes, one drawing per class",
        "omniglot",
        steps=3,
        column=0,
        common=OMNIGLOT | {"iterations": 10_000, "meta_batch": 16},
        own=CHARACTERS,
        quick_iterations=300,
        variants={
            "mt-net, 40000 iterations": ("mt-net", {"iterations": 40_000}, PUBLISHED["mt-net"][0])
        },
    ),
    Part(
        "omniglot-20way",
        "characters, 20 classes, one drawing per class",
        "omniglot",
        steps=5,
        column=1,
        common=OMNIGLOT | {"ways": 20, "iterations": 30_000, "meta_batch": 8},
        own=CHARACTERS,
        quick_iterations=300,
    ),
    Part(
        "mini-imagenet",
        "photographs, 5 classes, one per class",
        "mini-imagenet",
        steps=10,
        column=2,
        common=WARM
        | {"iterations": 3_000, "meta_batch": 4, "schedule": "cosine"}
        | {"queries": 5, "steps": 1, "alpha": 0.05},
        own=PHOTOGRAPHS,
        quick_iterations=10,
        variants={
            "mt-net, 5 shots": ("mt-net", {"shots": 5}, None),
            "maml, 5 shots": ("maml", {"shots": 5}, "63.11 ± 0.92"),
            "prototypical, 5 shots": ("prototypical", {"shots": 5}, "68.20 ± 0.66"),
        },
    ),
)
TABLE3 = tuple(part.experiment() for part in PARTS)
