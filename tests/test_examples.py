"""What the example programs show, in fewer steps than they take."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, *arguments):
    return runpy.run_path(str(EXAMPLES / name))["main"](arguments)


def test_reinmax_solves_the_polynomial_program_and_first_order_methods_do_not():
    found = run("polynomial_programming.py", "--steps", "100")
    assert 0.2025 < found.pop("reinmax") < 0.22
    assert all(loss > 0.24 for loss in found.values())


def test_methods_that_average_find_the_best_subset_and_those_that_ask_at_one_vertex_do_not():
    found = run("subset_toy.py", "--steps", "60")
    assert found["spigot_ce"] < 0.01
    assert found["simple, 8 draws"] < found["simple"] < 0.15
    for name in ("imle", "imle, two-sided", "imle, adaptive", "perturbed"):
        assert found[name] < 0.12, name
    assert found["ste"] > 0.2 and found["spigot"] > 0.2


def test_a_solver_of_ones_own_is_trained_through():
    assert runpy.run_path(str(EXAMPLES / "own_solver.py"))["main"]() < 0.05
