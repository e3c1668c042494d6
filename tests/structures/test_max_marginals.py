"""The best score through each part, of all structures whose vertices are paths through a lattice."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from families import ALIGNMENTS, CHAINS, PATHS, SEGMENTATIONS, STEPS, TAGGINGS

CASES = CHAINS + TAGGINGS + PATHS + SEGMENTATIONS + ALIGNMENTS
EVERY = pytest.mark.parametrize("case", CASES, ids=repr)


def exists(case):
    """Which parts are not padding, whether or not the mask allows them: (*batch, *event)."""
    inside = replace(case.structure, mask=None).allowed(case.shape)
    return torch.ones(case.shape, dtype=torch.bool) if inside is None else inside.expand(case.shape)


@EVERY
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_they_are_the_best_scores_of_the_vertices_that_have_each_part(case, scale):
    scores, vertices = case.scores(scale=scale), case.vertices()
    every = case.vertex_scores(scores)
    every = every.reshape(*every.shape, *(1,) * len(case.event)).expand(vertices.shape)
    through = every.masked_fill(vertices == 0, -torch.inf).amax(0)
    assert_close(case.structure.max_marginals(scores), torch.where(exists(case), through, 0), rtol=1e-12, atol=1e-12)


@EVERY
def test_the_best_vertex_has_the_largest(case):
    scores = case.scores(seed=1).requires_grad_()
    best = case.structure.argmax(scores)
    found = case.structure.max_marginals(scores)
    value = case.structure.widen(case.value(scores.detach(), best)).expand(case.shape)
    assert not found.requires_grad
    assert_close(found[best == 1], value[best == 1])
    assert (found <= torch.where(exists(case), value + 1e-12, 0)).all()


@EVERY
def test_padding_is_never_read_and_the_dtype_is_kept(case):
    clean = case.scores(dtype=torch.float32)
    found = case.structure.max_marginals(clean)
    assert found.dtype == torch.float32
    for rubbish in (torch.nan, torch.inf):
        assert torch.equal(case.structure.max_marginals(clean.masked_fill(~exists(case), rubbish)), found)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.name in ("Chain", "Tagging", "Path", "Segmentation", "Alignment, local")],
    ids=repr,
)
def test_vmap_and_compilation_give_the_same(case):
    torch.compiler.reset()
    scores, operation = case.scores(), case.structure.max_marginals
    assert_close(torch.func.vmap(operation)(scores), operation(scores))
    assert_close(torch.compile(operation, fullgraph=True, backend="aot_eager")(scores), operation(scores))


def test_bad_scores_are_named_as_by_the_argmax():
    edges = torch.tensor([[0, 1], [1, 2], [0, 2]])
    for structure, event in (
        (pb.Chain(), (3, 2, 2)),
        (pb.Tagging(STEPS), (3, 3)),
        (pb.Path(edges, 0, 2), (3,)),
        (pb.Segmentation(), (3, 2, 2)),
        (pb.Segmentation(transitions=STEPS), (3, 2, 3)),
        (pb.Alignment(kind="dtw"), (2, 3)),
    ):
        name = type(structure).__name__
        scores = torch.zeros(2, *event)
        scores[1] = -torch.inf
        with pytest.raises(ValueError, match=rf"{name}: .*example \[1\].* has no "):
            structure.max_marginals(scores)
        scores[1] = torch.nan
        with pytest.raises(ValueError, match=rf"{name}: the scores of example \[1\] contain NaN or \+inf"):
            structure.max_marginals(scores)
        with pytest.raises(TypeError, match=rf"{name}: scores are a list"):
            structure.max_marginals([0.0])


@pytest.mark.parametrize("transitions", [None, STEPS], ids=["free", "transitions"])
def test_long_sequences_have_the_best_score_at_every_position(transitions):
    scores = torch.randn(2, 300, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    segments = pb.Segmentation(torch.tensor([300, 180]), transitions=transitions)
    found, vertex = segments.max_marginals(scores), segments.argmax(scores)
    value = segments.inner(scores, vertex) + segments.own_score(vertex)
    for b, n in enumerate((300, 180)):
        for position in range(0, n, 7):  # some segment covers it
            covering = [found[b, i, position - i :] for i in range(max(0, position - 3), position + 1)]
            assert_close(torch.stack([rows.amax() for rows in covering]).amax(), value[b])
