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
    "omniglot-5way": "Omniglot, 5 ways",
    "omniglot-20way": "Omniglot, 20 ways",
    "mini-imagenet": "mini-ImageNet, 5 ways",
}
METHODS = ("maml", "meta-sgd", "t-net", "mt-net", "prototypical", "matching", "map-ssvm")


def main() -> None:
    figure = Figure(figsize=(12, 4), layout="constrained")
    for axes, (part, title) in zip(figure.subplots(1, len(PARTS)), PARTS.items(), strict=True):
        curves = json.loads((ROOT / "results" / f"table3-{part}.json").read_text())["curves"]
        for i, method in enumerate(METHODS):
            points = [(p["iteration"], p["validation"][0]) for p in curves.get(method, [])]
            if points:
                axes.plot(*zip(*points, strict=True), marker=".", lw=1.2, label=method, **line(i))
        axes.set(title=title, xlabel="iterations", xscale="log")
        axes.grid(alpha=0.3, which="both", lw=0.4)
        axes.legend(fontsize=7)
    figure.axes[0].set(ylabel="validation accuracy (%)")
    figure.savefig(ROOT / "docs" / "img" / "table3.png", dpi=110)


if __name__ == "__main__":
    main()
