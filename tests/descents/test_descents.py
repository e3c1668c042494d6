"""What every descent promises."""

import dataclasses

import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from families import DESCENTS, LOG_LINEAR_UPSTAIRS, STRUCTURES
from pullback import Iterate


class Quadratic:
    """L(μ) = ½ Σ aᵢ (μᵢ − bᵢ)² per example, with its evaluations counted."""

    def __init__(self, shape, event_dims=1, curvature=2.0):
        generator = torch.Generator().manual_seed(0)
        self.goal = torch.randn(shape, generator=generator, dtype=torch.float64)
        self.curvature, self.event_dims, self.calls = curvature, event_dims, 0

    def loss_at(self, point):
        self.calls += 1
        return (0.5 * self.curvature * (point - self.goal).square()).flatten(-self.event_dims).sum(-1)

    def loss_and_gradient_at(self, point):
        return self.loss_at(point), self.curvature * (point - self.goal)


class Constant(Quadratic):
    """A loss that asks for nothing."""

    def loss_and_gradient_at(self, point):
        return self.loss_at(point), torch.zeros_like(point)


CASES = {case.name: case for case in STRUCTURES}
CHOICE = CASES["Categorical"]
every_descent = pytest.mark.parametrize(
    "descent", DESCENTS, ids=["unconstrained", "projected", "exponentiated", "mirror over the squared norm"]
)
every_case = pytest.mark.parametrize("case", LOG_LINEAR_UPSTAIRS, ids=repr)


def downstream_of(case, kind=None):
    return (kind or Quadratic)(case.scores().shape, len(case.event))


def start_for(descent, case):
    regularizer = getattr(descent, "regularizer", pb.Entropy())
    scores = case.scores()
    return Iterate(regularizer.predict(case.structure, scores), regularizer, case.structure.restrict(scores))


@every_descent
@every_case
def test_without_a_gradient_the_target_is_the_start(descent, case):
    start = start_for(descent, case)
    target = descent.target(case.structure, start, downstream_of(case, Constant))
    assert_close(target, start.point, atol=1e-9, rtol=0)


@every_descent
@every_case
def test_small_steps_go_down_a_smooth_loss(descent, case):
    start = start_for(descent, case)
    downstream = downstream_of(case)
    target = dataclasses.replace(descent, step_size=0.02, steps=3).target(case.structure, start, downstream)
    assert (downstream.loss_at(target) <= downstream.loss_at(start.point) + 1e-12).all()


@every_descent
@every_case
def test_backtracking_never_ends_above_the_start(descent, case):
    start = start_for(descent, case)
    for size in (0.1, 5.0, 1e3):
        downstream = downstream_of(case)
        careful = dataclasses.replace(descent, step_size=size, steps=3, backtrack=True)
        target = careful.target(case.structure, start, downstream)
        assert (downstream.loss_at(target) <= downstream.loss_at(start.point)).all()


def test_backtracking_keeps_its_word_from_outside_the_polytope():
    structure, start = pb.Categorical(), torch.zeros(2, 3, dtype=torch.float64)
    downstream = Quadratic((2, 3))
    downstream.goal = start
    target = pb.Projected(0.5, backtrack=True).target(structure, Iterate(start), downstream)
    assert_close(target, start)


def test_a_reckless_step_does_rise_without_backtracking():
    case = CHOICE
    downstream = downstream_of(case)
    start = Iterate(pb.Entropy().predict(case.structure, case.scores()))
    target = pb.Unconstrained(5.0).target(case.structure, start, downstream)
    assert (downstream.loss_at(target) > downstream.loss_at(start.point)).all()


@every_descent
def test_each_step_costs_one_evaluation(descent):
    case = CHOICE
    for steps in (1, 3):
        downstream = downstream_of(case)
        dataclasses.replace(descent, steps=steps).target(case.structure, start_for(descent, case), downstream)
        assert downstream.calls == steps


def test_the_rules_are_those_of_the_notes():
    structure, scores = pb.Categorical(), torch.randn(4, 5, dtype=torch.float64)
    downstream = Quadratic(scores.shape)
    z, p = structure.argmax(scores), scores.softmax(-1)
    gradient = lambda point: downstream.loss_and_gradient_at(point)[1]
    unconstrained = pb.Unconstrained(0.3).target(structure, Iterate(z), downstream)
    assert_close(unconstrained, z - 0.3 * gradient(z))
    projected = pb.Projected(0.3).target(structure, Iterate(z), downstream)
    assert_close(projected, structure.sparsemap(z - 0.3 * gradient(z)))
    mirror = pb.Mirror(0.3, regularizer=pb.Entropy())
    exponentiated = mirror.target(structure, Iterate(p, pb.Entropy(), scores), downstream)
    assert_close(exponentiated, (scores - 0.3 * gradient(p)).softmax(-1))
    by_hand = p
    for _ in range(3):
        by_hand = by_hand * (-0.3 * gradient(by_hand)).exp()
        by_hand = by_hand / by_hand.sum(-1, keepdim=True)
    three = dataclasses.replace(mirror, steps=3).target(structure, Iterate(p, pb.Entropy(), scores), downstream)
    assert_close(three, by_hand)


def test_mirror_descent_over_the_squared_norm_is_projected_gradient():
    structure, scores = pb.Subset(2), torch.randn(4, 5, dtype=torch.float64)
    start = Iterate(structure.argmax(scores))
    mirror = pb.Mirror(0.3, 3, regularizer=pb.SquaredNorm()).target(structure, start, Quadratic(scores.shape))
    assert_close(mirror, pb.Projected(0.3, 3).target(structure, start, Quadratic(scores.shape)))


def test_step_sizes_may_differ_by_step_and_by_example():
    structure, scores = pb.Categorical(), torch.randn(3, 5, dtype=torch.float64)
    start, downstream = Iterate(structure.argmax(scores)), Quadratic(scores.shape)
    scheduled = pb.Projected([0.5, 0.1], 2).target(structure, start, downstream)
    first = pb.Projected(0.5).target(structure, start, downstream)
    assert_close(scheduled, pb.Projected(0.1).target(structure, Iterate(first), downstream))
    sizes = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    each = pb.Projected(sizes).target(structure, start, downstream)
    for i, size in enumerate(sizes.tolist()):
        assert_close(each[i], pb.Projected(size).target(structure, start, downstream)[i])


@every_case
def test_exhaustive_finds_the_vertex_with_the_lowest_loss(case):
    downstream = downstream_of(case)
    target = pb.Exhaustive().target(case.structure, Iterate(case.structure.argmax(case.scores())), downstream)
    every = torch.stack([downstream.loss_at(z) for z in case.vertices()]).masked_fill(~case.feasible(), torch.inf)
    assert case.structure.contains(target).all()
    assert_close(downstream.loss_at(target), every.amin(0))


def test_exponentiated_gradient_cannot_start_at_a_vertex():
    structure, scores = pb.Categorical(), torch.randn(3, 5)
    mirror = pb.Mirror(0.3, regularizer=pb.Entropy())
    with pytest.raises(TypeError, match="strictly inside"):
        mirror.target(structure, Iterate(structure.argmax(scores), pb.Unregularized(), scores), Quadratic(scores.shape))


def test_only_a_mirror_map_can_carry_a_mirror_descent():
    for given in (pb.Sample(), "entropy", None):
        with pytest.raises(TypeError, match=r"Mirror: regularizer is .*; expected a MirrorMap such as Entropy\(\)"):
            pb.Mirror(0.3, regularizer=given)


def test_a_mirror_step_without_a_regularizer_is_a_step_in_the_scores():
    structure, scores, downstream = pb.Subset(2), torch.randn(3, 5, dtype=torch.float64), Quadratic((3, 5))
    start = Iterate(structure.argmax(scores), pb.Unregularized(), scores)
    mirror = pb.Mirror(2.0, regularizer=pb.Unregularized())
    gradient = downstream.loss_and_gradient_at(start.point)[1]
    assert_close(mirror.target(structure, start, downstream), structure.argmax(scores - 2 * gradient))
    with pytest.raises(TypeError, match="where the scores are known"):
        mirror.target(structure, Iterate(start.point), downstream)


@every_case
def test_no_step_enters_a_part_that_may_not_be_used(case):
    """Also where the loss would like it to: there the label stays zero, inside the polytope or not."""
    scores = case.structure.restrict(case.scores())
    forbidden = scores == -torch.inf
    downstream = downstream_of(case)
    downstream.goal = torch.ones_like(scores)
    for descent in DESCENTS:
        start = start_for(descent, case)
        target = dataclasses.replace(descent, steps=2).target(case.structure, start, downstream)
        assert target.isfinite().all() and (target[forbidden] == 0).all()


@pytest.mark.parametrize("size", [-0.1, float("nan"), float("inf"), [0.1, -1.0], torch.tensor([0.1, -0.1])], ids=repr)
def test_bad_step_sizes_are_refused(size):
    with pytest.raises(ValueError, match="step_size"):
        pb.Projected(size, steps=2)


def test_bad_steps_and_schedules_are_refused():
    for steps in (0, -1, 1.5):
        with pytest.raises(ValueError, match="steps is"):
            pb.Projected(0.1, steps)
    with pytest.raises(ValueError, match="2 step sizes for 3 steps"):
        pb.Projected([0.1, 0.2], 3)
    scores = torch.zeros(3, 5, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"step_size has shape \(2,\).*\(3,\)"):
        pb.Projected(torch.ones(2)).target(pb.Categorical(), Iterate(scores), Quadratic(scores.shape))
