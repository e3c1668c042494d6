"""A discrete VAE on handwritten digits, its expectation over the latent variable computed exactly.

An encoder scores a latent structure, three choices out of six or sixteen bits; a decoder draws the image from it.  The
posterior is the sparse mixture that SparseMAP finds, so the expected log-likelihood is a short sum: one call of the
decoder for each vertex in use, and no samples.  The prior is uniform over all structures.
"""

import argparse
from collections.abc import Sequence

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.distributions import Binomial, kl_divergence

import pullback as pb

LATENTS = {
    "three choices out of six": (pb.Independent(pb.Categorical()), (3, 6)),
    "sixteen bits": (pb.Binary(), (16,)),
}


class DigitsVAE(nn.Module):
    """p(z) uniform over a structure, p(x | z) independent pixels from 0 to 16, q(z | x) a mixture of few vertices."""

    def __init__(self, structure: pb.Structure, event: tuple[int, ...], hidden: int = 128) -> None:
        super().__init__()
        parts = torch.Size(event).numel()
        self.structure, self.event = structure, event
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, parts))
        self.decoder = nn.Sequential(nn.Linear(parts, hidden), nn.ReLU(), nn.Linear(hidden, 64))

    def scores(self, images: Tensor) -> Tensor:
        """Inside the polytope at first, and slow to leave it: outside, few vertices are left to learn from."""
        return 0.5 + 0.1 * self.encoder(images / 8 - 1).unflatten(-1, self.event)

    def elbo(self, images: Tensor) -> tuple[Tensor, int]:
        """E log p(x | z) − KL(q, p) of each image, and how often the decoder was called."""
        structure, scores = self.structure, self.scores(images)
        posterior = pb.SparseMAPDistribution(structure, scores)
        prior = pb.Gibbs(structure, torch.zeros_like(scores))

        def surprise(z: Tensor) -> Tensor:  # −log p(x | z)
            pixels = Binomial(16, logits=self.decoder(z.flatten(1)))
            return -pixels.log_prob(images).sum(-1)

        expected = pb.sparse_marginalization().loss(structure, scores, surprise)
        return -expected - kl_divergence(posterior, prior), int(posterior.mixture.size.max())


def train(name: str, images: Tensor, epochs: int) -> float:
    """Trains one model, and returns the bound on images that it has not seen."""
    torch.manual_seed(0)
    training, held_out = images.split([len(images) - 297, 297])
    model = DigitsVAE(*LATENTS[name])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    print(f"\n{name}\nepoch   ELBO in nats, held out   decoder calls per step")
    for epoch in range(1, epochs + 1):
        calls = []
        for batch in training[torch.randperm(len(training))].split(100):
            elbo, count = model.elbo(batch)
            optimizer.zero_grad()
            (-elbo.mean()).backward()
            optimizer.step()
            calls.append(count)
        if epoch == 1 or epoch % 10 == 0 or epoch == epochs:
            with torch.no_grad():
                bound = float(model.elbo(held_out)[0].mean())
            print(f"{epoch:5d}   {bound:22.1f}   {sum(calls) / len(calls):22.1f}")
    return bound


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Trains a model with each latent, and returns their bounds."""
    parser = argparse.ArgumentParser(description="A discrete VAE on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--images", type=int, default=1797, help="how many, the 297 that are held out among them")
    options = parser.parse_args(arguments)
    digits = torch.tensor(load_digits().data, dtype=torch.float32)
    digits = digits[torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))]
    return {name: train(name, digits[: options.images], options.epochs) for name in LATENTS}


if __name__ == "__main__":
    main()
