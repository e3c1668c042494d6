"""Counts known from mathematics hold the enumeration of trees in place."""

import numpy as np
import pytest

from reference.trees import arcs, enumerate_trees


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_enumerated_trees_have_the_known_counts(n):
    assert len(enumerate_trees(n, False, False)) == (n + 1) ** (n - 1)
    assert len(enumerate_trees(n, False, True)) == n ** (n - 1)
    assert len(enumerate_trees(n, True, False)) == [1, 3, 12, 55, 273][n - 1]
    assert len(enumerate_trees(n, True, True)) == [1, 2, 7, 30, 143][n - 1]


def test_crossing_arcs_are_not_projective():
    assert (3, 0, 2, 1) not in enumerate_trees(4, True, False)
    assert (2, 0, 2, 1) not in enumerate_trees(4, True, False)
    assert (2, 0, 2, 3) in enumerate_trees(4, True, False)


def test_arcs_puts_one_head_in_every_column_but_the_first():
    matrix = arcs((2, 0, 2))
    assert matrix[2, 1] == matrix[0, 2] == matrix[2, 3] == 1
    np.testing.assert_array_equal(matrix.sum(0), [0, 1, 1, 1])
