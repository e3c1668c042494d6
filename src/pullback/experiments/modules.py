"""Layers that encoders of several tasks share."""

import torch
from torch import Tensor, nn


class BiLSTM(nn.Module):
    """States of words (m, n, 2 · hidden) from their vectors (m, n, size) and lengths (m,); 0 beyond the end.

    Backward means that sentences are turned around inside their lengths and read forward: twice as fast on a processor
    as packed sequences, whose derivative writes zeros for the whole batch at every word.
    """

    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        self.forwards = nn.LSTM(size, hidden, batch_first=True)
        self.backwards = nn.LSTM(size, hidden, batch_first=True)

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        position = torch.arange(vectors.shape[1], device=vectors.device)
        inside = position < lengths.unsqueeze(-1)  # (m, n)
        turned = torch.where(inside, lengths.unsqueeze(-1) - 1 - position, position)
        ahead, _ = self.forwards(vectors)
        back, _ = self.backwards(_reordered(vectors, turned))
        return torch.cat([ahead, _reordered(back, turned)], -1) * inside.unsqueeze(-1)


def _reordered(vectors: Tensor, order: Tensor) -> Tensor:
    """The vectors (m, n, size) of each sentence in an order (m, n) of its own."""
    return vectors.gather(1, order.unsqueeze(-1).expand_as(vectors))


class Biaffine(nn.Module):
    """A score for every arc (m, 1 + n, 1 + n), head first, from states of words (m, n, size); node 0 is the root.

    Scores stay within ±`bound`, smoothly: the network cannot run away with them before the decoder has learned.  Units
    with a `slope` for numbers below 0 cannot die, as they may where scores of 0 have the least loss: a perceptron's.
    """

    def __init__(self, size: int, hidden: int = 64, bound: float = 8.0, slope: float = 0.0) -> None:
        super().__init__()
        self.bound, self.slope = bound, slope
        self.root = nn.Parameter(0.1 * torch.randn(size))
        self.head, self.modifier = nn.Linear(size, hidden), nn.Linear(size, hidden)
        self.pair = nn.Parameter(torch.randn(hidden + 1, hidden) / hidden**0.5)

    def forward(self, states: Tensor) -> Tensor:
        nodes = torch.cat([self.root.expand(len(states), 1, -1), states], 1)
        heads, modifiers = (nn.functional.leaky_relu(part(nodes), self.slope) for part in (self.head, self.modifier))
        heads = nn.functional.pad(heads, (0, 1), value=1.0)  # one more: a score for every modifier
        scores = heads @ self.pair @ modifiers.mT
        return self.bound * torch.tanh(scores / self.bound)
