"""Labels on the arcs of trees: what all labels of an arc are worth, and which ones a tree takes.

Given its arc, a label is chosen freely.  So an arc is worth its best label, or all of its labels together, and the
kernels of trees need not know of labels.
"""

from pullback.kernels.labels.choices import choose, draw, write_arcs
from pullback.kernels.labels.k_best import topk
from pullback.kernels.labels.reductions import best_labels, heads_to_parts, largest, load_relative
from pullback.kernels.labels.sums import along, spread, spread_product, together

__all__ = [
    "along",
    "best_labels",
    "choose",
    "draw",
    "heads_to_parts",
    "largest",
    "load_relative",
    "spread",
    "spread_product",
    "together",
    "topk",
    "write_arcs",
]
