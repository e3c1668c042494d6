"""Polynomial programming: which estimators see past one step of the gradient?

128 bits, drawn independently, should come close to 0.45 each: the loss is the mean of |bit − 0.45|ᵖ, and the best bit
is 0.  The gradient at 0 points up, and at 1 it points down, so that methods of first order, which believe it, end in
between.  ReinMax is of second order, and exact for p = 2.  Reference: Liu et al. (2023).
"""

import argparse
from collections.abc import Sequence

import torch

import pullback as pb

BITS, BATCH, GOAL = 128, 8, 0.45
CHOICES = pb.Independent(pb.Categorical())  # of two, for each bit
ESTIMATORS = {
    "ste": pb.ste,
    "straight-through Gumbel": pb.perturb_and_map,
    "gumbel_rao": lambda: pb.gumbel_rao(samples=8),
    "gapped_ste": pb.gapped_ste,
    "reinmax": pb.reinmax,
}


def train(estimator: pb.Estimator, power: float, steps: int) -> float:
    """The expected loss after training; the best is 0.45ᵖ."""
    torch.manual_seed(0)
    logits = torch.zeros(BITS, 2, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.05)
    for _ in range(steps):
        losses = estimator.loss(
            CHOICES, logits.expand(BATCH, BITS, 2), lambda z: (z[..., 1] - GOAL).abs().pow(power).mean(-1)
        )
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
    one = logits.detach().softmax(-1)[:, 1]
    return float((one * (1 - GOAL) ** power + (1 - one) * GOAL**power).mean())


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Trains with each estimator, and prints the losses."""
    parser = argparse.ArgumentParser(description="Polynomial programming with several estimators.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--power", type=float, default=2.0)
    options = parser.parse_args(arguments)
    print(f"expected loss after {options.steps} steps; the best is {GOAL**options.power:.4f}")
    found = {}
    for name, make in ESTIMATORS.items():
        found[name] = train(make(), options.power, options.steps)
        print(f"{name:25} {found[name]:.4f}")
    return found


if __name__ == "__main__":
    main()
