"""Draw docs/img/table3.png: accuracy on validation classes during the trainings of Table 3.

    python tools/curves.py

The curves are those stored in results/table3-*.json.
"""

import json
from pathlib import Path

from matplotlib.figure import Figure

from mtnet.report.plots import line

ROOT = Path(__file__).parent.parent
PARTS = {
    "omniglot-5way": ("Omniglot", 5),
    "omniglot-20way": ("Omniglot", 20),
    "mini-imagenet": ("mini-ImageNet", 5),
}
"""Title and ways; trainings that are validated on tasks of other ways are not shown."""
METHODS = ("maml", "meta-sgd", "t-net", "mt-net", "prototypical", "matching", "map-ssvm")
LINES = {
    "": "-",
    "random weights": "--",
    "folded norms": "--",
    "80000 iterations": ":",
    "random weights, 60000 iterations": ":",
}
"""The line of each variant that is shown."""


def main() -> None:
    figure = Figure(figsize=(12, 5.4), layout="constrained")
    for axes, (part, about) in zip(figure.subplots(1, len(PARTS)), PARTS.items(), strict=True):
        results = json.loads((ROOT / "results" / f"table3-{part}.json").read_text())
        title, ways = about
        for name, curve in results["curves"].items():
            method, _, variant = name.partition(", ")
            shown = method in METHODS and variant in LINES and len(curve) > 1
            if shown and results["protocol"]["trainings"][name]["ways"] == ways:
                points = [(p["iteration"], p["validation"][0]) for p in curve]
                style = line(METHODS.index(method)) | {"ls": LINES[variant]}
                style["marker"] = "." if len(points) <= 50 else ""
                axes.plot(*zip(*points, strict=True), lw=1.2, label=name, **style)
        axes.set(title=f"{title}, {ways} ways", xlabel="iterations")
        axes.grid(alpha=0.3, which="both", lw=0.4)
        low, high = axes.get_ylim()
        axes.set_ylim(low - 0.15 * (high - low), high)  # room for the legend
        axes.legend(fontsize=7, loc="lower right")
    figure.axes[0].set(ylabel="validation accuracy (%)")
    figure.savefig(ROOT / "docs" / "img" / "table3.png", dpi=110)


if __name__ == "__main__":
    main()
