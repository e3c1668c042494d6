"""How often an estimator asks the decoder, what the decoder learns beside it, and calls without a loss."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pullback as pb
from decoders import (
    CATEGORICAL,
    CHOICE,
    DETERMINISTIC,
    EXPECTATIONS,
    F64,
    SUBSET,
    TREE,
    Decoder,
    every_pair,
    make,
    score_gradient,
    seeded,
)

# ---- cost, decoder, random state


@every_pair
def test_the_decoder_gets_its_own_gradient_and_nothing_else(name, case):
    decoder, seen = Decoder(case), []
    scores = case.scores().requires_grad_()

    def downstream(point):
        seen.append(point.detach().clone())
        return decoder(point)

    estimator = seeded(name, case)
    losses = estimator.loss(case.structure, scores, downstream)
    main = list(seen)  # those of the forward pass
    losses.sum().backward()
    got, decoder.weight.grad = decoder.weight.grad, None
    if name in EXPECTATIONS:
        seeded(name).loss(case.structure, case.scores(), decoder).sum().backward()
    else:
        assert len(main) == (3 if name == "reinforce" else 1)
        if name in DETERMINISTIC and name not in ("structured_attention", "sparsemap", "entmax"):
            assert_close(main[0], case.structure.argmax(case.scores()))
        sum(decoder(point).sum() for point in main).div(len(main)).backward()
    assert_close(got, decoder.weight.grad)


@pytest.mark.parametrize("case", [SUBSET, TREE, CHOICE], ids=repr)
@pytest.mark.parametrize("name", pb.CATALOG)
def test_evaluations_are_as_few_as_the_catalog_says(name, case):
    case = case if pb.CATALOG[name].serves(case.structure) else CHOICE
    decoder, cost = Decoder(case), pb.CATALOG[name].evaluations
    numbers = {
        "steps": 3,
        "samples": 3,
        "k": 3,
        "vertices": len(case.vertices()),
        "support": int(case.structure.support(case.scores()).size.max()),
    }
    options = {each: 3 for each in ("steps", "samples", "k") if each == cost.each}
    estimator = make(name, case, **options)
    estimator.loss(case.structure, case.scores().requires_grad_(), decoder).sum().backward()
    assert decoder.calls == cost.count(**numbers)
    assert estimator.evaluations == (None if cost.each in ("vertices", "support") else decoder.calls)


@pytest.mark.parametrize("estimator", [pb.ste(), pb.spigot(steps=4), pb.spigot_ce(steps=3), pb.spigot_eg()], ids=repr)
def test_every_evaluation_of_a_descent_is_differentiated_in_the_point_once(estimator):
    decoder = Decoder(SUBSET)
    estimator.loss(SUBSET.structure, SUBSET.scores().requires_grad_(), decoder).sum().backward()
    begins_forward = (
        estimator.prediction == estimator.decodes_from
    )  # otherwise the main pass is not part of the descent
    assert decoder.backward_calls == (decoder.calls if begins_forward else decoder.calls - 1)
    decoder.calls = 0
    with torch.no_grad():
        estimator.loss(SUBSET.structure, SUBSET.scores(), decoder)
    assert decoder.calls == 1


def test_the_argmax_costs_a_self_critical_baseline_one_evaluation():
    decoder, estimator = Decoder(SUBSET), pb.reinforce(4, "self_critical")
    estimator.loss(SUBSET.structure, SUBSET.scores().requires_grad_(), decoder).sum().backward()
    assert decoder.calls == estimator.evaluations == 5


@pytest.mark.parametrize(
    "estimator", [pb.spigot_ce(0.3, 2), pb.spigot(0.3, 3), pb.best_vertex()], ids=lambda e: str(e.descent)
)
def test_extra_evaluations_replay_the_random_numbers_of_the_main_pass_and_leave_no_trace(estimator):
    case = SUBSET
    decoder = Decoder(case, dropout=0.5)
    masks = []
    decoder.dropout.register_forward_hook(lambda module, inputs, output: masks.append(output == 0))
    torch.manual_seed(3)
    decoder(case.structure.argmax(case.scores()))
    expected = torch.rand(3)
    torch.manual_seed(3)
    masks.clear()
    scores = case.scores().requires_grad_()
    estimator.loss(case.structure, scores, decoder).sum().backward()
    assert torch.equal(torch.rand(3), expected)
    assert len(masks) > 1
    assert all(torch.equal(mask, masks[0]) for mask in masks)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # the compiler's own
@pytest.mark.parametrize("name", ["ste", "spigot_eg"])
def test_a_compiled_training_step_gives_the_eager_gradient(name):
    """The pull-back itself stays outside of the graph."""
    torch.compiler.reset()
    price = torch.linspace(-1, 1, 5, dtype=F64)

    def losses(scores):
        return make(name).loss(SUBSET.structure, scores, lambda point: (point * price).square().sum(-1))

    gradients = []
    for function in (losses, torch.compile(losses, backend="aot_eager")):
        scores = SUBSET.scores().requires_grad_()
        function(scores).sum().backward()
        gradients.append(scores.grad)
    assert_close(*gradients)


@pytest.mark.parametrize("name", ["structured_attention", "ste_sparsemap"])
def test_a_relaxation_compiles_whole_inside_a_model(name):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.estimator = make(name)

        def forward(self, scores):
            return self.estimator.loss(SUBSET.structure, scores, lambda point: (point - 0.3).square().sum(-1))

    torch.compiler.reset()
    model, gradients = Model(), []
    for function in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        scores = SUBSET.scores().requires_grad_()
        function(scores).sum().backward()
        gradients.append(scores.grad)
    assert_close(*gradients)


# ---- calling an estimator


@pytest.mark.parametrize("name", [name for name, entry in pb.CATALOG.items() if entry.callable])
def test_a_called_estimator_hands_over_a_point_with_the_same_gradient(name):
    scores, decoder = CHOICE.scores().requires_grad_(), Decoder(CHOICE)
    (gradient,) = torch.autograd.grad(decoder(seeded(name)(CHOICE.structure, scores)).sum(), scores)
    assert_close(gradient, score_gradient(seeded(name), CHOICE, decoder))


@pytest.mark.parametrize("name", [name for name, entry in pb.CATALOG.items() if not entry.callable])
def test_an_estimator_that_needs_the_loss_is_not_callable(name):
    with pytest.raises(TypeError, match=r"call `estimator\.loss"):
        make(name, CHOICE)(CHOICE.structure, CHOICE.scores())


def test_several_steps_cannot_be_taken_without_the_loss():
    with pytest.raises(TypeError, match="evaluates the downstream loss itself"):
        pb.spigot(steps=2)(CATEGORICAL, torch.zeros(2, 3))
    with pytest.raises(TypeError, match="has no target"):
        _ = pb.sparsemap().inspect(CATEGORICAL, torch.zeros(2, 3), lambda point: point.sum(-1)).target


def test_a_latent_point_differentiated_beside_the_losses_is_refused():
    kept = []

    def downstream(point):
        kept.append(point)
        return point.sum(-1)

    scores = torch.zeros(2, 3, requires_grad=True)
    pb.spigot().loss(CATEGORICAL, scores, downstream)
    with pytest.raises(RuntimeError, match="not through the losses"):
        kept[0].sum().backward()
