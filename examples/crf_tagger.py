"""A CRF tagger for names of people and places: learned transitions beside those that BIO forbids.

Sentences are words "a" … with spans of one to three capitals, and the first word of a span tells its label.  The
encoder scores each word by itself, so it cannot tell of which label the rest of a span is: transitions can.  B-X
comes first, then I-X of the same label, and that is what `Tagging.bio` allows; how likely spans are to go on is
learned.  Compared with the best tag of each word alone.
"""

import argparse
from collections.abc import Sequence

import torch
from torch import Tensor

import pullback as pb

NAMES, ALLOWED, START, END = pb.Tagging.bio(["PER", "LOC"])  # O, B-PER, I-PER, B-LOC, I-LOC
FIRST, REST, COMMON = 8, 6, 20  # words: 8 begin a span (4 of each label), 6 go on, 20 are outside


def sentences(count: int, n: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """Words (count, n), gold tags with −1 for padding, and lengths."""
    words, tags = torch.zeros(count, n, dtype=torch.long), torch.full((count, n), -1)
    lengths = torch.randint(6, n + 1, (count,))
    for example, length in enumerate(lengths.tolist()):
        i = 0
        while i < length:
            if torch.rand(()) < 0.6:
                words[example, i], tags[example, i] = FIRST + REST + torch.randint(COMMON, ()), 0
                i += 1
                continue
            label, width = int(torch.randint(2, ())), min(int(torch.randint(1, 4, ())), length - i)
            words[example, i : i + width] = FIRST + torch.randint(REST, (width,))
            words[example, i] = 4 * label + torch.randint(4, ())
            tags[example, i : i + width], tags[example, i] = 2 + 2 * label, 1 + 2 * label
            i += width
    return words, tags, lengths


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Trains, prints the share of words that are tagged right and the transitions learned, and returns the shares."""
    parser = argparse.ArgumentParser(description="A CRF tagger on made-up names.")
    parser.add_argument("--steps", type=int, default=150)
    steps = parser.parse_args(arguments).steps
    torch.manual_seed(0)
    scorer = torch.nn.Embedding(FIRST + REST + COMMON, len(NAMES))
    transitions = torch.nn.Parameter(torch.zeros_like(ALLOWED))
    optimizer = torch.optim.Adam([*scorer.parameters(), transitions], lr=0.05)
    for _ in range(steps):
        words, tags, lengths = sentences(32)
        tagging = pb.Tagging(ALLOWED + transitions, lengths, start=START, end=END)
        loss = -tagging.log_prob(scorer(words), pb.Tagging.one_hot(tags, len(NAMES))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    words, tags, lengths = sentences(500)
    with torch.no_grad():
        best = pb.Tagging(ALLOWED + transitions, lengths, start=START, end=END).argmax(scorer(words))
        found = {"CRF": pb.Tagging.tags(best), "each word alone": scorer(words).argmax(-1)}
    shares = {name: (answer == tags)[tags >= 0].float().mean().item() for name, answer in found.items()}
    print(", ".join(f"{name} {share:.1%}" for name, share in shares.items()), "of the tags right")
    for before, after in (("B-PER", "I-PER"), ("B-PER", "O"), ("O", "I-PER")):
        score = (ALLOWED + transitions)[NAMES.index(before), NAMES.index(after)]
        print(f"{before} → {after}: {score:.2f}")
    print("for example", [NAMES[tag] for tag in found["CRF"][0, : lengths[0]]])
    return shares


if __name__ == "__main__":
    main()
