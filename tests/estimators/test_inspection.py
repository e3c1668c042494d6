"""What an inspection tells about a training step."""

import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from families import UPSTAIRS

PRICE = torch.tensor([0.3, -1.0, 0.5, 0.2, 0.9], dtype=torch.float64)


def downstream(z):
    return (z * PRICE).sum(-1) + 0.1 * z.square().sum(-1)


def scores(batch=8, scale=1.0):
    return scale * torch.randn(batch, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("name", [name for name, entry in pb.CATALOG.items() if not entry.given])
def test_the_gradient_and_the_evaluations_are_those_of_a_training_step(name):
    labels = {"label": pb.Categorical().argmax(-scores())}
    estimator = pb.get_estimator(name, **{argument: labels[argument] for argument in pb.CATALOG[name].given})
    given, calls = scores().requires_grad_(), 0

    def counted(z):
        nonlocal calls
        calls += 1
        return downstream(z)

    torch.manual_seed(3)
    found = estimator.inspect(pb.Categorical(), given, downstream)
    torch.manual_seed(3)
    losses = estimator.loss(pb.Categorical(), given, counted)
    (gradient,) = torch.autograd.grad(losses.sum(), given, allow_unused=True, materialize_grads=True)
    assert_close(found.losses, losses.detach())
    assert_close(found.gradient, gradient)
    assert found.evaluations == calls
    assert given.grad is None


@pytest.mark.parametrize("case", UPSTAIRS, ids=repr)
def test_every_structure_can_be_inspected(case):
    price = torch.randn(case.scores().shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = pb.spigot(0.7).inspect(
        case.structure, case.scores(), lambda z: (price * z + 0.1 * z.square()).flatten(-len(case.event)).sum(-1)
    )
    assert found.losses.shape == found.support.shape == found.gap.shape == found.label.distance.shape == case.batch
    assert all(torch.tensor(number).isfinite() for number in found.scalars().values())
    z = case.structure.argmax(case.scores())
    at_target = case.structure.project(found.target)
    assert_close(at_target, found.target, atol=1e-6, rtol=0)
    assert (found.label.distance[(found.target == z).flatten(len(case.batch)).all(-1)] == 0).all()


def test_what_is_known_about_labels():
    structure, given = pb.Categorical(), scores()
    found = pb.spigot(100.0).inspect(structure, given, downstream)
    z = structure.argmax(given)
    best = structure.argmax(-PRICE.expand(8, 5))
    assert_close(found.target, best)
    assert_close(found.label.losses, downstream(best))
    assert_close(found.label.distance, (z - best).norm(dim=-1))
    assert (found.label.elsewhere == (z != best).any(-1)).all()
    assert (found.label.stuck == (z == best).all(-1)).all()
    assert_close(found.entropy, structure.entropy(given))
    assert (found.support == (structure.sparsemap(given) > 0).sum(-1)).all()


def test_a_step_that_only_scales_the_gradient_is_called_small():
    advice = pb.spigot(0.01).inspect(pb.Categorical(), scores(), downstream).advice
    assert advice.startswith("The step is small: it moves no part by more than 0.0")


def test_a_step_to_other_structures_is_called_large():
    advice = pb.spigot(100.0).inspect(pb.Categorical(), scores(), downstream).advice
    assert advice.startswith("The step is large: 8") or advice.startswith("The step is large: 7")


def test_where_no_neighbor_is_better_no_step_size_is_said_to_help():
    best = 10 * torch.nn.functional.one_hot(torch.tensor([1] * 6), 5).double()
    advice = pb.spigot(1.0).inspect(pb.Categorical(), best, downstream).advice
    assert advice.startswith("100% of the examples are at a structure that no neighbor improves")


def test_steps_of_very_different_reach_are_named():
    weight = torch.logspace(-4, 0.6, 8, dtype=torch.float64)
    advice = pb.spigot(0.7).inspect(pb.Categorical(), scores(), lambda z: weight * downstream(z)).advice
    assert advice.startswith("Steps differ a lot")


def test_a_relative_step_is_as_long_as_it_says():
    found = pb.spigot(pb.Relative(0.2)).inspect(pb.Categorical(), scores(), downstream)
    assert_close(found.label.reach, torch.full((8,), 0.2, dtype=torch.float64))
    assert found.advice == ""  # Relative() is not what is missing


def test_many_variables_are_inspected_without_combining_what_each_mixes():
    structure = pb.Independent(pb.Categorical())
    found = pb.spigot(0.1).inspect(structure, torch.zeros(2, 12, 5), lambda z: z[..., 0].sum(-1))
    assert found.support is None and found.gap is None
    assert "support_size" not in found.scalars()


def test_an_inspection_prints_as_a_table():
    printed = str(pb.spigot(0.01).inspect(pb.Categorical(), scores(), downstream))
    assert "loss at target" in printed and "evaluations" in printed and printed.endswith("no size to tune.")
    assert "loss at target" not in str(pb.reinforce(4).inspect(pb.Categorical(), scores(), downstream))


def test_parameters_of_the_decoder_get_no_gradient_from_an_inspection():
    decoder = torch.nn.Linear(5, 1).double()
    pb.spigot_eg().inspect(pb.Categorical(), scores(), lambda z: decoder(z).squeeze(-1).square())
    assert decoder.weight.grad is None


def test_what_a_baseline_remembers_is_not_changed_by_an_inspection():
    estimator = pb.reinforce(2, "running_average")
    estimator.loss(pb.Categorical(), scores(), downstream)
    before = estimator.baseline.average.clone()
    estimator.inspect(pb.Categorical(), 5 * scores(), downstream)
    assert_close(estimator.baseline.average, before)
