"""Learn a spanning tree whose edges all touch one vertex, with methods of every kind.

The scores of the edges between 10 vertices are the only parameters; the loss of a tree counts its edges that do not
touch vertex 0.  Its minimum, 0, is the star around vertex 0 alone.  The loss is linear, so that methods that follow
its gradient find the star too.  The one that learns nothing tells how far all others have come.
Reference: Struminsky et al. (2021).
"""

import argparse

import torch

import pullback as pb

VERTICES = 10
ESTIMATORS = {
    "frozen": pb.frozen(),
    "spigot": pb.spigot(pb.Relative()),
    "structured attention": pb.structured_attention(),
    "sparse marginalization": pb.sparse_marginalization(),
    "top-k expectation": pb.topk_expectation(16, temperature=2.0),
    "reinforce": pb.reinforce(3, "leave_one_out"),
}


def loss(trees: torch.Tensor) -> torch.Tensor:
    """How many edges touch other vertices alone; a matrix holds each edge in both halves."""
    return trees[..., 1:, 1:].sum((-1, -2)) / 2


def train(estimator: pb.Estimator, steps: int, learning_rate: float = 0.1) -> list[float]:
    """The loss of the best tree before each step, and after the last."""
    torch.manual_seed(0)
    structure = pb.SpanningTree()
    scores = 0.1 * torch.randn(1, VERTICES, VERTICES)
    scores = (scores + scores.mT).requires_grad_()
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
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    for name, estimator in ESTIMATORS.items():
        history = train(estimator, steps)
        print(
            f"{name:22} loss {history[0]:.0f} → {history[-1]:.0f}, "
            f"{min(history):.0f} first after {history.index(min(history)):3} steps"
        )


if __name__ == "__main__":
    main()
