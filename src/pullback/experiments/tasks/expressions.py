"""Expressions of ListOps such as [MAX 2 [MIN 8 3 ] 5 ]: drawn, read, and understood."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pullback.experiments.mistakes import Mistake

OPERATORS = ("[MIN", "[MAX", "[MED")
CLOSE = "]"
WORDS = ("<pad>", *map(str, range(10)), *OPERATORS, CLOSE)
NUMBERS = {word: number for number, word in enumerate(WORDS)}
NESTED = 0.25  # how often an argument is an expression where it may be one


@dataclass(frozen=True)
class Expression:
    """Tokens, the head of each (0 for none, else 1 + the operator's position), its value and its depth."""

    tokens: tuple[str, ...]
    heads: tuple[int, ...]
    value: int
    depth: int


def parse(tokens: Sequence[str]) -> Expression:
    """The expression that `tokens` spell; ValueError if they spell none."""
    heads: list[int] = []
    open_at: list[int] = []  # operators that wait for their closing bracket
    values: list[list[int]] = [[]]  # of their arguments
    depth = 0
    for position, token in enumerate(tokens):
        heads.append(open_at[-1] + 1 if open_at else 0)
        if token in OPERATORS:
            open_at.append(position)
            values.append([])
            depth = max(depth, len(open_at))
        elif token == CLOSE:
            if not open_at or not values[-1]:
                break
            operator = tokens[open_at.pop()]
            arguments = sorted(values.pop())
            values[-1].append(_value(operator, arguments))
        else:
            values[-1].append(int(token))
    if len(heads) < len(tokens) or open_at or len(values) != 1 or len(values[0]) != 1:
        raise ValueError(f"{' '.join(tokens)!r} is not an expression")
    return Expression(tuple(tokens), tuple(heads), values[0][0], depth)


def _value(operator: str, arguments: list[int]) -> int:
    if operator == "[MIN":
        return arguments[0]
    if operator == "[MAX":
        return arguments[-1]
    middle = len(arguments) // 2
    return arguments[middle] if len(arguments) % 2 else (arguments[middle - 1] + arguments[middle]) // 2


def draw_tokens(generator: random.Random, depth: int, most: int) -> list[str]:
    """Tokens of an expression that is exactly `depth` deep, with 2 to `most` arguments everywhere."""
    arguments = generator.randint(2, most)
    deepest = generator.randrange(arguments)
    tokens = [generator.choice(OPERATORS)]
    for i in range(arguments):
        if depth > 1 and i == deepest:
            tokens += draw_tokens(generator, depth - 1, most)
        elif depth > 1 and generator.random() < NESTED:
            tokens += draw_tokens(generator, generator.randint(1, depth - 1), most)
        else:
            tokens.append(str(generator.randrange(10)))
    return [*tokens, CLOSE]


def read(lines: Iterable[str], name: str) -> Iterator[Expression]:
    """The expressions of a published file called `name`, as far as they use our operators.

    A line is a label, a tab, and the expression with parentheses around binary steps, which are dropped.
    """
    for number, line in enumerate(lines, 1):
        label, tab, text = line.strip().partition("\t")
        tokens = [token for token in text.split() if token not in "()"]
        if not tab or not tokens:
            raise Mistake(f"{name}, line {number}: not a label, a tab and an expression.")
        if all(token in NUMBERS for token in tokens):
            try:
                expression = parse(tokens)
            except ValueError as error:
                raise Mistake(f"{name}, line {number}: {text!r} is not an expression.") from error
            if str(expression.value) != label.strip():
                raise Mistake(f"{name}, line {number}: the value is {expression.value}, the label says {label}.")
            yield expression
