"""Every sequence of choices, where they are few."""

import itertools

import torch
from torch import Tensor

from pullback.structures._limits import check_count


def list_sequences(n: int, choices: int) -> Tensor:
    """Every sequence of n whole numbers below `choices`: (choicesⁿ, n)."""
    return torch.tensor(list(itertools.product(range(choices), repeat=n)), dtype=torch.long).reshape(choices**n, n)


def list_padded_sequences(name: str, n: int, choices: int, size: int) -> Tensor:
    """The same, followed by −1 up to `size`; refused in the words of the structure `name` if there are too many."""
    check_count(name, choices**n)
    return torch.nn.functional.pad(list_sequences(n, choices), (0, size - n), value=-1)
