"""The scores that a chart is given: without what all vertices have in common, and without parts at −∞."""

import numpy as np

from pullback.kernels.charts.chart import NO_PART, sub_chart
from pullback.kernels.charts.passes import expect
from pullback.kernels.tools import inner


@inner
def allowed(chart, score):
    """The chart without parts at −∞."""
    keep = np.ones(len(chart.left), np.bool_)
    for t in range(len(chart.part)):
        if chart.part[t] >= 0 and not score[chart.part[t]] > -np.inf:
            for e in range(chart.first[t], chart.first[t + 1]):
                keep[e] = False
    sub = sub_chart(chart, keep)
    for t in range(len(sub.part)):
        sub.item[t] = t
    for e in range(len(sub.left)):
        sub.edge[e] = e
    return sub


@inner
def centered(chart, score, loudness):
    """The scores of items, moved by what all vertices have in common: the nearest point stays where it is.

    The parts of a group sum to one, as they do in every vertex; the parts without a group sum to how many there are.
    What sets the parts of a group apart is multiplied by `loudness`.
    """
    items, goal = len(chart.part), len(chart.part) - 1
    moved = np.zeros(items)
    groups = 1
    for t in range(items):
        groups = max(groups, chart.group[t] + 1)
    sums = np.zeros((groups + 1, 2))
    ones, share = np.zeros(items), np.zeros(len(chart.left))
    for t in range(1, items):
        share[chart.first[t]] = 1.0
        if chart.group[t] != NO_PART and t != goal:
            ones[t] = chart.group[t] < 0
            sums[chart.group[t], 0] += score[chart.part[t]]
            sums[chart.group[t], 1] += 1.0
    value = np.zeros(items)
    expect(chart, share, ones, value, np.empty(len(chart.left)))
    for t in range(1, items):
        if chart.group[t] != NO_PART and t != goal:
            total, count = sums[chart.group[t]]
            level = (value[goal] if chart.group[t] < 0 else 1.0) / count
            moved[t] = level + loudness * (score[chart.part[t]] - total / count)
    if chart.group[goal] != NO_PART:
        moved[goal] = 1.0  # it is in every vertex
    return moved


@inner
def spread_of(chart, score):
    """The standard deviation of the scores of the parts."""
    count, total, square = 0, 0.0, 0.0
    for t in range(len(chart.part)):
        if chart.group[t] != NO_PART:
            count += 1
            total += score[t]
            square += score[t] * score[t]
    return np.sqrt(max(square / count - (total / count) ** 2, 0.0))
