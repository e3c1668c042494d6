"""Whether the arcs that are allowed hold a tree."""

import numpy as np

from pullback.kernels.tools import inner


@inner
def is_feasible(scores, n, single_root, seen, queue):
    """Whether the arcs with a score above −∞ hold an arborescence (with one root arc if `single_root`), in O(n²t).

    With a single root some word next to the root must reach all others.  A word that a failed search has reached
    would reach no more than that search did, so it is not tried again.
    """
    labels = scores.shape[1] // len(seen)
    tried = 0
    seen[1 : n + 1] = 0
    for first in range(1, n + 1):
        if not _is_allowed(scores[0], first, labels) or seen[first] > 0:
            continue
        tried += 1
        filled = 0
        for j in range(first, n + 1 if not single_root else first + 1):
            if _is_allowed(scores[0], j, labels):
                seen[j] = tried
                queue[filled] = j
                filled += 1
        done = 0
        while done < filled:
            i = queue[done]
            done += 1
            for j in range(1, n + 1):
                if seen[j] != tried and i != j and _is_allowed(scores[i], j, labels):
                    seen[j] = tried
                    queue[filled] = j
                    filled += 1
        if filled == n:
            return True
        if not single_root:
            return False
    return False


@inner
def _is_allowed(scores, j, labels):
    """Whether the arc into word j exists with some label, given the scores of arcs from one head."""
    for m in range(labels * j, labels * (j + 1)):
        if scores[m] > -np.inf:
            return True
    return False
