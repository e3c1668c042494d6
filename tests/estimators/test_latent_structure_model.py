"""The encoder–argmax–decoder model."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pullback as pb


class Bilinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Bilinear(3, 6, 2)

    def forward(self, x, z):
        return self.layer(z, x)


def model_of(estimator, **options):
    torch.manual_seed(0)
    return pb.LatentStructureModel(nn.Linear(6, 3), Bilinear(), estimator, pb.Categorical(), **options)


def data():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(5, 6, generator=generator), torch.randint(2, (5,), generator=generator)


@pytest.mark.parametrize("name", pb.CATALOG)
def test_both_networks_get_the_gradients_of_the_estimator(name):
    given = {"label": pb.Categorical().argmax(data()[0][:, :3])}
    options = {argument: given[argument] for argument in pb.CATALOG[name].given}
    model, (x, y) = model_of(pb.get_estimator(name, **options)), data()
    torch.manual_seed(3)
    losses = model.loss(x, y)
    found = torch.autograd.grad(losses.mean(), [*model.parameters()])
    torch.manual_seed(3)
    by_hand = model.estimator.loss(
        pb.Categorical(),
        x @ model.encoder.weight.T + model.encoder.bias,
        lambda z: nn.functional.cross_entropy(model.decoder.layer(z, x), y, reduction="none"),
    )
    assert_close(losses, by_hand)
    for gradient, expected in zip(found, torch.autograd.grad(by_hand.mean(), [*model.parameters()])):
        assert_close(gradient, expected)


def test_the_encoder_learns_the_pulled_back_label():
    model, (x, y) = model_of(pb.spigot(0.7)), data()
    model.loss(x, y).mean().backward()
    scores = model.encoder(x)
    z = pb.Categorical().argmax(scores).requires_grad_()
    losses = nn.functional.cross_entropy(model.decoder.layer(z, x), y, reduction="none")
    (gradient,) = torch.autograd.grad(losses.sum(), z)
    target = pb.Categorical().sparsemap(z.detach() - 0.7 * gradient)
    assert_close(model.encoder.weight.grad, (z.detach() - target).T @ x / 5)


def test_outside_training_the_decoder_sees_the_argmax():
    model, (x, y) = model_of(pb.structured_attention()), data()
    z = pb.Categorical().argmax(model.encoder(x))
    assert_close(model(x), model.decoder(x, z))
    assert_close(model.latent(x), z)
    model.eval()
    assert_close(model.loss(x, y), nn.functional.cross_entropy(model.decoder(x, z), y, reduction="none"))


def test_outside_training_the_decoder_may_see_the_relaxed_point():
    model, (x, _) = model_of(pb.sparsemap(), test_point=pb.SquaredNorm()), data()
    assert_close(model(x), model.decoder(x, pb.Categorical().sparsemap(model.encoder(x))))


def test_the_structure_may_depend_on_the_batch_and_the_criterion_is_free():
    x, _ = data()
    model = pb.LatentStructureModel(
        nn.Linear(6, 3),
        Bilinear(),
        pb.spigot(),
        lambda x: pb.Categorical(lengths=torch.full((len(x),), 2)),
        criterion=lambda prediction, y: (prediction - y).square().sum(-1),
    )
    losses = model.loss(x, torch.zeros(5, 2))
    losses.sum().backward()
    assert losses.shape == (5,) and (model.latent(x)[:, 2] == 0).all()
    assert (model.encoder.weight.grad[2] == 0).all()


def test_the_model_is_an_ordinary_module():
    model = model_of(pb.spigot())
    assert set(model.state_dict()) == {"encoder.weight", "encoder.bias", "decoder.layer.weight", "decoder.layer.bias"}


def test_a_test_point_that_is_made_of_modules_is_saved_with_the_model():
    smooth = pb.PerturbedMaximum(pb.Normal(nn.Parameter(torch.tensor(0.5))))
    point = pb.Surrogate(smooth, pb.Given(), decodes_from=smooth)
    names = set(model_of(pb.spigot(), test_point=point).state_dict()) - set(model_of(pb.spigot()).state_dict())
    assert names and all(name.startswith("test_point") and name.endswith("noise.scale") for name in names)


def test_an_estimator_that_was_not_made_is_refused():
    with pytest.raises(TypeError, match=r"estimator is <function spigot.*; expected an Estimator such as spigot"):
        model_of(pb.spigot)
