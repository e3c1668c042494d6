"""The active set over slots, for structures that use all it offers: scores of their own, and slots that stay empty."""

import itertools

import numpy as np
import pytest

from pullback.kernels.active_set import attempt_over, mixture_over
from pullback.kernels.active_set.rounds import FLAT
from pullback.kernels.tools import inner
from reference.active_set import as_vertices


@inner
def copy_transitions(scores, options):
    return options[0]


@inner
def load_tags(scores, b, n, options, own, out):
    for i in range(n):
        for tag in range(scores.shape[2]):
            out[i, tag] = scores[b, i, tag]
    return n


@inner
def transitions_of(own, n, parts):
    """Σ transition[tag before, tag]; the last tag of the transitions means an empty position."""
    total, tags = 0.0, own.shape[0] - 1
    for i in range(1, n):
        before = parts[i - 1] % tags if parts[i - 1] >= 0 else tags
        tag = parts[i] % tags if parts[i] >= 0 else tags
        total += own[before, tag]
    return total


@inner
def best_tagging(rest, n, options, own, parts):
    """The best of all taggings, where the last tag means none, by counting through them."""
    tags = rest.shape[1]
    choice, trial, top = np.zeros(n, np.int64), np.empty(n, np.int32), -np.inf
    while True:
        value = 0.0
        for i in range(n):
            trial[i] = i * tags + choice[i] if choice[i] < tags else -1
            value += rest[i, choice[i]] if choice[i] < tags else 0.0
        value += transitions_of(own, n, trial)
        if value > top:
            top = value
            parts[:n] = trial
        i = 0
        while i < n and choice[i] == tags:
            choice[i] = 0
            i += 1
        if i == n:
            return top > -np.inf
        choice[i] += 1


TAGGING = copy_transitions, load_tags, best_tagging, transitions_of
mixture, mixture_backward = mixture_over(*TAGGING)
attempt = attempt_over(*TAGGING)


def taggings(n, tags, transitions):
    """All vertices (count, n · tags), empty positions allowed, and the sums of their transitions."""
    every = list(itertools.product(range(tags + 1), repeat=n))
    vertices = np.zeros((len(every), n, tags + 1))
    for z, choice in zip(vertices, every):
        z[range(n), choice] = 1.0
    worths = [sum(transitions[a, b] for a, b in itertools.pairwise(choice)) for choice in every]
    return vertices[:, :, :tags].reshape(len(every), -1), np.array(worths)


def project(scores, transitions, rounds=999):
    batch, n, _ = scores.shape
    point, parts, probabilities = np.empty_like(scores), np.zeros((batch, 50, n), np.int32), np.zeros((batch, 50))
    size, iterations = np.zeros((2, batch), int)
    gap = np.zeros(batch)
    outputs = point, parts, probabilities, size, gap, iterations
    start = np.empty((batch, 0, n), np.int32)
    assert mixture(scores, np.full(batch, n), (transitions,), start, 1e-12, rounds, *outputs, 0, batch) == -1
    return outputs


@pytest.mark.parametrize("scale", [0.01, 0.3, 1.0, 100.0])
def test_scores_beside_those_of_the_parts_are_part_of_the_objective(scale):
    """The certificate: no vertex z has ⟨s − μ, z⟩ + w(z) above the mixture's ⟨s − μ, μ⟩ + Σ p w."""
    rng = np.random.default_rng(0)
    n, tags = 4, 2
    scores, transitions = scale * rng.normal(size=(12, n, tags)), scale * rng.normal(size=(tags + 1, tags + 1))
    point, parts, probabilities, size, gap, _ = project(scores, transitions)
    every, worths = taggings(n, tags, transitions)
    vertices = as_vertices(parts, size, n * tags)
    empty = False
    for b in range(12):
        p, z = probabilities[b, : size[b]], vertices[b, : size[b]]
        np.testing.assert_allclose(point[b].ravel(), p @ z, rtol=0, atol=1e-14)
        own = [worths[(every == vertex).all(1).argmax()] for vertex in z]
        rest = (scores[b] - point[b]).ravel()
        assert (every @ rest + worths).max() - (rest @ point[b].ravel() + p @ own) <= 1e-11 * max(1.0, scale)
        assert gap[b] <= 1e-11 * max(1.0, scale)
        empty |= (parts[b, : size[b]] < 0).any()
    assert empty  # some slots stay empty


def test_the_derivative_is_that_of_differences_when_structures_have_scores_of_their_own():
    rng = np.random.default_rng(1)
    n, tags, step = 4, 2, 1e-7
    scores, transitions = 0.5 * rng.normal(size=(12, n, tags)), 0.5 * rng.normal(size=(tags + 1, tags + 1))
    gradient, direction = rng.normal(size=(2, *scores.shape))
    _, parts, _, size, _, _ = project(scores, transitions)
    product = np.empty_like(scores)
    end = mixture_backward(scores, np.full(12, n), (transitions,), parts, size, gradient, product, 0, 12)
    assert end == -1
    ahead, behind = (project(scores + h * direction, transitions)[0] for h in (step, -step))
    slope = (gradient * (ahead - behind)).sum((1, 2)) / (2 * step)
    np.testing.assert_allclose((product * direction).sum((1, 2)), slope, rtol=0, atol=1e-6)


def attempt_with(patience, scores, transitions):
    batch, n, _ = scores.shape
    point, left = np.full(scores.shape, 7.0), np.full(batch, True)
    assert attempt(scores, np.full(batch, n), (transitions,), 1e-12, patience, point, left, 0, batch) == -1
    return point, left


def test_an_attempt_with_endless_patience_solves_everything():
    rng = np.random.default_rng(2)
    scores, transitions = 0.3 * rng.normal(size=(12, 4, 2)), 0.3 * rng.normal(size=(3, 3))
    point, left = attempt_with(np.inf, scores, transitions)
    assert not left.any()
    np.testing.assert_allclose(point, project(scores, transitions)[0], rtol=0, atol=1e-14)


def test_an_attempt_without_patience_leaves_flat_scores_and_what_four_rounds_do_not_solve():
    rng = np.random.default_rng(3)
    scores, transitions = rng.normal(size=(40, 4, 2)) * np.logspace(-2, 2, 40)[:, None, None], np.zeros((3, 3))
    exact, _, _, _, _, iterations = project(scores, transitions)
    first_gap = project(scores, transitions, rounds=1)[4]
    point, left = attempt_with(0.0, scores, transitions)
    np.testing.assert_array_equal(left, (first_gap > FLAT * scores.shape[1]) | (iterations > 4))
    assert 5 < left.sum() < 35
    np.testing.assert_allclose(point, np.where(left[:, None, None], 7.0, exact), rtol=0, atol=1e-14)
