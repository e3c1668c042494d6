"""Layers that encoders of several tasks share."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class BiLSTM(nn.Module):
    """States of words (m, n, 2 · hidden) from their vectors (m, n, size) and lengths (m,); 0 beyond the end."""

    def __init__(self, size: int, hidden: int, layers: int = 1) -> None:
        super().__init__()
        self.lstm = nn.LSTM(size, hidden, layers, batch_first=True, bidirectional=True)

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(vectors, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=vectors.shape[1])
        return states


class Biaffine(nn.Module):
    """A score for every arc (m, 1 + n, 1 + n), head first, from states of words (m, n, size); node 0 is the root.

    Scores stay within ±`bound`, smoothly: the network cannot run away with them before the decoder has learned.
    """

    def __init__(self, size: int, hidden: int = 64, bound: float = 8.0) -> None:
        super().__init__()
        self.bound = bound
        self.root = nn.Parameter(0.1 * torch.randn(size))
        self.head, self.modifier = nn.Linear(size, hidden), nn.Linear(size, hidden)
        self.pair = nn.Parameter(torch.randn(hidden + 1, hidden) / hidden**0.5)

    def forward(self, states: Tensor) -> Tensor:
        nodes = torch.cat([self.root.expand(len(states), 1, -1), states], 1)
        heads = nn.functional.pad(self.head(nodes).relu(), (0, 1), value=1.0)  # one more: a score for every modifier
        scores = heads @ self.pair @ self.modifier(nodes).relu().mT
        return self.bound * torch.tanh(scores / self.bound)
