"""Table 3: accuracy on characters and photographs, one example per class.

    mtnet reproduce table3-omniglot-5way
    mtnet reproduce table3-omniglot-20way
    mtnet reproduce table3-mini-imagenet
    mtnet reproduce table3-omniglot-5way-paper      (-20way-paper, table3-mini-imagenet-paper)
    ... [--methods mt-net prototypical] [--budget 60m] [--quick]

On one core of a recent machine, a gradient method took 15 to 20 minutes for Omniglot 5-way, 5 for
20-way and 11 to 13 for mini-ImageNet, and its tests 1 to 4. On an older one, the MT-net's
40 000 iterations took about two hours, and so did the classifier of mini-ImageNet.

Published: MT-net 99.5, 96.2 and 51.70 after 40 000 to 60 000 iterations of 32, 16 and 4 tasks from
random weights. Here beta decays to zero as a cosine. For Omniglot 5-way the gradient methods start
from random weights, with a head of standard deviation 0.1 instead of 1. For 20-way and
mini-ImageNet they start from networks that compare features, with a head near zero, open masks and
a scaled body; for mini-ImageNet with 5 queries per class, three inner steps, and flipped and
shifted images. The variants "folded norms" and "centred features" change the network. The
experiments whose names end in -paper have the published settings, unchanged, for the gradient
methods.

Numbers for 5 shots: MAML from Finn et al. (2017), prototypical from Snell et al. (2017).
"""

from dataclasses import dataclass, field
from typing import Any

from mtnet.config import Config, configure
from mtnet.experiments.table3_notes import describe
from mtnet.experiments.table3_settings import (
    CENTRED,
    CHARACTERS,
    CONTINUED_5WAY,
    FIVE_SHOT_PROTOTYPES,
    FIVE_SHOTS,
    FOLDED,
    FOLDED_CHARACTERS,
    FOLDED_PROTOTYPES,
    FROM_PROTOTYPICAL,
    GRADIENT_METHODS,
    GRID,
    MORE_PHOTOGRAPHS,
    MORE_PROTOTYPICAL,
    OMNIGLOT,
    PHOTOGRAPHS,
    PRETRAINED_20WAY,
    PROTOCOL,
    PUBLISHED,
    RANDOM_20WAY,
    START_FOLDED,
    STEPS,
)
from mtnet.experiments.types import Experiment, Row
from mtnet.methods import METHODS


@dataclass(frozen=True)
class Part:
    """One part of the table: a family, its settings, and where the paper's numbers are."""

    name: str
    about: str
    family: str
    steps: int
    """Inner steps at test time, of the published numbers."""
    column: int
    """Which of the `PUBLISHED` values."""
    common: dict[str, Any]
    """Settings of all methods."""
    own: dict[str, dict[str, Any]]
    """Settings of single methods, which override the common ones."""
    quick_iterations: int
    paper: dict[str, Any] = field(default_factory=dict)
    """Published settings that are not the family's defaults."""
    tasks: int = 2_000
    """Test tasks."""
    variants: dict[str, tuple[str, dict[str, Any], str | None]] = field(default_factory=dict)
    """More trainings: name -> (method, settings that differ, published number)."""

    def trainings(self, quick: bool, seeds: int) -> dict[str, Config]:
        configs = {method: self.config(method, quick, seeds) for method in PUBLISHED}
        if not quick:
            for name, (method, settings, _) in self.variants.items():
                configs[name] = configs[method].replace(**settings)
        return configs

    def paper_trainings(self, quick: bool, seeds: int) -> dict[str, Config]:
        """The gradient methods with the published settings."""
        settings = self.paper | (self.quick_settings if quick else {})
        one = configure(family=self.family, seeds=tuple(range(seeds)), **settings)
        return {method: one.replace(method=method) for method in GRADIENT_METHODS}

    @property
    def quick_settings(self) -> dict[str, Any]:
        half = self.quick_iterations // 2
        return {"iterations": self.quick_iterations, "validate_every": half}

    @property
    def ways(self) -> int:
        return configure(family=self.family, **self.paper).tasks.ways

    def published(self, training: str, method: str) -> str | None:
        if training in self.variants:
            return self.variants[training][2]
        return PUBLISHED[method][self.column]

    def config(self, method: str, quick: bool, seeds: int) -> Config:
        settings = self.common | self.own.get(method, {}) | (self.quick_settings if quick else {})
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
            test={"queries": 1} | ({"ways": self.ways} if config.any_ways else {}),
            published=self.published(training, config.method),
            steps=self.steps_at_test(config),
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
            if steps != transductive.steps and METHODS[config.method].steps and not grid(config)
        ]
        return [transductive, inductive, *others]

    def steps_at_test(self, config: Config) -> int | None:
        """As published; for fine-tune None, as validation tasks choose; for meta-lstm as in
        training, because its LSTM has learned that many steps."""
        if config.method == "meta-lstm":
            return config.inner.steps
        return None if grid(config) else self.steps

    def notes(self, results: dict[str, Any]) -> list[str]:
        by_training: dict[str, dict[str, Any]] = {}
        for row in results["rows"]:
            by_training.setdefault(row["training"], {})[row["column"]] = row
        return [
            describe(rows, results["curves"][training], results.get("grids", {}).get(training))
            for training, rows in by_training.items()
        ]

    def experiments(self) -> list[Experiment]:
        ours = Experiment(
            f"table3-{self.name}",
            self.about,
            self.trainings,
            self.rows,
            seeds=(1, 1),
            protocol=PROTOCOL,
            tasks=(self.tasks, 600),
            notes=self.notes,
            grid=grid,
        )
        paper = ours._replace(
            name=f"{ours.name}-paper",
            about=f"{self.family}, {self.ways} classes, with the published settings",
            trainings=self.paper_trainings,
        )
        return [ours, paper]


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
        common=OMNIGLOT | {"iterations": 20_000, "meta_batch": 16},
        own=CHARACTERS,
        quick_iterations=300,
        variants={
            "mt-net, 40000 iterations": ("mt-net", {"iterations": 40_000}, PUBLISHED["mt-net"][0]),
            "mt-net, 80000 iterations": ("mt-net", {"iterations": 80_000}, PUBLISHED["mt-net"][0]),
            "mt-net, 20000 more iterations": ("mt-net", CONTINUED_5WAY, PUBLISHED["mt-net"][0]),
            "prototypical, folded norms": (
                "prototypical",
                FOLDED_CHARACTERS,
                PUBLISHED["prototypical"][0],
            ),
        },
    ),
    Part(
        "omniglot-20way",
        "characters, 20 classes, one drawing per class",
        "omniglot",
        steps=5,
        column=1,
        common=OMNIGLOT | PRETRAINED_20WAY,
        own=CHARACTERS | {"prototypical": MORE_PROTOTYPICAL},
        quick_iterations=300,
        paper={"ways": 20, "meta_batch": 16},
        variants={
            f"{method}, random weights": (method, RANDOM_20WAY, PUBLISHED[method][1])
            for method in GRADIENT_METHODS
        }
        | {
            "mt-net, random weights, 60000 iterations": (
                "mt-net",
                RANDOM_20WAY | {"iterations": 60_000},
                PUBLISHED["mt-net"][1],
            ),
            "prototypical, folded norms": (
                "prototypical",
                FOLDED_CHARACTERS,
                PUBLISHED["prototypical"][1],
            ),
        },
    ),
    Part(
        "mini-imagenet",
        "photographs, 5 classes, one per class",
        "mini-imagenet",
        steps=10,
        column=2,
        common=FROM_PROTOTYPICAL,
        tasks=1_000,
        own=PHOTOGRAPHS,
        quick_iterations=10,
        variants={
            f"{method}, {change}": (method, settings, PUBLISHED[method][2])
            for change, settings in (("folded norms", FOLDED), ("centred features", CENTRED))
            for method in GRADIENT_METHODS
        }
        | {
            "maml, folded norms, 1 iteration": ("maml", START_FOLDED, None),
            "prototypical, folded norms": (
                "prototypical",
                FOLDED_PROTOTYPES,
                PUBLISHED["prototypical"][2],
            ),
            "prototypical, 11000 more iterations": (
                "prototypical",
                MORE_PHOTOGRAPHS,
                PUBLISHED["prototypical"][2],
            ),
            "mt-net, 5 shots": ("mt-net", FIVE_SHOTS, None),
            "maml, 5 shots": ("maml", FIVE_SHOTS, "63.11 ± 0.92"),
            "prototypical, 5 shots": ("prototypical", FIVE_SHOT_PROTOTYPES, "68.20 ± 0.66"),
        },
    ),
)
TABLE3 = tuple(experiment for part in PARTS for experiment in part.experiments())
