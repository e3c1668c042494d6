"""SparseMAP over taggings by the interior, against listed vertices, and its linear systems against NumPy."""

import numpy as np
import pytest

import reference.tagging
from pullback.kernels.tagging import blocks, grid, interior
from reference.active_set import project as nearest_of


def project(scores, table):
    point, rest, gap = np.full(scores.shape, 7.0), np.full(scores.shape, 7.0), np.full(len(scores), np.inf)
    lengths = np.full(len(scores), scores.shape[1])
    before = scores.copy(), table.copy()
    assert interior.approach(scores, table, lengths, 1e-9, point, rest, gap, 0, len(scores)) == -1
    np.testing.assert_array_equal(scores, before[0])
    np.testing.assert_array_equal(table, before[1])
    return point, rest, gap


def listed(n, t):
    """Every sequence: its tags as zeros and ones (m, n t), and how often it uses the table (m, (t + 2) t)."""
    tags, uses = reference.tagging.vertices(n, n, t)
    return tags.reshape(len(tags), -1), uses.reshape(len(uses), -1)


def worth(uses, table):
    """The score of each sequence beside that of its tags, −∞ if one of its transitions is forbidden."""
    forbidden = np.isneginf(table.ravel())
    return np.where(uses[:, forbidden].any(1), -np.inf, uses @ np.where(forbidden, 0.0, table.ravel()))


@pytest.mark.parametrize("forbidden", [0.0, 0.3], ids=["any transition", "some transitions"])
@pytest.mark.parametrize("is_tied", [False, True], ids=["normal", "ties"])
def test_no_sequence_is_better_and_the_derivative_projects_onto_the_face(forbidden, is_tied):
    rng = np.random.default_rng(3)
    for n, t in ((1, 3), (2, 2), (3, 3), (5, 2), (4, 4)):
        tags, uses = listed(n, t)
        for scale in (0.0, 1e-3, 0.1, 1.0, 10.0, 1000.0):
            scores, table = scale * rng.normal(size=(1, n, t)), scale * rng.normal(size=(1, t + 2, t))
            if is_tied:
                scores, table = (scale * np.round(2 * rng.normal(size=x.shape)) / 4 for x in (scores, table))
            kept = uses[rng.integers(len(uses))].reshape(t + 2, t) > 0  # so that one is left
            table[0, (rng.random((t + 2, t)) < forbidden) & ~kept] = -np.inf
            point, rest, gap = project(scores, table)
            unit = max(1.0, 4 * scale)
            assert gap[0] <= 1e-9 * unit
            allowed = np.isfinite(worth(uses, table[0]))
            value = tags[allowed] @ (scores - point).ravel() + worth(uses[allowed], table[0])
            inside = value >= value.max() - 1e-8 * unit
            best, of_best = tags[allowed][inside], uses[allowed][inside]
            np.testing.assert_allclose(nearest_of(point.ravel(), best), point.ravel(), atol=1e-8 * unit)  # in its face

            gradient = rng.normal(size=(1, n, t))
            product, used = np.full((1, n, t), 7.0), np.full((1, t + 2, t), 7.0)
            assert interior.approach_backward(rest, table, np.array([n]), gradient, product, used, 0, 1) == -1
            projector = np.linalg.pinv(best - best[0]) @ (best - best[0])
            np.testing.assert_allclose(product.ravel(), projector @ gradient.ravel(), atol=1e-7)
            both = np.hstack([best, of_best])  # what the table is used for comes from the same mixture of sequences
            change = np.append(product.ravel(), used.ravel())
            shares = np.linalg.lstsq((both - both[0]).T, change, rcond=None)[0]
            np.testing.assert_allclose((both - both[0]).T @ shares, change, atol=1e-7)


def test_of_tied_transitions_tags_that_are_alike_are_used_alike():
    n, t = 6, 4
    point, rest, _ = project(np.zeros((1, n, t)), np.zeros((1, t + 2, t)))
    np.testing.assert_allclose(point, 1 / t, atol=1e-12)
    gradient = np.zeros((1, n, t))
    gradient[0, 2, 1] = 1.0
    product, used = np.empty((1, n, t)), np.empty((1, t + 2, t))
    interior.approach_backward(rest, np.zeros((1, t + 2, t)), np.array([n]), gradient, product, used, 0, 1)
    others = [0, 2, 3]
    np.testing.assert_allclose(used[0, 1, others], used[0, 1, 0], atol=1e-9)
    np.testing.assert_allclose(used[0, others, 1], used[0, 0, 1], atol=1e-9)


@pytest.mark.parametrize(("n", "t"), [(1, 1), (2, 3), (3, 5), (4, 9)])
def test_a_change_of_flow_solves_the_system_that_defines_it(n, t):
    rng = np.random.default_rng(n)
    live = rng.random((n, t)) < 0.8
    live[:, 0] = True
    lattice = interior._grid(live, rng.normal(size=(t + 2, t)))
    exists = lattice.gain > grid.NONE
    weight, pull = np.where(exists, rng.random(len(exists)), 0.0), rng.normal(size=len(exists))
    wanted = np.zeros((n + 1, t))
    wanted[:n][live] = rng.normal(size=live.sum())
    wanted[n, 0] = 1.0
    room, potential, change = blocks.room_of(lattice), np.empty((n + 1) * t), np.empty(len(exists))
    blocks.couple(lattice, weight, room)
    blocks.solve(lattice, weight, pull, wanted.ravel(), room, potential, change)
    flow, y = change.reshape(n + 1, t, t), potential.reshape(n + 1, t)
    arrived = flow.sum(1)
    leaving = np.vstack([flow[1:].sum(2), np.zeros(t)])
    np.testing.assert_allclose(arrived - leaving, wanted, atol=1e-10)
    tails = np.vstack([np.zeros(t), y[:-1]])
    taken = np.vstack([arrived[:-1], np.zeros(t)])
    force = pull.reshape(flow.shape) + y[:, None, :] - tails[:, :, None] - taken[:, None, :]
    np.testing.assert_allclose(flow, weight.reshape(flow.shape) * force, atol=1e-10)


def test_instances_without_a_sequence_or_without_a_length_are_left_alone():
    scores, table = np.zeros((3, 4, 3)), np.zeros((3, 5, 3))
    scores[1, 2] = -np.inf
    point, rest, gap = np.full(scores.shape, 7.0), np.full(scores.shape, 7.0), np.full(3, np.inf)
    assert interior.approach(scores, table, np.array([0, 4, 4]), 1e-9, point, rest, gap, 0, 3) == -1
    assert (point[:2] == 7.0).all() and (gap[:2] == np.inf).all() and gap[2] <= 1e-9
