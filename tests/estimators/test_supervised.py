"""The two ends of every comparison: nothing learned through the structure, and its true label."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pullback as pb
from families import LOG_LINEAR_UPSTAIRS, REGULARIZERS, UPSTAIRS

every_case = pytest.mark.parametrize("case", UPSTAIRS, ids=repr)


def black_box(case):
    return lambda z: (z.detach() - 0.3).square().flatten(-len(case.event)).sum(-1)


@every_case
def test_frozen_scores_get_zeros_and_the_decoder_sees_the_argmax(case):
    scores = case.scores().requires_grad_()
    losses = pb.frozen().loss(case.structure, scores, black_box(case))
    assert_close(losses, black_box(case)(case.structure.argmax(scores.detach())))
    (gradient,) = torch.autograd.grad(losses.sum(), scores)
    assert (gradient == 0).all()


def test_frozen_may_decode_from_another_prediction():
    scores = torch.tensor([[0.2, 0.0, -3.0]], requires_grad=True)
    seen = []
    pb.frozen("squared_norm").loss(pb.Categorical(), scores, lambda z: seen.append(z.detach()) or z.sum(-1))
    assert_close(seen, [torch.tensor([[0.6, 0.4, 0.0]])])


def test_the_decoder_trains_with_a_frozen_encoder():
    encoder, decoder = nn.Linear(4, 3), nn.Linear(3, 1)
    losses = pb.frozen().loss(pb.Categorical(), encoder(torch.ones(2, 4)), lambda z: decoder(z).squeeze(-1))
    losses.mean().backward()
    assert (encoder.weight.grad == 0).all() and decoder.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("case", LOG_LINEAR_UPSTAIRS, ids=repr)
@pytest.mark.parametrize("prediction", REGULARIZERS, ids=repr)
def test_supervised_scores_get_the_gradient_of_the_fenchel_young_loss(case, prediction):
    label = case.structure.argmax(case.scores(seed=7))
    weight = torch.rand(case.batch, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores = case.scores().requires_grad_()
    estimator = pb.supervised(lambda: label, prediction)
    losses = estimator.loss(case.structure, scores, black_box(case))
    assert_close(losses, black_box(case)(case.structure.argmax(scores.detach())))
    (found,) = torch.autograd.grad((weight * losses).sum(), scores)
    intermediate = pb.FenchelYoungLoss(prediction, "none")(case.structure, scores, label)
    assert_close(found, torch.autograd.grad((weight * intermediate).sum(), scores)[0])
    assert_close(estimator.inspect(case.structure, scores, black_box(case)).target, label)


def test_the_label_is_that_of_the_batch_at_the_time_of_the_loss():
    """Also where the backward pass of several batches comes later."""
    choice, batch = pb.Categorical(), {}
    estimator = pb.supervised(lambda: batch["label"], prediction="entropy")
    scores, losses, labels = [], [], torch.eye(3)
    for label in labels:
        batch["label"] = label[None]
        scores.append(torch.zeros(1, 3, requires_grad=True))
        losses.append(estimator.loss(choice, scores[-1], lambda z: z.sum(-1)))
    torch.cat(losses).sum().backward()
    for leaf, label in zip(scores, labels):
        assert_close(leaf.grad, 1 / 3 - label[None])


def test_labels_are_points_of_the_polytope_as_for_fenchel_young_losses():
    choice, scores = pb.Categorical(), torch.zeros(2, 3, requires_grad=True)
    loss = lambda label: pb.supervised(label).loss(choice, scores, lambda z: z.sum(-1))
    assert loss(torch.eye(3, dtype=torch.bool)[:2]).shape == (2,)
    assert loss(torch.full((2, 3), 1 / 3)).shape == (2,)
    with pytest.raises(
        ValueError, match=r"supervised: the target of example \[1\] lies outside the polytope, 0.67 away"
    ):
        loss(torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))
    with pytest.raises(ValueError, match=r"supervised: the target of example \[0\] is not between 0 and 1"):
        loss(torch.tensor([[2.0, -1.0, 0.0], [1.0, 0.0, 0.0]]))
    with pytest.raises(ValueError, match=r"supervised: target has shape \(3, 3\); expected the shape of the scores"):
        loss(torch.eye(3))
    with pytest.raises(TypeError, match="label is a list; expected a tensor shaped like the scores, or a function"):
        pb.supervised([[1.0, 0.0, 0.0]])
    with pytest.raises(TypeError, match=r"label\(\) is a NoneType; expected a tensor"):
        loss(lambda: None)


def test_the_catalog_says_which_arguments_have_to_be_given():
    assert pb.CATALOG["supervised"].given == ("label",)
    with pytest.raises(TypeError, match="label"):
        pb.get_estimator("supervised")
    assert isinstance(pb.get_estimator("supervised", label=torch.eye(3), prediction="entropy").prediction, pb.Entropy)
