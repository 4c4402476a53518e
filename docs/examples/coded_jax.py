"""A JAX network with dropout on four coded workers: any one may be slow, or die, at any step."""

import sys
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import fastgc


def start(key, sizes=(64, 128, 10)):
    """Weights and biases of each layer."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(key, (a, b)) * np.sqrt(2 / a), jnp.zeros(b))
        for key, (a, b) in zip(keys, pairwise(sizes), strict=True)
    ]


def layout():
    """All parameters as one vector, and the function that makes them of it again."""
    # Not when the script is imported: ranks of torchrun fork, and JAX has threads.
    with jax.ensure_compile_time_eval():
        return ravel_pytree(start(jax.random.key(0)))


def scores(theta, X, key=None):
    """Scores of the classes; with a key, half of the hidden units are dropped."""
    (W, b), (V, c) = layout()[1](theta)
    h = jax.nn.relu(X @ W + b)
    if key is not None:
        h = jnp.where(jax.random.bernoulli(key, 0.5, h.shape), 2 * h, 0)
    return h @ V + c


def loss(theta, X, y, key=None):
    """The sum over the samples, not their mean."""
    return -jnp.sum(jax.nn.log_softmax(scores(theta, X, key))[jnp.arange(len(y)), y])


@jax.jit  # compiled by each worker once, for each shape of its partitions
def gradient(theta, X, y, partition, round):
    """With a dropout that all workers draw alike who compute this partition."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(7), round), partition)
    return jax.grad(loss)(theta, X, y, key)


class Network:
    """What `fastgc.train` asks of a model."""

    @property
    def size(self):
        """Length of the vector."""
        return layout()[0].size

    def initial(self, rng):
        """Where training starts."""
        return ravel_pytree(start(jax.random.key(rng.integers(2**32))))[0]

    def partial_gradient(self, theta, shard, out, *, partition, round):
        """Write to all of `out`."""
        out[:] = gradient(theta, *shard, partition, round)

    def loss(self, theta, X, y):
        """Mean over the samples."""
        return float(loss(theta, X, y)) / len(y)

    def error(self, theta, X, y):
        """Share of the samples that are not recognised."""
        return float(np.mean(np.argmax(scores(theta, X), axis=1) != y))


optimizer = fastgc.optimizers.AMSGrad(0.01 / 6)


def warm_up_and_fall(record):
    """Set the rate of the next round."""
    optimizer.lr = 0.01 * min((record.round + 1) / 6, (60 - record.round) / 55)


if __name__ == "__main__":
    history = fastgc.train(
        fastgc.BinaryCode(4, stragglers=1),
        fastgc.data.load("digits", dtype=np.float32),  # in which JAX computes by default
        model=Network(),
        optimizer=optimizer,
        callback=warm_up_and_fall,
        rounds=60,
        batch=100,  # of each partition
        evaluate_every=20,
        engine=sys.argv[1] if len(sys.argv) > 1 else "local",  # or "mpi", "ray", "torch"
    )
    for record in history.rounds:
        if record.evaluated:
            print(f"{record.round}: loss {record.loss:.4f}, test error {record.test_error:.3f}")
