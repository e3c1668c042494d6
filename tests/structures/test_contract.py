"""What every structure promises, checked against the list of its vertices in double precision."""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

import pullback as pb
from families import (
    INHERITING,
    JOINT,
    K_BEST,
    LABELLED,
    LOG_LINEAR,
    MAY_FORBID,
    STRUCTURES,
    TREES,
    WHOLE,
    Case,
    bare,
    is_alike_for_all,
)

every_structure = pytest.mark.parametrize("case", STRUCTURES, ids=repr)
may_forbid = pytest.mark.parametrize("case", MAY_FORBID, ids=repr)
every_log_linear = pytest.mark.parametrize("case", LOG_LINEAR, ids=repr)
scales = pytest.mark.parametrize("scale", [1.0, 0.1, 1e4], ids=lambda scale: f"scale {scale:g}")


def free_parts(case: Case) -> torch.Tensor:
    """The parts that some vertex of the example uses; the others are padding or forbidden."""
    vertices, feasible = case.vertices(), case.feasible()
    wide = feasible.reshape(*feasible.shape, *(1,) * len(case.event))
    return torch.where(wide, vertices, 0).amax(0) > 0


@every_structure
@scales
def test_argmax_attains_the_best_score(case, scale):
    scores = case.scores(scale=scale)
    found = case.value(scores, case.structure.argmax(scores))
    assert_close(found, case.vertex_scores(scores).amax(0))


@every_structure
def test_argmax_is_a_vertex_even_among_ties(case):
    for scores in (torch.zeros_like(case.scores()), case.scores().round(), -torch.ones_like(case.scores())):
        best = case.structure.argmax(scores)
        assert case.structure.contains(best).all()
        assert case.structure.contains(best.long()).all() or (best != best.round()).any()


@every_structure
@scales
def test_sparsemap_is_the_nearest_point_of_the_hull(case, scale):
    scores = case.scores(scale=scale)
    point = case.structure.sparsemap(scores)
    rest = torch.where(free_parts(case), scores - point, 0)
    gap = case.vertex_scores(rest).amax(0) - case.value(rest, point)
    assert gap.max() <= 1e-8 * max(1.0, scale)
    vertices, feasible = case.vertices(), case.feasible()
    for index in np.ndindex(*case.batch):
        mine = vertices[(slice(None), *index)][feasible[(slice(None), *index)]].flatten(1)
        system = torch.cat([mine.T, torch.ones(1, len(mine), dtype=torch.float64)]).numpy()
        _, distance = nnls(system, np.append(point[index].flatten().numpy(), 1.0))
        assert distance < 1e-7


@every_structure
def test_the_support_mixes_to_sparsemap(case):
    scores = case.scores(scale=0.7)
    support = case.structure.support(scores)
    vertices, probabilities, size = support
    assert_close(support.mean(), case.structure.sparsemap(scores), atol=1e-7, rtol=0)
    assert_close(probabilities.sum(-1), torch.ones(case.batch, dtype=torch.float64))
    positions = torch.arange(probabilities.shape[-1])
    assert ((probabilities > 0) == (positions < size.unsqueeze(-1))).all()
    inside = case.structure.contains(vertices.movedim(len(case.batch), 0)).movedim(0, -1)
    assert inside[probabilities > 0].all()
    assert (vertices[probabilities == 0] == 0).all()


@every_structure
def test_a_search_that_starts_from_its_own_solution_ends_at_once(case):
    scores = case.scores(scale=0.7)
    found = case.structure.solve(scores)
    again = case.structure.solve(scores, start=found.mixture.vertices)
    assert found.converged.all() and again.converged.all()
    vertices, probabilities, _ = found.mixture
    unseen = ((vertices == 0).flatten(-len(case.event)).all(-1) & (probabilities > 0)).any(-1)
    assert (again.iterations <= 1 + unseen.int()).all()  # a vertex of zeros looks like padding
    for solution in (found, again):
        assert_close(solution.mixture.mean(), case.structure.sparsemap(scores), atol=1e-7, rtol=0)
        assert (solution.gap.abs() <= 1e-9).all()


@every_log_linear
@scales
def test_log_partition_is_the_log_sum_over_vertices(case, scale):
    scores = case.scores(scale=scale)
    assert_close(case.structure.log_partition(scores), case.vertex_scores(scores).logsumexp(0), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("case", [case for case in LOG_LINEAR if case in WHOLE], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_bounds_known_from_mathematics_hold_at_every_scale(case, dtype):
    """max ≤ log Z ≤ max + log count, and |∂μ/∂s| ≤ ¼, for hundreds of random instances at scales from 1 to 1000."""
    structure, slack = case.structure, 1e-12 if dtype == torch.float64 else 1e-5
    sizes = torch.tensor([1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0], dtype=torch.float64).repeat_interleave(40)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(len(sizes), *case.shape, generator=generator, dtype=torch.float64)
    scores = (noise * sizes.reshape(-1, *(1,) * len(case.shape))).to(dtype).requires_grad_()
    count = case.feasible().sum(0).log()
    best = case.value(scores.double(), structure.argmax(scores)).detach()  # large scores may cancel in float32
    value = structure.log_partition(scores)
    room = slack * best.abs().clamp_min(1)
    assert (value.double() >= best - room).all() and (value.double() <= best + count + room).all()

    marginals = structure.marginals(scores)
    assert (marginals >= 0).all() and (marginals <= 1 + slack).all()
    (gradient,) = torch.autograd.grad(value.sum(), scores, create_graph=True)
    gradient = structure.gradient_of_parts(gradient)
    assert_close(gradient, marginals, atol=10 * slack, rtol=0)
    weight = torch.randn(marginals.shape, generator=generator, dtype=torch.float64).sign().to(dtype)
    (product,) = torch.autograd.grad((marginals * weight).sum(), scores)
    (again,) = torch.autograd.grad((gradient * weight).sum(), scores)
    parts = case.scores().flatten(len(case.batch)).shape[-1]
    assert (product.abs() <= 0.25 * parts + slack).all()
    assert_close(product, again, atol=1e3 * slack, rtol=0)
    part = tuple(torch.nonzero(case.allowed())[-1].tolist())
    (row,) = torch.autograd.grad(structure.marginals(scores)[(slice(None), *part)].sum(), scores)
    assert (row.abs() <= 0.25 + slack).all()


@every_log_linear
@scales
def test_marginals_are_the_expected_vertex(case, scale):
    scores = case.scores(scale=scale)
    p = case.vertex_scores(scores).softmax(0)
    expected = (p.reshape(*p.shape, *(1,) * len(case.event)) * case.vertices()).sum(0)
    assert_close(case.structure.marginals(scores), expected, atol=1e-10, rtol=0)


@every_log_linear
@scales
def test_entropy_is_that_of_the_vertices(case, scale):
    scores = case.scores(scale=scale)
    p = case.vertex_scores(scores).softmax(0)
    exact = -torch.special.xlogy(p, p).sum(0)
    assert_close(case.structure.entropy(scores), exact, atol=1e-9 * max(1.0, scale / 100), rtol=0)


@every_log_linear
def test_marginals_are_probabilities_at_any_scale(case):
    for scale in (30.0, 1e3, 1e4):
        marginals = case.structure.marginals(scale * case.scores())
        assert marginals.min() >= 0 and marginals.max() <= 1


@every_log_linear
def test_probabilities_sum_to_one_and_are_zero_off_the_vertices(case):
    scores = case.scores()
    log_prob = case.structure.log_prob(scores, case.vertices())
    assert_close(log_prob.exp().sum(0), torch.ones(case.batch, dtype=torch.float64))
    assert (log_prob <= 0).all()
    assert (log_prob[~case.feasible()] == -torch.inf).all()
    assert (case.structure.log_prob(scores, torch.full_like(scores, 0.5)) == -torch.inf).all()


@every_log_linear
def test_samples_are_vertices_with_the_marginals_frequencies(case):
    scores, many = case.scores(), 4000
    samples = case.structure.sample(scores, (many,), generator=torch.Generator().manual_seed(1))
    assert samples.shape == (many, *scores.shape)
    assert case.structure.contains(samples).all()
    marginals = case.structure.marginals(scores)
    error = (samples.mean(0) - marginals) / (marginals * (1 - marginals) / many).sqrt().clamp_min(1e-3)
    assert error.abs().max() < 5


@every_log_linear
def test_samples_follow_the_generator(case):
    scores = case.scores()
    draw = lambda seed: case.structure.sample(scores, (8,), generator=torch.Generator().manual_seed(seed))
    assert torch.equal(draw(3), draw(3))
    assert case.structure.sample(scores).shape == scores.shape
    torch.manual_seed(5)
    first = case.structure.sample(scores, (2, 3))
    torch.manual_seed(5)
    assert torch.equal(first, case.structure.sample(scores, (2, 3)))
    assert first.shape == (2, 3, *scores.shape)
    assert case.structure.sample(scores, (2, 0)).shape == (2, 0, *scores.shape)


@every_log_linear
def test_maximum_entropy_recovers_the_entropy_of_the_marginals(case):
    scores = case.scores()
    structure = case.structure
    marginals, vertex = structure.marginals(scores), structure.argmax(scores)
    own = structure.log_partition(scores) - structure.inner(scores, marginals) - structure.entropy(scores)
    assert_close(structure.maximum_entropy(marginals), structure.entropy(scores) + own, atol=1e-7, rtol=1e-6)
    assert_close(structure.maximum_entropy(vertex), structure.own_score(vertex), atol=1e-7, rtol=0)


@pytest.mark.parametrize("case", INHERITING, ids=repr)
def test_own_operations_equal_the_inherited_ones(case):
    own, inherited = case.structure, bare(case).structure
    for scores in (case.scores(seed=4), case.scores(seed=5, scale=0.1), case.scores(seed=6, scale=5.0)):
        expected, found = values_and_gradients(inherited, scores), values_and_gradients(own, scores)
        for name, value in expected.items():
            assert_close(found[name], value, atol=1e-7, rtol=1e-7, msg=lambda text, name=name: f"{name}: {text}")
        assert_close(own.support(scores).mean(), inherited.support(scores).mean(), atol=1e-7, rtol=0)
    every = torch.cat([case.vertices(), 1 - case.vertices(), 0.5 * case.vertices()])
    assert torch.equal(own.contains(every), inherited.contains(every))


@pytest.mark.parametrize("case", K_BEST, ids=repr)
@pytest.mark.parametrize("k", [1, 4, 100])
def test_the_k_best_are_those_of_the_list_in_order(case, k):
    scores = case.scores(seed=8).requires_grad_()
    best = case.structure.topk(scores, k)
    every = case.vertex_scores(scores.detach())
    assert_close(best.size, (every > -torch.inf).sum(0).clamp_max(k))
    expected = every.sort(0, descending=True).values[:k].movedim(0, -1)
    assert_close(best.scores.detach()[..., : expected.shape[-1]], expected)
    assert (best.scores[..., expected.shape[-1] :] == -torch.inf).all()
    found = best.scores > -torch.inf
    assert case.structure.contains(best.vertices.movedim(len(case.batch), 0)).movedim(0, -1)[found].all()
    assert (best.vertices[~found] == 0).all()
    (gradient,) = torch.autograd.grad(best.scores[found].sum(), scores)
    assert_close(gradient, case.structure.count_once(best.vertices.sum(len(case.batch))))


@every_structure
def test_derivatives_meet_finite_differences(case):
    scores = case.scores(seed=2).requires_grad_()
    assert gradcheck(case.structure.sparsemap, (scores,))
    if case in LOG_LINEAR:
        assert gradcheck(case.structure.log_partition, (scores,))
        assert gradgradcheck(case.structure.log_partition, (scores,))
        assert gradcheck(case.structure.marginals, (scores,))
        assert gradcheck(case.structure.entropy, (scores,))


@every_structure
def test_the_probabilities_of_the_support_move_their_mean_within_its_span(case):
    """Where vertices tie, a neighbor may mix others: what is fixed is how these probabilities move with the scores."""
    scores = case.scores(seed=2).requires_grad_()
    support = case.structure.support(scores)
    direction = torch.where(case.allowed(), case.scores(seed=3), 0)
    (gradient,) = torch.autograd.grad((support.mean() * direction).sum(), scores, retain_graph=True)
    (of_sum,) = torch.autograd.grad(support.probabilities.sum(), scores)
    assert_close(of_sum, torch.zeros_like(of_sum), atol=1e-9, rtol=0)
    for index in np.ndindex(*case.batch):
        vertices = support.vertices[index][: support.size[index]].flatten(1)
        span = vertices[1:] - vertices[0]
        expected = torch.linalg.pinv(span) @ (span @ direction[index].flatten())
        assert_close(gradient[index].flatten(), expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize("case", [case for case in WHOLE if case not in JOINT], ids=repr)
def test_the_vertices_of_a_support_are_affinely_independent(case):
    """So that the mean determines the probabilities."""
    support = case.structure.support(case.scores(seed=2))
    for index in np.ndindex(*case.batch):
        vertices = support.vertices[index][: support.size[index]].flatten(1)
        assert torch.linalg.matrix_rank(vertices[1:] - vertices[0]) == len(vertices) - 1


def values_and_gradients(structure, scores):
    """Every differentiable answer, and the gradient of a random function of it."""
    answers = {"argmax": structure.argmax(scores)}
    operations = ["sparsemap"] + ["log_partition", "marginals", "entropy"] * structure.offers(pb.LogLinear)
    for name in operations:
        leaf = scores.clone().requires_grad_()
        value = getattr(structure, name)(leaf)
        weight = torch.linspace(-1, 1, value.numel(), dtype=value.dtype).reshape(value.shape)
        (gradient,) = torch.autograd.grad((value * weight * (1 + value)).sum(), leaf)
        answers[name], answers[name + " gradient"] = value.detach(), gradient
    return answers


@pytest.mark.parametrize("case", [case for case in STRUCTURES if not case.allowed().all()], ids=repr)
def test_padding_and_masked_parts_are_exactly_zero_and_never_read(case):
    free = case.allowed()
    clean = values_and_gradients(case.structure, torch.where(free, case.scores(), 0))
    for rubbish in (torch.nan, torch.inf, 1e30):
        dirty = values_and_gradients(case.structure, torch.where(free, case.scores(), rubbish))
        for name, value in dirty.items():
            assert torch.equal(value, clean[name]), name
            if value.shape == free.shape:
                assert (value[~free] == 0).all(), name


@may_forbid
def test_forbidden_scores_leave_everything_finite(case):
    scores = case.scores()
    best = case.structure.argmax(case.scores(seed=7))
    other = torch.rand(scores.shape, generator=torch.Generator().manual_seed(3)) < 0.5
    scores = scores.masked_fill((best == 0) & other, -torch.inf)  # `best` stays feasible
    for name, value in values_and_gradients(case.structure, scores).items():
        assert value.isfinite().all(), name
        if value.shape == scores.shape:
            assert (value[scores == -torch.inf] == 0).all(), name
    only = torch.where(best > 0, 5.0, -torch.inf).double()
    assert_close(case.structure.sparsemap(only), best)


@may_forbid
@pytest.mark.parametrize("low", [-1e9, -1e30])
def test_a_part_with_a_very_low_score_is_as_good_as_forbidden(case, low):
    structure, scores, weights = case.structure, case.scores(), case.scores(seed=1)
    used = structure.argmax(scores) + structure.argmax(-scores) + structure.argmax(weights) > 0

    def answers(replacement):
        leaf = scores.masked_fill(~used, replacement).requires_grad_()
        point = structure.sparsemap(leaf)
        (gradient,) = torch.autograd.grad((point * weights).sum(), leaf)
        return structure.argmax(leaf), point, gradient, structure.solve(leaf).mixture.mean()

    for given, expected in zip(answers(low), answers(-torch.inf)):
        assert_close(given, expected, atol=1e-7, rtol=0)


@pytest.mark.parametrize("case", TREES + LABELLED, ids=repr)
def test_what_all_arcs_into_a_word_have_in_common_changes_nothing(case):
    scores = (case.scores() * 16).round() / 16  # so that adding is exact
    common = 2.0**45 * torch.arange(-1, case.event[1] - 1.0, dtype=torch.float64)
    common = common.unsqueeze(-1) if case in LABELLED else common
    for operation in (case.structure.argmax, case.structure.sparsemap, case.structure.marginals):
        assert_close(operation(scores + common), operation(scores), atol=1e-9, rtol=0)


@every_structure
@pytest.mark.parametrize("scale", [0.0, 1e4, -1e4], ids=str)
def test_extreme_and_equal_scores_survive(case, scale):
    scores = torch.full_like(case.scores(), scale) if scale <= 0 else case.scores(scale=scale)
    for dtype in (torch.float64, torch.float32):
        for name, value in values_and_gradients(case.structure, scores.to(dtype)).items():
            assert value.isfinite().all(), name


ALIKE = [case for case in STRUCTURES if is_alike_for_all(case)]


@pytest.mark.parametrize("case", ALIKE, ids=repr)
def test_a_batch_and_its_examples_agree(case):
    scores = case.scores()
    whole = values_and_gradients(case.structure, scores)
    stacked = values_and_gradients(case.structure, torch.stack([scores, scores.flip(0)]))
    for name, value in whole.items():
        if "gradient" not in name:
            assert_close(torch.stack([getattr(case.structure, name)(s) for s in scores]), value)
            assert_close(stacked[name][0], value)


@every_structure
def test_dtype_is_kept_and_inputs_are_left_alone(case):
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        scores = case.scores(dtype=dtype)
        before = scores.clone()
        for name, value in values_and_gradients(case.structure, scores).items():
            assert value.dtype == dtype, name
        assert torch.equal(scores, before)
        exact = case.structure.sparsemap(scores.double())
        assert_close(
            case.structure.sparsemap(scores).double(), exact, atol=0.02 if dtype.itemsize == 2 else 1e-5, rtol=0
        )


@every_structure
def test_autocast_computes_half_precision_in_single(case):
    scores = case.scores(dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        point = case.structure.sparsemap(scores)
    assert point.dtype == torch.float32
    assert_close(point, case.structure.sparsemap(scores.float()))


@every_structure
def test_argmax_and_samples_never_require_grad_and_inference_needs_no_autograd(case):
    scores = case.scores().requires_grad_()
    assert not case.structure.argmax(scores).requires_grad
    if case in LOG_LINEAR:
        assert not case.structure.sample(scores).requires_grad
    with torch.inference_mode():
        fresh = case.scores()
        case.structure.argmax(fresh), case.structure.sparsemap(fresh)
        if case in LOG_LINEAR:
            case.structure.marginals(fresh), case.structure.log_partition(fresh), case.structure.entropy(fresh)


@every_structure
def test_strided_and_broadcast_scores_give_the_same(case):
    scores = case.scores()
    strided = torch.stack([scores, scores + 1], -1)[..., 0]
    assert_close(case.structure.sparsemap(strided), case.structure.sparsemap(scores))
    assert torch.equal(case.structure.argmax(strided), case.structure.argmax(scores))
    wide = scores.expand(2, *scores.shape)
    assert_close(case.structure.sparsemap(wide)[1], case.structure.sparsemap(scores))


@every_structure
def test_nan_scores_are_refused_by_name(case):
    scores = case.scores()
    scores[free_parts(case)] = torch.nan
    operations = ["argmax", "sparsemap"] + ["log_partition", "marginals", "entropy", "sample"] * (case in LOG_LINEAR)
    for name in operations:
        with pytest.raises(ValueError, match=r"scores|example"):
            getattr(case.structure, name)(scores)
