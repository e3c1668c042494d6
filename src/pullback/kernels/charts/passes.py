"""Passes over a chart, each in the time it takes to look at every hyperedge once or twice.

`share[e]` is the probability that an item is made by the hyperedge e; these make a distribution over vertices, under
which item t is in a vertex with probability flow[t], and hyperedge e with flow[t] · share[e].

A pass downwards adds to items, and additions to one item wait for each other.  The empty item is what most hyperedges
have on the right, and nobody asks for its sum, so there they add nothing.
"""

import numpy as np

from pullback.kernels.charts.chart import NO_PART
from pullback.kernels.tools import exp, fmax, inner, summing

ONE = np.uint64(1)  # hyperedges are counted without a sign


@summing
def _largest(x, first, end):
    best = -np.inf
    for e in range(first, end):
        best = fmax(x[e], best)
    return best


@summing
def _exponentials(x, lo, hi, shift):
    """x = e^(x − shift); returns their sum."""
    total = 0.0
    for e in range(lo, hi):
        x[e] = exp(x[e] - shift)
        total += x[e]
    return total


@inner
def inside(chart, score, log_sum, share):
    """The shares of the distribution p(z) ∝ exp ⟨score, z⟩; returns the logarithm of its sum."""
    left, right = chart.left, chart.right
    log_sum[0] = 0.0
    for t in range(1, len(chart.part)):
        lo, hi = chart.first[t], chart.first[t + 1]
        for e in range(lo, hi):
            share[e] = log_sum[left[e]] + log_sum[right[e]]
        if hi == lo + ONE:
            log_sum[t] = share[lo] + score[t]
            share[lo] = 1.0
        else:
            largest = _largest(share, lo, hi)
            total = _exponentials(share, lo, hi, largest)
            for e in range(lo, hi):
                share[e] /= total
            log_sum[t] = largest + np.log(total) + score[t]
    return log_sum[len(chart.part) - 1]


@inner
def outside(chart, share, flow):
    """How likely each item is to be in a vertex."""
    left, right = chart.left, chart.right
    goal = len(chart.part) - 1
    flow[: goal + 1] = 0.0
    flow[goal] = 1.0
    for t in range(goal, 0, -1):
        for e in range(chart.first[t], chart.first[t + 1]):
            x = flow[t] * share[e]
            flow[left[e]] += x
            if right[e] > 0:
                flow[right[e]] += x


@inner
def expect(chart, share, direction, value, below):
    """value[t] = the expected sum of `direction` over item t and what it is made of; below[e] that of a hyperedge."""
    left, right = chart.left, chart.right
    value[0] = 0.0
    for t in range(1, len(chart.part)):
        lo, hi = chart.first[t], chart.first[t + 1]
        if hi == lo + ONE:
            below[lo] = value[left[lo]] + value[right[lo]]
            value[t] = below[lo] + direction[t]
        else:
            total = 0.0
            for e in range(lo, hi):
                below[e] = value[left[e]] + value[right[e]]
                total += share[e] * below[e]
            value[t] = total + direction[t]


@inner
def covary(chart, share, flow, direction, value, below, product):
    """product = the covariance of parts, times `direction`: how the flow changes as scores move that way."""
    left, right = chart.left, chart.right
    expect(chart, share, direction, value, below)
    goal = len(chart.part) - 1
    product[: goal + 1] = 0.0
    for t in range(goal, 0, -1):
        lo, hi = chart.first[t], chart.first[t + 1]
        if hi == lo + ONE:
            product[left[lo]] += product[t]
            if right[lo] > 0:
                product[right[lo]] += product[t]
        else:
            through = flow[t]
            rest = product[t] - through * (value[t] - direction[t])
            for e in range(lo, hi):
                x = share[e] * (rest + through * below[e])
                product[left[e]] += x
                if right[e] > 0:
                    product[right[e]] += x
        if chart.group[t] == NO_PART:
            product[t] = 0.0
    product[0] = 0.0


@inner
def gains(chart, share, ease, direction, value, gain):
    """gain[e] = what a hyperedge has of `direction` above the mean of its item; returns Σ ease · gain²."""
    left, right = chart.left, chart.right
    value[0] = total = 0.0
    for t in range(1, len(chart.part)):
        lo, hi = chart.first[t], chart.first[t + 1]
        if hi == lo + ONE:
            gain[lo] = 0.0
            value[t] = value[left[lo]] + value[right[lo]] + direction[t]
        else:
            mean = square = 0.0
            for e in range(lo, hi):
                gain[e] = value[left[e]] + value[right[e]]
                mean += share[e] * gain[e]
            for e in range(lo, hi):
                gain[e] -= mean
                square += ease[e] * gain[e] * gain[e]
            value[t] = mean + direction[t]
            total += square
    return total


@inner
def push(chart, share, wish, change, product):
    """Makes a change of flow from a wish for every hyperedge: what the wishes for an item lack goes along its shares.

    change[e] is that of the hyperedges, product[t] that of the parts.
    """
    left, right = chart.left, chart.right
    goal = len(chart.part) - 1
    product[: goal + 1] = 0.0
    for t in range(goal, 0, -1):
        lacking = product[t]
        lo, hi = chart.first[t], chart.first[t + 1]
        if hi == lo + ONE:
            change[lo] = lacking
            product[left[lo]] += lacking
            if right[lo] > 0:
                product[right[lo]] += lacking
        else:
            for e in range(lo, hi):
                lacking -= wish[e]
            for e in range(lo, hi):
                x = wish[e] + lacking * share[e]
                change[e] = x
                product[left[e]] += x
                if right[e] > 0:
                    product[right[e]] += x
        if chart.group[t] == NO_PART:
            product[t] = 0.0
    product[0] = 0.0


@inner
def slacks(chart, score, best, rest, slack):
    """How much the best vertex scores above the best one through each hyperedge; returns the score of the best."""
    left, right = chart.left, chart.right
    best[0] = 0.0
    for t in range(1, len(chart.part)):
        largest = -np.inf
        for e in range(chart.first[t], chart.first[t + 1]):
            slack[e] = best[left[e]] + best[right[e]]
            largest = max(largest, slack[e])
        best[t] = largest + score[t]
    goal = len(chart.part) - 1
    rest[: goal + 1] = np.inf
    rest[goal] = 0.0
    for t in range(goal, 0, -1):
        most = rest[t] + best[t] - score[t]
        for e in range(chart.first[t], chart.first[t + 1]):
            slack[e] = most - slack[e]
            rest[left[e]] = min(rest[left[e]], slack[e])
            if right[e] > 0:
                rest[right[e]] = min(rest[right[e]], slack[e])
    return best[goal]
