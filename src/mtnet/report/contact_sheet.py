"""A figure of images with their predicted labels."""

import numpy as np
from matplotlib.figure import Figure


def contact_sheet(pixels: np.ndarray, labels: list[str], probabilities: list[float]) -> Figure:
    """Every image as the network sees it, with its predicted label and probability."""
    count = len(pixels)
    columns = min(count, 8)
    lines = -(-count // columns)
    figure = Figure(figsize=(1.25 * columns, 1.5 * lines), layout="constrained")
    grid = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes in grid:
        axes.set_axis_off()
    for axes, image, label, probability in zip(grid, pixels, labels, probabilities, strict=False):
        shown = image if image.shape[-1] == 3 else image[..., 0]
        axes.imshow(shown, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        short = label if len(label) <= 16 else f"{label[:7]}…{label[-8:]}"
        axes.set_title(f"{short}\n{probability:.2f}", fontsize=7, pad=2)
    return figure
