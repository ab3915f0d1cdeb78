"""Table 3: accuracy on characters and photographs, one example per class.

    mtnet reproduce table3-omniglot-5way
    mtnet reproduce table3-omniglot-20way
    mtnet reproduce table3-mini-imagenet
    mtnet reproduce table3-omniglot-5way-paper      (-20way-paper, table3-mini-imagenet-paper)
    ... [--methods mt-net prototypical] [--budget 60m] [--quick]

On one core of a recent machine, a gradient method took 15 to 20 minutes for Omniglot 5-way, 5 for
20-way and 11 to 13 for mini-ImageNet, and its tests 1 to 4. The variants take longer: about 35
minutes for 20-way from random weights, 20 for folded norms, 90 to 100 for 60 000 and 80 000
iterations. On an older machine, the classifier of mini-ImageNet took about two hours.

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

from mtnet.experiments.table3_part import Part
from mtnet.experiments.table3_settings import (
    CENTRED,
    CHARACTERS,
    FIVE_SHOT_PROTOTYPES,
    FIVE_SHOTS,
    FOLDED,
    FOLDED_CHARACTERS,
    FOLDED_PROTOTYPES,
    FROM_PROTOTYPICAL,
    GRADIENT_METHODS,
    MORE_PHOTOGRAPHS,
    MORE_PROTOTYPICAL,
    OMNIGLOT,
    PHOTOGRAPHS,
    PRETRAINED_20WAY,
    PUBLISHED,
    RANDOM_20WAY,
    START_FOLDED,
)

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
