"""Settings and published numbers of Table 3."""

from typing import Any

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
GRADIENT_METHODS = ("maml", "meta-sgd", "t-net", "mt-net")
FRESH: dict[str, Any] = {
    "init_from": "",
    "body_scale": 1.0,
    "query_scale": 1.0,
    "head_sd": None,
    "zeta_mean": 0.0,
}
"""From random weights."""
OMNIGLOT: dict[str, Any] = {"head_sd": 0.1, "beta": 2e-3, "schedule": "cosine"}
FROM_PRETRAINED: dict[str, Any] = {
    "head_sd": 0.001,
    "zeta_mean": 6.0,
    "body_scale": 5.0,
    "schedule": "cosine",
}
"""Gradient methods that start from a network that compares features.

The head starts near zero, so that the first step does not move the body at random. The features
have a large common mean, which bounds the step size: several steps of a small alpha learn a head
as good as the class means. The scaled body moves less than the head. Nearly all rows move, so that
the masks do not hide classes while zeta is learned."""
PRETRAINED_20WAY: dict[str, Any] = FROM_PRETRAINED | {
    "init_from": "omniglot-20way-prototypical",
    "ways": 20,
    "alpha": 1.5,
    "steps": 4,
    "query_scale": 6.0,
    "beta": 2e-4,
    "iterations": 1_000,
    "meta_batch": 8,
    "validate_every": 250,
}
"""From a network with the settings of the row `prototypical` of this column. After a few small
steps the outputs are small: without the factor, meta-training enlarges them and accuracy falls."""
RANDOM_20WAY: dict[str, Any] = (
    FRESH | OMNIGLOT | {"alpha": 2.0, "steps": 1, "iterations": 25_000, "validate_every": 500}
)
"""From random weights, as in the paper: there, the body learns to move."""
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
ANY_WAYS: dict[str, Any] = (
    FRESH | OMNIGLOT | EPISODES | {"ways": 5, "alpha": 2.0, "steps": 1, "validate_every": 500}
)
"""The same training for 5 and 20 ways, which differ in their test tasks only."""
CHARACTERS: dict[str, dict[str, Any]] = {
    "prototypical": ANY_WAYS | {"train_ways": 60, "iterations": 10_000},
    "matching": ANY_WAYS | {"train_ways": 20, "iterations": 10_000},
    "map-ssvm": ANY_WAYS | {"train_ways": 20, "queries": 9, "iterations": 7_000},
    "fine-tune": ANY_WAYS | PRETRAINING | FINE_TUNING | {"iterations": 4_000},
    "nearest-neighbour": ANY_WAYS | PRETRAINING | {"iterations": 8_000},
    "meta-lstm": FRESH
    | OMNIGLOT
    | {"alpha": 2.0, "meta_batch": 1, "beta": 1e-3, "iterations": 1_500, "steps": 5},
    "l-maml": FRESH | OMNIGLOT | {"alpha": 2.0, "steps": 1, "meta_batch": 8, "iterations": 600},
}
MORE_PROTOTYPICAL: dict[str, Any] = CHARACTERS["prototypical"] | {
    "init_from": "omniglot-any-prototypical",
    "iterations": 8_000,
}
"""For 20 ways: the network of 5 ways, which takes any number of classes, trained further."""
FOLDED_CHARACTERS: dict[str, Any] = MORE_PROTOTYPICAL | {
    "init_from": "omniglot-20way-prototypical",
    "fold_norms": True,
    "beta": 1e-6,
    "iterations": 1,
    "log_every": 1,
    "validate_every": 1,
}
"""The network of the row `prototypical` of 20 ways with its norms folded, not trained further: one
iteration changes next to nothing. A training episode has 360 images, a test task 10 or 40: their
statistics are not alike, those of many images are."""
CLASSIFIER = "nearest-neighbour"
"""The training of all classes at once; its network is `mini-imagenet-classifier`."""
WARM: dict[str, Any] = {
    "init_from": "mini-imagenet-classifier",
    "augment": True,
    "validate_every": 250,
    "log_every": 50,
}
"""Photographs: start from the pretrained classifier; flipped and shifted images."""
FROM_PROTOTYPICAL: dict[str, Any] = (
    WARM
    | FROM_PRETRAINED
    | {
        "init_from": "mini-imagenet-prototypical",
        "iterations": 1_500,
        "meta_batch": 4,
        "beta": 3e-4,
        "queries": 5,
        "steps": 3,
        "alpha": 0.03,
    }
)
"""For gradient methods, from the network of the row `prototypical`."""
CENTRED: dict[str, Any] = {"centre": True}
"""The same with features of mean zero over the batch. The paper's network does not have this."""
FOLDED: dict[str, Any] = CENTRED | {
    "init_from": "mini-imagenet-prototypical-long",
    "body_scale": 1.0,
    "fold_norms": True,
    "iterations": 3_000,
}
"""Also from the prototypical network that was trained longer, with its norms folded into the
convolutions: on validation tasks, statistics of many images are better than those of a task's five.
The only thing that an image shares with other images is the mean of their features."""
START_FOLDED: dict[str, Any] = FOLDED | {"iterations": 1, "log_every": 1, "validate_every": 1}
"""The network that the row of MAML starts from: one iteration changes next to nothing."""
COMPARING: dict[str, Any] = (
    WARM
    | FRESH
    | EPISODES
    | {
        "init_from": "mini-imagenet-classifier",
        "beta": 5e-4,
        "schedule": "cosine",
        "alpha": 0.05,
        "steps": 5,
    }
)
PHOTOGRAPHS: dict[str, dict[str, Any]] = {
    "prototypical": COMPARING
    | {"train_ways": 20, "distance_scale": 0.01, "iterations": 12_000}
    | {"beta": 1e-3, "validate_every": 500},
    "matching": COMPARING | {"train_ways": 10, "iterations": 3_000},
    "map-ssvm": COMPARING | {"train_ways": 8, "iterations": 3_000},
    "fine-tune": FRESH | WARM | PRETRAINING | FINE_TUNING | {"iterations": 1_000},
    CLASSIFIER: WARM
    | PRETRAINING
    | FRESH
    | {"iterations": 8_000, "log_every": 50, "validate_every": 500, "alpha": 0.05, "steps": 1},
    "meta-lstm": FRESH | {"meta_batch": 1, "iterations": 5_000, "validate_every": 250},
}
MORE_PHOTOGRAPHS: dict[str, Any] = {
    "init_from": "mini-imagenet-prototypical",
    "augment": False,
    "iterations": 11_000,
}
"""The row `prototypical` trained further, without flips and shifts."""
FOLDED_PROTOTYPES: dict[str, Any] = {
    "init_from": "mini-imagenet-prototypical-long",
    "fold_norms": True,
    "beta": 3e-4,
    "iterations": 3_000,
    "validate_every": 250,
}
"""The same start and number of iterations as the gradient methods with folded norms. Without norms,
an embedding does not depend on other images: both protocols are one."""
FIVE_SHOTS: dict[str, Any] = {"shots": 5, "iterations": 400, "validate_every": 100}
"""For gradient methods."""
FIVE_SHOT_PROTOTYPES: dict[str, Any] = {
    "shots": 5,
    "init_from": "mini-imagenet-prototypical",
    "beta": 5e-4,
    "iterations": 1_000,
    "validate_every": 250,
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
