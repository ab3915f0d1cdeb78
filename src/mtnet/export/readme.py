"""README.md of an exported network: what it is, how to use it, and what was measured."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from mtnet.check_data import matches, parse_json
from mtnet.export.network import ExportedNetwork
from mtnet.report.markdown import table

BASELINES = {"metric": str, "tasks": int, "rows": [{"method": str, "mean": (float, None)}]}
COVERAGE = {"rows": [{"support_rows": int, "level": float, "coverage": float}]}
METRICS = {"validation": [float]}
"""What is read of the files that `mtnet fit` writes to its run folder."""
LOADER = """```python
import json

import torch
from safetensors import safe_open

with safe_open("model.safetensors", "pt") as file:
    layers = json.loads(file.metadata()["network"])["layers"]
    arrays = {name: file.get_tensor(name) for name in file.keys()}
net = torch.nn.Sequential(*(getattr(torch.nn, a["type"])(**a["options"]) for a in layers))
net.load_state_dict(arrays)
```
"""


def model_card(network: ExportedNetwork) -> str:
    """The page, with the front matter of Hugging Face."""
    about = network.about
    what = f"the task {network.task!r}" if network.task else "one task"
    kind = "images" if network.schema is None else "rows of a table"
    task = "image-classification" if network.schema is None else "tabular-regression"
    if network.schema is not None and network.labels:
        task = "tabular-classification"
    parts = [
        f"---\nlibrary_name: mtnet\npipeline_tag: {task}",
        f"tags: [few-shot, {about['method']}]\n---\n",
        f"# A network for {what}\n",
        f"Adapted with the method {about['method']} of mtnet from a few examples, and folded: an "
        f"ordinary network for {kind}, a `torch.nn.Sequential` of the layers in config.json.\n",
        LOADER,
        _use(network),
        "## Measured\n",
        *_measured(network),
    ]
    return "\n".join(parts)


def _use(network: ExportedNetwork) -> str:
    """How inputs are made and outputs are read."""
    if network.schema is None:
        size = "x".join(map(str, network.about["spec"]["inputs"]))
        first = f"Inputs: images as numbers in [0, 1], (examples, {size.replace('x', ', ')})"
        first += "; subtract them from 1 first." if network.about["invert"] else "."
    else:
        names = ", ".join(column.name for column in network.schema.inputs)
        first = f"Inputs: {names}, encoded in this order. A number is (value - mean) / spread, a "
        first += "category one number per level, as config.json says."
    if network.labels:
        last = f"Outputs: softmax(outputs / {network.temperature:g}) are the probabilities of "
        return f"{first} {last}{', '.join(network.labels)}.\n"
    return f"{first} The prediction is output * spread + mean of the target.\n"


def _measured(network: ExportedNetwork) -> list[str]:
    """Numbers of the run folder that the model was adapted from, if it is still there."""
    folder = network.about.get("base", {}).get("run")
    found = _validation(folder, network)
    baselines = _read(folder, "baselines.json", BASELINES)
    if baselines is not None:
        rows = [[r["method"], _number(r["mean"])] for r in baselines["rows"]]
        text = f"On {baselines['tasks']} tasks of groups that were not trained on:\n"
        found += [text, table(["method", baselines["metric"]], rows)]
    coverage = _read(folder, "calibration.json", COVERAGE)
    own = network.about.get("intervals", {}).get("tasks", {}).get(network.task)
    if coverage is not None and own is not None:
        rows = [
            [str(r["support_rows"]), f"{100 * r['level']:g}", _number(r["coverage"])]
            for r in coverage["rows"]
            if r["support_rows"] == own["rows"]
        ]
        found += ["Prediction intervals on groups that were not trained on:\n"]
        found += [table(["support rows", "level, %", "coverage, %"], rows)]
    return found or ["Nothing: the run folder is gone, or has no groups for testing.\n"]


def _validation(folder: str | None, network: ExportedNetwork) -> list[str]:
    """The best score on validation tasks, by which the network was chosen."""
    scores = []
    path = Path(folder or "") / "metrics.jsonl"
    if folder is not None and path.is_file():
        for line in path.read_text().splitlines():
            with suppress(ValueError):  # damaged
                values = parse_json(line)
                if matches(values, METRICS):
                    scores.append(sum(values["validation"]) / len(values["validation"]))
    if not scores:
        return []
    if network.labels:
        return [f"Accuracy on validation tasks of the run: {max(scores):.4g} %.\n"]
    target = network.schema.target if network.schema else None
    error = min(scores) ** 0.5 * (target.spread if target else 1.0)
    return [f"Root mean square error on validation tasks of the run: {error:.4g}.\n"]


def _read(folder: str | None, name: str, shape: Any) -> dict[str, Any] | None:
    """A file of the run folder, if it is there and as expected."""
    path = Path(folder or "") / name
    if folder is None or not path.is_file():
        return None
    try:
        values = parse_json(path.read_text())
    except (OSError, ValueError):
        return None
    return values if matches(values, shape) else None


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"
