"""Metric-based methods in PyTorch: the network, the losses, and how each peer trains.

As in mtnet, support and queries of an episode go through the network as one batch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import torch
from common import Contender
from conv_theirs import parameter, same
from images_theirs import worst
from ours import Reference
from pinned import CORES
from torch import Tensor, nn
from torch.nn.functional import (
    batch_norm,
    cross_entropy,
    max_pool2d,
    nll_loss,
    normalize,
    one_hot,
    pad,
)

from mtnet.build import build_learner, load_data
from mtnet.config import Config
from mtnet.core.options import COSINE_SCALE, EPSILON

Embed = Callable[[Tensor], Tensor]


class Episode(NamedTuple):
    """Images (examples, channels, height, width), class by class, and their labels."""

    x: Tensor
    y: Tensor
    query_x: Tensor
    query_y: Tensor


class Conv4(nn.Module):
    """The network without a head, with mtnet's weights; norms with statistics of the batch."""

    def __init__(self, net: Any, pool: bool) -> None:
        super().__init__()
        self.W = nn.ParameterList(parameter(c.weight) for c in net.convolutions)
        self.offsets = nn.ParameterList(parameter(n.offset) for n in net.norms)
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        for W, offset in zip(self.W, self.offsets, strict=True):
            x = same(x, W, 1 if self.pool else 2)
            x = batch_norm(x, None, None, None, offset, training=True, eps=EPSILON)
            x = torch.relu(max_pool2d(x, 2) if self.pool else x)
        return x.flatten(1) if self.pool else x.mean((2, 3))


def features(embed: Embed, episode: Episode) -> tuple[Tensor, Tensor]:
    """Of support and queries, normalised as one batch."""
    f = embed(torch.cat([episode.x, episode.query_x]))
    return f[: len(episode.y)], f[len(episode.y) :]


def prototypical(embed: Embed, episode: Episode) -> Tensor:
    support, queries = features(embed, episode)
    prototypes = support.unflatten(0, (len(episode.y.unique()), -1)).mean(1)
    distances = torch.cdist(queries, prototypes)
    return cross_entropy(-distances.square(), episode.query_y)


def matching(embed: Embed, episode: Episode) -> Tensor:
    support, queries = features(embed, episode)
    cosines = normalize(queries) @ normalize(support).T
    attention = (COSINE_SCALE * cosines).softmax(1)
    return nll_loss((attention @ one_hot(episode.y).to(cosines)).log(), episode.query_y)


def map_ssvm(embed: Embed, episode: Episode) -> Tensor:
    """All points rank the others at once; the loop is over P, which is smaller than N."""
    y = torch.cat([episode.y, episode.query_y])
    f = normalize(torch.cat(features(embed, episode)))
    phi, relevant = COSINE_SCALE * f @ f.T, y[:, None] == y
    others = relevant & ~torch.eye(len(y), dtype=torch.bool)
    a, b = (phi[which].view(len(y), -1) for which in (others, ~relevant))
    best = best_ranking(*(s.sort(descending=True).values for s in (a, b)))
    return (best - (a.mean(1) - b.mean(1))).mean()


def best_ranking(a: Tensor, b: Tensor) -> Tensor:
    """max_y [F(y) + 1 - AP(y)] for rows of sorted scores, as in `mtnet.methods.map_ssvm`.

    With i of P ranked, h(i, j) is the best h(i - 1, k) - i / (|P| (i + k)) of all k up to j, with
    B(i, k + 1), ..., B(i, j) added to it.
    """
    p, n = a.shape[1], b.shape[1]
    before = pad(a.cumsum(1), (1, 0))
    sums, j = 2 * before - before[:, -1:], torch.arange(n + 1)

    def added(i: int) -> Tensor:
        """B(i, 1) + ... + B(i, j) for every j."""
        return pad(((sums[:, i, None] - (2 * i - p) * b) / (p * n)).cumsum(1), (1, 0))

    h = added(0)
    for i in range(1, p + 1):
        total = added(i)
        h = (h - i / (p * (i + j)) - total).cummax(1).values + total
    return 1 + h[:, -1]


LOSSES = {"prototypical": prototypical, "matching": matching, "map-ssvm": map_ssvm}


def plain(net: nn.Module) -> Embed:
    return net


def channels_last(net: nn.Module) -> Embed:
    net.to(memory_format=torch.channels_last)
    return lambda x: net(x.to(memory_format=torch.channels_last))


PLAIN = "plain PyTorch"
WAYS: dict[str, Callable[[nn.Module], Embed]] = {
    PLAIN: plain,
    "PyTorch, channels last": channels_last,
}


def sample(pixels: Tensor, config: Config) -> Episode:
    """An episode of uint8 pixels (class, example, channels, height, width)."""
    classes, examples = pixels.shape[:2]
    ways, shots, count = (
        config.tasks.train_ways,
        config.tasks.shots,
        config.tasks.shots + config.tasks.queries,
    )
    chosen = torch.randperm(classes)[:ways]
    x = pixels[chosen[:, None], torch.rand(ways, examples).topk(count).indices]
    if config.tasks.rotations:
        turns = torch.randint(4, (ways,))
        for k in range(1, 4):
            x[turns == k] = torch.rot90(x[turns == k], k, (-2, -1))
    if config.tasks.augment:
        x = vary(x)
    x, y = x.float() / 255, torch.arange(ways)[:, None].expand(ways, count)
    parts = (x[:, :shots], y[:, :shots], x[:, shots:], y[:, shots:])
    return Episode(*(part.flatten(0, 1) for part in parts))


def vary(x: Tensor) -> Tensor:
    """Flip each image at random and shift it by up to a tenth, as `mtnet.tasks.episodes.vary`."""
    images, (height, width) = x.flatten(0, 1), x.shape[-2:]
    flipped = torch.rand(len(images)) < 0.5
    images[flipped] = images[flipped].flip(-1)
    for axis, size in ((-2, height), (-1, width)):
        mirrored = np.pad(np.arange(size), size // 10, mode="reflect")
        images = images.index_select(axis, torch.from_numpy(mirrored))
    rows, columns = (torch.randint(2 * (n // 10) + 1, (len(images),)) for n in (height, width))
    shifted = [
        image[:, i : i + height, j : j + width]
        for image, i, j in zip(images, rows.tolist(), columns.tolist(), strict=True)
    ]
    return torch.stack(shifted).view_as(x)


def training(config: Config, name: str, steps: int, threads: int = len(CORES)) -> Contender:
    """Training with Adam; by default PyTorch uses one thread per core."""
    net = Conv4(build_learner(config).init(jax.random.key(0)).net, config.net.pool)
    embed, loss = WAYS[name](net), LOSSES[config.method]
    pixels = torch.tensor(np.asarray(load_data(config))).movedim(-1, 2).contiguous()
    adam = torch.optim.Adam(net.parameters(), lr=config.outer.beta)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(adam, config.outer.iterations)

    def run(steps: int) -> None:
        torch.set_num_threads(threads)
        for _ in range(steps):
            adam.zero_grad()
            loss(embed, sample(pixels, config)).backward()
            if config.outer.clip:
                nn.utils.clip_grad_value_(net.parameters(), config.outer.clip)
            adam.step()
            cosine.step()

    return Contender(name, run, steps, threads)


def single(config: Config, name: str, steps: int) -> Contender:
    """Training with one thread."""
    return training(config, name, steps, threads=1)


def error(config: Config, name: str, truth: Reference) -> float:
    """Largest relative error of loss and gradient on mtnet's own episode and parameters."""
    net, wanted = (Conv4(t.net, config.net.pool) for t in (truth.theta, truth.gradient))
    x, y, query_x, query_y = (torch.tensor(a) for a in (*truth.support, *truth.query))
    episode = Episode(x.double(), y.long(), query_x.double(), query_y.long())
    loss = LOSSES[config.method](WAYS[name](net), episode)
    loss.backward()
    pairs = [(loss.detach(), torch.tensor(truth.loss, dtype=loss.dtype))]
    pairs += [(p.grad, w.data) for p, w in zip(net.parameters(), wanted.parameters(), strict=True)]
    return worst(pairs)
