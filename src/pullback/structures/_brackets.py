"""Binary trees as text: `((0 1) 2)`, or with labels, `(S (NP (D the) (N cat)) (V sleeps))`."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from pullback.structures._checks import check_parts

Span = tuple[int, int, str | None]


def write(tree: Tensor, words: Sequence[str] | None, labels: Sequence[str] | None) -> str:
    """The brackets of a tree (n, n), or (n, n, t) if its spans are labelled."""
    name = "ConstituencyTree.brackets"
    if isinstance(tree, Tensor) and (tree.dim() not in (2, 3) or tree.shape[0] != tree.shape[1]):
        raise ValueError(f"{name}: spans have shape {tuple(tree.shape)}; expected one tree, (n, n) or (n, n, t).")
    check_parts(name, "spans", tree, "n, n, t" if isinstance(tree, Tensor) and tree.dim() == 3 else "n, n")
    if labels is not None and (tree.dim() == 2 or len(labels) != tree.shape[2]):
        count = 0 if tree.dim() == 2 else tree.shape[2]
        raise ValueError(f"{name}: there are {len(labels)} labels; expected {count}, as many as the spans can have.")
    spans = {(i, j): label[0] if label else None for i, j, *label in tree.nonzero().tolist()}
    n = sum(i == j for i, j in spans)
    names = [str(i) for i in range(n)] if words is None else [str(word) for word in words]
    if len(spans) != max(2 * n - 1, 0) or tree.sum() != len(spans) or (n and (0, n - 1) not in spans):
        raise ValueError(f"{name}: {len(spans)} spans over {n} words are not a tree; expected one vertex.")
    if len(names) < n:
        raise ValueError(f"{name}: there are {len(names)} words; expected {n}.")

    def text(i: int, j: int) -> str:
        below = names[i]
        if i < j:
            split = next((k for k in range(i, j) if (i, k) in spans and (k + 1, j) in spans), None)
            if split is None:
                raise ValueError(f"{name}: nothing splits the span from {i} to {j}; expected a binary tree.")
            below = f"{text(i, split)} {text(split + 1, j)}"
        label = spans[i, j]
        if label is not None:
            return f"({label if labels is None else labels[label]} {below})"
        return f"({below})" if i < j else below

    return text(0, n - 1) if n else ""


def read(brackets: Any, labels: Sequence[str] | None, size: int | None) -> Tensor:
    """The tree (n, n), or (n, n, t) with `labels`, of a text or of nested tuples, padded to `size` words."""
    nested = _parse(brackets) if isinstance(brackets, str) else brackets
    spans: list[Span] = []
    n = _collect(nested, 0, labels is not None, spans)
    if size is not None and size < n:
        raise ValueError(f"ConstituencyTree.spans: size is {size}; expected at least {n}, the number of words.")
    size = n if size is None else size
    tree = torch.zeros(size, size, *(() if labels is None else (len(labels),)))
    names = {name: place for place, name in enumerate(labels or ())}
    for i, j, label in spans:
        if label is not None and label not in names:
            raise ValueError(f"ConstituencyTree.spans: {label!r} is not a label; expected one of {', '.join(names)}.")
        tree[(i, j) if label is None else (i, j, names[label])] = 1
    return tree


def _collect(node: Any, start: int, labelled: bool, spans: list[Span]) -> int:
    """Adds the spans of a tree whose first word is `start`; returns the word after its last."""
    children = list(node) if isinstance(node, (tuple, list)) else [node]
    label = str(children.pop(0)) if labelled and len(children) > 1 else None
    is_word = len(children) == 1 and not isinstance(children[0], (tuple, list))
    if not (is_word or len(children) == 2) or (labelled and label is None):
        expected = "(label word) or (label left right)" if labelled else "a word or (left right)"
        raise ValueError(f"ConstituencyTree.spans: {_show(node)} is not a binary tree; expected {expected}.")
    place = len(spans)
    end = start + 1
    if not is_word:
        end = start
        for child in children:
            end = _collect(child, end, labelled, spans)
    spans.insert(place, (start, end - 1, label))
    return end


def _show(node: Any) -> str:
    return f"({' '.join(map(_show, node))})" if isinstance(node, (tuple, list)) else str(node)


def _parse(text: str) -> Any:
    """Nested tuples of the words in a text."""
    tokens = iter(re.findall(r"[()]|[^\s()]+", text))
    nodes = _until_closed(tokens, text, 0)
    if len(nodes) != 1:
        raise ValueError(f"ConstituencyTree.spans: {text!r} has {len(nodes)} trees side by side; expected one.")
    return nodes[0]


def _until_closed(tokens: Iterator[str], text: str, depth: int) -> tuple[Any, ...]:
    nodes: list[Any] = []
    for token in tokens:
        if token == ")":
            if depth == 0:
                break
            return tuple(nodes)
        nodes.append(_until_closed(tokens, text, depth + 1) if token == "(" else token)
    else:
        if depth == 0:
            return tuple(nodes)
    raise ValueError(f"ConstituencyTree.spans: the brackets of {text!r} do not match.")
