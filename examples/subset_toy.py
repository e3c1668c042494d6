"""Five of ten items: do estimators that never see the answer find it?

100 problems at once, each with a random goal b.  The loss of a subset z is ‖z − b‖², and the best subset takes the five
largest entries of b.  The gradient at a subset, 2 (z − b), always speaks against the items in it: methods that ask at
one vertex waver, and those that ask at the marginals or average over draws find the best.
Reference: Niepert, Minervini and Franceschi (2021).
"""

import argparse
from collections.abc import Sequence

import torch

import pullback as pb

ITEMS, CHOSEN, PROBLEMS = 10, 5, 100
SUBSETS = pb.Subset(CHOSEN)
NOISE = pb.SumOfGamma(CHOSEN, scale=CHOSEN)
ESTIMATORS = {  # each with a learning rate
    "ste": (pb.ste, 0.05),
    "spigot": (pb.spigot, 0.05),
    "spigot_ce": (lambda: pb.spigot_ce(0.3), 0.2),
    "imle": (lambda: pb.imle(1.0, NOISE, samples=4), 0.2),
    "imle, two-sided": (lambda: pb.imle(1.0, NOISE, samples=4, two_sided=True), 0.2),
    "imle, adaptive": (lambda: pb.imle("adaptive", NOISE, samples=4), 0.05),
    "simple": (pb.simple, 0.2),
    "simple, 8 draws": (lambda: pb.Perturbed(pb.simple(), pb.NoNoise(), samples=8), 0.2),
    "perturbed": (lambda: pb.perturbed(samples=64), 0.2),
}


def train(estimator: pb.Estimator, rate: float, steps: int) -> float:
    """How far the loss of the argmax is from the best, on average."""
    torch.manual_seed(0)
    scores = torch.randn(PROBLEMS, ITEMS).requires_grad_()
    goal = torch.randn(PROBLEMS, ITEMS).abs()
    optimizer = torch.optim.SGD([scores], rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)  # so that noise fades

    def loss(z: torch.Tensor) -> torch.Tensor:
        return (z - goal).square().sum(-1)

    for _ in range(steps):
        optimizer.zero_grad()
        estimator.loss(SUBSETS, scores, loss).sum().backward()
        optimizer.step()
        schedule.step()
    return float((loss(SUBSETS.argmax(scores)) - loss(SUBSETS.argmax(goal))).mean())


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Trains with each estimator, and prints the gaps."""
    parser = argparse.ArgumentParser(description="The toy of k of n items with several estimators.")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args(arguments)
    print(f"mean gap to the best loss after {options.steps} steps")
    found = {}
    for name, (make, rate) in ESTIMATORS.items():
        found[name] = train(make(), rate, options.steps)
        print(f"{name:18} {found[name]:.4f}")
    return found


if __name__ == "__main__":
    main()
