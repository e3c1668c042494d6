"""A discrete variational autoencoder: images of digits, drawn from a few choices or bits that an encoder makes.

p(z) is uniform, p(x | z) says how dark each pixel is, and the encoder's scores s say how likely each z is for an image:
q(z | x) ∝ exp⟨s, z⟩, or the sparse mixture of SparseMAP for estimators that work with it.  Minimized is

    −ELBO = E_q[−log p(x | z)] + KL(q, p)

the first term through an estimator, the second exactly.  There are a few hundred z, so that the bound is known exactly
however a model was trained, and so is the log p(x) that it bounds.  An estimator that decodes from one point minimizes
the first term at that point alone, which is no bound; its ELBO is measured with q as for the others.
Sparse posteriors: Correia, Niculae, Aziz and Martins (2020).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.distributions import kl_divergence
from torch.nn.functional import softplus

import pullback as pb
from pullback.experiments.mistakes import Mistake
from pullback.experiments.task import DecodesLabel, Model, Picture, Split, Task, batch_of
from pullback.experiments.tasks.digits import PIXELS, images_of_digits

DARKEST = 16
MOST = 1024  # vertices, each of which is decoded for the measures


@dataclass(frozen=True)
class Images:
    """Images (m, 64), pixels from 0 to 16."""

    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, indices: Tensor) -> "Images":
        return Images(self.y[indices])

    def to(self, device: torch.device) -> "Images":
        return Images(self.y.to(device))


# ---- the model


class Encoder(nn.Module):
    """Scores of the choices or bits; near ½ at first, where a sparse posterior still mixes all vertices."""

    def __init__(self, event: tuple[int, ...], hidden: int = 128) -> None:
        super().__init__()
        self.event = event
        self.network = nn.Sequential(nn.Linear(PIXELS, hidden), nn.ReLU(), nn.Linear(hidden, torch.Size(event).numel()))

    def forward(self, images: Images) -> Tensor:
        scores: Tensor = 0.5 + self.network(images.y / DARKEST).unflatten(-1, self.event)
        return scores


class Decoder(nn.Module):
    """A logit for each pixel, from the choices or bits alone."""

    def __init__(self, event: tuple[int, ...], hidden: int = 128) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(torch.Size(event).numel(), hidden), nn.ReLU(), nn.Linear(hidden, PIXELS))

    def forward(self, images: Images | None, z: Tensor) -> Tensor:
        logits: Tensor = self.network(z.flatten(1))
        return logits


def surprise(logits: Tensor, images: Tensor) -> Tensor:
    """−log p(x | z): pixels are independent and binomial, each the number of grains out of 16 that are dark."""
    grains = torch.arange(DARKEST + 1.0, device=images.device)
    ways = math.lgamma(DARKEST + 1) - torch.lgamma(grains + 1) - torch.lgamma(DARKEST - grains + 1)
    return (DARKEST * softplus(logits) - images * logits - ways[images.long()]).sum(-1)


class Autoencoder(Model):
    """Adds KL(q, p) to the loss of every example."""

    def loss(self, x: Images, y: Tensor) -> Tensor:
        return super().loss(x, y) + self.divergence(x)

    def posterior(self, images: Images) -> pb.StructureDistribution:
        """q(z | x): what the scores say; for a yardstick that decodes from a random z, the prior."""
        estimator, scores = self.estimator, self.encoder(images)
        if isinstance(estimator, DecodesLabel):
            return self._prior(scores)
        if isinstance(estimator, pb.Surrogate) and isinstance(estimator.descent, pb.Given):
            scores = scores.detach()  # frozen: the divergence does not train the encoder either
        distribution, temperature = posterior_of(estimator)
        return distribution(self.structure_of(images), scores / temperature)

    def divergence(self, images: Images) -> Tensor:
        """KL(q, p) of each image."""
        posterior = self.posterior(images)
        divergence: Tensor = kl_divergence(posterior, self._prior(posterior.scores))
        return divergence

    def _prior(self, scores: Tensor) -> pb.Gibbs:
        assert isinstance(self.structure, pb.Structure)
        return pb.Gibbs(self.structure, torch.zeros_like(scores))


def posterior_of(estimator: pb.Estimator) -> tuple[Callable[..., pb.StructureDistribution], Any]:
    """The distribution whose expectation, or mean, an estimator works with, and the temperature that divides scores."""
    while isinstance(estimator, pb.Perturbed):
        estimator = estimator.inner
    if isinstance(estimator, pb.ScoreFunction):
        return estimator.distribution, estimator.temperature
    if isinstance(estimator, pb.Expectation):
        is_sparse = isinstance(estimator.summands, pb.SparseSupport)
    elif isinstance(estimator, pb.Relaxation) and estimator.decodes_from is None:
        is_sparse = isinstance(estimator.regularizer, pb.SquaredNorm)
    else:
        return pb.Gibbs, 1.0
    return pb.SparseMAPDistribution if is_sparse else pb.Gibbs, estimator.temperature


# ---- the task


@dataclass(frozen=True)
class DigitsVAE(Task):
    """A discrete variational autoencoder of images of digits; bound and likelihood are exact.

    Attributes:
        latent: choices: `size` of them, each out of `out_of`; or bits: `size` of them.
        size: how many choices or bits describe an image.
        out_of: how many options a choice has; bits have none of it.
        data_seed: the seed of the split of the images.
    """

    latent: Literal["choices", "bits"] = "choices"
    size: int = 3
    out_of: int = 6
    data_seed: int = 3

    name: ClassVar[str] = "vae"
    measure: ClassVar[str] = "elbo"
    without_gold: ClassVar[str] = "there is no true description of an image"
    enumerable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        each = self.out_of if self.latent == "choices" else 2
        if self.size < 1 or each < 2 or each**self.size > MOST:
            raise Mistake(
                f"size is {self.size}, out_of {self.out_of}: {each}^{self.size} descriptions; expected 2 to {MOST}."
            )

    def data(self) -> dict[str, Images]:
        parts = images_of_digits(self.data_seed)
        return {part: Images((images * DARKEST).round()) for part, (images, _) in parts.items()}

    @property
    def structure(self) -> pb.Structure:
        return pb.Independent(pb.Categorical()) if self.latent == "choices" else pb.Binary()

    @property
    def event(self) -> tuple[int, ...]:
        return (self.size, self.out_of) if self.latent == "choices" else (self.size,)

    def model(self, estimator: pb.Estimator) -> Model:
        return Autoencoder(Encoder(self.event), Decoder(self.event), estimator, self.structure, surprise)

    def known(self) -> dict[str, Callable[[Any], Tensor]]:
        """A random description, which says nothing about the image.  There is no true one."""

        def random(images: Images) -> Tensor:
            return pb.Gibbs(self.structure, torch.zeros(len(images), *self.event, device=images.y.device)).sample()

        return {"random": random}

    def measures(self, model: Model, split: Split) -> dict[str, float]:
        """ELBO and log p(x) in nats for each image, and log p(x | z) of the likeliest z."""
        assert isinstance(model, Autoencoder)
        images: Images = batch_of(split)
        posterior = model.posterior(images)
        every = posterior.enumerate_support(expand=False)  # (z, 1, *event)
        likelihoods = -surprise(model.decoder(None, every.squeeze(1)).unsqueeze(1), images.y)  # log p(x | z), (z, m)
        expected = (posterior.log_prob(every).exp() * likelihoods).sum(0)
        return {
            "elbo": float((expected - model.divergence(images)).mean()),
            "log_likelihood": float((likelihoods.logsumexp(0) - torch.tensor(len(every)).log()).mean()),
            "reconstruction": float(-surprise(model.decoder(images, model.latent(images)), images.y).mean()),
        }

    def pictures(self, model: Model, split: Split) -> list[Picture]:
        """A few images above what is drawn from their descriptions."""
        images: Images = batch_of(split, 8)
        drawn = model.decoder(images, model.latent(images)).sigmoid()
        return [Picture("Images, and what their descriptions give back", drawing([images.y / DARKEST, drawn]))]


def drawing(rows: list[Tensor], shades: int = 8) -> str:
    """Rows of images (m, 64) of numbers from 0 to 1, the larger the darker, as SVG."""
    paths = []
    for shade in range(1, shades + 1):
        squares = []
        for row, images in enumerate(rows):
            found = ((images * shades).round() == shade).reshape(-1, 8, 8).nonzero().tolist()
            squares += [f"M{9 * image + x} {9 * row + y}h1v1h-1z" for image, y, x in found]
        paths.append(f'<path fill-opacity="{shade / shades:g}" d="{"".join(squares)}"/>')
    width, height = 9 * max(len(images) for images in rows) - 1, 9 * len(rows) - 1
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="images of digits" '
        f'viewBox="-1 -1 {width + 2} {height + 2}" width="{8 * width}" height="{8 * height}" fill="currentColor" '
        f'style="max-width:100%;height:auto" shape-rendering="crispEdges">{"".join(paths)}</svg>'
    )
