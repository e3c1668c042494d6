"""Learn a tree from a loss that is a black box: the largest out-degree, which a star maximizes.

The scores of all arcs between 10 vertices are the only parameters, vertex 0 is the root, and the loss of a tree is
minus its largest out-degree.  Its minimum, −9, is the star around the root alone.  All estimators here accept a loss
without a gradient, and ask for four evaluations of it at each step.
Reference: Struminsky et al. (2021).
"""

import argparse
import time

import torch

import pullback as pb

VERTICES = 10
ESTIMATORS = {
    "leave one out": pb.reinforce(4, "leave_one_out"),
    "without replacement": pb.reinforce(4, "leave_one_out", replacement=False),
    "with an entropy bonus": pb.reinforce(4, "leave_one_out", entropy=0.05),
    "sum and sample": pb.sum_and_sample(3),
}


def loss(trees: torch.Tensor) -> torch.Tensor:
    """Minus the largest number of arcs that leave one vertex; one number for each tree."""
    return -trees.detach().sum(-1).amax(-1)


def train(estimator: pb.Estimator, steps: int, learning_rate: float = 0.1) -> list[float]:
    """The loss of the best tree before each step, and after the last."""
    torch.manual_seed(0)
    structure = pb.DependencyTree()
    scores = (0.3 * torch.randn(1, VERTICES, VERTICES)).requires_grad_()
    optimizer = torch.optim.Adam([scores], learning_rate)
    history = []
    for _ in range(steps):
        history.append(loss(structure.argmax(scores.detach())).item())
        optimizer.zero_grad()
        estimator.loss(structure, scores, loss).sum().backward()
        optimizer.step()
    return [*history, loss(structure.argmax(scores.detach())).item()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    steps = parser.parse_args().steps
    for name, estimator in ESTIMATORS.items():
        started = time.perf_counter()
        history = train(estimator, steps)
        found = (
            f"loss {history[0]:.0f} → {history[-1]:.0f}, {min(history):.0f} first after {history.index(min(history))}"
        )
        print(f"{name:22} {found} steps, {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
