"""Properties over many shapes, ties, extremes and forbidden parts."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import pullback as pb

SPECIAL = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e4, -1e4, -torch.inf])
NUMBER = st.one_of(SPECIAL, st.floats(-5, 5, width=32))


@st.composite
def score_rows(draw, most=6):
    """A batch of rows, each with a finite score, of any dtype the kernels take."""
    batch, n = draw(st.integers(1, 3)), draw(st.integers(1, most))
    values = draw(st.lists(st.lists(NUMBER, min_size=n, max_size=n), min_size=batch, max_size=batch))
    scores = torch.tensor(values, dtype=draw(st.sampled_from([torch.float32, torch.float64])))
    keep = draw(st.integers(0, n - 1))
    scores[:, keep] = scores[:, keep].nan_to_num(neginf=0.0)
    return scores


def gap(structure, scores, point):
    """⟨s − μ, argmax(s − μ) − μ⟩, relative to the size of the scores."""
    rest = scores.double() - point.double()
    size = rest.where(rest.isfinite(), 0).abs().flatten(-structure.event_dims).amax(-1).clamp_min(1)
    best = structure.argmax(rest)
    return (structure.inner(rest, best) - structure.inner(rest, point.double())) / size


@given(score_rows())
def test_sparsemax_is_on_the_simplex_and_certified(scores):
    point = pb.Categorical().sparsemap(scores)
    tolerance = 1e-5 if scores.dtype == torch.float32 else 1e-10
    assert (point >= 0).all() and (point[scores == -torch.inf] == 0).all()
    assert_close(point.sum(-1), torch.ones_like(point[:, 0]), atol=tolerance, rtol=0)
    assert (gap(pb.Categorical(), scores, point) <= tolerance).all()


@given(score_rows(), st.floats(1.0, 6.0))
def test_entmax_is_a_distribution_for_every_alpha(scores, alpha):
    point = pb.Categorical().entmax(scores, alpha)
    assert (point >= 0).all() and point.isfinite().all()
    assert_close(point.sum(-1), torch.ones_like(point[:, 0]), atol=1e-4, rtol=0)
    order = scores.argsort(-1)
    assert (point.gather(-1, order).diff(dim=-1) >= -1e-5).all()  # never prefers the lower score


@given(score_rows(), st.data())
def test_subset_projections_are_certified_and_marginals_have_the_right_size(scores, data):
    allowed = int((scores > -torch.inf).sum(-1).min())
    low = data.draw(st.integers(0, allowed))
    high = data.draw(st.integers(low, scores.shape[-1]))
    subsets = pb.Subset.between(low, high)
    point, marginals = subsets.sparsemap(scores), subsets.marginals(scores)
    tolerance = 1e-4 if scores.dtype == torch.float32 else 1e-9
    for mixture in (point, marginals):
        assert (mixture >= 0).all() and (mixture <= 1 + tolerance).all()
        assert (mixture.sum(-1) >= low - tolerance).all() and (mixture.sum(-1) <= high + tolerance).all()
    assert (gap(subsets, scores, point) <= tolerance).all()
    assert (subsets.entropy(scores) >= -1e-3 * scores.nan_to_num(neginf=0).abs().amax(-1).clamp_min(1)).all()


@st.composite
def tree_scores(draw):
    """Arc scores of a small sentence in which the chain 0 → 1 → 2 → … is always allowed."""
    n = draw(st.integers(1, 4))
    values = draw(st.lists(NUMBER, min_size=(n + 1) ** 2, max_size=(n + 1) ** 2))
    scores = torch.tensor(values, dtype=torch.float64).reshape(n + 1, n + 1)
    for word in range(1, n + 1):
        scores[word - 1, word] = scores[word - 1, word].nan_to_num(neginf=0.0)
    return scores


@given(tree_scores(), st.booleans(), st.booleans())
def test_trees_agree_with_enumeration_under_ties_extremes_and_masks(scores, projective, single_root):
    trees = pb.DependencyTree(projective=projective, single_root=single_root)
    every = trees.enumerate(scores.shape).vertices.double()
    values = torch.where(every == 0, 0, every * scores).sum((-1, -2))
    size = max(1.0, float(scores.where(scores.isfinite(), 0).abs().max()))
    assert_close(trees.inner(scores, trees.argmax(scores)), values.max(), rtol=1e-12, atol=1e-12 * size)
    assert_close(trees.log_partition(scores), values.logsumexp(0), rtol=1e-12, atol=1e-11)
    expected = (values.softmax(0)[:, None, None] * every).sum(0)
    assert_close(trees.marginals(scores), expected, atol=1e-9, rtol=0)
    point = trees.sparsemap(scores)
    assert_close(point.sum(0)[1:], torch.ones(len(scores) - 1, dtype=torch.float64), atol=1e-9, rtol=0)
    assert gap(trees, scores, point) <= 1e-8
    best = trees.topk(scores, 3)
    finite = values[values > -torch.inf].sort(descending=True).values[:3]
    assert_close(best.scores[: len(finite)], finite, rtol=1e-12, atol=1e-11 * size)
