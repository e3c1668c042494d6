"""Bad input is refused with a sentence that names the argument, what came and what was expected."""

import re

import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from pullback.operators._register import complete_registration

CATEGORICAL, BINARY, SUBSET, TREE = pb.Categorical(), pb.Binary(), pb.Subset(2), pb.DependencyTree()
ITEMS = pytest.mark.parametrize("kind", [pb.Categorical, pb.Binary, pb.Subset.at_most], ids=lambda k: k.__qualname__)


def make(kind, **facts):
    return kind(1, **facts) if kind == pb.Subset.at_most else kind(**facts)


@pytest.mark.parametrize("structure", [CATEGORICAL, BINARY, SUBSET, TREE], ids=lambda s: type(s).__name__)
def test_scores_of_a_wrong_type_or_rank(structure):
    with pytest.raises(TypeError, match=r"scores are a list; expected a torch\.Tensor"):
        structure.sparsemap([1.0, 2.0])
    with pytest.raises(TypeError, match=r"scores have dtype torch\.int64; expected a floating dtype"):
        structure.sparsemap(torch.zeros(3, 3, dtype=torch.long))
    with pytest.raises(ValueError, match=r"scores have shape \(\); expected at least"):
        structure.sparsemap(torch.tensor(1.0))
    with pytest.raises(ValueError, match="expected at least one part"):
        structure.sparsemap(torch.zeros(3, 0, 0))


@ITEMS
def test_lengths_out_of_range_or_of_a_wrong_dtype_or_shape(kind):
    for lengths, wrong in ((torch.tensor([2, 4]), r"\[1\] is 4"), (torch.tensor([-1, 2]), r"\[0\] is -1")):
        with pytest.raises(ValueError, match=rf": lengths{wrong}; expected between 0 and 3\.$"):
            make(kind, lengths=lengths).sparsemap(torch.zeros(2, 3))
    with pytest.raises(TypeError, match=r"lengths have dtype torch\.float32; expected an integer dtype"):
        make(kind, lengths=torch.tensor([2.0, 1.0])).sparsemap(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"lengths have shape \(3,\); expected \(2,\)"):
        make(kind, lengths=torch.tensor([1, 1, 1])).sparsemap(torch.zeros(2, 3))


@ITEMS
def test_masks_of_a_wrong_dtype_or_shape(kind):
    with pytest.raises(TypeError, match=r"mask has dtype torch\.int64; expected torch\.bool"):
        make(kind, mask=torch.ones(3, dtype=torch.long)).sparsemap(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"mask has shape \(4,\); expected the shape of the scores, \(2, 3\)"):
        make(kind, mask=torch.ones(4, dtype=torch.bool)).sparsemap(torch.zeros(2, 3))


def test_a_choice_without_candidates_names_the_example():
    scores = torch.zeros(2, 3)
    scores[1] = -torch.inf
    for name in ("argmax", "sparsemap", "marginals", "log_partition", "entropy", "sample"):
        with pytest.raises(
            ValueError, match=r"Categorical: example \[1\] has no category .*expected at least one score"
        ):
            getattr(CATEGORICAL, name)(scores)


@pytest.mark.parametrize("name", ["argmax", "sparsemap", "marginals", "log_partition", "entropy", "sample", "topk"])
def test_a_choice_that_cannot_be_made_names_the_one_cause(name):
    extra = (2,) if name == "topk" else ()
    empty = pb.Categorical(lengths=torch.tensor([3, 0]))
    for structure in (empty, pb.Categorical(mask=torch.tensor([[True] * 3, [False] * 3]))):
        with pytest.raises(ValueError, match=r"^Categorical: example \[1\] has no category to choose from within its"):
            getattr(structure, name)(torch.zeros(2, 3), *extra)
    for bad in (torch.nan, torch.inf):
        scores = torch.zeros(2, 3)
        scores[0, 0] = bad
        for structure in (CATEGORICAL, empty):
            with pytest.raises(
                ValueError, match=r"^Categorical: the scores of example \[0\] contain NaN or \+inf; exp"
            ):
                getattr(structure, name)(scores, *extra)


def test_compiled_choices_name_the_one_cause():
    for name in ("argmax", "sparsemap", "log_partition"):
        torch.compiler.reset()
        compiled = torch.compile(getattr(CATEGORICAL, name), fullgraph=True, backend="aot_eager")
        with pytest.raises(ValueError, match=r"Categorical: example \[1\] has no category"):
            compiled(torch.tensor([[0.0, 1.0], [-torch.inf, -torch.inf]]))
        with pytest.raises(ValueError, match=r"Categorical: the scores of example \[1\] contain NaN"):
            compiled(torch.tensor([[0.0, 1.0], [torch.nan, 0.0]]))


@pytest.mark.parametrize("value", ["no", 1, 0, None, torch.tensor(True)], ids=repr)
def test_options_that_are_on_or_off_take_true_or_false_alone(value):
    for kind, option in (
        (pb.DependencyTree, "projective"),
        (pb.DependencyTree, "single_root"),
        (pb.DependencyTree, "labelled"),
        (pb.ConstituencyTree, "labelled"),
        (pb.Matching, "optional"),
        (lambda **options: pb.Oracle(CATEGORICAL.argmax, **options), "batched"),
        (lambda **options: pb.Oracle(CATEGORICAL.argmax, **options), "numpy"),
        (lambda **options: pb.Oracle(CATEGORICAL.argmax, **options), "strict"),
    ):
        with pytest.raises(TypeError, match=rf"[A-Z]\w+: {option} is .*; expected True or False\.$"):
            kind(**{option: value})
        assert kind(**{option: True})


def test_numbers_are_not_true_or_false():
    scores = torch.zeros(2, 3)
    for temperature in (True, False, "1", None):
        for operation in (pb.Ranking().soft_rank, pb.Ranking().soft_sort):
            with pytest.raises(TypeError, match=r"Ranking: temperature is .*; expected a number above 0"):
                operation(scores, temperature=temperature)
    with pytest.raises(TypeError, match=r"Ranking: temperature has dtype torch\.bool; expected real numbers"):
        pb.Ranking().soft_rank(scores, temperature=torch.tensor(True))
    for alpha in (True, "2", None):
        with pytest.raises(TypeError, match=r"Categorical: alpha is .*; expected a number ≥ 1"):
            CATEGORICAL.entmax(scores, alpha)
    with pytest.raises(ValueError, match=r"Independent: dims is True; expected an integer ≥ 1"):
        pb.Independent(CATEGORICAL, dims=True)


@pytest.mark.parametrize(
    ("convert", "axes", "good", "bad"),
    [
        (pb.DependencyTree.heads, "n + 1, n + 1", (4, 4), [(4,), (3, 4), (2, 3, 4)]),
        (pb.DependencyTree.heads_and_labels, "n + 1, n + 1, t", (4, 4, 2), [(4, 4), (4,), (2, 3, 4)]),
        (pb.Chain.tags, "n, t, t", (4, 3, 3), [(4, 3), (3,), (4, 2, 3)]),
        (pb.Tagging.tags, "n, t", (4, 3), [(4,), ()]),
        (pb.Matching.partners, "n, m", (4, 3), [(4,), ()]),
        (pb.Segmentation.segments, "n, w, t", (4, 2, 3), [(2, 2), (2,)]),
        (pb.ConstituencyTree.brackets, None, (0, 0), [(4,), (3, 4), (3, 4, 2), (2, 3, 3)]),
    ],
    ids=lambda given: getattr(given, "__qualname__", None),
)
def test_vertices_of_another_shape_are_not_converted(convert, axes, good, bad):
    convert(torch.zeros(good))
    name = re.escape(convert.__qualname__)
    for shape in bad:
        expected = f"(..., {axes})." if axes else "one tree, (n, n) or (n, n, t)."
        message = rf"^{name}: \w+ (have|has) shape {re.escape(str(shape))}; expected {re.escape(expected)}"
        with pytest.raises(ValueError, match=message):
            convert(torch.zeros(shape))
    with pytest.raises(TypeError, match=rf"^{name}: \w+ (are|is) a list; expected a tensor of shape"):
        convert([[1.0]])
    if convert is pb.ConstituencyTree.brackets:
        with pytest.raises(ValueError, match=r"spans have shape \(5, 3, 3, 2\); expected one tree"):
            convert(torch.zeros(5, 3, 3, 2))


def test_counts_that_no_subset_has():
    with pytest.raises(ValueError, match="the count is 4; expected at most the number of items, 3"):
        pb.Subset(4).argmax(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="low is 3 and high is 2; expected 0 ≤ low ≤ high"):
        pb.Subset.between(3, 2)
    with pytest.raises(ValueError, match="k is -1; expected"):
        pb.Subset(-1)
    with pytest.raises(
        ValueError, match=r"example \[1\] has 1 item\(s\) to choose from .*expected at least 2.*at_most"
    ):
        pb.Subset(2, lengths=torch.tensor([3, 1])).sparsemap(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"k has shape \(3,\); expected the batch shape \(2,\)"):
        pb.Subset(torch.tensor([1, 1, 1])).argmax(torch.zeros(2, 3))
    with pytest.raises(TypeError, match="expected an integer"):
        pb.Subset(1.5)


def test_trees_that_cannot_be():
    with pytest.raises(ValueError, match=r"parts of shape \(5, 6\); expected \(\.\.\., n \+ 1, n \+ 1\)"):
        TREE.argmax(torch.zeros(8, 5, 6))
    with pytest.raises(ValueError, match=r"lengths\[1\] is 3; expected between 0 and 2.*\(n \+ 1, n \+ 1\).*node 0"):
        pb.DependencyTree(torch.tensor([2, 3])).argmax(torch.zeros(2, 3, 3))
    with pytest.raises(ValueError, match="k is 0"):
        TREE.topk(torch.zeros(3, 3), 0)
    scores = torch.zeros(2, 3, 3)
    scores[1, 0] = -torch.inf  # nothing hangs on the root
    for projective in (False, True):
        for single_root in (False, True):
            trees = pb.DependencyTree(projective=projective, single_root=single_root)
            for name in ("argmax", "sparsemap", "marginals", "log_partition", "entropy", "sample", "support"):
                with pytest.raises(ValueError, match=r"example \[1\] has no tree"):
                    getattr(trees, name)(scores)


def test_one_instance_without_a_batch_is_named_as_such():
    with pytest.raises(ValueError, match=r"the instance .*within its length and mask"):
        CATEGORICAL.sparsemap(torch.full((3,), -torch.inf))
    with pytest.raises(ValueError, match=r"Categorical: the instance .*within its length and mask"):
        CATEGORICAL.argmax(torch.full((3,), -torch.inf))
    with pytest.raises(ValueError, match="alpha is below 1"):
        CATEGORICAL.entmax(torch.zeros(3), torch.tensor(0.5))


def test_more_vertices_than_fit_in_memory():
    for structure, shape in ((TREE, (2, 3, 3)), (CATEGORICAL, (2, 9)), (pb.Chain(), (2, 1, 3, 3))):
        for k in (2**40, 10**30):
            with pytest.raises(ValueError, match=rf"k is {k}; expected at most {2**33 // 18} vertices"):
                structure.topk(torch.zeros(shape), k)
        assert structure.topk(torch.zeros(shape)[:0], 10**5).vertices.shape[:2] == (0, 10**5)


@pytest.mark.parametrize("structure", [CATEGORICAL, BINARY, SUBSET, TREE, pb.Independent(BINARY)], ids=repr)
@pytest.mark.parametrize("shape", [3, (2, -1), (1.5,), "3", torch.tensor([3])], ids=repr)
def test_a_sample_shape_that_is_no_shape(structure, shape):
    with pytest.raises(TypeError, match=r": sample_shape is .*; expected a sequence of integers ≥ 0"):
        structure.sample(torch.zeros(2, 3, 3), shape)


def test_an_alpha_below_one():
    with pytest.raises(ValueError, match=r"alpha.*expected numbers ≥ 1"):
        CATEGORICAL.entmax(torch.zeros(2, 3), torch.tensor([1.5, 0.5]))


def test_structures_without_a_list_of_their_best_say_what_to_use_instead():
    for structure in (BINARY, SUBSET, pb.Independent(BINARY), pb.product(CATEGORICAL, SUBSET, shapes=[(2,), (3,)])):
        with pytest.raises(
            pb.MissingCapability, match=r"k best subsets; `support` lists .* `enumerate` .* `sample` draws"
        ):
            structure.topk(torch.zeros(5, 5), 2)
    with pytest.raises(pb.MissingCapability, match="Independent has no max_marginals: ask the structure of one copy"):
        pb.Independent(pb.Chain()).max_marginals(torch.zeros(2, 3, 2, 2))
    with pytest.raises(pb.MissingCapability, match="DependencyTree has no max_marginals: "):
        TREE.max_marginals(torch.zeros(3, 3))


def test_refusals_survive_compilation():
    trees = pb.DependencyTree(lengths=torch.tensor([7, 1]))
    with pytest.raises(ValueError, match=r"DependencyTree: lengths\[0\] is 7"):
        torch.compile(trees.argmax, fullgraph=True, backend="aot_eager")(torch.randn(2, 4, 4))
    for structure in (CATEGORICAL, BINARY, SUBSET, TREE):
        torch.compiler.reset()
        with pytest.raises(ValueError, match="NaN"):
            torch.compile(structure.marginals, fullgraph=True, backend="aot_eager")(torch.full((1, 3, 3), torch.nan))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning")  # torch's own, inside jvp
def test_derivatives_that_do_not_exist_are_refused_in_words():
    for structure in (SUBSET, TREE):
        scores = torch.randn(3, 3)
        with pytest.raises(RuntimeError, match="has no forward-mode derivative"):
            torch.func.jvp(structure.log_partition, (scores,), (scores,))
        with pytest.raises(RuntimeError, match=r"use torch\.autograd\.grad"):
            torch.func.grad(lambda scores, f=structure.log_partition: f(scores).sum())(scores)


def test_an_oracle_must_answer_with_vertices():
    for answer in (lambda s: s * torch.nan, lambda s: 2.0 * (s > 0), lambda s: s + torch.inf):
        with pytest.raises(ValueError, match="other than 0 and 1"):
            pb.Oracle(answer).sparsemap(torch.ones(3))


def test_probabilities_and_entropies_keep_their_sign_at_any_scale():
    for scale in (1.0, 1e3, 1e6):
        for structure, shape in (
            (TREE, (8, 21, 21)),
            (pb.DependencyTree(projective=True), (8, 21, 21)),
            (SUBSET, (8, 50)),
        ):
            scores = scale * torch.randn(shape, generator=torch.Generator().manual_seed(0))
            assert (structure.log_prob(scores, structure.argmax(scores)) <= 0).all()
            assert (structure.entropy(scores) >= 0).all()
    assert_close(BINARY.entropy(torch.tensor([1e8, 0.0])), torch.tensor(2.0).log())


def test_a_shift_that_changes_nothing_changes_nothing():
    scores = torch.randn(4, 5, dtype=torch.float64)
    oracle = pb.Oracle(CATEGORICAL.argmax)
    assert_close(oracle.sparsemap(scores + 1e6), CATEGORICAL.sparsemap(scores), atol=1e-6, rtol=0)


@pytest.mark.parametrize("offset", [2.0**20, 2.0**30, 2.0**40])
def test_scores_that_every_vertex_has_in_common_cost_no_digits(offset):
    """A constant for each word, or position, is in the score of every vertex once."""
    random = torch.Generator().manual_seed(0)
    mask = torch.rand(3, 6, 6, generator=random) < 0.8
    mask[:, 0] = True
    for structure, shape, common in (
        (TREE, (3, 6, 6), (3, 1, 6)),
        (pb.DependencyTree(torch.tensor([5, 2, 0]), mask, projective=True), (3, 6, 6), (3, 1, 6)),
        (pb.Chain(torch.tensor([4, 2, 0])), (3, 4, 3, 3), (3, 4, 1, 1)),
    ):
        scores = (
            torch.randn(shape, generator=random, dtype=torch.float64).mul(256).round() / 256
        )  # so that sums are exact
        far = scores + offset * torch.randint(-4, 5, common, generator=random)
        z = structure.argmax(scores)
        slopes = []
        for given in (scores, far):
            leaf = given.clone().requires_grad_()
            slopes += torch.autograd.grad((structure.entropy(leaf) + structure.log_prob(leaf, z)).sum(), leaf)
        assert_close(structure.entropy(far), structure.entropy(scores), atol=1e-13, rtol=1e-12)
        assert_close(structure.log_prob(far, z), structure.log_prob(scores, z), atol=1e-13, rtol=1e-12)
        assert_close(*slopes, atol=1e-12, rtol=1e-12)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"z has shape \(3, 1\)"):
        CATEGORICAL.log_prob(torch.randn(3, 4), torch.ones(3, 1))
    with pytest.raises(ValueError, match=r"parts of shape \(4, 9\)"):
        TREE.contains(torch.zeros(2, 4, 9))
    with pytest.raises(ValueError, match=r"there are 43046721 vertices; expected at most"):
        TREE.enumerate((9, 9))
    with pytest.raises(ValueError, match=r"3628800 vertices of 100 parts, .* expected at most 268435456 numbers"):
        pb.Matching().enumerate((10, 10))  # 1.5 GB
    with pytest.raises(TypeError, match="lengths are a list"):
        pb.Categorical(lengths=[1, 2]).argmax(torch.zeros(2, 3))


def test_lengths_are_checked_before_vertices_are_listed():
    for structure, shape in ((pb.Chain, (3, 4, 2, 2)), (pb.DependencyTree, (3, 5, 5))):
        for lengths in ([2**40, 1, 1], [5, 1, 1], [1, -1, 1]):
            with pytest.raises(ValueError, match=r"lengths\[[01]\] is -?\d+; expected between 0 and 4"):
                structure(torch.tensor(lengths)).enumerate(shape)
            with pytest.raises(ValueError, match=r"lengths\[[01]\] is -?\d+; expected between 0 and 4"):
                structure(torch.tensor(lengths)).restrict(torch.zeros(shape))
        with pytest.raises(TypeError, match="lengths are a list"):
            structure([1, 2, 3]).enumerate(shape)


def message(call, *arguments):
    with pytest.raises(ValueError, match="expected") as refused:
        call(*arguments)
    return str(refused.value)


def test_a_length_out_of_range_is_refused_in_the_same_words_by_kernels_and_before_them():
    for kind, shape in ((pb.Chain, (4, 2, 2)), (pb.DependencyTree, (5, 5))):
        for lengths, batch in (
            (torch.tensor([[1, 2], [-3, 9]]), (2, 2)),
            (torch.tensor([5]), (3,)),
            (torch.tensor(6), ()),
        ):
            structure, scores = kind(lengths), torch.zeros(*batch, *shape)
            said = message(structure.argmax, scores)
            place = {4: "[1, 0] is -3", 1: "[0] is 5"}.get(lengths.numel()) if batch else " is 6"
            assert said.startswith(f"{kind.__name__}: lengths{place}; expected between 0 and 4.")
            assert message(structure.restrict, scores) == said


def test_operators_refuse_inputs_that_do_not_fit_their_signature():
    complete_registration()
    scores = torch.zeros(3, 4, 2, 2, dtype=torch.float64)
    for lengths in (torch.tensor([4, 4]), torch.tensor([1])):
        with pytest.raises(ValueError, match=r"lengths \(\d,\) differ in the dimensions of the batch"):
            torch.ops.pullback.chain_argmax(scores, lengths)
    with pytest.raises(ValueError, match=r"scores has size 3 where others have t = 2"):
        torch.ops.pullback.chain_argmax(torch.zeros(3, 4, 2, 3), torch.tensor([4, 4, 4]))


@pytest.mark.parametrize(
    ("convert", "name"),
    [
        (lambda given: pb.Matching.pairs(given, 3), "Matching.pairs: partners"),
        (lambda given: pb.Chain.pairs(given, 3), "Chain.pairs: tags"),
        (lambda given: pb.Tagging.one_hot(given, 3), "Tagging.one_hot: tags"),
        (lambda given: pb.DependencyTree.arcs(given[..., :2]), "DependencyTree.arcs: heads"),
        (
            lambda given: pb.DependencyTree.arcs(torch.zeros(given.shape, dtype=torch.long), given, 3),
            "DependencyTree.arcs: labels",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_indices_that_are_out_of_range_or_not_whole(convert, name):
    good = torch.tensor([[0, 2, -1, 1], [1, 1, -1, -1]])
    assert convert(good).sum() > 0
    for bad, place in ((3, r"\[0, 1\] is 3"), (-2, r"\[0, 1\] is -2")):
        given = good.clone()
        given[0, 1] = bad
        with pytest.raises(ValueError, match=rf"^{name}{place}; expected between -1 and 2, where -1 is none\.$"):
            convert(given)
    with pytest.raises(TypeError, match=rf"^{name} have dtype torch\.float32; expected integers\.$"):
        convert(good.float())


def test_lists_are_no_indices():
    for call in (pb.Matching.pairs, pb.Chain.pairs, pb.Tagging.one_hot):
        with pytest.raises(TypeError, match=r"are a list; expected a tensor of integers\.$"):
            call([0, 1], 3)
    with pytest.raises(ValueError, match=r"^Tagging\.one_hot: there are 0 places for tags; expected an integer ≥ 1\.$"):
        pb.Tagging.one_hot(torch.tensor([0]), 0)


FORK = pb.Path(torch.tensor([[0, 1], [1, 3], [0, 2], [2, 3]]), source=0, sink=3)
CONVERSIONS = {
    "Tagging.tags": (pb.Tagging.tags, pb.Tagging(torch.zeros(2, 2)), (3, 2)),
    "Chain.tags": (pb.Chain.tags, pb.Chain(), (3, 2, 2)),
    "DependencyTree.heads": (pb.DependencyTree.heads, TREE, (4, 4)),
    "Segmentation.segments": (pb.Segmentation.segments, pb.Segmentation(), (3, 2, 2)),
    "Matching.partners": (pb.Matching.partners, pb.Matching(), (3, 3)),
    "ConstituencyTree.brackets": (pb.ConstituencyTree.brackets, pb.ConstituencyTree(), (4, 4)),
    "Alignment.cells": (pb.Alignment().cells, pb.Alignment(), (3, 3, 3)),
    "SpanningTree.edges": (pb.SpanningTree.edges, pb.SpanningTree(), (3, 3)),
    "Path.route": (FORK.route, FORK, (4,)),
    "Path.nodes": (FORK.nodes, FORK, (4,)),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_a_mixture_is_not_converted_as_if_it_were_a_vertex(name):
    convert, structure, event = CONVERSIONS[name]
    with pytest.raises(ValueError, match=rf"{name}: .* is 0\.\d+; expected a vertex, zeros and ones"):
        convert(structure.sparsemap(torch.zeros(event)))


@pytest.mark.parametrize("structure", [CATEGORICAL, BINARY, SUBSET, TREE], ids=lambda s: type(s).__name__)
def test_supports_under_vmap_are_refused_since_their_sizes_differ(structure):
    scores = torch.zeros(2, *(3,) * structure.event_dims)
    for name in ("support", "solve"):
        with pytest.raises(RuntimeError, match=rf"\.{name} gives a different number of vertices for each example"):
            torch.func.vmap(getattr(structure, name))(scores)


@pytest.mark.parametrize("structure", [CATEGORICAL, BINARY, SUBSET, TREE], ids=lambda s: type(s).__name__)
def test_vertices_of_another_batch_have_no_probability(structure):
    event = (3,) * structure.event_dims
    with pytest.raises(ValueError, match=r"z has shape \(5, .* and scores \(2, .*; expected z for each example"):
        structure.log_prob(torch.zeros(2, *event), torch.zeros(5, *event))
    assert structure.log_prob(torch.zeros(1, *event), torch.zeros(5, *event)).shape == (5,)


@pytest.mark.parametrize("projective", [False, True])
def test_marginals_of_scores_without_digits_are_refused(projective):
    scores = torch.zeros(2, 4, 4)
    scores[1, 0] = torch.finfo(torch.float32).min  # meant as a mask, of arcs that every tree needs
    with pytest.raises(pb.ConvergenceError, match=r"^DependencyTree: the scores of example \[1\] are so large"):
        pb.DependencyTree(projective=projective).marginals(scores)


def test_matchings_whose_mass_is_less_than_the_rounding_of_scores_are_refused():
    with pytest.raises(pb.ConvergenceError, match=r"^Matching: SparseMAP of example \[0\]"):
        pb.Matching().sparsemap(torch.full((1, 2, 2), -1e17))
