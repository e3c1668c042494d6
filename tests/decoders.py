"""A decoder to train every estimator with, the estimators by kind, and what their gradients are compared with."""

import inspect

import pytest
import torch
from torch import nn

import pullback as pb
from families import LOG_LINEAR_UPSTAIRS, STRUCTURES, UPSTAIRS

F64 = torch.float64
CATEGORICAL = pb.Categorical()
CASES = {case.name: case for case in STRUCTURES}
CHOICE, BITS, SUBSET = CASES["Categorical"], CASES["Binary"], CASES["Subset, exactly"]
TREE, SENTENCES = CASES["projective tree, any roots"], CASES["tree, lengths"]
OPTIONS = {"reinforce": {"samples": 3}, "spigot": {"step_size": 0.4}, "ste": {"step_size": 0.4}}
NAMES = [name for name, entry in pb.CATALOG.items() if not entry.given]
RANDOM = [name for name in NAMES if "generator" in inspect.signature(pb.CATALOG[name].make).parameters]
DETERMINISTIC = [name for name in NAMES if name not in RANDOM]
EXPECTATIONS = ["minimum_risk", "sparse_marginalization", "topk_expectation", "sum_and_sample"]
BLACK_BOX = ["reinforce", *EXPECTATIONS, "best_vertex"]
FOLLOWS_GRADIENT = [name for name in NAMES if name not in (*BLACK_BOX, "frozen")]
SURROGATES = ["ste", "spigot", "spigot_ce", "spigot_eg", "blackbox", "best_vertex"]


def make(name, case=None, **options):
    given = {"label": case.structure.argmax(case.scores(seed=7))} if name == "supervised" else {}
    return pb.get_estimator(name, **{**OPTIONS.get(name, {}), **given, **options})


def seeded(name, case=None, **options):
    """The same draws every time it is made."""
    return make(name, case, **({"generator": torch.Generator().manual_seed(0)} if name in RANDOM else {}), **options)


class _CountBackward(torch.autograd.Function):
    """The identity, which tells its owner when a backward pass goes through it."""

    @staticmethod
    def forward(ctx, point, owner):
        ctx.owner = owner
        return point.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.owner.backward_calls += 1
        return gradient, None


class Decoder(nn.Module):
    """A smooth nonlinear loss per example that depends on the example's index, with its calls counted."""

    def __init__(self, case, seed=0, dropout=0.0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.case, self.calls, self.backward_calls = case, 0, 0
        size = torch.Size(case.event).numel()
        self.weight = nn.Parameter(torch.randn(size, 4, generator=generator, dtype=F64))
        self.goal = torch.randn(*case.batch, 4, generator=generator, dtype=F64)
        self.dropout = nn.Dropout(dropout)

    def forward(self, point):
        self.calls += 1
        point = _CountBackward.apply(point, self)
        hidden = torch.tanh(point.to(self.weight.dtype).flatten(-len(self.case.event)) @ self.weight)
        return (self.dropout(hidden) - self.goal.to(hidden)).square().sum(-1)


def latent_gradient(decoder, point):
    point = point.detach().clone().requires_grad_()
    return torch.autograd.grad(decoder(point).sum(), point)[0]


def gradient_of_parts(decoder, point):
    """What the loss asks of each part: an edge in both halves of a matrix is one."""
    return decoder.case.structure.gradient_of_parts(latent_gradient(decoder, point))


def score_gradient(estimator, case, decoder, reduce=torch.sum, scores=None):
    scores = (case.scores() if scores is None else scores).detach().requires_grad_()
    losses = estimator.loss(case.structure, scores, decoder)
    assert losses.shape == case.batch
    return torch.autograd.grad(reduce(losses), scores)[0]


def case_for(name):
    """A case that the estimator of this name can serve."""
    return next(case for case in (SUBSET, CHOICE) if pb.CATALOG[name].serves(case.structure))


every_case = pytest.mark.parametrize("case", UPSTAIRS, ids=repr)
every_log_linear = pytest.mark.parametrize("case", LOG_LINEAR_UPSTAIRS, ids=repr)
every_pair = pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(name, case, id=f"{name}, {case}")
        for name, entry in pb.CATALOG.items()
        for case in UPSTAIRS
        if entry.serves(case.structure)
    ],
)
