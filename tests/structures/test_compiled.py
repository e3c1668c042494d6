"""Structures made from kernels: one that has an argmax, its k best and mixtures, and no sums."""

from dataclasses import dataclass

import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

import pullback as pb
from pullback import kernels
from pullback.operators._family import Choices, choices
from pullback.structures._compiled import Slotted

SIGNATURE = ("scores[n, t, t], lengths[] <= n", "n, t, t", kernels.chain)


def work(scores, *_):
    return float(scores[0].size)


BY_VERTICES = choices("test_chain", *SIGNATURE, work=work, capacity="4 * n", structure="Sequences")
IN_NO_ROOM = choices(  # and with a slot that is never used
    "test_cramped_chain", *SIGNATURE, work=work, capacity="1", slots="n + 1", structure="Sequences"
)
BY_SEARCH = choices("test_searched_chain", *SIGNATURE, work=work, structure="Sequences")


@dataclass(frozen=True, eq=False)
class Sequences(Slotted):
    """A chain of which only the choices are known."""

    operators: Choices
    lengths: torch.Tensor | None = None
    event_dims = 3

    @property
    def _operators(self):
        return self.operators

    def allowed(self, shape, device=None):
        return pb.Chain(self.lengths).allowed(shape, device)

    def _slots(self, event):
        return pb.Chain()._slots(event)

    def _list(self, length, event):
        return pb.Chain()._list(length, event)


@pytest.fixture(params=[BY_VERTICES, IN_NO_ROOM, BY_SEARCH], ids=["kept vertices", "no room for them", "from Python"])
def sequences(request):
    return Sequences(request.param, torch.tensor([4, 2, 0]))


def scores(scale):
    return scale * torch.randn(3, 4, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_a_structure_without_sums_is_not_log_linear(sequences):
    assert not sequences.offers(pb.LogLinear) and sequences.offers(pb.KBest) and sequences.offers(pb.Enumerable)
    with pytest.raises(pb.MissingCapability, match="Sequences has none"):
        pb.Entropy().predict(sequences, scores(1.0))


@pytest.mark.parametrize("scale", [0.01, 0.3, 1.0, 30.0])
def test_a_structure_without_sums_chooses_as_one_with_them(sequences, scale):
    chain = pb.Chain(sequences.lengths)
    assert_close(sequences.argmax(scores(scale)), chain.argmax(scores(scale)))
    assert_close(sequences.topk(scores(scale), 5), chain.topk(scores(scale), 5))
    assert_close(sequences.sparsemap(scores(scale)), chain.sparsemap(scores(scale)), atol=1e-7, rtol=0)
    assert_close(sequences.support(scores(scale)).mean(), chain.sparsemap(scores(scale)), atol=1e-7, rtol=0)


@pytest.mark.parametrize("scale", [0.01, 0.3, 1.0, 30.0])
def test_sparsemap_has_the_same_derivative_by_vertices_and_by_flows(sequences, scale):
    gradient, slopes = scores(1.0).flip(0), []
    for structure in (sequences, pb.Chain(sequences.lengths)):
        leaf = scores(scale).requires_grad_()
        slopes += torch.autograd.grad(structure.sparsemap(leaf), leaf, gradient)
    assert_close(*slopes, atol=1e-8, rtol=0)


def test_sparsemap_in_no_room_has_a_second_derivative():
    """It is constant wherever it exists."""
    sequences = Sequences(IN_NO_ROOM)
    assert gradcheck(sequences.sparsemap, (scores(0.3)[:1].requires_grad_(),), atol=1e-4)
    leaf, gradient = scores(0.3).requires_grad_(), scores(1.0).requires_grad_()
    (slope,) = torch.autograd.grad(sequences.sparsemap(leaf), leaf, gradient, create_graph=True)
    (again,) = torch.autograd.grad(slope, gradient, slope)  # a projector is its own square
    assert_close(again, slope, atol=1e-9, rtol=0)


def test_sparsemap_that_ends_too_early_warns(monkeypatch):
    monkeypatch.setattr("pullback.operators._mixture.MAX_ITERATIONS", 2)
    with pytest.warns(pb.ConvergenceWarning, match=r"SparseMAP over Sequences stopped at a gap of"):
        Sequences(BY_VERTICES).sparsemap(scores(0.01))


def test_lengths_are_refused_in_the_name_of_the_structure():
    with pytest.raises(ValueError, match=r"Sequences: lengths\[1\] is 5; expected between 0 and 4\.$"):
        Sequences(BY_VERTICES, torch.tensor([1, 5, 1])).sparsemap(scores(1.0))
