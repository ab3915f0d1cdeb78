"""From the examples of a request to arrays; whatever is wrong with them is an InputError."""

import base64
import binascii
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from mtnet.errors import InputError
from mtnet.serve.limits import LIMITS
from mtnet.serve.networks import ServedNetwork
from mtnet.userdata import schema as schemas
from mtnet.userdata.new_tasks import Support, table_inputs, table_supports
from mtnet.userdata.open_image import Upload
from mtnet.userdata.pixels import read_pixels
from mtnet.userdata.support_sets import check_two_classes, in_order, merge_supports
from mtnet.userdata.text_tables import Warn, typed

Rows = Sequence[dict[str, Any]]
ROWS = "rows"


def pixels_of(network: ServedNetwork, images: Sequence[str], most: int) -> np.ndarray:
    """uint8 (images, height, width, channels) as the network sees them, from base64 texts."""
    if len(images) > most:
        raise InputError(f"{len(images)} images are too many: send at most {most}")
    uploads = [
        Upload(f"images.{i}", _decoded(text, i), LIMITS.pixels) for i, text in enumerate(images)
    ]
    return read_pixels(uploads, network.inputs)


def _decoded(text: str, number: int) -> bytes:
    """The bytes of a base64 text; `data:image/png;base64,` may come first."""
    try:
        return base64.b64decode(text.rpartition(",")[2], validate=True)
    except (ValueError, binascii.Error):
        raise InputError(f"images.{number}: not base64 of a PNG or JPEG file") from None


def as_png(pixels: np.ndarray) -> str:
    """One image (height, width, channels) as the base64 text of a PNG file."""
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def image_support(network: ServedNetwork, images: Sequence[tuple[str, str]]) -> Support:
    """A support set from pairs of image and label."""
    pixels = pixels_of(network, [image for image, _ in images], LIMITS.images)
    labels = tuple(sorted({label for _, label in images}))
    y = np.array([labels.index(label) for _, label in images], np.int32)
    return Support(None, pixels, y, labels)


def table_of(schema: schemas.Schema, rows: Rows, most: int, warn: Warn) -> pa.Table:
    """Rows of one task as a table; values are read as those of a CSV file are."""
    if len(rows) > most:
        raise InputError(f"{len(rows)} rows are too many: send at most {most}")
    names = [n for n in dict.fromkeys(name for row in rows for name in row) if n != schema.task]
    used = {column.name for column in (*schema.inputs, schema.target)}
    for name in names:
        if name not in used:
            warn(f"column {name!r} is not used")
    texts = [[_text(row.get(name)) for row in rows] for name in names]
    columns = [typed(pa.chunked_array([t], pa.string()), schema.na, False) for t in texts]
    return pa.table(columns, names=names)


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def row_support(network: ServedNetwork, rows: Rows, warn: Warn) -> Support:
    """A support set from rows of a table; all rows are one task."""
    schema = schemas.from_plain(network.inputs["schema"])
    table = table_of(schema, rows, LIMITS.rows, warn)
    support = table_supports(schema, table, ROWS, warn)[0]
    return support._replace(x=support.x.astype(np.float32), y=_as_float32(support.y))


def row_inputs(network: ServedNetwork, rows: Rows, warn: Warn) -> np.ndarray:
    """The encoded inputs of rows to predict for."""
    schema = schemas.from_plain(network.inputs["schema"])
    inputs = table_inputs(schema, table_of(schema, rows, LIMITS.query_rows, warn), ROWS, warn)
    if schema.missing == "refuse" and not inputs.complete.all():
        row = int(np.argmin(inputs.complete))
        blank = (c.name for c in schema.inputs if inputs.table[c.name][row].as_py() is None)
        raise InputError(f"{ROWS}, row {row + 1}, column {next(blank)!r}: the value is missing")
    return inputs.x.astype(np.float32)


def merged(network: ServedNetwork, old: Support | None, new: Support) -> Support:
    """The examples of a task with new ones; an InputError if the network cannot learn them."""
    support = in_order(new if old is None else merge_supports([old], [new])[0])
    most = LIMITS.rows if network.is_table else LIMITS.images
    if len(support.y) > most:
        raise InputError(f"{len(support.y)} examples are too many for a task: at most {most}")
    if support.labels:
        check_two_classes(support, "the examples")
        ways, config = len(support.labels), network.config
        if config.any_ways and ways > LIMITS.ways:
            raise InputError(f"{ways} classes are too many: at most {LIMITS.ways}")
        if not config.any_ways and not network.is_table and ways != network.ways:
            raise InputError(f"{network.name} needs {network.ways} classes; there are {ways}")
    return support


def _as_float32(y: np.ndarray) -> np.ndarray:
    return y.astype(np.float32) if np.issubdtype(y.dtype, np.floating) else y
