"""Exact samples of dependency trees, by taking the elimination of `matrix_tree` back one word at a time.

With the words above k eliminated, the arc h → m weighs what it weighs directly or through them,

    w[h, m] + Σ_{j>k} p[h, j] w[j, m],        h, m ≤ k,

so given that it is in the tree, one draw says through which j it goes first, if any.  Starting from the root and word
1, word k joins a random tree over the words below it like this.  Let S be the words whose arcs go through k: they
become children of k.  The head of k has to be outside of their subtrees, and there it is h with probability ∝ p[h, k].
That is right because the ways to hang the subtrees of S on heads drawn from p, without a cycle, have the probability
of the component of the root, Σ p[h, k] over it, whatever S is.  With one root, p sums to one over the words; if
cutting off S takes the root's only arc away, k is the root word.

Unlike the random walks of Wilson (1996), the time is bounded whatever the scores are, and one root is as easy as any
number: O(n³) once, then about O(n²) for each sample.
"""

import numpy as np

from pullback.kernels.tools import inner, kernel, uniform
from pullback.kernels.trees import logarithmic
from pullback.kernels.trees.elimination import exchanged, factorize, group, workspace
from pullback.kernels.trees.lanes import LANES


@inner
def _draw(terms, random):
    """An index with probability ∝ exp(terms)."""
    top = terms.max()
    total = 0.0
    for i in range(terms.shape[0]):
        total += np.exp(terms[i] - top)
    left = total * uniform(random)
    chosen = 0
    for i in range(terms.shape[0]):
        share = np.exp(terms[i] - top)
        if share > 0.0:
            chosen = i  # the last possible one if rounding leaves something over
            left -= share
            if left < 0.0:
                break
    return chosen


@inner
def _first_stop(scores, logs, n, head, modifier, terms, random):
    """The word an arc between words up to max(head, modifier) goes through first; 0 if it is direct."""
    k = max(head, modifier)
    terms[0] = scores[head, modifier]
    for j in range(k + 1, n + 1):
        terms[j - k] = logs[head, j] + logs[j, modifier]
    stop = _draw(terms[: n + 1 - k], random)
    return k + stop if stop > 0 else 0


@inner
def _outside(heads, through, k, outside):
    """Marks the words below k that reach the root by arcs that do not go through k."""
    outside[0] = 1
    outside[1:k] = -1
    for word in range(1, k):
        node = word
        while outside[node] < 0 and through[node] != k:
            node = heads[node]
        mark = 0 if outside[node] < 0 else outside[node]
        node = word
        while outside[node] < 0:
            outside[node] = mark
            node = heads[node] if through[node] != k else 0


@inner
def _head(heads, through, logs, k, single_root, outside, terms, random):
    """The head of word k among the words below it."""
    _outside(heads, through, k, outside)
    rooted = False
    for word in range(1, k):
        rooted |= heads[word] == 0 and through[word] != k
    if single_root and not rooted:
        return 0
    for h in range(k):
        terms[h] = logs[h, k] if outside[h] == 1 and (h > 0 or not single_root) else -np.inf
    return _draw(terms[:k], random)


@inner
def _expand(scores, logs, n, single_root, random, heads, through, outside, terms):
    """Writes a random tree; scores and logs of the elimination in the order of the elimination."""
    for k in range(1, n + 1):
        head = _head(heads, through, logs, k, single_root, outside, terms, random)
        for word in range(1, k):
            if through[word] == k:
                heads[word] = k
                through[word] = _first_stop(scores, logs, n, k, word, terms, random)
        heads[k] = head
        through[k] = _first_stop(scores, logs, n, head, k, terms, random)


@inner
def _read(w, x, n, lane, scores, logs):
    """Logarithms of a lane of the weights and their elimination."""
    for i in range(n + 1):
        for j in range(n + 1):
            scores[i, j] = np.log(w[i, j, lane])
            logs[i, j] = np.log(x[i, j, lane])


@inner
def _eliminate_logs(source, n, single_root, scores, logs):
    """The same by logarithms; the word exchanged with word 1, or 0 if there is no tree."""
    nothing, unused, pivots = np.zeros((n + 1, n + 1)), np.empty((n + 1, n + 1)), np.empty((2, n + 1))
    value, last = logarithmic.factorize(source, nothing, n, single_root, logs, unused, pivots[0], pivots[1])
    if value == -np.inf:
        return 0
    logarithmic.load(source, nothing, n, last, scores, unused)
    for k in range(1, n + 1):
        for h in range(k):
            logs[h, k] -= pivots[0, k]
    return last


@kernel
def sample(scores, lengths, single_root, seeds, heads, lo, hi):
    """Independent exact samples of trees, heads[b, sample, m]; seeds[b] decides all those of instance b.

    scores, lengths, single_root and the answer as in `matrix_tree.log_partition`; seeds (batch,), int64;
    heads (batch, samples, N), int64, zero in the padding.
    """
    size = scores.shape[1]
    work = workspace(size)
    w, x, z, last = work.w, work.x, work.z, work.last
    log_w, log_x = np.empty((size, size)), np.empty((size, size))
    tree, through, outside = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    terms, random, members = np.empty(size + 1), np.empty(1, np.uint64), np.empty(LANES, np.int64)
    for first in range(lo, hi, LANES):
        group(first, hi, members)
        factorize(scores, lengths, single_root, members, work)
        for b in range(first, min(first + LANES, hi)):
            n, lane = lengths[b], b - first
            heads[b] = 0
            if np.isnan(z[lane]):
                return b
            if z[lane] > 0.0:
                _read(w, x, n, lane, log_w, log_x)
            else:
                last[lane] = _eliminate_logs(scores[b].astype(np.float64), n, single_root, log_w, log_x)
                if last[lane] == 0:
                    return b
            random[0] = np.uint64(seeds[b])
            for draw in range(heads.shape[1]):
                _expand(log_w, log_x, n, single_root, random, tree, through, outside, terms)
                for m in range(1, n + 1):
                    heads[b, draw, exchanged(m, last[lane])] = exchanged(tree[m], last[lane])
    return -1
