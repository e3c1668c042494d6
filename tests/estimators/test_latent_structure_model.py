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
def test_training_reaches_both_networks(name):
    model, (x, y) = model_of(pb.get_estimator(name)), data()
    losses = model.loss(x, y)
    assert losses.shape == (5,)
    losses.mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert any(parameter.grad.abs().sum() > 0 for parameter in model.decoder.parameters())


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
