"""Options as a new user or a configuration file gives them."""

import numpy
import pytest
import torch
from torch.testing import assert_close

import pullback as pb

METHODS = [pb.ste, pb.spigot, pb.spigot_ce, pb.spigot_eg]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
@pytest.mark.parametrize("given", ["0.5", True, None, 1j, b"1", {"size": 1}, object], ids=repr)
def test_a_step_size_that_is_no_number_is_named_with_what_was_expected(method, given):
    with pytest.raises(TypeError, match=r"step_size is .*; expected a finite number ≥ 0, a tensor of them") as caught:
        method(step_size=given)
    assert repr(given) in str(caught.value)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_step_sizes_in_a_list_are_checked_one_by_one(method):
    with pytest.raises(TypeError, match=r"step_size\[1\] is '0\.2'; expected a finite number ≥ 0\."):
        method(step_size=[0.1, "0.2"], steps=2)
    with pytest.raises(ValueError, match=r"step_size\[0\] is nan; expected a finite number ≥ 0\."):
        method(step_size=[float("nan"), 0.2], steps=2)


@pytest.mark.parametrize("size", [float("nan"), float("inf"), -1.0, torch.tensor(torch.nan)], ids=repr)
def test_a_step_size_that_is_no_length_is_a_wrong_value(size):
    with pytest.raises(ValueError, match=r"step_size is (nan|inf|-1\.?0?); expected a finite number ≥ 0"):
        pb.spigot(step_size=size)


@pytest.mark.parametrize(
    ("make", "option"),
    [
        ("ste", "step_size"),
        ("spigot", "step_size"),
        ("spigot_eg", "step_size"),
        ("blackbox", "step_size"),
        ("imle", "step_size"),
    ],
)
def test_a_wrong_step_is_named_as_the_user_named_it(make, option):
    with pytest.raises(ValueError, match=rf"^{make}: {option} is -1"):
        pb.get_estimator(make, **{option: -1.0})


def test_an_entropy_bonus_is_one_number_for_each_example():
    scores = torch.zeros(3, 4, requires_grad=True)
    with pytest.raises(ValueError, match=r"reinforce: entropy has shape \(2,\); expected .* \(3,\)"):
        pb.reinforce(entropy=torch.ones(2)).loss(pb.Categorical(), scores, lambda z: z.sum(-1))


@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64], ids=str)
def test_tensors_of_step_sizes_hold_real_numbers(dtype):
    with pytest.raises(TypeError, match=rf"step_size has dtype {dtype}; expected real numbers"):
        pb.spigot(step_size=torch.ones(2, dtype=dtype))


@pytest.mark.parametrize("steps", ["3", None, True, 1j], ids=repr)
def test_steps_are_counted_in_integers(steps):
    with pytest.raises(TypeError, match=r"steps is .*; expected an integer ≥ 1"):
        pb.spigot(steps=steps)


@pytest.mark.parametrize(
    ("make", "answer"),
    [
        (lambda: pb.Surrogate(pb.Entropy, pb.Projected()), "prediction is .*; expected a Regularizer such as Entropy"),
        (lambda: pb.Surrogate(pb.Projected(), pb.Entropy()), "prediction is Projected.*; expected a Regularizer"),
        (lambda: pb.Surrogate(pb.Entropy(), 0.1), "descent is 0.1; expected a Pullback such as Projected"),
        (
            lambda: pb.Surrogate(pb.Entropy(), pb.Projected(), decodes_from="sample"),
            "decodes_from is 'sample'; expected a Pred",
        ),
        (lambda: pb.Relaxation("entropy"), "regularizer is 'entropy'; expected a Regularizer such as Entropy"),
        (lambda: pb.FenchelYoungLoss("entropy"), "regularizer is 'entropy'; expected a Regularizer such as Entropy"),
        (lambda: pb.FenchelYoungLoss(pb.Entropy), "regularizer is <class.*; expected a Regularizer such as Entropy"),
        (lambda: pb.Projected("relative"), r"Projected: step_size is 'relative'; .*, or a rule such as Relative\(\)\."),
        (lambda: pb.Mirror(None, regularizer=pb.Entropy()), r"step_size is None; .*, or a rule such as Relative\(\)\."),
        (lambda: pb.Normalized(pb.ste), "inner is <function ste.*; expected an Estimator such as ste"),
        (lambda: pb.Symmetric(0.1), "descent is 0.1; expected a Pullback such as Projected"),
    ],
)
def test_a_part_of_the_wrong_kind_is_refused_when_it_is_given(make, answer):
    with pytest.raises(TypeError, match=answer):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda source: pb.Sample(source),
        lambda source: pb.SumAndSample(2, source),
        lambda source: pb.Perturbed(pb.ste(), "gumbel", 1, source),
        lambda source: pb.PerturbedMaximum("normal", 4, source),
        lambda source: pb.GumbelRao(1.0, 4, source),
        lambda source: pb.ReinMax(1.0, source),
        lambda source: pb.Gapped(1.0, 1.0, source),
        lambda source: pb.Gumbel().draw(pb.Binary(), torch.zeros(3), (), source),
        lambda source: pb.Projected(0.1, 2, True),
        lambda source: pb.Unconstrained(0.1, 2, True),
        lambda source: pb.Mirror(0.1, 2, True, regularizer=pb.Entropy()),
    ],
)
def test_generators_and_backtracking_are_given_by_keyword(make):
    with pytest.raises(TypeError, match="positional argument"):
        make(torch.Generator())


def test_a_regularizer_that_is_a_module_is_shown_once():
    assert str(pb.perturbed()).count("PerturbedMaximum") == 1


@pytest.mark.parametrize(
    "make",
    [
        pb.structured_attention,
        pb.sparsemap,
        pb.ste_marginals,
        pb.minimum_risk,
        pb.sparse_marginalization,
        pb.topk_expectation,
        pb.sum_and_sample,
        pb.reinforce,
    ],
)
def test_temperatures_are_positive_numbers(make):
    for given in ("1", None, True):
        with pytest.raises(TypeError, match=r"temperature is .*; expected a finite number > 0"):
            make(temperature=given)
    for given in (0, -1.0, float("nan"), torch.tensor([1.0, 0.0])):
        with pytest.raises(ValueError, match=r"temperature is .*; expected a finite number > 0"):
            make(temperature=given)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("none", pb.NoBaseline),
        ("running_average", pb.RunningAverage),
        ("self_critical", pb.SelfCritical),
        ("leave_one_out", pb.LeaveOneOut),
    ],
)
def test_a_baseline_may_be_given_by_its_name(name, kind):
    assert type(pb.reinforce(2, baseline=name).baseline) is kind


@pytest.mark.parametrize(("name", "kind"), [("gibbs", pb.Gibbs), ("sparsemap", pb.SparseMAPDistribution)])
def test_a_distribution_may_be_given_by_its_name(name, kind):
    assert pb.reinforce(distribution=name).distribution is kind


def test_each_estimator_has_a_running_average_of_its_own():
    assert pb.reinforce(2, "running_average").baseline is not pb.reinforce(2, "running_average").baseline


@pytest.mark.parametrize(
    ("name", "kind"),
    [("unregularized", pb.Unregularized), ("entropy", pb.Entropy), ("squared_norm", pb.SquaredNorm)],
)
def test_the_prediction_of_the_best_vertex_may_be_given_by_its_name(name, kind):
    assert type(pb.get_estimator("best_vertex", prediction=name).prediction) is kind


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="'spigott' is not in the catalog; expected 'spigot' perhaps, or one of ste,"):
        pb.get_estimator("spigott")
    with pytest.raises(ValueError, match="baseline is 'leave_one'; expected 'leave_one_out' perhaps, or one of none,"):
        pb.reinforce(2, baseline="leave_one")
    with pytest.raises(ValueError, match="prediction is 'entropie'; expected 'entropy' perhaps"):
        pb.best_vertex("entropie")
    with pytest.raises(ValueError, match="baseline is 'xyz'; expected one of none, running_average"):
        pb.reinforce(2, baseline="xyz")


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="samples is 0"):
        pb.reinforce(0)
    with pytest.raises(TypeError, match="samples is '3'"):
        pb.reinforce("3")
    with pytest.raises(TypeError, match="baseline is 3; expected a name such as 'leave_one_out'"):
        pb.reinforce(2, 3)
    with pytest.raises(TypeError, match=r"baseline is <class .*>; expected a name such as"):
        pb.reinforce(2, pb.LeaveOneOut)
    with pytest.raises(ValueError, match="samples is 13; expected at most 12 without replacement"):
        pb.reinforce(13, replacement=False)
    with pytest.raises(ValueError, match="distribution is 'sparse'; expected 'sparsemap' perhaps, or one of gibbs"):
        pb.reinforce(distribution="sparse")
    with pytest.raises(TypeError, match="distribution is 3; expected a name such as 'gibbs', or a class"):
        pb.reinforce(distribution=3)
    with pytest.raises(TypeError, match="prediction is 3; expected a Regularizer such as"):
        pb.best_vertex(3)
    with pytest.raises(ValueError, match="entropy is -1; expected a finite number ≥ 0"):
        pb.reinforce(entropy=-1)
    with pytest.raises(ValueError, match="k is 0; expected an integer ≥ 1"):
        pb.topk_expectation(0)
    with pytest.raises(ValueError, match=r"k is 1\.5; expected an integer ≥ 1"):
        pb.sum_and_sample(1.5)
    with pytest.raises(TypeError, match="summands is 3; expected Summands such as AllVertices"):
        pb.Expectation(3)
    with pytest.raises(ValueError, match="leave-one-out"):
        pb.reinforce(1, pb.LeaveOneOut())
    with pytest.raises(ValueError, match="decay is 2"):
        pb.RunningAverage(2)


def test_numbers_of_numpy_are_numbers():
    scores = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    price = torch.tensor([1.0, 2.0, 3.0])
    gradients = []
    for size, steps in ((0.5, 2), (numpy.float32(0.5), numpy.int64(2))):
        leaf = scores.clone().requires_grad_()
        pb.spigot(size, steps).loss(pb.Categorical(), leaf, lambda z: (z * price).sum(-1)).sum().backward()
        gradients.append(leaf.grad)
    assert_close(*gradients)
