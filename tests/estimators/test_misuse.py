"""Random numbers, empty batches, and what is refused in which words."""

import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from decoders import (
    BLACK_BOX,
    CASES,
    CATEGORICAL,
    CHOICE,
    F64,
    FOLLOWS_GRADIENT,
    NAMES,
    RANDOM,
    SENTENCES,
    TREE,
    Decoder,
    case_for,
    make,
    score_gradient,
    seeded,
)

# ---- random numbers


@pytest.mark.parametrize("name", RANDOM)
def test_the_same_generator_gives_the_same_gradient_with_any_number_of_threads(name):
    case, threads = case_for(name), torch.get_num_threads()
    first = score_gradient(seeded(name), case, Decoder(case))
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        assert torch.equal(score_gradient(seeded(name), case, Decoder(case)), first)
    finally:
        torch.set_num_threads(threads)
    others = [make(name, generator=torch.Generator().manual_seed(seed)) for seed in range(1, 6)]
    assert not all(torch.equal(score_gradient(other, case, Decoder(case)), first) for other in others)
    torch.manual_seed(0)
    global_numbers = torch.rand(3)
    torch.manual_seed(0)
    score_gradient(seeded(name), case, Decoder(case))
    assert torch.equal(torch.rand(3), global_numbers)  # a generator of one's own leaves the global one alone


@pytest.mark.parametrize("name", FOLLOWS_GRADIENT)
def test_a_batch_may_be_empty(name):
    scores = torch.zeros(0, 5, dtype=F64, requires_grad=True)
    losses = make(name).loss(case_for(name).structure, scores, lambda point: point.square().sum(-1))
    assert losses.shape == (0,)
    losses.sum().backward()
    assert scores.grad.shape == (0, 5)


@pytest.mark.parametrize("name", BLACK_BOX)
def test_black_box_losses_are_allowed(name):
    case = case_for(name)
    price = torch.tensor([3.0, 1.0, 2.0, 0.0, 5.0], dtype=F64)
    black_box = lambda point: (point.detach() * price).sum(-1).round()
    estimator = make(name, **({"samples": 64, "baseline": pb.LeaveOneOut()} if name == "reinforce" else {}))
    torch.manual_seed(0)
    gradient = score_gradient(estimator, case, black_box, scores=torch.linspace(0, 0.2, 15).double().reshape(3, 5))
    assert gradient[:, 4].mean() > gradient[:, 3].mean()  # descent lowers the expensive item


# ---- words and misuse


def test_a_downstream_loss_must_be_one_per_example():
    scores = torch.zeros(4, 3, requires_grad=True)
    for name in NAMES:
        for wrong, shape in ((lambda z: z.sum(), r"\(\)"), (lambda z: z, r"\(4, 3\)"), (lambda z: z[:2, 0], r"\(2,\)")):
            with pytest.raises(ValueError, match=rf"shape {shape} for a batch of shape \(4,\)"):
                make(name).loss(CATEGORICAL, scores, wrong).sum().backward()
        with pytest.raises(TypeError, match="returned a float"):
            make(name).loss(CATEGORICAL, scores, lambda z: 1.0)


@pytest.mark.parametrize("name", [name for name, entry in pb.CATALOG.items() if entry.needs])
def test_missing_capabilities_are_named(name):
    oracle, scores = pb.Oracle(CATEGORICAL.argmax), torch.randn(4, 3, requires_grad=True)
    assert not pb.CATALOG[name].serves(oracle)
    words = {
        pb.LogLinear: "partition function",
        pb.Simplex: "Categorical",
        pb.Enumerable: "vertices",
        pb.KBest: "k best vertices",
    }
    with pytest.raises(pb.MissingCapability, match="|".join(words[needed] for needed in pb.CATALOG[name].needs)):
        make(name).loss(oracle, scores, lambda point: point.square().sum(-1)).sum().backward()


class OneOf(pb.Oracle):
    fixed_sums = (-1,)  # which a solver does not tell, and `identity` centers by


@pytest.mark.parametrize("name", [name for name in NAMES if not pb.CATALOG[name].needs])
def test_an_argmax_is_enough_where_the_catalog_says_so(name):
    scores = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=F64)
    gradients = []
    for structure in (OneOf(CATEGORICAL.argmax), CATEGORICAL):
        leaf = scores.clone().requires_grad_()
        seeded(name).loss(structure, leaf, lambda point: point.square().sum(-1)).sum().backward()
        gradients.append(leaf.grad)
    assert_close(*gradients)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_lower_precision_scores_train_too(name, dtype):
    case = CHOICE
    scores = case.scores(dtype=dtype)
    gradient = score_gradient(seeded(name), case, Decoder(case).to(dtype), scores=scores)
    exact = score_gradient(seeded(name), case, Decoder(case), scores=scores.double())
    tolerance = 1e-5 if dtype == torch.float32 else 0.1
    assert gradient.dtype == dtype
    assert_close(gradient.double(), exact, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", pb.CATALOG)
def test_a_named_estimator_says_what_it_computes_costs_and_needs(name):
    said = pb.CATALOG[name].make.__doc__
    assert "gradient = " in said or "Σ p(z) L(z)" in said
    assert "Costs " in said and "Needs " in said


# No gradient where nothing is shared, or from vertices that are not in the list.
SPARSE = ("sparsemap", "entmax", "ste_sparsemap", "sparse_marginalization", "topk_expectation", "frozen")


ONE_OF_EACH = [CHOICE, CASES["Binary, mask"], CASES["Subset, at most"], SENTENCES, TREE]


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=repr)
def test_the_catalog_trains_every_kind_of_structure(case):
    """A decoder that wants one vertex: methods that see all vertices find it, and sparse ones never lose ground."""
    wanted = case.structure.argmax(case.scores(seed=9))
    loss = lambda point: (point - wanted).square().flatten(-len(case.event)).sum(-1)
    for name in (name for name, entry in pb.CATALOG.items() if entry.serves(case.structure)):
        torch.manual_seed(0)
        scores = (0.3 * case.scores()).requires_grad_()
        optimizer = torch.optim.Adam([scores], 0.1)
        options = {"reinforce": {"samples": 16, "baseline": pb.LeaveOneOut()}, "supervised": {"label": wanted}}
        estimator = make(name, case, **options.get(name, {}))
        history = []
        for _ in range(60):
            losses = estimator.loss(case.structure, scores, loss)
            history.append(float(losses.detach().mean()))
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
        if name in SPARSE:
            assert history[-1] <= history[0] + 1e-9, name
        else:
            assert loss(case.structure.argmax(scores.detach())).mean() == 0, name
