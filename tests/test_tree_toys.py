"""The toys under examples/ reach their known optima with the estimators that should."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
ARBORESCENCE = runpy.run_path(str(EXAMPLES / "arborescence.py"))
SPANNING_TREE = runpy.run_path(str(EXAMPLES / "spanning_tree.py"))


@pytest.mark.parametrize("name", ARBORESCENCE["ESTIMATORS"])
def test_the_largest_out_degree_is_that_of_a_star(name):
    history = ARBORESCENCE["train"](ARBORESCENCE["ESTIMATORS"][name], 400)
    assert history[0] > -4 and history[-1] == -9


@pytest.mark.parametrize("name", SPANNING_TREE["ESTIMATORS"])
def test_all_edges_come_to_touch_one_vertex_unless_nothing_is_learned(name):
    history = SPANNING_TREE["train"](SPANNING_TREE["ESTIMATORS"][name], 200)
    assert history[0] >= 6 and history[-1] == (history[0] if name == "frozen" else 0)
