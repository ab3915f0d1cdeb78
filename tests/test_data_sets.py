"""Omniglot and mini-ImageNet themselves: the shipped split, the pixels, the real archives."""

import io
import os
import random
from pathlib import Path

import jax
import jaxtyping
import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image
from test_data_prepare import png

import mtnet
from mtnet.core.evaluate import summarise
from mtnet.core.types import SPLITS, Batch, Episode
from mtnet.datasets import IMAGE_SETS, open_images
from mtnet.datasets.archives import open_members, sources
from mtnet.datasets.cache import write_images
from mtnet.datasets.image_set import check_names, fingerprint
from mtnet.datasets.mini_imagenet import MINI_IMAGENET
from mtnet.datasets.nearest_pixels import accuracies, nearest_neighbour_accuracy
from mtnet.datasets.omniglot import OMNIGLOT, decode, split
from mtnet.datasets.prepare import check_counts, check_lists, listing, prepare_image_set
from mtnet.evaluation.measure import measure
from mtnet.storage.pretrained import pretrained_names


def real(name):
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    for root in filter(None, (os.environ.get("MTNET_DATA"), beside)):
        if (Path(root) / name).is_dir():
            return Path(root) / name
    pytest.skip(f"no {name} in $MTNET_DATA or ../shared/data: fetch the originals to test on them")


@pytest.fixture(scope="module")
def omniglot(tmp_path_factory):
    """The real Omniglot, prepared in a cache of its own."""
    source, patch = real("omniglot"), pytest.MonkeyPatch()
    patch.setenv("MTNET_CACHE", str(tmp_path_factory.mktemp("cache")))
    jaxtyping.config.update("jaxtyping_disable", True)  # a third of the time, for 32460 files
    try:
        prepare_image_set(OMNIGLOT, source)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    yield source
    patch.undo()


@pytest.fixture
def mini_imagenet(tmp_path, monkeypatch):
    """The real test classes of mini-ImageNet, 40 images each; the other splits are one of them."""
    per_class = 40
    with open_members(sources(real("mini_imagenet"), list(MINI_IMAGENET.parts))) as members:
        classes = listing(MINI_IMAGENET, members)["test"]
        pixels = np.stack(
            [
                [MINI_IMAGENET.decode(members[path]()) for path in paths[:per_class]]
                for paths in classes.values()
            ]
        )
    monkeypatch.setenv("MTNET_CACHE", str(tmp_path))
    splits = {"train": ["a"], "validation": ["b"], "test": list(classes)}
    blocks = np.concatenate([pixels[:1], pixels[:1], pixels])
    write_images("mini-imagenet", blocks, blocks.shape, splits, "test classes")


def test_the_shipped_rule_is_pinned():
    names = [f"Alphabet{i // 40:02d}/character{i % 40:02d}" for i in range(1623)]
    parts = split({"images_background": names[1::2], "images_evaluation": names[::2]})
    assert [len(parts[s]) for s in SPLITS] == [1100, 100, 423]
    order = [name for s in SPLITS for name in parts[s]]
    assert order == [names[i] for i in np.random.RandomState(1).permutation(1623)]
    assert fingerprint(order) == "cacae35dacc0af2c0f12fa6710264d3ffec2c58fb0b34fe3cb53befbba2e7ad4"


@given(st.lists(st.text("abc", max_size=5), unique=True, min_size=3, max_size=30), st.randoms())
def test_the_split_does_not_depend_on_the_order_or_the_archive(names, shuffled):
    other = names.copy()
    shuffled.shuffle(other)
    assert split({"a": names}, 2, 1) == split({"a": other[:1], "b": other[1:]}, 2, 1)
    together = [name for part in split({"a": names}, 2, 1).values() for name in part]
    assert sorted(together) == sorted(names)


def as_published(data):
    """The published preprocessing: LANCZOS asked for on 1-bit images, then inverted."""
    image = Image.open(io.BytesIO(data))
    assert image.mode == "1"
    return 1 - np.asarray(image.resize((28, 28), Image.Resampling.LANCZOS)).astype(np.float32)


@pytest.mark.parametrize("seed", range(5))
def test_drawings_are_those_of_the_published_code(seed):
    assert np.array_equal(decode(png(seed))[..., 0] / 255, as_published(png(seed)))


def test_grey_copies_of_a_drawing_are_the_same_drawing():
    grey = io.BytesIO()
    Image.open(io.BytesIO(png())).convert("L").save(grey, "PNG")
    assert np.array_equal(decode(grey.getvalue()), decode(png()))


def test_the_real_omniglot_has_the_shipped_split(omniglot):
    images = [open_images("omniglot", s) for s in SPLITS]
    assert [i.pixels.shape for i in images] == [(n, 20, 28, 28, 1) for n in (1100, 100, 423)]
    check_names(OMNIGLOT, [name for i in images for name in i.names])
    for pixels, _ in images:
        assert set(np.unique(pixels)) == {0, 255}
        assert 0.07 < pixels.mean() / 255 < 0.09  # ink is little: nothing is inverted twice


def test_the_real_omniglot_is_that_of_the_published_code(omniglot):
    pixels, names = open_images("omniglot", "test")
    with open_members(sources(omniglot, list(OMNIGLOT.parts))) as members:
        found = {n: f for part in listing(OMNIGLOT, members).values() for n, f in part.items()}
        for i in random.Random(0).sample(range(len(names)), 10):
            for path, image in zip(found[names[i]], pixels[i], strict=True):
                assert np.array_equal(image[..., 0] / 255, as_published(members[path]()))


@pytest.mark.parametrize(("ways", "low", "high"), [(5, 43.0, 44.5), (20, 23.8, 24.8)])
def test_a_nearest_neighbour_reads_what_others_have_read(omniglot, ways, low, high):
    """Known for the last 423 characters in the order of the archives; ours are other ones."""
    images = [open_images("omniglot", s) for s in SPLITS]
    pixels = np.concatenate([i.pixels for i in images])
    with open_members(sources(omniglot, list(OMNIGLOT.parts))) as members:
        in_order = [n for part in listing(OMNIGLOT, members).values() for n in part]
    at = {name: i for i, name in enumerate(n for i in images for n in i.names)}
    last = pixels[[at[name] for name in in_order[1200:]]]
    found = summarise(
        100 * np.asarray(accuracies(last, jax.random.key(0), tasks=300, ways=ways, queries=5))
    )
    assert low - found.ci95 < found.mean < high + found.ci95


@pytest.mark.parametrize("name", pretrained_names())
def test_a_pretrained_network_scores_what_its_header_claims(name, request):
    """On new tasks of the real test classes, within both intervals."""
    with jax.enable_x64(False):
        network = mtnet.load(name)
        config = network.config
        classes = "accuracy" in network.about
        if classes:
            request.getfixturevalue(config.family.replace("-", "_"))
        theta = jax.tree.map(lambda leaf: leaf[None], network.theta)
        for claim in network.about["accuracy" if classes else "error"]:
            if claim.get("ways", 5) != 5 and claim["steps"]:
                continue  # adapting to other numbers of classes takes long
            tasks, steps = 75 if claim.get("ways", 5) <= 10 else 50, claim["steps"]
            names = ("ways", "queries") if classes else ("shots", "queries")
            test = {name: claim[name] for name in names}
            scores = measure(config, theta, [0], tasks=tasks, steps=steps, stream=7, **test)
            score = summarise(scores[0, :, -1])
            deviation = claim["ci95"] * (claim["tasks"] / tasks) ** 0.5  # of this many tasks
            assert abs(score.mean - claim["mean"]) < 1.5 * deviation
            if classes and scores.shape[2] > 1:  # before adapting it knows nothing of the classes
                assert scores[0, :, 0].mean() < 40


def test_the_real_mini_imagenet_has_ravi_and_larochelles_split():
    with open_members(sources(real("mini_imagenet"), list(MINI_IMAGENET.parts))) as members:
        found = listing(MINI_IMAGENET, members)
        check_counts(MINI_IMAGENET, found, Path("here"))
        check_lists(found, members)
        parts = MINI_IMAGENET.split({part: list(classes) for part, classes in found.items()})
        check_names(MINI_IMAGENET, [name for s in SPLITS for name in parts[s]])
        for path in found["val"]["n01855672"][:20]:
            assert MINI_IMAGENET.decode(members[path]()).shape == (84, 84, 3)


def test_a_neighbour_that_is_the_query_itself_is_found(key):
    x = jax.random.uniform(key, (6, 1, 4, 4))
    y = jax.numpy.arange(6)
    assert (
        nearest_neighbour_accuracy(Episode(Batch(x, y), Batch(0.3 * x, y))) == 1
    )  # cosine: brightness is nothing
    assert nearest_neighbour_accuracy(Episode(Batch(x, y), Batch(x, (y + 1) % 6))) == 0


def test_every_set_says_what_it_is():
    for name, images in IMAGE_SETS.items():
        assert name == images.name
        assert images.originals or images.how
        assert images.nearest
        assert len(images.fingerprint) == 64
