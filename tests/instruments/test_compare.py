"""What a comparison of gradients tells."""

import itertools
import math
import re
import sys
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

import pullback as pb

GOAL = torch.rand(6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def downstream(z):
    return (z - GOAL).square().sum(-1)


def scores(batch=4):
    return torch.randn(batch, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def rows(comparison):
    return {row.name: row for row in comparison.rows}


def test_the_exact_estimator_is_exact_and_deterministic():
    found = rows(pb.compare_gradients(pb.Subset(3), scores(), downstream, ["minimum_risk", "ste"], draws=5))
    exact = found["minimum_risk"]
    assert exact.cosine == pytest.approx(1) and exact.scale == pytest.approx(1)
    assert exact.bias == pytest.approx(0, abs=1e-9) and exact.variance == 0 and exact.zeros == 0
    assert exact.evaluations == 20 and found["ste"].evaluations == 1
    assert found["ste"].solver_calls == 1 and found["ste"].cosine < 0.999


def test_an_unbiased_estimator_has_variance_and_the_right_mean():
    torch.manual_seed(0)
    estimators = {"one": pb.reinforce(), "many": pb.reinforce(8, "leave_one_out")}
    found = rows(pb.compare_gradients(pb.Subset(3), scores(), downstream, estimators, draws=400))
    assert found["many"].cosine > 0.99
    assert found["many"].scale == pytest.approx(1, abs=0.1)
    assert 0 < found["many"].variance < found["one"].variance
    assert found["many"].evaluations == 8


def test_a_bias_is_that_of_the_expected_gradient_and_not_of_the_draws():
    """Against enumeration, with so few draws that the noise of their mean is larger than either bias."""
    given, estimators = scores(100), {"unbiased": pb.reinforce(), "biased": pb.simple()}
    found = rows(
        pb.compare_gradients(
            pb.Subset(3), given, downstream, estimators, draws=20, generator=torch.Generator().manual_seed(3)
        )
    )
    vertices = pb.Subset(3).enumerate(given.shape).vertices.to(given)  # (20, 6)
    given.requires_grad_()
    p = (given @ vertices.T).softmax(-1)
    (exact,) = torch.autograd.grad((p * downstream(vertices)).sum(), given, retain_graph=True)
    # `simple` decodes from a draw z, and gives ∇L(z) to the marginals p @ vertices.
    (expected,) = torch.autograd.grad(p @ vertices, given, 2 * (p.detach() @ vertices - GOAL))
    true = float((((expected - exact).norm(dim=-1) / exact.norm(dim=-1)).square().mean()) ** 0.5)
    assert found["biased"].bias == pytest.approx(true, rel=0.1)
    noise = (found["unbiased"].variance / 20) ** 0.5
    assert found["unbiased"].bias < 0.25 * noise and noise > 1


def test_the_noise_that_is_left_in_the_mean_of_the_draws_is_taken_off_the_bias():
    class Alternating(pb.Estimator):
        """Every part has the gradient 1, then 5, then 1 …"""

        evaluations, factors = 0, itertools.cycle([1, 5])

        def loss(self, structure, scores, downstream):
            return next(self.factors) * scores.sum(-1)

    found = pb.compare_gradients(pb.Subset(3), scores(), downstream, {"": Alternating()}, draws=10)
    (row,) = found.rows
    square, variance = found.exact.square().sum(-1), 6 * 10 * 4 / 9  # of six parts, with ten draws 2 away from 3
    squared_bias = (3 - found.exact).square().sum(-1) - variance / 10
    assert row.variance == pytest.approx(float((variance / square).mean()))
    assert row.bias == pytest.approx(float((squared_bias / square).mean()) ** 0.5)


def test_noise_of_an_estimated_exact_gradient_is_no_bias():
    torch.manual_seed(0)
    given = torch.randn(16, 40, generator=torch.Generator().manual_seed(0))
    price = torch.randn(40, generator=torch.Generator().manual_seed(1))
    found = pb.compare_gradients(pb.Binary(), given, lambda z: z @ price, ["structured_attention"], samples=512)
    (row,) = found.rows  # the loss is linear, so that this estimator is exact
    assert found.standard_error > 0.1 and row.bias < 0.5 * found.standard_error and row.variance == 0


def test_of_a_single_draw_there_is_no_variance():
    (row,) = pb.compare_gradients(pb.Subset(3), scores(), downstream, ["reinforce"], draws=1).rows
    assert row.draws == 1 and row.variance == 0 and row.bias > 0


def test_where_vertices_cannot_be_listed_samples_stand_in():
    torch.manual_seed(0)
    structure, given = pb.Binary(), torch.randn(2, 40, generator=torch.Generator().manual_seed(0))
    price = torch.randn(40, generator=torch.Generator().manual_seed(1))
    found = pb.compare_gradients(structure, given, lambda z: z @ price, ["structured_attention"], samples=8000)
    assert 0 < found.standard_error < 0.2
    assert rows(found)["structured_attention"].cosine > 0.98
    assert rows(found)["structured_attention"].bias < 4 * found.standard_error
    assert "by samples" in str(found)


def test_a_list_of_vertices_that_is_too_long_to_be_used_is_not_made(monkeypatch):
    def enumerate_all(self, shape):
        raise AssertionError(f"asked to list all vertices of {shape}")

    monkeypatch.setattr(pb.Binary, "enumerate", enumerate_all)
    found = pb.compare_gradients(pb.Binary(), torch.zeros(2, 20), lambda z: z.sum(-1), ["ste"], samples=32)
    assert found.standard_error > 0


def test_the_share_of_zero_gradients_is_counted():
    frozen = {"tiny": pb.spigot(0.0)}
    found = rows(pb.compare_gradients(pb.Subset(3), scores(), downstream, frozen))
    assert found["tiny"].zeros == 1


def test_examples_with_a_single_structure_have_no_gradient_but_for_rounding():
    allowed = torch.ones(4, 6, 6, dtype=torch.bool)
    allowed[:2, 1:] = False
    allowed[:2, 1, 2:] = True  # two of four examples have one tree
    trees = pb.DependencyTree(None, allowed)
    scores = torch.randn(4, 6, 6, generator=torch.Generator().manual_seed(0))
    scores[:2, 0, 2:] = -torch.inf
    weights = torch.randn(6, 6, generator=torch.Generator().manual_seed(1))
    rows = pb.compare_gradients(
        trees, scores, lambda z: (z * weights).sum((-2, -1)).square(), ["sparsemap", "ste_sparsemap"], samples=64
    ).rows
    assert [row.zeros for row in rows] == [0.5, 0.5]
    assert all(math.isfinite(row.scale) and row.scale < 100 for row in rows)


def test_a_comparison_prints_the_best_direction_first():
    names = ["ste", "minimum_risk", "spigot"]
    printed = str(pb.compare_gradients(pb.Subset(3), scores(), downstream, names, draws=3)).splitlines()
    header = printed[0].split()
    assert header[:2] == ["estimator", "cosine"] and header[-3:] == ["decoder", "solver", "ms"]
    assert printed[1].startswith("minimum_risk") and printed[-1] == "exact gradient by enumeration; 3 draws"
    assert len({len(line) for line in printed[:-1]}) == 1


class FakeFrame(list):
    """As much of a `pandas.DataFrame` as is asked for."""

    def set_index(self, name):
        return {row[name]: row for row in self}


def test_a_comparison_becomes_a_data_frame_where_pandas_is_there(monkeypatch):
    found = pb.compare_gradients(pb.Subset(3), scores(), downstream, ["minimum_risk", "ste"], draws=3)
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=FakeFrame))
    table = found.to_pandas()
    assert list(table) == ["minimum_risk", "ste"] and table["ste"]["evaluations"] == 1
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_pandas: pandas is not installed"):
        found.to_pandas()


def test_a_comparison_is_drawn_where_matplotlib_is_there(monkeypatch):
    found = pb.compare_gradients(pb.Subset(3), scores(), downstream, ["minimum_risk", "ste"], draws=3)
    assert len(found.plot().axes[0].collections) == 2
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="plot: matplotlib is not installed"):
        found.plot()


def test_what_cannot_be_compared_is_refused_in_words():
    with pytest.raises(pb.MissingCapability, match="compare_gradients needs a partition function"):
        pb.compare_gradients(pb.Matching(), torch.zeros(2, 3, 3), lambda z: z.sum((-1, -2)), ["ste"])
    with pytest.raises(TypeError, match=re.escape("estimators is 'ste'; expected a list of names or a dictionary")):
        pb.compare_gradients(pb.Subset(3), scores(), downstream, "ste")
    with pytest.raises(TypeError, match="estimators has a Surrogate in it; expected a list of names, or a dictionary"):
        pb.compare_gradients(pb.Subset(3), scores(), downstream, [pb.ste()])
    with pytest.raises(ValueError, match="'spigot' perhaps"):
        pb.compare_gradients(pb.Subset(3), scores(), downstream, ["spigott"])


def test_the_structure_and_the_scores_stay_as_they_were():
    structure, given = pb.DependencyTree(torch.tensor([3, 2])), torch.randn(2, 4, 4, requires_grad=True)
    before = given.detach().clone()
    pb.compare_gradients(structure, given, lambda z: z[..., 0, :].sum(-1), ["spigot", "sparsemap"])
    assert type(structure) is pb.DependencyTree and given.grad is None
    assert_close(given.detach(), before)
