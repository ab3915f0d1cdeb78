"""One small network of each kind, with the support set that it learns from."""

import itertools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import linen, nnx

from mtnet import Batch, Episode

KEYS = jax.random.split(jax.random.key(0), 64)
CLASSES, WIDTH = 3, 4


class Kind(NamedTuple):
    net: object
    example: jax.Array
    options: dict = {}  # noqa: RUF012


class ResBlock(eqx.Module):
    """Three convolutions with norms, a shortcut, a pool: the block of a ResNet-12."""

    convs: list
    norms: list
    shortcut: eqx.nn.Conv2d
    pool: eqx.nn.MaxPool2d

    def __init__(self, channels_in, channels, keys):
        sizes = (channels_in, channels, channels)
        self.convs = [
            eqx.nn.Conv2d(n, channels, 3, padding=1, use_bias=False, key=k)
            for n, k in zip(sizes, keys, strict=False)
        ]
        self.norms = [eqx.nn.GroupNorm(2, channels) for _ in range(4)]
        self.shortcut = eqx.nn.Conv2d(channels_in, channels, 1, use_bias=False, key=keys[3])
        self.pool = eqx.nn.MaxPool2d(2, 2)

    def __call__(self, x):
        y = x
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=False)):
            y = norm(conv(y))
            y = jax.nn.leaky_relu(y, 0.1) if i < 2 else y
        return self.pool(jax.nn.leaky_relu(y + self.norms[3](self.shortcut(x)), 0.1))


class ResNet(eqx.Module):
    """With four blocks a ResNet-12."""

    blocks: list
    head: eqx.nn.Linear

    def __init__(self, widths=(1, 2, 4, 4, 6)):
        self.blocks = [
            ResBlock(a, b, KEYS[4 * i : 4 * i + 4])
            for i, (a, b) in enumerate(itertools.pairwise(widths))
        ]
        self.head = eqx.nn.Linear(widths[-1], CLASSES, key=KEYS[20])

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(jnp.mean(x, (1, 2)))


class Transformer(eqx.Module):
    """One block on a sequence of four tokens: embedding, attention, norms, an MLP, dropout."""

    embed: eqx.nn.Linear
    places: jax.Array
    attention: eqx.nn.MultiheadAttention
    norms: list
    mlp: eqx.nn.MLP
    dropout: eqx.nn.Dropout
    head: eqx.nn.Linear

    def __init__(self, dropout=0.0):
        self.embed = eqx.nn.Linear(2, WIDTH, key=KEYS[21])
        self.places = 0.1 * jax.random.normal(KEYS[22], (4, WIDTH))
        self.attention = eqx.nn.MultiheadAttention(2, WIDTH, key=KEYS[23])
        self.norms = [eqx.nn.LayerNorm(WIDTH) for _ in range(2)]
        self.mlp = eqx.nn.MLP(WIDTH, WIDTH, 6, 1, key=KEYS[24])
        self.dropout = eqx.nn.Dropout(dropout, inference=not dropout)
        self.head = eqx.nn.Linear(WIDTH, CLASSES, key=KEYS[25])

    def __call__(self, x, key=None):
        x = jax.vmap(self.embed)(x) + self.places
        y = jax.vmap(self.norms[0])(x)
        x = x + self.attention(y, y, y)
        x = x + self.dropout(jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x)), key=key)
        return self.head(jnp.mean(x, 0))


class Recurrent(eqx.Module):
    cell: eqx.Module
    head: eqx.nn.Linear

    def __init__(self, cell):
        self.cell = cell(2, WIDTH, key=KEYS[26])
        self.head = eqx.nn.Linear(WIDTH, CLASSES, key=KEYS[27])

    def __call__(self, x):
        lstm = isinstance(self.cell, eqx.nn.LSTMCell)
        zero = jnp.zeros(WIDTH)
        state = (zero, zero) if lstm else zero
        for row in x:
            state = self.cell(row, state)
        return self.head(state[0] if lstm else state)


class Words(eqx.Module):
    """Two tokens, found by rounding the inputs, looked up in an embedding."""

    table: eqx.nn.Embedding
    head: eqx.nn.Linear

    def __init__(self):
        self.table = eqx.nn.Embedding(6, WIDTH, key=KEYS[28])
        self.head = eqx.nn.Linear(WIDTH, CLASSES, key=KEYS[29])

    def __call__(self, x):
        tokens = jnp.clip(jnp.round(x + 3), 0, 5).astype(int)
        return self.head(jnp.tanh(jnp.sum(jax.vmap(self.table)(tokens), 0)))


class NNX(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.conv = nnx.Conv(1, WIDTH, (3, 3), rngs=rngs)
        self.norm = nnx.GroupNorm(WIDTH, 2, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, WIDTH, decode=False, rngs=rngs)
        self.head = nnx.Linear(WIDTH, CLASSES, rngs=rngs)

    def __call__(self, x):
        y = nnx.relu(self.norm(self.conv(x))).reshape(-1, WIDTH)
        return self.head(jnp.mean(self.attention(y), 0))


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.relu(linen.Conv(WIDTH, (2,))(x)).reshape(-1)
        return linen.Dense(CLASSES)(linen.LayerNorm()(linen.Dense(WIDTH)(x)))


def plain(parameters, x):
    h = jnp.tanh(x @ parameters["in"]["w"] + parameters["in"]["b"])
    return parameters["gain"] * (h @ parameters["out"])


def linen_pair():
    return Linen(), Linen().init(KEYS[30], jnp.ones((3, 2)))


def plain_pair():
    draw = lambda i, *shape: jax.random.normal(KEYS[31 + i], shape)  # noqa: E731
    first = {"w": draw(0, 2, WIDTH), "b": draw(1, WIDTH)}
    return plain, {"in": first, "out": draw(2, WIDTH, CLASSES), "gain": jnp.ones(())}


PICTURE, SEQUENCE, PAIR = jnp.ones((1, 16, 16)), jnp.ones((4, 2)), jnp.ones(2)
KINDS = {
    "mlp": Kind(eqx.nn.MLP(2, CLASSES, 5, 1, key=KEYS[35]), PAIR),
    "convolutional": Kind(
        eqx.nn.Sequential(
            [
                eqx.nn.Conv2d(1, WIDTH, 3, key=KEYS[34]),
                eqx.nn.AdaptiveAvgPool2d(1),
                eqx.nn.Lambda(jnp.ravel),
                eqx.nn.Linear(WIDTH, CLASSES, key=KEYS[36]),
            ]
        ),
        PICTURE[:, :6, :6],
    ),
    "resnet-12": Kind(ResNet(), PICTURE),
    "transformer": Kind(Transformer(), SEQUENCE, {"meta_only": ["places"]}),
    "dropout": Kind(Transformer(0.5), SEQUENCE, {"meta_only": ["places"]}),
    "lstm": Kind(Recurrent(eqx.nn.LSTMCell), SEQUENCE),
    "gru": Kind(Recurrent(eqx.nn.GRUCell), SEQUENCE),
    "embedding": Kind(Words(), PAIR),
    "flax nnx": Kind(NNX(), jnp.ones((5, 5, 1))),
    "flax linen": Kind(linen_pair(), jnp.ones((3, 2))),
    "function": Kind(plain_pair(), PAIR, {"cells": {"1.in.w": -1, "1.out": -1}}),
}
TRAINED = KINDS | {"resnet-12": Kind(ResNet((1, 2, 4)), PICTURE[:, :4, :4])}
"""What is trained: of the ResNet two blocks, as compiling its second derivatives takes long."""


def episode(kind, seed=1):
    """Six support and six query examples whose classes can be seen in their mean."""

    def batch(key):
        x = jax.random.normal(key, (6, *kind.example.shape))
        y = jnp.array([0, 1, 2, 0, 1, 2])
        return Batch(x + (y - 1.0).reshape(6, *[1] * kind.example.ndim), y)

    one, two = jax.random.split(jax.random.key(seed))
    return Episode(batch(one), batch(two))
