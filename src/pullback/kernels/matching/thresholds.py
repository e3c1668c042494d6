"""Exact minimization over the prices of one side: a threshold for each row, or for each column.

With the other prices held, the best price of a row is the threshold θ with Σ_j max(0, r_j − θ) = 1, where r is what is
left of its scores; at least as much as makes the price 0 if it must not be negative.  The sum is convex in θ, so that
Newton's method does not pass the solution after its first step.  A step costs one pass over the row.
"""

import numpy as np

from pullback.kernels.tools import inner, maximum, summing

STEPS = 60
ACCURATE = 1e-14  # change of a threshold that is not worth another pass


@summing
def _above(row, theta):
    """Σ max(0, r_j − θ) and the number of terms."""
    mass, count = 0.0, 0.0
    for j in range(row.shape[0]):
        x = row[j] - theta
        mass += max(x, 0.0)
        count += 1.0 if x > 0.0 else 0.0
    return mass, count


@inner
def _threshold(row):
    """θ with Σ max(0, r_j − θ) = 1; −∞ if no r_j is finite."""
    theta = 0.0
    for step in range(STEPS):
        mass, count = _above(row, theta)
        if count == 0.0:
            theta = maximum(row) - 1.0
            if theta == -np.inf:
                break
            continue
        change = (mass - 1.0) / count
        theta += change
        if abs(change) <= ACCURATE * (1.0 + abs(theta)) or (step > 1 and change < 0.0):
            break
    return theta


@inner
def settle_rows(rest, price, signed):
    """Gives all rows their best prices; unless `signed` they must not be negative."""
    for i in range(rest.shape[0]):
        row = rest[i]
        change = _threshold(row)
        if not signed:
            change = max(change, -price[i])
        price[i] += change
        for j in range(row.shape[0]):
            row[j] -= change


@summing
def _above_all(rest, theta, mass, count):
    """The same for all columns at once."""
    rows, cols = rest.shape
    mass[:cols] = 0.0
    count[:cols] = 0.0
    for i in range(rows):
        row = rest[i]
        for j in range(cols):
            x = row[j] - theta[j]
            mass[j] += max(x, 0.0)
            count[j] += 1.0 if x > 0.0 else 0.0


@inner
def settle_columns(rest, price, signed, theta, mass, count):
    """Gives all columns their best prices; theta, mass, count (columns,) are workspace."""
    rows, cols = rest.shape
    theta[:cols] = 0.0
    for step in range(STEPS):
        _above_all(rest, theta, mass, count)
        moved = False
        for j in range(cols):
            floor = -np.inf if signed else -price[j]
            if count[j] > 0.0:
                change = (mass[j] - 1.0) / count[j]
                if step < 2 or change > 0.0:
                    moved |= abs(change) > ACCURATE * (1.0 + abs(theta[j])) and (change > 0.0 or theta[j] > floor)
                    theta[j] = max(theta[j] + change, floor)
            elif theta[j] > floor:
                best = -np.inf
                for i in range(rows):
                    best = max(best, rest[i, j])
                theta[j] = max(best - 1.0, floor)
                moved = True
        if not moved:
            break
    for j in range(cols):
        price[j] += theta[j]
    for i in range(rows):
        row = rest[i]
        for j in range(cols):
            row[j] -= theta[j]
