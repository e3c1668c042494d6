"""Bring your own solver: SPIGOT through a shortest path computed by somebody else's code.

A network prices the steps of a small grid; a dynamic program in plain NumPy finds the best path from corner to corner;
the loss says which cells the path should have visited.  The solver is all that `Oracle` needs.
"""

import numpy as np
import torch

import pullback as pb

SIDE = 4


def best_path(scores: np.ndarray) -> np.ndarray:
    """The best monotone path through a grid of cell scores, as zeros and ones."""
    total = np.full((SIDE + 1, SIDE + 1), -np.inf)
    total[0, 1] = 0
    for row in range(1, SIDE + 1):
        for column in range(1, SIDE + 1):
            total[row, column] = scores[row - 1, column - 1] + max(total[row - 1, column], total[row, column - 1])
    path, row, column = np.zeros_like(scores), SIDE, SIDE
    while row and column:
        path[row - 1, column - 1] = 1
        row, column = (row - 1, column) if total[row - 1, column] >= total[row, column - 1] else (row, column - 1)
    return path


def main() -> float:
    """Trains, and returns how many cells of a path are wrong at the end."""
    torch.manual_seed(0)
    paths = pb.Oracle(best_path, event_dims=2, batched=False, numpy=True)
    inputs = torch.randn(128, 10)
    teacher, student = torch.nn.Linear(10, SIDE * SIDE), torch.nn.Linear(10, SIDE * SIDE)
    wanted = paths.argmax(teacher(inputs).reshape(-1, SIDE, SIDE))
    estimator = pb.spigot(step_size=0.5)
    optimizer = torch.optim.Adam(student.parameters(), lr=0.05)
    for step in range(60):
        scores = student(inputs).reshape(-1, SIDE, SIDE)
        losses = estimator.loss(paths, scores, lambda z: (z - wanted).square().sum((-1, -2)))
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1}: cells wrong per path {losses.mean():.2f}")
    return losses.mean().item()


if __name__ == "__main__":
    main()
