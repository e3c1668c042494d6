"""Every tag sequence of a linear chain, by trying them all."""

import itertools

import numpy as np


def enumerate_sequences(n, t):
    """All tⁿ sequences of n tags; one empty sequence when n = 0."""
    return list(itertools.product(range(t), repeat=n))


def vertex(sequence, n, t):
    """A sequence as (n, t, t) zeros and ones: a one at [i, tag before, tag], the tag before the first counting as 0.

    n may be more than its length; the rest is zero.
    """
    matrix = np.zeros((n, t, t))
    before = 0
    for i, tag in enumerate(sequence):
        matrix[i, before, tag] = 1.0
        before = tag
    return matrix


def vertices(length, n, t):
    """All sequences of `length` tags, as (tˡᵉⁿᵍᵗʰ, n, t, t) zeros and ones."""
    return np.array([vertex(sequence, n, t) for sequence in enumerate_sequences(length, t)])


def values(scores, every):
    """⟨s, z⟩ of every vertex; what a vertex does not use may be anything."""
    return np.array([scores[z > 0.0].astype(float).sum() for z in every])


def argmax(scores, length):
    """The best sequence as zeros and ones; None if all are forbidden."""
    every = vertices(length, *scores.shape[:2])
    value = values(scores, every)
    return every[value.argmax()] if value.max() > -np.inf else None
