"""One part of Table 3: its trainings, and the rows that each of them gives."""

from dataclasses import dataclass, field
from typing import Any

from mtnet.config import Config, configure
from mtnet.experiments.table3_notes import describe
from mtnet.experiments.table3_settings import GRADIENT_METHODS, GRID, PROTOCOL, PUBLISHED, STEPS
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
