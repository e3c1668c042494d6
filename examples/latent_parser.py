"""A parser that never sees a tree learns one from two questions about each sentence.

Sentences are digits; one comes after a "!", another after a "?".  A BiLSTM with biaffine scores parses, and the
decoder reads from the root: the first answer is the digit that hangs on the root, the second the digit that hangs on
that one.  It sees neither the order nor any other word, so it can be right only if the tree says which word is which.

Asked both questions at once, the parser soon hangs the second digit on whatever is at the root, and is caught there: a
better word at the root would lose it.  So the second question comes later.

`frozen` trains the decoder alone and tells what can be known without a gradient to the parser: it answers a quarter to
a third.  `spigot_eg` answers 80 and 100 of a hundred, and places both words rightly in 70.
"""

import argparse
from collections.abc import Sequence

import torch
from torch import Tensor, nn

import pullback as pb

FIRST, SECOND, PAD, WORDS = 10, 11, 12, 13  # digits are the words 0 to 9
ESTIMATORS = {"frozen": pb.frozen(), "spigot_eg": pb.spigot_eg(pb.Relative())}


def sentences(count: int, longest: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    """Padded words (count, longest), lengths, and the positions (count, 2) of the two answers."""
    lengths = 2 * torch.randint(2, longest // 2 + 1, (count,))
    words = torch.randint(10, (count, longest))
    pairs = torch.arange(longest // 2) < lengths[:, None] // 2
    marks = 2 * torch.rand(pairs.shape).masked_fill(~pairs, -1).topk(2).indices  # two different even positions
    words.scatter_(1, marks, torch.tensor([FIRST, SECOND]).expand(count, 2))
    return words.masked_fill(torch.arange(longest) >= lengths[:, None], PAD), lengths, marks + 1


class Parser(nn.Module):
    """Scores of all arcs, (batch, n + 1, n + 1) by [head, modifier]; node 0 is the root."""

    def __init__(self, size: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, size)
        self.lstm = nn.LSTM(size, size, batch_first=True, bidirectional=True)
        self.root = nn.Parameter(torch.zeros(2 * size))
        self.head, self.modifier = nn.Linear(2 * size, size), nn.Linear(2 * size, size)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(words), lengths, True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], True, total_length=words.shape[1])
        nodes = torch.cat([self.root.expand(len(words), 1, -1), states], 1)
        return self.head(nodes) @ self.modifier(nodes).mT / 4


class Reader(nn.Module):
    """Two answers (batch, digits, 2): from the word at the root, and from those that hang on it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Embedding(WORDS, 10), nn.Embedding(WORDS, 10)

    def forward(self, tree: Tensor, words: Tensor) -> Tensor:
        top = tree[:, :1, 1:]  # (batch, 1, n): which word hangs on the root
        below = top @ tree[:, 1:, 1:]  # and which words hang on that one
        return torch.cat([top @ self.first(words), below @ self.second(words)], 1).mT


def train(estimator: pb.Estimator, steps: int) -> dict[str, float]:
    """The shares of right answers on new sentences, and of trees with the right word in the right place."""
    torch.manual_seed(0)
    parser, reader = Parser(), Reader()
    groups = [{"params": parser.parameters(), "lr": 2e-3}, {"params": reader.parameters(), "lr": 2e-2}]
    optimizer = torch.optim.Adam(groups)
    for step in range(steps):
        words, lengths, places = sentences(64)
        digits = words.gather(1, places)

        asked = torch.tensor([1.0, float(step >= steps * 2 // 3)])  # the second question when the first is learned

        def downstream(z: Tensor, words: Tensor = words, digits: Tensor = digits, asked: Tensor = asked) -> Tensor:
            return nn.functional.cross_entropy(reader(z, words), digits, reduction="none") @ asked

        trees = pb.DependencyTree(lengths, single_root=True)
        losses = estimator.loss(trees, parser(words, lengths), downstream)
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
    words, lengths, places = sentences(1000)
    with torch.no_grad():
        best = pb.DependencyTree(lengths, single_root=True).argmax(parser(words, lengths))
        right = (reader(best, words).argmax(1) == words.gather(1, places)).float().mean(0)
    heads = pb.DependencyTree.heads(best).gather(1, places)
    return {
        "first answer": right[0].item(),
        "second": right[1].item(),
        "first word on the root": (heads[:, 0] == 0).float().mean().item(),
        "second on the first": (heads[:, 1] == places[:, 0] + 1).float().mean().item(),
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
    """Trains with each estimator, and prints what it learned."""
    parser = argparse.ArgumentParser(description="A latent parser, with and without a gradient.")
    parser.add_argument("--steps", type=int, default=600)
    steps = parser.parse_args(arguments).steps
    found = {name: train(estimator, steps) for name, estimator in ESTIMATORS.items()}
    for name, shares in found.items():
        print(f"{name:10}", ", ".join(f"{what} {share:.0%}" for what, share in shares.items()))
    return found


if __name__ == "__main__":
    main()
