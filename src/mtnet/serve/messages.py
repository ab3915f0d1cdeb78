"""The bodies of requests and responses, with their bounds."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from mtnet.serve.limits import LIMITS

Name = Annotated[str, Field(min_length=1, max_length=LIMITS.label)]
Label = Annotated[
    str, Field(min_length=1, max_length=LIMITS.label, description="Name of the class.")
]
ImageText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=LIMITS.body,
        description="A PNG or JPEG file in base64; a data URL is accepted too.",
    ),
]
Cell = Annotated[
    StrictBool | StrictInt | StrictFloat | Annotated[StrictStr, Field(max_length=1000)] | None,
    Field(description="A value of a column; null or an empty text if it is missing."),
]
Row = Annotated[dict[Name, Cell], Field(max_length=1000, description="Values by column.")]
Warnings = Annotated[
    list[str], Field(description="Sentences about the rows of this request; none: all is well.")
]
Rows = Annotated[list[Row], Field(min_length=1, max_length=LIMITS.rows)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ImageExample(Body):
    image: ImageText
    label: Label


class Examples(Body):
    """Examples of a task: images with their classes, or rows with their targets."""

    images: Annotated[list[ImageExample], Field(min_length=1, max_length=LIMITS.images)] | None = (
        None
    )
    rows: Rows | None = None


class NewTask(Examples):
    network: Annotated[Name, Field(description="A name from /v1/networks.")]


class Query(Body):
    """What to predict for: images, or rows without their targets."""

    images: (
        Annotated[list[ImageText], Field(min_length=1, max_length=LIMITS.query_images)] | None
    ) = None
    rows: Annotated[list[Row], Field(min_length=1, max_length=LIMITS.query_rows)] | None = None
    steps: Annotated[bool, Field(description="Also predict after 0, 1, ... inner steps.")] = False
    seen: Annotated[bool, Field(description="Also return the images as the network sees them.")] = (
        False
    )
    interval: (
        Annotated[float, Field(gt=0, lt=1, description="Level of prediction intervals.")] | None
    ) = None


class Network(BaseModel):
    name: str
    method: str
    about: str
    adapts: str
    family: str
    kind: Annotated[str, Field(description="drawings, images or table")]
    steps: Annotated[int, Field(description="Inner steps.")]
    ways: Annotated[list[int], Field(description="Fewest and most classes.")] | None = None
    columns: list[str] | None = None
    target: str | None = None
    measured: dict[str, object]


class Networks(BaseModel):
    networks: list[Network]


class TaskInfo(BaseModel):
    """A task, and what learning it did."""

    id: str
    network: str
    method: str
    labels: list[str]
    examples: int
    losses: Annotated[
        list[float], Field(description="On the examples, after 0, 1, ... inner steps.")
    ]
    accuracy: (
        Annotated[
            list[float],
            Field(description="Percent of the examples named right, after 0, 1, ... steps."),
        ]
        | None
    )
    moved: Annotated[
        dict[str, float], Field(description="Change of each layer, relative to its size.")
    ]
    warnings: Warnings = []


class Prediction(BaseModel):
    label: str | None = None
    probabilities: dict[str, float] | None = None
    value: float | None = None
    lower: float | None = None
    upper: float | None = None


class Predictions(BaseModel):
    predictions: list[Prediction]
    by_step: list[list[Prediction]] | None = None
    seen: Annotated[list[str], Field(description="PNG files in base64.")] | None = None
    warnings: Warnings = []


class Problem(BaseModel):
    """What is wrong with a request, in one line."""

    detail: str
