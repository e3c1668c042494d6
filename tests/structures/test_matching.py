"""Matchings: counts, agreement with SciPy, and what is particular to them; `test_contract` holds the rest."""

import math

import pytest
import torch
from scipy.optimize import linear_sum_assignment

import pullback as pb

F64 = torch.float64


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 3), (2, 4), (4, 2), (1, 5)])
def test_there_are_as_many_matchings_as_injections_of_the_smaller_side(n, m):
    few, many = min(n, m), max(n, m)
    assert len(pb.Matching().enumerate((n, m)).vertices) == math.perm(many, few)
    optional = sum(math.comb(n, k) * math.perm(m, k) for k in range(few + 1))
    assert len(pb.Matching(optional=True).enumerate((n, m)).vertices) == optional


@pytest.mark.parametrize(("n", "m"), [(1, 1), (10, 10), (7, 19), (19, 7), (60, 60)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_argmax_scores_as_much_as_scipys(n, m, scale):
    scores = scale * random(5, n, m)
    best = pb.Matching().argmax(scores)
    for found, given in zip(best, scores):
        rows, columns = linear_sum_assignment(given, maximize=True)
        torch.testing.assert_close((found * given).sum(), given[rows, columns].sum())


def test_an_optional_matching_is_a_perfect_one_with_somebody_to_stay_alone_with():
    scores = random(4, 3, 5)
    wide = torch.cat([scores, torch.full((4, 3, 3), -torch.inf, dtype=F64)], -1)
    wide[:, range(3), range(5, 8)] = 0
    torch.testing.assert_close(pb.Matching(optional=True).argmax(scores), pb.Matching().argmax(wide)[..., :5])


def test_rows_and_columns_beyond_the_lengths_are_not_read():
    scores = random(2, 4, 5)
    lengths = torch.tensor([[2, 3], [4, 1]])
    padded = scores.clone()
    padded[0, 2:], padded[0, :, 3:], padded[1, :, 1:] = torch.nan, torch.nan, torch.nan
    structure = pb.Matching(lengths)
    for operation in (structure.argmax, structure.sparsemap, lambda s: structure.transport(s).point):
        answer = operation(padded)
        torch.testing.assert_close(answer[0, :2, :3], operation(scores)[0, :2, :3])
        assert answer[0, 2:].abs().sum() + answer[0, :, 3:].abs().sum() + answer[1, :, 1:].abs().sum() == 0


def test_lengths_have_two_numbers():
    scores = random(2, 4, 5)
    with pytest.raises(ValueError, match=r"Matching: lengths have shape \(3,\); expected \(2, 2\)"):
        pb.Matching(torch.tensor([2, 3, 2])).argmax(scores)
    shared = pb.Matching(torch.tensor([2, 3])).argmax(scores)
    torch.testing.assert_close(shared, pb.Matching(torch.tensor([[2, 3], [2, 3]])).argmax(scores))
    with pytest.raises(ValueError, match=r"Matching: lengths\[1, 0\] is 5; expected between 0 and 4"):
        pb.Matching(torch.tensor([[4, 5], [5, 5]])).argmax(scores)
    with pytest.raises(ValueError, match=r"Matching: lengths\[0, 1\] is -1; expected between 0 and 5"):
        pb.Matching(torch.tensor([[4, -1], [4, 5]])).restrict(scores)


def test_an_example_without_a_matching_is_named():
    scores = random(3, 3, 3)
    scores[1, 2] = -torch.inf
    for operation in (pb.Matching().argmax, pb.Matching().sparsemap, pb.Matching().transport):
        with pytest.raises(ValueError, match=r"Matching: example \[1\] has no matching"):
            operation(scores)
    assert pb.Matching(optional=True).argmax(scores)[1, 2].sum() == 0
    scores[1, 2] = torch.nan
    with pytest.raises(ValueError, match=r"Matching: the scores of example \[1\] contain NaN"):
        pb.Matching().argmax(scores)


def test_sums_over_matchings_do_not_exist_and_say_what_does():
    structure, scores = pb.Matching(), random(2, 3, 3)
    assert not structure.offers(pb.LogLinear)
    for operation in ("log_partition", "marginals", "entropy", "log_prob", "sample"):
        with pytest.raises(pb.MissingCapability, match=rf"Matching has no {operation}: .*#P-hard.*`Sinkhorn\(\)`"):
            getattr(structure, operation)(scores)
        assert not hasattr(structure, operation)
    for holder in (structure, pb.Independent(structure)):
        with pytest.raises(pb.MissingCapability, match=r"Entropy needs a partition function.*`Sinkhorn\(\)`"):
            pb.Entropy().predict(holder, scores)


def test_partners_and_pairs_are_inverse():
    pairs = pb.Matching(optional=True).argmax(random(6, 4, 3))
    partners = pb.Matching.partners(pairs)
    torch.testing.assert_close(pb.Matching.pairs(partners, 3).to(F64), pairs)
    torch.testing.assert_close(pb.Matching.partners(torch.tensor([[0.0, 1.0], [0.0, 0.0]])), torch.tensor([1, -1]))


@pytest.mark.parametrize("n", [2, 20, 80])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 1e3])
def test_no_matching_improves_on_the_nearest_mixture(n, scale):
    scores = scale * random(4, n, n)
    point = pb.Matching().sparsemap(scores)
    torch.testing.assert_close(point.sum(-1), torch.ones(4, n, dtype=F64))
    torch.testing.assert_close(point.sum(-2), torch.ones(4, n, dtype=F64))
    rest = scores - point
    gap = (rest * (pb.Matching().argmax(rest) - point)).sum((-1, -2))
    assert gap.abs().max() <= 1e-9 * max(1.0, float(scores.abs().max()))
