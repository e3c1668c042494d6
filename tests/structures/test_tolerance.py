"""SparseMAP that may stop early: certified to the gap that was asked for, sooner, and with a derivative to match."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from families import WHOLE, ArgmaxOnly, Case, one_of_each_kind


@dataclass(frozen=True, eq=False)
class Tolerant(ArgmaxOnly):
    """A structure of which only the argmax is known, with a tolerance."""

    tolerance: float | None = None


@dataclass(frozen=True)
class Best:
    """The argmax of a structure, as an oracle."""

    structure: pb.Structure

    def __call__(self, scores):
        return self.structure.argmax(scores)


def of(case, tolerance):
    return replace(case.structure, tolerance=tolerance)


OWN = [case for case in one_of_each_kind(WHOLE) if "tolerance" in case.structure.__dataclass_fields__]
INHERITED = [
    Case("argmax alone: tree", Tolerant(pb.DependencyTree()), (3,), (5, 5)),
    Case("Oracle", pb.Oracle(Best(pb.ConstituencyTree()), event_dims=2), (3,), (5, 5)),
]
CASES = OWN + INHERITED


def goes_by_vertices(case):
    """Whether SparseMAP itself lists vertices, and so can stop early."""
    structure = case.structure
    if isinstance(structure, pb.DependencyTree):
        return structure.projective
    if isinstance(structure, pb.Segmentation):
        return structure.transitions is not None
    if isinstance(structure, pb.Alignment):
        return structure.kind != "global"
    return isinstance(structure, (pb.ConstituencyTree, pb.Tagging, pb.Oracle, Tolerant))


every_case = pytest.mark.parametrize("case", CASES, ids=repr)
by_vertices = pytest.mark.parametrize("case", [case for case in CASES if goes_by_vertices(case)], ids=repr)
asked = pytest.mark.parametrize("tolerance", [1e-1, 1e-3])


def gap_of(structure, scores, point):
    """By the structure's own argmax."""
    rest = scores - point
    best = structure.argmax(rest)
    gap = structure.count_once(rest * (best - point)).flatten(-structure.event_dims).sum(-1)
    return gap + structure.own_score(best) - structure.own_score(point)


def distance(a, b, structure):
    return structure.count_once((a - b).square()).flatten(-structure.event_dims).sum(-1)


@every_case
@asked
def test_the_gap_is_what_was_asked_for(case, tolerance):
    structure, scores = of(case, tolerance), case.scores(scale=0.3)
    assert (gap_of(structure, scores, structure.sparsemap(scores)) <= tolerance + 1e-9).all()
    found = structure.solve(scores)
    assert found.converged.all() and (found.gap <= tolerance + 1e-9).all()
    assert (gap_of(structure, scores, found.mixture.mean()) <= found.gap + 1e-9).all()
    nearest, exact = structure.project(scores), case.structure.project(scores)
    assert (distance(nearest, exact, structure) <= tolerance).all()


@every_case
def test_a_looser_tolerance_never_needs_more_rounds(case):
    scores = case.scores(scale=0.1)
    rounds = [of(case, tolerance).solve(scores).iterations for tolerance in (1e-1, 1e-3, None)]
    assert (rounds[0] <= rounds[1]).all() and (rounds[1] <= rounds[2]).all()


def test_flat_scores_need_far_fewer_rounds():
    scores = 0.01 * torch.randn(2, 31, 31, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    trees = pb.DependencyTree(projective=True)
    exact, nearly, roughly = (replace(trees, tolerance=gap).solve(scores) for gap in (None, 1e-3, 1e-1))
    assert (nearly.iterations < 0.8 * exact.iterations).all()
    assert (roughly.iterations < 0.2 * exact.iterations).all()
    assert (nearly.gap > exact.gap).all() and (roughly.mixture.size < nearly.mixture.size).all()


def test_a_start_saves_rounds_at_a_tolerance_too():
    trees = pb.DependencyTree(projective=True, tolerance=1e-2)
    scores = 0.1 * torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first = trees.solve(scores)
    again = trees.solve(scores, start=first.mixture.vertices)
    assert (again.iterations < first.iterations / 4).all() and again.converged.all()


@pytest.mark.parametrize("case", OWN, ids=repr)
def test_no_tolerance_is_the_smallest_one(case):
    scores = case.scores()
    assert torch.equal(of(case, 1e-12).sparsemap(scores), case.structure.sparsemap(scores))


# ---- derivatives


def slopes(structure, scores, operation):
    """The gradients of the scores, and of transitions where there are some."""
    leaf = scores.clone().requires_grad_()
    leaves = [leaf]
    if getattr(structure, "transitions", None) is not None:
        table = structure.transitions.clone().requires_grad_()
        structure, leaves = replace(structure, transitions=table), [leaf, table]
    point = operation(structure, leaf)
    weights = torch.linspace(-1, 1, point.numel(), dtype=point.dtype).reshape(point.shape).sin()
    return point.detach(), *torch.autograd.grad((point * weights).sum(), leaves)


@every_case
def test_a_tiny_tolerance_has_the_exact_derivative(case):
    scores = case.scores()
    exact = slopes(case.structure, scores, lambda s, x: s.sparsemap(x))
    for found, wanted in zip(slopes(of(case, 1e-10), scores, lambda s, x: s.sparsemap(x)), exact):
        assert_close(found, wanted, atol=1e-5, rtol=0)


@by_vertices
@asked
def test_the_derivative_is_that_of_the_vertices_found(case, tolerance):
    structure, scores = of(case, tolerance), case.scores(scale=0.3)
    by_probabilities = slopes(structure, scores, lambda s, x: s.support(x).mean())
    for found, wanted in zip(slopes(structure, scores, lambda s, x: s.sparsemap(x)), by_probabilities):
        assert_close(found, wanted, atol=1e-9, rtol=0)


def test_vertices_for_which_there_was_no_room_are_found_again():
    """SparseMAP keeps 32 labelled trees per node for its derivative."""
    trees = pb.DependencyTree(projective=True, labelled=True, tolerance=1e-6)
    scores = 1e-3 * torch.randn(1, 3, 3, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert trees.solve(scores).mixture.size > 96
    by_probabilities = slopes(trees, scores, lambda s, x: s.support(x).mean())
    for found, wanted in zip(slopes(trees, scores, lambda s, x: s.sparsemap(x)), by_probabilities):
        assert_close(found, wanted, atol=1e-7, rtol=0)


@pytest.mark.parametrize(("tolerance", "by_chart"), [(1e-2, False), (1e-6, True)])
def test_flat_scores_go_by_the_chart_where_the_tolerance_is_far_away(tolerance, by_chart):
    lengths = torch.tensor([41, 0, 12])
    scores = 0.01 * torch.randn(3, 42, 42, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    trees = pb.DependencyTree(lengths, projective=True, tolerance=tolerance)
    size = trees._operators.sparsemap(*trees._inputs(scores), tolerance)[2]
    assert (size == 0).tolist() == [by_chart, False, False]
    assert (gap_of(trees, scores, trees.sparsemap(scores)) <= tolerance + 1e-9).all()
    *_, slope = slopes(trees, scores, lambda s, x: s.sparsemap(x))
    expected = pb.DependencyTree(lengths, projective=True) if by_chart else trees
    operation = (lambda s, x: s.sparsemap(x)) if by_chart else (lambda s, x: s.support(x).mean())
    assert_close(slope[0], slopes(expected, scores, operation)[1][0], atol=1e-7, rtol=0)
    assert not slope[1].any() and slope[2].any()


# ---- compilers and transforms


@pytest.mark.parametrize("name", ["projective tree, any roots", "Tagging", "Chain", "argmax alone: tree"])
def test_a_compiled_model_and_vmap_give_the_eager_result(name):
    case = next(case for case in [*WHOLE, *INHERITED] if case.name == name)
    structure, scores = of(case, 0.1), case.scores(scale=0.3)

    def model(structure, scores):
        return structure.sparsemap(2 * scores)

    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for found, wanted in zip(slopes(structure, scores, compiled), slopes(structure, scores, model)):
        assert_close(found, wanted)
    assert_close(torch.func.vmap(structure.sparsemap)(scores), structure.sparsemap(scores))


def test_independent_and_product_stop_where_their_blocks_do():
    trees = pb.DependencyTree(projective=True, tolerance=0.1)
    scores = 0.1 * torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.equal(pb.Independent(trees).sparsemap(scores), trees.sparsemap(scores))
    found, one = pb.Independent(trees).solve(scores[:, :1]), trees.solve(scores[:, 0])
    assert found.converged.all() and torch.equal(found.iterations, one.iterations) and torch.equal(found.gap, one.gap)
    both = pb.product(trees, pb.Categorical(), shapes=[(6, 6), (2,)])
    packed = both.pack(scores[:, 0], scores[:, 0, 0, :2])
    assert torch.equal(both.unpack(both.sparsemap(packed))[0], trees.sparsemap(scores[:, 0]))
    assert torch.equal(both.solve(packed).iterations, one.iterations)


# ---- errors


@pytest.mark.parametrize("case", one_of_each_kind(CASES[:-2], with_options=False) + CASES[-1:], ids=repr)
def test_a_wrong_tolerance_is_refused_in_words(case):
    name = type(case.structure).__name__
    for wrong in (0.0, -1e-3, math.nan, math.inf):
        with pytest.raises(ValueError, match=rf"^{name}: tolerance is {wrong}; expected a finite number > 0"):
            of(case, wrong)
    for wrong in (True, "loose", torch.tensor(0.1)):
        with pytest.raises(TypeError, match=rf"^{name}: tolerance is .*; expected a finite number > 0"):
            of(case, wrong)
