"""A structure that is only an argmax: its projections against enumeration, and what it says when asked wrongly."""

import warnings

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

from pullback import ConvergenceError, ConvergenceWarning, MissingCapability, best_vertex, minimum_risk
from pullback.structures.dependency_tree import DependencyTree
from pullback.structures.oracle import Oracle
from pullback.structures.subset import Subset
from reference.active_set import face_projector, permutations, project, subsets
from reference.trees import arcs, enumerate_trees

POLYTOPES = {
    "subsets": (torch.from_numpy(subsets(6, 3)), (6,)),
    "permutations": (torch.from_numpy(permutations(4)).reshape(-1, 4, 4), (4, 4)),
    "trees": (torch.from_numpy(np.array([arcs(h) for h in enumerate_trees(4, False, False)], float)), (5, 5)),
}
every_polytope = pytest.mark.parametrize("name", POLYTOPES)


def best_of(vertices):
    """The best of the listed vertices for one instance or a batch, of tensors or arrays."""

    def best(scores):
        given = torch.as_tensor(scores)
        parts = given.reshape(*given.shape[: given.dim() - vertices.dim() + 1], -1)
        listed = vertices.to(given).flatten(1)
        forbidden = (parts == -torch.inf).to(given)
        values = parts.masked_fill(parts == -torch.inf, 0) @ listed.T
        choice = values.masked_fill(forbidden @ listed.T > 0, -torch.inf).argmax(-1)
        vertex = vertices.to(given)[choice]
        return vertex.numpy() if isinstance(scores, np.ndarray) else vertex

    return best


def oracle(name, **settings):
    vertices, event = POLYTOPES[name]
    return Oracle(best_of(vertices), event_dims=len(event), **settings)


def draw(name, *batch, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*batch, *POLYTOPES[name][1], dtype=torch.float64, generator=generator)


def nearest(name, scores):
    """The reference projection of every instance."""
    vertices, event = POLYTOPES[name]
    rows = scores.reshape(-1, int(np.prod(event))).numpy()
    return torch.from_numpy(np.array([project(row, vertices.flatten(1).numpy()) for row in rows])).reshape(scores.shape)


@every_polytope
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_sparsemap_is_the_nearest_point_of_the_hull(name, scale):
    scores = draw(name, 2, 3, scale=scale)
    assert_close(oracle(name).sparsemap(scores), nearest(name, scores), atol=1e-8, rtol=0)


@every_polytope
def test_every_way_to_bring_an_argmax_gives_the_same_point(name):
    scores = draw(name, 5, scale=0.5)
    expected = oracle(name).sparsemap(scores)
    for batched in (True, False):
        for numpy in (True, False):
            structure = oracle(name, batched=batched, numpy=numpy)
            assert_close(structure.sparsemap(scores), expected)
            assert torch.equal(structure.argmax(scores), oracle(name).argmax(scores))
    assert_close(oracle(name).sparsemap(scores[2]), expected[2])


@every_polytope
def test_the_support_is_a_distribution_over_vertices_that_mixes_to_sparsemap(name):
    scores = draw(name, 4, scale=0.3)
    vertices, probabilities, count = oracle(name).support(scores)
    used = torch.arange(probabilities.shape[-1]) < count.unsqueeze(-1)
    assert torch.equal(probabilities > 0, used)
    assert_close(probabilities.sum(-1), torch.ones(4, dtype=torch.float64))
    assert (vertices[~used] == 0).all()
    listed = POLYTOPES[name][0].flatten(1)
    assert (vertices[used].flatten(1).unsqueeze(1) == listed).all(-1).any(-1).all()
    mixed = torch.einsum("bm,bm...->b...", probabilities, vertices)
    assert_close(mixed, oracle(name).sparsemap(scores))


@every_polytope
def test_sparsemap_meets_finite_differences(name):
    assert gradcheck(oracle(name).sparsemap, (draw(name, 1, scale=0.5, seed=1).requires_grad_(),))


@every_polytope
def test_the_probabilities_of_the_support_meet_finite_differences(name):
    scores = draw(name, 1, scale=2.0, seed=1).requires_grad_()
    assert gradcheck(lambda scores: oracle(name).support(scores).probabilities, (scores,))


@every_polytope
def test_the_jacobian_is_that_of_the_face_even_where_few_vertices_mix(name):
    """Scores that are themselves the mean of two vertices: two are in use, the face has more."""
    vertices = POLYTOPES[name][0].flatten(1).numpy()
    structure, larger = oracle(name), 0
    for pair in np.random.default_rng(0).integers(0, len(vertices), (8, 2)):
        row = vertices[pair].mean(0)
        scores = torch.from_numpy(row).reshape(POLYTOPES[name][1])
        jacobian = torch.autograd.functional.jacobian(structure.sparsemap, scores).reshape(len(row), len(row)).numpy()
        np.testing.assert_allclose(jacobian, face_projector(0 * row, vertices, row), atol=1e-8)
        larger += round(jacobian.trace()) >= int(structure.solve(scores).mixture.size)
    assert larger > 0


def test_the_gradient_is_right_where_the_gap_vanishes_before_the_vertices_span_the_face():
    trees = Oracle(DependencyTree().argmax, event_dims=2)
    generator = torch.Generator().manual_seed(0)
    scores, direction = torch.randn(2, 4, 13, 13, dtype=torch.float64, generator=generator)
    scores = (0.1 * scores).requires_grad_()
    (found,) = torch.autograd.grad((trees.sparsemap(scores) * direction).sum(), scores)
    with torch.no_grad():
        exact = Oracle(trees.best, event_dims=2, tolerance=1e-12)
        ahead, behind = exact.sparsemap(scores + 1e-6 * direction), exact.sparsemap(scores - 1e-6 * direction)
    assert_close(found, (ahead - behind) / 2e-6, atol=1e-5, rtol=0)
    mixture = trees.solve(scores).mixture
    vertices = mixture.vertices[0, : mixture.size[0]].flatten(1)
    span = vertices[1:] - vertices[0]  # the vertices in use alone would not do
    alone = torch.linalg.pinv(span) @ (span @ direction[0].flatten())
    assert (alone - found[0].flatten()).abs().max() > 0.1


@every_polytope
def test_ties_and_extreme_scores_converge(name):
    scores = torch.cat(
        [
            torch.zeros_like(draw(name, 1)),
            draw(name, 3).round(),
            draw(name, 2, scale=1e4),
            1e4 * draw(name, 2).sign(),
            -1e4 * torch.ones_like(draw(name, 1)),
        ]
    )
    found = oracle(name).solve(scores)
    assert found.converged.all()
    scale = scores.flatten(1).abs().amax(1).clamp_min(1)
    assert (found.gap <= 1e-9 * scale).all()
    point = found.mixture.mean()
    pull = (scores - point).flatten(1)
    certificate = (pull @ POLYTOPES[name][0].flatten(1).T).amax(1) - (pull * point.flatten(1)).sum(1)
    assert (certificate <= 2e-9 * scale).all()


@every_polytope
def test_forbidden_parts_stay_at_zero(name):
    scores, keep = draw(name, 6), POLYTOPES[name][0][torch.tensor([0, 1, 2, 3, 4, 5])]
    mask = torch.rand(scores.shape, generator=torch.Generator().manual_seed(2)) < 0.4
    scores = scores.masked_fill(mask & (keep == 0), -torch.inf).requires_grad_()
    point = oracle(name).sparsemap(scores)
    assert_close(point, nearest(name, scores.detach()), atol=1e-8, rtol=0)
    (gradient,) = torch.autograd.grad((point * draw(name, 6, seed=5)).sum(), scores)
    assert gradient.isfinite().all() and (gradient[scores == -torch.inf] == 0).all()
    assert (point[scores == -torch.inf] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtype_is_kept_and_scores_are_left_alone(dtype):
    scores = draw("subsets", 3).to(dtype).requires_grad_()
    before = scores.detach().clone()
    structure = oracle("subsets")
    point = structure.sparsemap(scores)
    point.sum().backward()
    assert point.dtype == scores.grad.dtype == structure.argmax(scores).dtype == dtype
    assert_close(point.detach().double(), nearest("subsets", before.double()), atol=0.01, rtol=0)
    assert torch.equal(scores.detach(), before) and not structure.argmax(scores).requires_grad


def test_a_batch_without_examples_gives_none():
    for batched in (True, False):
        structure = oracle("subsets", batched=batched)
        assert structure.sparsemap(torch.zeros(0, 6)).shape == structure.argmax(torch.zeros(0, 6)).shape == (0, 6)


def test_the_report_counts_calls_and_names_the_gap():
    asked = []

    def best(scores):
        asked.append(scores)
        return best_of(POLYTOPES["trees"][0])(scores)

    scores = draw("trees", 3, scale=0.2)
    found = Oracle(best, event_dims=2).solve(scores)
    assert found.iterations.max() == len(asked)
    assert found.converged.all() and (found.gap.abs() < 1e-9).all()
    assert all(s.dtype == torch.float64 and s.shape == (3, 5, 5) for s in asked)
    asked.clear()
    each = Oracle(best, event_dims=2, batched=False).solve(scores)
    assert len(asked) == each.iterations.sum()  # an example that is done is not asked again


def test_a_warm_start_saves_rounds_and_leads_to_the_same_point():
    structure, scores = oracle("trees"), draw("trees", 8, scale=0.1)
    cold = structure.solve(scores)
    again = structure.solve(scores, start=cold.mixture.vertices)
    assert (again.iterations == 1).all()
    nearby = scores + 0.001 * draw("trees", 8, seed=3)
    warm, fresh = structure.solve(nearby, start=cold.mixture.vertices), structure.solve(nearby)
    assert warm.iterations.sum() < 0.5 * fresh.iterations.sum()
    for found in (warm, fresh):
        assert_close(found.mixture.mean(), nearest("trees", nearby), atol=1e-8, rtol=0)
    with pytest.raises(ValueError, match=r"Oracle: start has shape \(8, 5, 5\); expected \(8, k, 5, 5\)"):
        structure.solve(scores, start=scores)


def test_not_converging_warns_or_raises():
    scores = draw("trees", 3, scale=0.1)
    with pytest.warns(ConvergenceWarning, match=r"3 of 3 examples after 4 rounds: the largest gap is"):
        found = oracle("trees", max_iterations=4).solve(scores)
    assert not found.converged.any() and (found.iterations == 4).all() and (found.gap > 1e-3).all()
    point = found.mixture.mean()
    pull = (scores - point).flatten(1)
    gap = (pull @ POLYTOPES["trees"][0].flatten(1).T).amax(1) - (pull * point.flatten(1)).sum(1)
    assert_close(found.gap, gap)  # the gap is that of the point returned
    with pytest.raises(ConvergenceError, match="did not converge"):
        oracle("trees", max_iterations=4, strict=True).sparsemap(scores)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert oracle("trees", max_iterations=4, tolerance=10.0).solve(scores).converged.all()


def test_an_argmax_that_is_only_nearly_the_best_needs_a_tolerance():
    generator = torch.Generator().manual_seed(0)
    careless = best_of(POLYTOPES["trees"][0])
    structure = Oracle(
        lambda s: careless(s + 1e-3 * torch.randn(s.shape, generator=generator, dtype=s.dtype)),
        event_dims=2,
        max_iterations=100,
        tolerance=0.05,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = structure.solve(draw("trees", 5, scale=0.1))
    assert_close(found.mixture.mean(), nearest("trees", draw("trees", 5, scale=0.1)), atol=0.2, rtol=0)


def test_an_argmax_that_does_not_maximize_is_refused():
    best = best_of(POLYTOPES["subsets"][0])
    with pytest.raises(
        ValueError, match=r"the argmax of example .* scores .* less than .*a negative gap.*does not maximize"
    ):
        Oracle(lambda scores: best(scores.flip(-1))).sparsemap(draw("subsets", 3))
    start = torch.ones(3, 1, 6, dtype=torch.float64)  # every item, though a vertex has three
    with pytest.raises(ValueError, match=r"negative gap.*`start` holds something that is not a vertex"):
        oracle("subsets").solve(draw("subsets", 3).abs() + 1, start=start)


def test_bad_input_is_named():
    structure = oracle("subsets")
    scores = torch.zeros(2, 6)
    scores[1, 3] = torch.nan
    with pytest.raises(ValueError, match=r"Oracle: the scores of example \[1\] contain NaN or \+inf; expected"):
        structure.sparsemap(scores)
    scores[1] = -torch.inf
    with pytest.raises(ValueError, match=r"example \[1\] leave no vertex"):
        structure.sparsemap(scores)
    with pytest.raises(ValueError, match=r"best gave shape \(2,\) for scores of shape \(2, 6\)"):
        Oracle(lambda scores: scores.argmax(-1)).argmax(torch.zeros(2, 6))
    with pytest.raises(TypeError, match="best is a int; expected a function"):
        Oracle(3)
    with pytest.raises(ValueError, match="tolerance is nan"):
        Oracle(structure.best, tolerance=float("nan"))
    with pytest.raises(ValueError, match="max_iterations is 0"):
        Oracle(structure.best, max_iterations=0)
    with pytest.raises(ValueError, match="event_dims is '2'; expected an integer"):
        Oracle(structure.best, event_dims="2")
    with pytest.raises(MissingCapability, match="minimum_risk needs a partition function, and Oracle has none"):
        minimum_risk().loss(structure, torch.zeros(2, 6), lambda z: z.sum(-1))
    with pytest.raises(MissingCapability, match="best_vertex needs a list of vertices, and Oracle has none"):
        best_vertex().inspect(structure, torch.zeros(2, 6), lambda z: z.sum(-1))


def test_rows_of_a_start_that_are_not_vertices_are_ignored_or_refused():
    scores = torch.tensor([[1.0, 0.9, 0.2]])
    trees, arcs = DependencyTree(), torch.randn(1, 4, 4, generator=torch.Generator().manual_seed(0))
    found = trees.solve(arcs, start=torch.ones(1, 2, 4, 4))
    assert_close(found.mixture.mean(), trees.sparsemap(arcs))
    with pytest.raises(ValueError, match="start holds numbers other than 0 and 1"):
        Oracle(Subset(1).argmax).solve(scores, start=torch.full((1, 1, 3), 0.5))
