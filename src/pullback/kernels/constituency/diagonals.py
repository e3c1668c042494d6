"""Inside and outside over several sentences at a time, in the linear domain: the recurrence of `cky` by diagonals.

Row d of a chart holds the spans of d + 1 words, in the order of their first words, and for each of them a number per
sentence: chart[d, i · count + sentence].  All spans of one width are computed together, so every sum over splits adds
up products of rows, element by element, and rows are long enough for vector instructions even if sentences are short.

Sentences of a group may differ in length.  The words beyond a sentence hang to its right, one after the other: a span
from word 0 to such a word has weight 1, as has the word itself, all other spans that reach it 0.  Every tree is then
part of exactly one longer tree, and no sum changes, not even its rounding.
"""

import numpy as np

from pullback.kernels.tools import exp, inner


@inner
def in_a_group(size, instances):
    """How many sentences of at most `size` words are computed together: their charts shall stay in the cache."""
    return max(1, min(8, 400 // size, instances))


@inner
def by_length(lengths):
    """The instances in the order of their lengths, so that those of a group differ little."""
    order, found = np.empty(len(lengths), np.int64), 0
    for n in range(lengths.max() + 1 if len(lengths) > 0 else 0):
        for b in range(len(lengths)):
            if lengths[b] == n:
                order[found] = b
                found += 1
    return order


@inner
def pack(joint, n, between, sentence, count, longest, log_weight):
    """Writes the logarithms of the weights of one out of `count` sentences, which has n words, into their chart.

    They are at most 0: joint scores less `between`, the largest of them, and 0 for what every tree has.
    """
    for i in range(longest):
        for j in range(i, longest):
            beyond = 0.0 if i == 0 else -np.inf
            log_weight[j - i, i * count + sentence] = joint[i, j] - between if j < n else beyond
        log_weight[0, i * count + sentence] = 0.0
    log_weight[max(n - 1, 0), sentence] = 0.0


@inner
def unpack(chart, n, sentence, count, out):
    """Copies one sentence's spans of several words to out[i, j]; 1 for single words and for the sentence."""
    for i in range(n):
        for j in range(i, n):
            out[i, j] = chart[j - i, i * count + sentence]
        out[i, i] = 1.0
    out[0, max(n - 1, 0)] = 1.0


@inner
def _exponentials(x):
    for k in range(len(x)):
        x[k] = exp(x[k])


@inner
def _multiply(x, y, out):
    for k in range(len(out)):
        out[k] = x[k] * y[k]


@inner
def _add_product(x, y, out):
    for k in range(len(out)):
        out[k] += x[k] * y[k]


@inner
def _add_products(x, y, u, v, out):
    for k in range(len(out)):
        out[k] += x[k] * y[k] + u[k] * v[k]


@inner
def inside(weight, count, longest, tree):
    """Turns the logarithms of weights into weights and fills the chart; tree[longest − 1, :count] are the sums."""
    for d in range(longest):
        _exponentials(weight[d, : (longest - d) * count])
    tree[0] = weight[0]
    for d in range(1, longest):
        total = tree[d, : (longest - d) * count]
        total[:] = 0.0
        for left in range(d // 2):
            right = d - 1 - left  # and the other way round
            _add_products(
                tree[left], tree[right, (left + 1) * count :], tree[right], tree[left, (right + 1) * count :], total
            )
        if d % 2 == 1:
            _add_product(tree[d // 2], tree[d // 2, (d // 2 + 1) * count :], total)
        _multiply(total, weight[d], total)


@inner
def _finish(weight, tree, outer, share):
    """From the adjoints of spans, in `outer`: their marginals, and the adjoints of the sums over splits."""
    for k in range(len(outer)):
        share[k] = outer[k] * tree[k]
        outer[k] *= weight[k]


@inner
def outside(weight, count, longest, tree, outer, share):
    """Writes the marginals of spans of several words into the chart `share`; `outer` is workspace."""
    for d in range(longest - 1, 0, -1):
        total = outer[d, : (longest - d) * count]
        total[:] = 0.0
        if d == longest - 1:
            for sentence in range(count):
                total[sentence] = 1.0 / tree[d, sentence]
        for above in range(d + 1, longest):
            # The span lies to the left or to the right of another one, below a span that is wider than both.
            beside, spans = tree[above - d - 1], (longest - above) * count
            _add_product(outer[above], beside[(d + 1) * count :], total[:spans])
            _add_product(outer[above], beside, total[len(total) - spans :])
        _finish(weight[d], tree[d], total, share[d])
