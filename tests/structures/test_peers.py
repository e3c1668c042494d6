"""Other libraries as references, where they compute the same: each is asked in its own conventions."""

import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from families import tagging_of

TORCH_STRUCT = pytest.mark.filterwarnings("ignore:.*does not define `arg_constraints`:UserWarning")  # its own classes


def random(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ---- scikit-learn: isotonic regression


def isotonic_projection(scores, values):
    """The point of the permutahedron nearest to the scores: sorted, it is s less the isotonic regression of s − w."""
    isotonic = pytest.importorskip("sklearn.isotonic").isotonic_regression
    rows = []
    for s, w in zip(scores.numpy(), values.numpy()):
        order = s.argsort(kind="stable")
        row = s.copy()
        row[order] -= isotonic(s[order] - sorted(w))
        rows.append(torch.from_numpy(row))
    return torch.stack(rows)


@pytest.mark.parametrize("n", [1, 2, 7, 200])
@pytest.mark.parametrize("temperature", [0.01, 0.3, 1.0, 30.0])
def test_soft_ranks_are_scikit_learns_isotonic_regression(n, temperature):
    scores, values = random(3, n), random(3, n, seed=1)
    ranks = torch.arange(1.0, n + 1, dtype=torch.float64).expand(3, n)
    assert_close(pb.Ranking(values=values).sparsemap(scores), isotonic_projection(scores, values))
    found = pb.Ranking().soft_rank(scores, temperature=temperature)
    assert_close(found, isotonic_projection(scores / temperature, ranks))
    sort = pb.Ranking().soft_sort(scores, temperature=temperature)
    assert_close(sort, isotonic_projection(ranks / temperature, scores))


# ---- pytorch-crf: transitions by [tag before, tag], as ours


def torch_crf(transitions, start, end):
    crf = pytest.importorskip("torchcrf").CRF(len(start), batch_first=True).double()
    for name, table in (("transitions", transitions), ("start_transitions", start), ("end_transitions", end)):
        setattr(crf, name, torch.nn.Parameter(table.clone()))
    return crf


@pytest.mark.parametrize(("n", "t"), [(2, 3), (5, 2), (12, 4)])
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_taggings_are_those_of_pytorch_crf(n, t, scale):
    lengths = torch.tensor([n, max(1, n // 2), 1])
    tables = [random(*shape, seed=seed, scale=scale) for seed, shape in enumerate([(t, t), (t,), (t,)], 1)]
    crf, scores, mask = torch_crf(*tables), random(3, n, t, scale=scale), torch.arange(n) < lengths[:, None]
    ours = [table.clone().requires_grad_() for table in tables]
    tagging = tagging_of(*ours, lengths=lengths)
    tags = torch.randint(t, (3, n), generator=torch.Generator().manual_seed(9))
    gold = pb.Tagging.one_hot(tags.masked_fill(~mask, -1), t).double()
    theirs = crf(scores, tags, mask, reduction="none")
    assert_close(tagging.log_prob(scores, gold), theirs)
    assert_close(tagging.inner(scores, gold) + tagging.own_score(gold) - tagging.log_partition(scores), theirs)
    best = pb.Tagging.tags(tagging.argmax(scores))
    assert [row[row >= 0].tolist() for row in best] == crf.decode(scores, mask)
    slopes = torch.autograd.grad(tagging.log_prob(scores, gold).sum(), ours)
    wanted = torch.autograd.grad(theirs.sum(), (crf.transitions, crf.start_transitions, crf.end_transitions))
    for slope, expected in zip(slopes, wanted):
        assert_close(slope, expected, rtol=1e-9, atol=1e-10)


# ---- torch-struct: chains without their first position, [tag, tag before]; roots on the diagonal


@TORCH_STRUCT
@pytest.mark.parametrize(("n", "t"), [(2, 3), (6, 2), (9, 4)])
def test_chains_are_those_of_torch_struct(n, t):
    library, scores = pytest.importorskip("torch_struct"), random(3, n, t, t)
    steps = scores[:, 1:].mT.clone()
    steps[:, 0] += scores[:, 0, 0].unsqueeze(-2)
    theirs, chain = library.LinearChainCRF(steps.contiguous().requires_grad_()), pb.Chain()
    assert_close(chain.log_partition(scores), theirs.partition.detach())
    assert_close(chain.marginals(scores)[:, 1:], theirs.marginals.mT.detach())
    assert_close(chain.argmax(scores)[:, 1:], theirs.argmax.mT.detach())


@TORCH_STRUCT
@pytest.mark.parametrize("projective", [True, False])
@pytest.mark.parametrize("single_root", [True, False])
def test_trees_are_those_of_torch_struct(projective, single_root):
    library, scores = pytest.importorskip("torch_struct"), random(3, 6, 6)
    kind = library.DependencyCRF if projective else library.NonProjectiveDependencyCRF
    inner = scores[:, 1:, 1:].clone()
    inner.diagonal(dim1=1, dim2=2).copy_(scores[:, 0, 1:])
    theirs = kind(inner.requires_grad_(), multiroot=not single_root)
    trees = pb.DependencyTree(projective=projective, single_root=single_root)
    assert_close(trees.log_partition(scores), theirs.partition.detach().double(), rtol=1e-5, atol=1e-5)
    found, expected = trees.marginals(scores), theirs.marginals.detach().double()
    assert_close(found[:, 0, 1:], expected.diagonal(dim1=1, dim2=2), rtol=0, atol=1e-5)
    words = ~torch.eye(5, dtype=torch.bool)
    assert_close(found[:, 1:, 1:][:, words], expected[:, words], rtol=0, atol=1e-5)


# ---- POT: Sinkhorn's plan in logarithms, of costs


@pytest.mark.parametrize("n", [2, 5, 20])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 10.0])
def test_sinkhorns_plan_is_that_of_pot(n, temperature):
    solve, scores = pytest.importorskip("ot").bregman.sinkhorn_log, random(3, n, n)
    found = pb.Sinkhorn(temperature, tolerance=1e-10).predict(pb.Matching(), scores)
    ones = torch.ones(n, dtype=torch.float64).numpy()
    for plan, row in zip(found, scores):
        theirs = solve(ones, ones, -row.numpy(), temperature, numItermax=20_000, stopThr=1e-10)
        assert_close(plan, torch.from_numpy(theirs), rtol=0, atol=1e-8)
