"""Run by test_processes.py in a process of its own, with four virtual devices: laws of the mesh."""

import jax
import numpy as np
from helpers import assert_close

import mtnet
from mtnet.build import init_members
from mtnet.config import configure
from mtnet.core import trainer
from mtnet.core.mesh import own_tasks, task_mesh
from mtnet.core.outer import task_keys
from mtnet.training.compiled import DividedChunk, chunk_program, compile_chunk

MEMBERS = configure(
    meta_batch=8, tasks_per_vmap=4, seeds=(0, 1), sweep=(0.01, 0.02), width=4, depth=1
)


def members_are_those_of_one_device():
    state = init_members(MEMBERS)
    alone, losses = jax.jit(chunk_program(MEMBERS), static_argnums=2)(state, None, 50)
    chunk = compile_chunk(MEMBERS)
    assert isinstance(chunk, DividedChunk)
    halfway, first = chunk(state, None, 25)
    divided, second = chunk(halfway, None, 25)
    assert_close(alone, divided, rtol=1e-10, atol=1e-12)
    assert_close(losses, np.concatenate([first, second], axis=1), rtol=1e-10)
    program = chunk.compiled[25].as_text()
    assert program.count(" all-reduce(") == 1
    assert "all-gather" not in program


def tasks_are_those_of_one_device():
    mesh = task_mesh(8, jax.devices())
    tasks = jax.sharding.PartitionSpec("tasks")
    draw = lambda key: jax.random.key_data(own_tasks(task_keys(key, 3, 8)))  # noqa: E731
    divided = jax.shard_map(
        draw, mesh=mesh, in_specs=jax.sharding.PartitionSpec(), out_specs=tasks, check_vma=False
    )
    whole = jax.random.key_data(task_keys(jax.random.key(5), 3, 8))
    np.testing.assert_array_equal(divided(jax.random.key(5)), whole)


def devices_that_cannot_share_equally_rest():
    assert [task_mesh(n, jax.devices()).size for n in (2, 3, 4, 6, 8)] == [2, 3, 4, 3, 4]
    assert task_mesh(5, jax.devices()) is None


def meta_train_uses_all_devices():
    key = jax.random.key(0)
    learner = mtnet.mt_net(mtnet.mlp(width=4, depth=1), alpha=0.01)

    def trained():
        return mtnet.meta_train(learner, mtnet.sine(), iterations=20, key=key, meta_batch=8)

    divided = trained()
    assert len(jax.tree.leaves(divided.theta)[0].devices()) == 4
    trainer.task_mesh = lambda *_: None
    jax.clear_caches()
    assert_close(trained().theta, divided.theta, rtol=1e-10, atol=1e-12)


if __name__ == "__main__":
    members_are_those_of_one_device()
    tasks_are_those_of_one_device()
    devices_that_cannot_share_equally_rest()
    meta_train_uses_all_devices()
