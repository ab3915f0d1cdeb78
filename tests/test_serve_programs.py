"""Programs of the server: padding changes nothing, nor does learning tasks together."""

import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mtnet.adapted import KEY
from mtnet.adapted_tasks import TaskSupport
from mtnet.build import build_learner
from mtnet.config import configure
from mtnet.core.losses import cross_entropy, predict
from mtnet.core.types import Batch
from mtnet.errors import InputError
from mtnet.serve.networks import CURVE, PICTURES, _served
from mtnet.serve.programs import Programs
from mtnet.serve.tasks import Task, TaskStore
from mtnet.serve.together import Together
from mtnet.tasks.episodes import as_floats
from mtnet.userdata.new_tasks import Support
from mtnet.userdata.schema import to_plain

STEPS = 2


def programs_of(config, inputs):
    theta = build_learner(config).init(jax.random.key(1))
    network = _served("small", "small", config, theta, inputs, STEPS, {}, 1.0, {})
    return Programs(network)


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "mt-net", "shared_head": True, "at_test": "expected", "alpha": 0.5},
        {"method": "prototypical"},
    ],
    ids=lambda settings: settings["method"],
)
def test_padded_examples_and_classes_change_nothing(settings):
    """Four images of three classes, padded to eight images and twenty classes."""
    config = configure(family="omniglot", filters=4, statistics="inductive", **settings)
    programs = programs_of(config, PICTURES["omniglot"])
    rng = np.random.default_rng(0)
    x, queries = rng.integers(0, 256, (2, 4, 28, 28, 1)).astype(np.uint8)
    y, labels = np.array([0, 1, 2, 1], np.int32), ("a", "b", "c")
    learned = programs.learn([TaskSupport(x, y, labels)])[0]

    @eqx.filter_jit
    def unpadded(theta, support, queries):
        learner = build_learner(config, config.inner.alpha, ways=3)
        nets = learner.trajectory(theta, support, jax.random.key(KEY), STEPS)
        return eqx.filter_vmap(lambda net: [predict(net, x) for x in (support.x, queries)])(nets)

    images, others = (as_floats(jnp.asarray(pixels)) for pixels in (x, queries))
    support = Batch(images, jnp.asarray(y))
    on_support, on_queries = unpadded(programs.network.theta, support, others)
    np.testing.assert_allclose(learned.outputs[:, :4, :3], on_support, rtol=1e-3, atol=1e-4)
    losses = [cross_entropy(outputs, support.y) for outputs in on_support]
    np.testing.assert_allclose(learned.losses, losses, rtol=1e-3, atol=1e-5)
    net = jax.tree.map(lambda a: a[-1] if eqx.is_array(a) else a, learned.nets)
    found = programs.answer(net, queries)[:, :3]
    np.testing.assert_allclose(found, on_queries[-1], rtol=1e-3, atol=1e-4)


def test_tasks_learned_together_are_those_learned_apart():
    config = configure(family="sine", method="mt-net", width=8)
    programs = programs_of(config, {"kind": "table", "schema": to_plain(CURVE)})
    rng = np.random.default_rng(0)
    tasks = []
    for count in (3, 7, 5):
        x = rng.uniform(-5, 5, (count, 1)).astype(np.float32)
        tasks.append(TaskSupport(x, np.sin(x)))
    together = programs.learn(tasks)
    for one, task in zip(together, tasks, strict=True):
        apart = programs.learn([task])[0]
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(apart), strict=True):
            if eqx.is_array(a):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [3, 5])
def test_images_of_tasks_that_share_a_network_are_learned_together(count):
    """With numbers of images and classes that differ, in a program for the next number of tasks."""
    config = configure(family="omniglot", filters=4, statistics="inductive", method="prototypical")
    programs = programs_of(config, PICTURES["omniglot"])
    rng = np.random.default_rng(0)
    tasks = []
    for i in range(count):
        x = rng.integers(0, 256, (3 + i, 28, 28, 1)).astype(np.uint8)
        ways = 2 + i % 2
        tasks.append(TaskSupport(x, np.arange(3 + i, dtype=np.int32) % ways, tuple("abc"[:ways])))
    together = programs.learn(tasks)
    assert list(programs._compiled) == [("learn", 8, 4 if count == 3 else 8)]
    for one, task in zip(together, tasks, strict=True):
        apart = programs.learn([task])[0]
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(apart), strict=True):
            if eqx.is_array(a):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("method", "images"), [("prototypical", 9), ("maml", 3)], ids=["many images", "own kernels"]
)
def test_other_images_are_learned_one_task_after_the_other(method, images):
    config = configure(family="omniglot", filters=4, statistics="inductive", method=method, ways=3)
    programs = programs_of(config, PICTURES["omniglot"])
    x = np.random.default_rng(0).integers(0, 256, (2, images, 28, 28, 1)).astype(np.uint8)
    tasks = [TaskSupport(a, np.arange(images, dtype=np.int32) % 3, tuple("abc")) for a in x]
    assert len(programs.learn(tasks)) == 2
    assert list(programs._compiled) == [("learn", 8 if images == 3 else 32, 1)]


def test_jobs_that_wait_are_run_together_and_an_error_reaches_those_who_asked():
    started, go_on, batches = threading.Event(), threading.Event(), []

    def run(jobs):
        batches.append(sorted(jobs))
        started.set()
        go_on.wait(10)
        if 13 in jobs:
            raise InputError("no")
        return [10 * job for job in jobs]

    together = Together(run, key=lambda job: job > 9, most=3)
    results = {}

    def ask(job):
        try:
            results[job] = together(job)
        except InputError:
            results[job] = "refused"

    threads = [threading.Thread(target=ask, args=(job,)) for job in (1, 2, 3, 4, 5, 13)]
    threads[0].start()
    started.wait(10)
    for thread in threads[1:]:
        thread.start()
    while len(together._waiting) < 5:
        pass
    go_on.set()
    for thread in threads:
        thread.join()
    assert results == {1: 10, 2: 20, 3: 30, 4: 40, 5: 50, 13: "refused"}
    assert batches[0] == [1]
    assert sorted(map(len, batches[1:])) == [1, 1, 3]
    assert [13] in batches


def test_the_least_recently_used_task_goes():
    gone = []
    store = TaskStore(2, None, lambda id, path: None, gone.append)
    support = Support(None, np.zeros((1, 1)), np.zeros((1, 1)), ())
    for id in "ab":
        store.put(Task(id, "network", support, [], None, {}), lambda path: None)
    assert store.get("a").id == "a"
    store.put(Task("c", "network", support, [], None, {}), lambda path: None)
    assert gone == ["b"]
    assert store.get("b") is None
    assert (store.delete("a"), store.delete("a"), len(store)) == (True, False, 1)
