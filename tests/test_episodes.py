"""N-way K-shot episodes hold what they should, drawn fairly."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mtnet import InputError
from mtnet.core.losses import accuracy, cross_entropy
from mtnet.tasks.episodes import image_episodes

CLASSES, EXAMPLES = 6, 7
KEY = jax.random.key(0)
by_rotations = pytest.mark.parametrize("rotations", [False, True])


def pixels(height=5, width=5):
    """Noise of two channels, whose centre, which no turn moves, says class and example."""
    shape = (CLASSES, EXAMPLES, height, width, 2)
    made = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    made[:, :, height // 2, width // 2, 0] = np.arange(CLASSES)[:, None]
    made[:, :, height // 2, width // 2, 1] = np.arange(EXAMPLES)
    return made


SQUARE = pixels()


@cache
def drawn(ways=3, shots=2, queries=3, rotations=False, tasks=400):
    """Many tasks as (tasks, examples, ...) arrays: pictures and labels, support before query."""
    family = image_episodes(SQUARE, ways=ways, shots=shots, queries=queries, rotations=rotations)
    both = jax.jit(jax.vmap(family.sample))(jax.random.split(KEY, tasks))
    assert both.support.y.shape == (tasks, ways * shots)
    assert both.query.y.shape == (tasks, ways * queries)
    return tuple(np.concatenate([getattr(part, a) for part in both], axis=1) for a in "xy")


def origin(x):
    """Class and example of pictures, by their centre."""
    centre = np.rint(255 * x[..., x.shape[-2] // 2, x.shape[-1] // 2]).astype(int)
    return centre[..., 0], centre[..., 1]


def quarters(x):
    """By how many quarters each picture (n, channels, height, width) was turned."""
    classes, examples = origin(x)
    raw = np.moveaxis(SQUARE[classes, examples], -1, 1) / 255
    fits = [np.all(np.isclose(np.rot90(raw, k, (2, 3)), x), axis=(1, 2, 3)) for k in range(4)]
    assert np.all(np.sum(fits, axis=0) == 1), "a picture that is no turned original"
    return np.argmax(fits, axis=0)


def all_quarters(x):
    return quarters(x.reshape(-1, *x.shape[2:])).reshape(x.shape[:2])


def assert_even(counts, chance, tasks):
    """Every count is as likely as the others, to five standard deviations."""
    assert np.all(abs(counts - tasks * chance) < 5 * (tasks * chance * (1 - chance)) ** 0.5)


@by_rotations
def test_an_episode_is_a_function_of_its_key(rotations):
    family = image_episodes(SQUARE, rotations=rotations)
    sample = jax.jit(family.sample)
    one, same, other = (sample(jax.random.key(s)) for s in (0, 0, 1))
    assert jax.tree.all(jax.tree.map(jnp.array_equal, one, same))
    assert not jnp.array_equal(one.support.x, other.support.x)
    assert family.loss is cross_entropy
    assert family.metric is accuracy


def test_an_episode_is_the_same_in_compiled_code():
    """Also where the pictures are an argument of the compiled function."""

    def sample(pixels, key):
        return image_episodes(pixels, ways=3, shots=2, queries=2, rotations=True).sample(key)

    plain, compiled = sample(SQUARE, KEY), jax.jit(sample)(SQUARE, KEY)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), plain, compiled)


@pytest.mark.parametrize(("ways", "shots", "queries"), [(2, 1, 1), (3, 2, 5), (CLASSES, 6, 1)])
def test_every_label_has_its_shots_and_queries(ways, shots, queries):
    family = image_episodes(SQUARE, ways=ways, shots=shots, queries=queries)
    episode = jax.jit(family.sample)(KEY)
    for batch, each in zip(episode, (shots, queries), strict=True):
        assert batch.x.shape == (ways * each, 2, 5, 5)
        labels, counts = np.unique(batch.y, return_counts=True)
        assert list(labels) == list(range(ways))
        assert set(counts) == {each}


@by_rotations
def test_a_label_is_a_class_and_classes_differ(rotations):
    """With rotations too: a character never meets itself turned."""
    x, y = drawn(rotations=rotations)
    classes, _ = origin(x)
    for task, labels in zip(classes, y, strict=True):
        meant = [set(task[labels == label]) for label in range(3)]
        assert all(len(one) == 1 for one in meant)
        assert len(set.union(*meant)) == 3


@by_rotations
def test_no_picture_is_drawn_twice_in_an_episode(rotations):
    x, _ = drawn(rotations=rotations)
    for classes, examples in zip(*origin(x), strict=True):
        pairs = list(zip(classes, examples, strict=True))
        assert len(set(pairs)) == len(pairs)


@by_rotations
def test_every_class_meets_every_label_and_every_example_is_drawn(rotations):
    x, y = drawn(rotations=rotations)
    tasks, support = len(y), 3 * 2
    classes, examples = origin(x)
    for part in (slice(None, support), slice(support, None)):
        c, e, label = (a[:, part].ravel() for a in (classes, examples, y))
        each = len(c) // (tasks * 3)
        meetings, drawings = np.zeros((CLASSES, 3)), np.zeros((CLASSES, EXAMPLES))
        np.add.at(meetings, (c, label), 1 / each)
        np.add.at(drawings, (c, e), 1)
        assert_even(meetings, 1 / CLASSES, tasks)
        assert_even(drawings, 3 / CLASSES * each / EXAMPLES, tasks)


def test_pictures_are_floats_channels_first():
    """Of any sides, and as they are in the array where nothing is turned."""
    wide = pixels(5, 7)
    batch = jax.jit(image_episodes(wide, ways=3, shots=2).sample)(KEY).support
    assert batch.x.shape == (6, 2, 5, 7)
    assert batch.x.dtype == jnp.float32
    np.testing.assert_allclose(batch.x, np.moveaxis(wide[origin(batch.x)], -1, 1) / 255, rtol=1e-6)
    assert 0 <= np.min(batch.x) <= np.max(batch.x) <= 1
    extremes = np.full((2, 2, 3, 3, 1), 255, np.uint8)
    extremes[0] = 0
    episode = jax.jit(image_episodes(extremes, ways=2).sample)(KEY)
    assert set(np.unique(episode.support.x)) == {0.0, 1.0}


def test_nothing_is_turned_unless_asked_for():
    x, _ = drawn(rotations=False)
    assert np.all(all_quarters(x[:50]) == 0)


def test_rotations_turn_whole_classes():
    """Support and query alike, each class by its own quarters, all four equally often."""
    x, y = drawn(rotations=True)
    turns = all_quarters(x)
    by_class = np.stack([turns[y == label].reshape(len(y), -1) for label in range(3)], axis=1)
    assert np.all(by_class == by_class[..., :1])
    by_class = by_class[..., 0]
    tasks = len(y)
    for label in range(3):
        assert_even(np.bincount(by_class[:, label], minlength=4), 1 / 4, tasks)
    assert_even(np.sum(by_class[:, 0] == by_class[:, 1]), 1 / 4, tasks)
    classes, _ = origin(x)
    met = {(c, q) for c, q in zip(classes.ravel(), turns.ravel(), strict=True)}
    assert len(met) == 4 * CLASSES


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ways": CLASSES + 1}, "ways must be from 2 to the 6 classes of the data; it is 7"),
        ({"ways": 1}, "ways must be from 2 to the 6 classes"),
        ({"shots": 4, "queries": 4}, "4 shots and 4 queries need 8 images.*there are 7"),
        ({"shots": 0}, "shots must be at least 1"),
        ({"queries": 0}, "queries must be at least 1"),
        ({"rotations": True}, "only square images can be rotated; these are 5x7"),
    ],
    ids=str,
)
def test_episodes_that_cannot_be(options, says):
    with pytest.raises(InputError, match=says) as caught:
        image_episodes(pixels(5, 7), **options)
    assert "\n" not in str(caught.value)


def test_rotations_do_not_make_room_for_more_ways():
    """Four turns of a character are four classes, but of different tasks."""
    with pytest.raises(InputError, match="6 classes"):
        image_episodes(SQUARE, ways=CLASSES + 1, rotations=True)
