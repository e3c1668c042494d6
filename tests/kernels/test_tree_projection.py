import itertools

import numpy as np
import pytest

from pullback.kernels.tree_cuts import face, feasibility, laminar, networks, subtours
from pullback.kernels.tree_cuts import projection as tree_projection
from pullback.kernels.trees import arborescence
from reference.active_set import face_projector
from reference.tree_projection import face_projection, inflow, least_inflow, subsets
from reference.trees import arcs, enumerate_trees


def project(scores, single_root=False, lengths=None):
    """point, sets of a batch that must be solvable."""
    batch, nodes, _ = scores.shape
    lengths = np.full(batch, nodes - 1) if lengths is None else np.asarray(lengths)
    point = np.full(scores.shape, np.nan, scores.dtype)
    sets = np.full((batch, nodes, (nodes + 63) // 64), -1)
    left = np.ones(batch, bool)
    assert tree_projection.project(scores, lengths, single_root, 0, point, sets, left, 0, batch) == -1
    assert not left.any()
    return point, sets


def project_backward(grad, point, sets, lengths=None):
    batch, nodes, _ = grad.shape
    lengths = np.full(batch, nodes - 1) if lengths is None else np.asarray(lengths)
    out = np.full(grad.shape, np.nan, grad.dtype)
    face.project_backward(grad, lengths, point, sets, out, 0, batch)
    return out


def best_trees(scores, single_root):
    batch, nodes, _ = scores.shape
    heads = np.empty((batch, nodes), np.int64)
    assert arborescence.argmax(scores, np.full(batch, nodes - 1), single_root, heads, 0, batch) == -1
    trees = np.zeros(scores.shape)
    for b in range(batch):
        trees[b, heads[b, 1:], np.arange(1, nodes)] = 1
    return trees


def gaps(scores, point, single_root):
    """⟨s − μ, z − μ⟩ with z the best tree for s − μ, relative to the largest score."""
    scores = scores.astype(float)
    slope = scores - point
    better = best_trees(slope, single_root) - point
    size = np.maximum(1.0, np.abs(np.where(np.isfinite(scores), scores, 0)).max((1, 2)))
    return np.where(better == 0, 0, np.where(np.isfinite(slope), slope, 0) * better).sum((1, 2)) / size


def kinds(rng, batch, n):
    """Scores of all characters, by name: noise, ties, steps of SPIGOT, cycles, nearness, masks."""
    noise = rng.normal(size=(batch, n + 1, n + 1))
    words = np.arange(1, n + 1)
    for scale in (0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1e4, 1e6):
        yield f"normal {scale}", scale * noise
    yield "float32", noise.astype(np.float32).astype(float)
    yield "integers", rng.integers(-2, 3, noise.shape).astype(float)
    yield "quarters", rng.integers(-2, 3, noise.shape) / 4
    yield "near ties", rng.integers(0, 2, noise.shape) + 1e-9 * noise
    yield "equal", np.full(noise.shape, 0.3)
    yield "near equal", 1e-7 * noise
    for step in (0.01, 0.1, 1.0, 10.0):
        yield f"spigot {step}", best_trees(noise, False) - step * rng.normal(size=noise.shape)
    long_cycle = 0.3 * noise
    long_cycle[:, words, np.roll(words, 1)] += 5
    yield "long cycle", long_cycle
    pairs = 0.3 * noise
    pairs[:, words[: n - n % 2 : 2], words[1::2]] += 4
    pairs[:, words[1::2], words[: n - n % 2 : 2]] += 4
    yield "pairs", pairs
    nested = 0.1 * noise
    for size in (2, 3, 5, 8, 13, 21, 34):
        nested[:, 1 : size + 1, 1 : size + 1] += 1
    yield "nested", nested
    distance = np.abs(np.arange(n + 1)[:, None] - np.arange(n + 1)) * np.ones((batch, 1, 1))
    for scale in (0.1, 1.0):  # as many sets as words, each inside the next
        yield f"distance {scale}", -scale * distance
        yield f"distance and noise {scale}", scale * (0.1 * noise - distance)
    yield "logarithm of distance", -np.log1p(distance)
    yield "heads alike", 0.01 * noise[:, :, :1] + 0 * noise
    halves = [np.arange(n + 1) // size for size in (2, 4, 8, 16)]
    yield "halves of halves", sum(np.equal.outer(half, half) for half in halves) + 0 * noise
    yield "far root", noise - 20 * (np.arange(n + 1) == 0)[:, None]
    masked = np.where(rng.random(noise.shape) < 0.5, -np.inf, noise)
    masked[:, words - 1, words] = -1  # a chain, so that a tree exists
    yield "masked", masked


@pytest.mark.parametrize("single_root", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_projection_beats_every_tree(n, single_root):
    rng = np.random.default_rng(n)
    trees = np.array([arcs(heads) for heads in enumerate_trees(n, False, single_root)])
    for name, scores in kinds(rng, 4, n):
        point, _ = project(scores, single_root)
        slope = np.where(point > 0, scores, 0) - point
        for b in range(len(scores)):
            allowed = trees[~(trees * np.isneginf(scores[b])).any((1, 2))]
            values = np.where(allowed > 0, scores[b] - point[b], 0).sum((1, 2))
            size = max(1.0, np.abs(scores[b][np.isfinite(scores[b])]).max())
            assert values.max() - (slope[b] * point[b]).sum() < 1e-12 * size, name
            assert all(inflow(point[b], words) > 1 - 1e-9 for words in subsets(n)), name


@pytest.mark.parametrize("single_root", [False, True])
@pytest.mark.parametrize(("n", "batch"), [(5, 8), (8, 8), (13, 6), (21, 4), (40, 2), (100, 1)])
def test_the_projection_is_a_mixture_of_trees_without_a_better_one(n, batch, single_root):
    rng = np.random.default_rng(n)
    for name, scores in kinds(rng, batch, n):
        point, _ = project(scores, single_root)
        assert (point >= 0).all() and not point[:, :, 0].any(), name
        assert np.abs(point[:, :, 1:].sum(1) - 1).max() < 1e-9, name
        assert gaps(scores, point, single_root).max() < 1e-9, name
        if single_root:
            assert np.abs(point[:, 0].sum(-1) - 1).max() < 1e-9, name
        if n < 100 or name in ("normal 1.0", "normal 10.0", "spigot 0.1", "nested"):  # 100 flows each take their time
            assert least_inflow(point[0]) > 1 - 1e-9, name


def test_a_word_that_only_the_first_trial_of_a_new_set_reaches_is_listed_at_the_last_as_well():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2000, 5))[np.arange(2000)[:, None], rng.integers(5, size=(2000, 9))][:, :, None]
    scores = scores + 0.1 * rng.normal(size=(2000, 9, 9))
    scores[:, 0, 2:] = -np.inf  # heads that are liked alike, and one word below the root: large sets receive nothing
    point, _ = project(scores)
    assert gaps(scores, point, False).max() < 1e-9


def test_equal_scores_give_symmetric_points():
    point, _ = project(np.zeros((1, 5, 5)))
    assert np.allclose(point[0][:, 1:], (1 - np.eye(5)[:, 1:]) / 4)
    point, _ = project(np.zeros((1, 5, 5)), single_root=True)
    assert np.allclose(point[0, 0, 1:], 1 / 4)


def test_a_tree_is_its_own_projection():
    trees = best_trees(np.random.default_rng(0).normal(size=(8, 13, 13)), True)
    for single_root in (False, True):
        point, _ = project(trees, single_root)
        assert np.abs(point - trees).max() < 1e-12


@pytest.mark.parametrize("single_root", [False, True])
def test_only_the_arcs_among_the_words_are_read(single_root):
    rng = np.random.default_rng(1)
    lengths = np.array([7, 4, 0, 1])
    scores = 3 * rng.normal(size=(4, 8, 8))
    scores[:, :, 0] = scores[:, range(8), range(8)] = np.nan
    for b, n in enumerate(lengths):
        scores[b, n + 1 :] = scores[b, :, n + 1 :] = np.nan
    before = scores.copy()
    point, sets = project(scores, single_root, lengths)
    grad = np.where(np.isnan(scores), np.nan, rng.normal(size=scores.shape))
    back = project_backward(grad, point, sets, lengths)
    assert np.array_equal(scores, before, equal_nan=True)
    for b, n in enumerate(lengths):
        alone, face = project(np.ascontiguousarray(scores[b : b + 1, : n + 1, : n + 1]), single_root)
        assert np.array_equal(point[b, : n + 1, : n + 1], alone[0])
        assert not point[b, n + 1 :].any() and not point[b, :, n + 1 :].any()
        inner = np.ascontiguousarray(grad[b : b + 1, : n + 1, : n + 1])
        assert np.array_equal(back[b, : n + 1, : n + 1], project_backward(inner, alone, face)[0])
        assert not back[b, n + 1 :].any() and not back[b, :, n + 1 :].any()


def test_single_precision_comes_back():
    scores = np.random.default_rng(2).normal(size=(6, 21, 21)).astype(np.float32)
    point, sets = project(scores)
    exact, exact_sets = project(scores.astype(float))
    assert point.dtype == np.float32 and np.abs(point - exact).max() < 1e-7
    assert np.array_equal(sets, exact_sets)
    grad = np.random.default_rng(3).normal(size=scores.shape).astype(np.float32)
    back = project_backward(grad, point, sets)
    assert np.abs(back - project_backward(grad.astype(float), exact, exact_sets)).max() < 1e-6


def test_other_instances_are_left_alone():
    scores = np.random.default_rng(4).normal(size=(4, 7, 7))
    everything, faces = project(scores)
    point, sets, out = np.full(scores.shape, 7.0), np.full((4, 7, 1), 7), np.full(scores.shape, 7.0)
    lengths, left = np.full(4, 6), np.empty(4, bool)
    assert tree_projection.project(scores, lengths, False, 0, point, sets, left, 1, 3) == -1
    assert face.project_backward(scores, lengths, everything, faces, out, 1, 3) == -1
    assert np.array_equal(point[1:3], everything[1:3]) and np.array_equal(sets[1:3], faces[1:3])
    for array in (point, sets, out):
        assert (array[[0, 3]] == 7).all() and not (array[1:3] == 7).any()


def test_an_instance_without_a_tree_is_named():
    point, sets, lengths = np.empty((3, 5, 5)), np.empty((3, 5, 1), np.int64), np.full(3, 4)

    def first_refused(scores, single_root):
        found = (point, sets, np.empty(3, bool))
        return tree_projection.project(scores, lengths, single_root, 0, *found, 0, 3)

    unreachable = np.zeros((3, 5, 5))
    unreachable[1, :3, 3:] = -np.inf  # words 3 and 4 hear only from each other
    two_roots = np.zeros((3, 5, 5))
    two_roots[2, 1:3, 3:] = two_roots[2, 3:, 1:3] = -np.inf  # two parts that only the root connects
    no_head = np.zeros((3, 5, 5))
    no_head[1, :, 2] = -np.inf
    unknown = np.zeros((3, 5, 5))
    unknown[1, 2, 3] = np.nan
    infinite = np.zeros((3, 5, 5))
    infinite[1, 2, 3] = np.inf
    for scores in (unreachable, no_head, unknown, infinite):
        assert first_refused(scores, False) == first_refused(scores, True) == 1
    assert first_refused(two_roots, False) == -1 and first_refused(two_roots, True) == 2


@pytest.mark.parametrize("single_root", [False, True])
def test_one_feasible_tree_is_the_answer(single_root):
    rng = np.random.default_rng(5)
    tree = best_trees(rng.normal(size=(1, 9, 9)), True)
    scores = np.where(tree > 0, 100 * rng.normal(size=tree.shape), -np.inf)
    point, sets = project(scores, single_root)
    assert np.array_equal(point, tree)
    assert not project_backward(rng.normal(size=tree.shape), point, sets).any()


@pytest.mark.parametrize("single_root", [False, True])
def test_feasible_masks_are_told_from_infeasible_ones(single_root):
    rng = np.random.default_rng(6)
    trees = np.array([arcs(heads) for heads in enumerate_trees(4, False, single_root)]) > 0
    seen, queue = np.empty(5, np.int64), np.empty(5, np.int64)
    answers = set()
    for _ in range(300):
        allowed = rng.random((5, 5)) < 0.4
        expected = (trees <= allowed).all((1, 2)).any()
        assert feasibility.is_feasible(np.where(allowed, 0.0, -np.inf), 4, single_root, seen, queue) == expected
        answers.add(expected)
    assert answers == {False, True}


def test_violated_sets_are_found_exactly_when_there_are_some():
    rng = np.random.default_rng(7)
    n = 7
    family, room = laminar.new_family(n + 1, n + 1), networks.new_room(n + 1, n + 1)
    answers = set()
    for _ in range(200):
        point = rng.random((n + 1, n + 1)) ** rng.choice([1, 4]) * (rng.random((n + 1, n + 1)) < 0.5)
        point[0] += 0.1
        point[:, 0] = 0
        np.fill_diagonal(point, 0)
        point[:, 1:] /= point[:, 1:].sum(0)
        family.words["count"] = n + 1
        family.arcs["head"], family.arcs["mass"] = np.arange(n + 1), point.T
        for disjoint, nearest_first in itertools.product((False, True), repeat=2):
            sets = []
            settled, done = subtours.separate(n, 1 - 1e-9, family, room), 0
            while True:
                there_is, settled, done = subtours.next_set(n, 1 - 1e-9, disjoint, nearest_first, settled, done, room)
                if not there_is:
                    break
                sets.append(tuple(np.flatnonzero(room.member[: n + 1]).tolist()))
            assert all(inflow(point, list(members)) < 1 for members in sets)
            assert len(sets) <= n
            assert not disjoint or len({j for members in sets for j in members}) == sum(map(len, sets))
            answers.add(len(sets) > 0)
            assert (len(sets) > 0) == any(inflow(point, members) < 1 - 1e-9 for members in subsets(n))
    assert answers == {False, True}


def _search_within(point, known):
    """The sets that are found at once, of words that cross none of those that are known."""
    n = len(point) - 1
    family, room = laminar.new_family(n + 1, n + 1), networks.new_room(n + 1, n + 1)
    words, sets, into = family
    laminar.start(n, False, words, sets)
    words["count"] = n + 1
    into["head"], into["mass"] = np.arange(n + 1), point.T
    into["set"] = 1
    into["set"][:, 0] = 0
    number, found = 2, []
    for members in known:
        number += laminar.insert(n, number, np.isin(np.arange(n + 1), members), family) > 0
    goal = 1 - 1e-9
    count, settled = subtours.separate_within(n, number, goal, family, room)
    done = 0
    while True:
        there_is, settled, done = subtours.next_set(count, goal, False, True, settled, done, room)
        if not there_is:
            return found
        networks.words_of(n, number, room.member, words, sets)
        found.append(frozenset(np.flatnonzero(room.member[: n + 1]).tolist()))


def test_sets_that_are_found_within_a_family_are_violated_and_cross_none_of_it():
    rng = np.random.default_rng(3)
    n, family, answers = 9, ([1, 2, 3, 4, 5], [2, 3], [4, 5], [7, 8, 9]), set()
    for _ in range(100):
        point = rng.random((n + 1, n + 1)) ** 4
        point[:, 0] = 0
        np.fill_diagonal(point, 0)
        point[:, 1:] /= point[:, 1:].sum(0)
        found = _search_within(point, family)
        assert all(inflow(point, sorted(words)) < 1 for words in found)
        assert all(a <= set(b) or a >= set(b) or not a & set(b) for a in found for b in family)
        fits = [a for a in subsets(n) if all({*a} <= {*b} or {*a} >= {*b} or not {*a} & {*b} for b in family)]
        assert (len(found) > 0) == any(inflow(point, words) < 1 - 1e-9 for words in fits)
        answers.add(len(found) > 0)
    assert answers == {False, True}


def test_a_chain_of_sets_that_are_violated_alike_is_found_at_once():
    n = 30  # between two neighbors each word takes half of either, and so the words from any k on receive one half
    point = 0.5 * (np.eye(n + 1, k=1) + np.eye(n + 1, k=-1))
    point[:, 0] = 0
    point[n - 1, n] = 1
    found = _search_within(point, ())
    assert set(found) == {frozenset(range(k, n + 1)) for k in range(1, n)}


def test_tied_sets_without_a_multiplier_belong_to_the_face_of_long_sentences():
    n = 60
    scores = -0.01 * np.subtract.outer(np.arange(n + 1.0), np.arange(n + 1.0))[None] ** 2
    point, sets = project(scores)
    back = project_backward(np.random.default_rng(0).normal(size=scores.shape), point, sets)[0]
    suffixes = [list(range(k, n + 1)) for k in range(1, n)]
    tight = [words for words in suffixes if abs(inflow(point[0], words) - 1) < 1e-9]
    assert len(tight) > 30
    assert all(abs(back[np.ix_(words, words)].sum()) < 1e-9 for words in tight)


@pytest.mark.parametrize("single_root", [False, True])
@pytest.mark.parametrize("n", [5, 21, 70])
def test_active_sets_are_tight_and_nested_or_disjoint(n, single_root):
    several = 0
    for name, scores in kinds(np.random.default_rng(n), 2, n):
        point, rows = project(scores, single_root)
        for b in range(2):
            bits = rows[b].astype("<i8").view(np.uint8)
            members = np.unpackbits(bits, axis=-1, bitorder="little")[:, : n + 1].astype(bool)
            count = members.any(-1).sum()
            assert not members[count:].any() and not members[:, 0].any(), name
            sets = [set(np.flatnonzero(row)) for row in members[:count]]
            assert sets == sorted(sets, key=len, reverse=True), name
            assert all(a >= b or not a & b for a, b in itertools.combinations(sets, 2)), name
            size = max(1.0, np.abs(scores[b][np.isfinite(scores[b])]).max())
            assert all(abs(inflow(point[b], sorted(words)) - 1) < 1e-10 + 1e-13 * size for words in sets), name
            several += count > 1
    assert several > 10


@pytest.mark.parametrize("single_root", [False, True])
@pytest.mark.parametrize("n", [2, 3, 5, 7])
def test_the_backward_projects_on_the_smallest_face(n, single_root):
    rng = np.random.default_rng(n)
    for scale in (0.05, 0.3, 1.0, 3.0, 10.0):
        scores, grad = scale * rng.normal(size=(6, n + 1, n + 1)), rng.normal(size=(6, n + 1, n + 1))
        point, sets = project(scores, single_root)
        back = project_backward(grad, point, sets)
        for b in range(6):
            assert np.abs(back[b] - face_projection(point[b], single_root, grad[b])).max() < 1e-9


@pytest.mark.parametrize("single_root", [False, True])
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_the_backward_projects_on_the_smallest_face_also_where_scores_are_equal(n, single_root):
    """There sets that receive exactly 1 may have no multiplier: the solution of the dual is not unique."""
    rng = np.random.default_rng(n)
    for allowed in (1.0, 0.8, 0.4):
        for values in (1, 2, 3):
            scores, grad = rng.integers(0, values, (6, n + 1, n + 1)).astype(float), rng.normal(size=(6, n + 1, n + 1))
            scores[rng.random(scores.shape) > allowed] = -np.inf
            scores[:, range(n), range(1, n + 1)] = 0  # a chain, so that a tree exists
            point, sets = project(scores, single_root)
            back = project_backward(grad, point, sets)
            for b in range(6):
                assert np.abs(back[b] - face_projection(point[b], single_root, grad[b])).max() < 1e-9


def test_sets_that_every_allowed_tree_fills_belong_to_the_face():
    scores = np.full((1, 4, 4), 3.7)
    scores[:, 1, 2] = scores[:, 2, 1] = -np.inf  # {1, 3} and {2, 3} receive 1 from each tree
    trees = np.array([arcs(heads) for heads in ((3, 3, 0), (0, 3, 1), (3, 0, 2))], float).reshape(3, 16)
    grad = np.random.default_rng(0).normal(size=(1, 4, 4))
    back = project_backward(grad, *project(scores, single_root=True))
    expected = face_projector(np.zeros(16), trees, trees[0]) @ grad.ravel()
    assert np.abs(back.ravel() - expected).max() < 1e-9


@pytest.mark.parametrize("single_root", [False, True])
@pytest.mark.parametrize("n", [3, 8, 12, 30])
def test_the_backward_is_the_derivative(n, single_root):
    rng = np.random.default_rng(n)
    smooth = 0
    for name, scores in kinds(rng, 3, n):
        if name.startswith(("normal 0", "normal 1", "normal 3", "spigot", "long", "pairs", "nested", "far", "masked")):
            direction, grad = rng.normal(size=scores.shape), rng.normal(size=scores.shape)
            back = project_backward(grad, *project(scores, single_root))
            above, face = project(scores + 1e-6 * direction, single_root)
            below, other = project(scores - 1e-6 * direction, single_root)
            for b in range(3):
                if ((above[b] > 0) == (below[b] > 0)).all() and np.array_equal(face[b], other[b]):
                    smooth += 1
                    difference = (grad[b] * (above[b] - below[b])).sum() / 2e-6
                    assert abs(difference - (back[b] * direction[b]).sum()) < 1e-5 * (1 + abs(difference)), name
    assert smooth > 30  # of 51: the rest have a kink between the two points
