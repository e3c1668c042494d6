"""The discrete autoencoder: its bound, its likelihood, and what adds to the loss."""

import math

import pytest
import torch

import pullback as pb
from pullback.experiments.mistakes import Mistake
from pullback.experiments.task import DecodesLabel, batch_of
from pullback.experiments.tasks.vae import DigitsVAE, drawing, posterior_of, surprise
from small_runs import SMALL

NAMES = ["vae", "vae-bits"]
ESTIMATORS = {
    "exact": pb.minimum_risk(),
    "sparse": pb.sparse_marginalization(),
    "ste": pb.ste(),
    "frozen": pb.frozen(),
}


def spread(model):
    """A model whose posteriors differ from the prior, and whose pictures differ from each other."""
    torch.manual_seed(1)
    for part, size in ((model.encoder, 0.1), (model.decoder, 0.5)):
        for parameter in part.parameters():
            parameter.data = size * torch.randn_like(parameter)
    return model


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)
def test_the_bound_is_below_the_likelihood(name, estimator):
    task = SMALL[name].task
    with torch.no_grad():
        measures = task.measures(spread(task.model(estimator)).eval(), task.data()["validation"])
    assert measures["elbo"] < measures["log_likelihood"] < 0


@pytest.mark.parametrize("name", NAMES)
def test_the_bound_is_tight_where_descriptions_say_nothing(name):
    task = SMALL[name].task
    model = task.model(DecodesLabel(task.known()["random"])).eval()
    model.decoder.network[0].weight.data.zero_()
    with torch.no_grad():
        measures = task.measures(model, task.data()["validation"])
    assert measures["elbo"] == pytest.approx(measures["log_likelihood"], rel=1e-5)
    assert measures["elbo"] == pytest.approx(measures["reconstruction"], rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "estimator",
    [pb.minimum_risk(), pb.minimum_risk(temperature=2.0), pb.sparse_marginalization(temperature=2.0)],
    ids=["exact", "exact, warm", "sparse, warm"],
)
def test_expectations_minimize_the_bound_itself(name, estimator):
    task = SMALL[name].task
    model, split = spread(task.model(estimator)), task.data()["validation"]
    images = batch_of(split)
    with torch.no_grad():
        loss = float(model.train().loss(images, images.y).mean())
        assert loss == pytest.approx(-task.measures(model.eval(), split)["elbo"], rel=1e-4)


def test_the_divergence_trains_every_encoder_but_a_frozen_one():
    task = SMALL["vae"].task
    for name, estimator in ESTIMATORS.items():
        model, images = spread(task.model(estimator)).train(), batch_of(task.data()["train"], 5)
        model.loss(images, images.y).sum().backward()
        gradient = model.encoder.network[0].weight.grad
        assert (gradient is None or not gradient.any()) == (name == "frozen")


def test_the_divergence_is_that_from_a_uniform_choice():
    task = DigitsVAE(latent="bits", size=2)
    model, images = task.model(pb.ste()), batch_of(task.data()["train"], 4)
    p = model.encoder(images).sigmoid()
    expected = (p * p.log() + (1 - p) * (1 - p).log()).sum(-1) + 2 * math.log(2)
    torch.testing.assert_close(model.divergence(images), expected)


def test_an_estimator_has_the_posterior_that_it_works_with():
    kinds = {name: posterior_of(pb.get_estimator(name))[0] for name, entry in pb.CATALOG.items() if not entry.given}
    sparse = {name for name, kind in kinds.items() if kind is pb.SparseMAPDistribution}
    assert sparse == {"sparsemap", "sparse_marginalization", "stochastic_sparsemap"}
    assert posterior_of(pb.reinforce(temperature=3.0)) == (pb.Gibbs, 3.0)
    assert posterior_of(pb.ste_marginals(temperature=3.0)) == (pb.Gibbs, 1.0)  # the decoder sees the argmax


def test_pixels_are_binomial():
    logits = torch.linspace(-9, 9, 17).expand(17, 17)
    images = torch.arange(17.0).unsqueeze(-1).expand(17, 17)
    expected = -torch.distributions.Binomial(16, logits=logits).log_prob(images).sum(-1)
    torch.testing.assert_close(surprise(logits, images), expected)


@pytest.mark.parametrize("settings", [{"size": 0}, {"out_of": 1}, {"size": 6}, {"latent": "bits", "size": 11}])
def test_too_many_or_too_few_descriptions_are_refused(settings):
    with pytest.raises(Mistake, match="expected 2 to 1024"):
        DigitsVAE(**settings)


def test_a_picture_has_a_square_for_each_pixel_that_is_not_white():
    images = torch.zeros(2, 64)
    images[0, 9], images[1, 63] = 1.0, 0.5
    svg = drawing([images])
    assert svg.count("h1v1h-1z") == 2 and "M1 1h1" in svg and "M16 7h1" in svg
    task = SMALL["vae"].task
    with torch.no_grad():
        (picture,) = task.pictures(task.model(pb.ste()).eval(), task.data()["test"])
    assert picture.svg.startswith("<svg") and len(picture.svg) < 30_000
