"""What is particular to constituency trees, beyond the contract of every structure."""

from math import comb

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

import pullback as pb

TREES, LABELLED = pb.ConstituencyTree(), pb.ConstituencyTree(labelled=True)


def random_scores(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("n", range(1, 9))
def test_there_are_as_many_trees_as_catalan_numbers(n):
    vertices = TREES.enumerate((n, n)).vertices
    assert len(vertices) == len(vertices.unique(dim=0)) == comb(2 * n - 2, n - 1) // n
    assert (vertices.sum((-2, -1)) == 2 * n - 1).all()
    assert (vertices.diagonal(dim1=-2, dim2=-1) == 1).all() and (vertices[:, 0, -1] == 1).all()


@pytest.mark.parametrize(("n", "t"), [(1, 3), (2, 3), (3, 2), (4, 2)])
def test_every_span_of_a_labelled_tree_has_any_label(n, t):
    vertices = LABELLED.enumerate((n, n, t)).vertices
    assert len(vertices) == len(vertices.unique(dim=0)) == comb(2 * n - 2, n - 1) // n * t ** (2 * n - 1)


def test_a_mask_may_leave_one_tree():
    left = TREES.enumerate((5, 5)).vertices[0]
    only = pb.ConstituencyTree(mask=left.bool())
    assert len(only.enumerate((5, 5)).vertices) == 1
    for name in ("argmax", "marginals", "sparsemap", "sample"):
        assert torch.equal(getattr(only, name)(random_scores(5, 5)), left.double())
    assert only.entropy(random_scores(5, 5)) == 0


# ---- labels


def test_one_label_is_none():
    scores = random_scores(3, 6, 6)
    for name in ("argmax", "marginals", "sparsemap"):
        with_label = getattr(LABELLED, name)(scores.unsqueeze(-1)).squeeze(-1)
        assert_close(with_label, getattr(TREES, name)(scores), atol=1e-9, rtol=0)
    assert_close(LABELLED.log_partition(scores.unsqueeze(-1)), TREES.log_partition(scores))


def test_labels_are_chosen_given_the_spans():
    scores = random_scores(2, 6, 6, 4)
    joint = scores.logsumexp(-1)
    assert_close(LABELLED.log_partition(scores), TREES.log_partition(joint))
    expected = TREES.marginals(joint).unsqueeze(-1) * scores.softmax(-1)
    assert_close(LABELLED.marginals(scores), expected)
    best = TREES.argmax(scores.amax(-1)).unsqueeze(-1) * torch.nn.functional.one_hot(scores.argmax(-1), 4)
    assert_close(LABELLED.argmax(scores), best)


@pytest.mark.parametrize("labelled", [False, True])
def test_sums_have_two_derivatives(labelled):
    structure = pb.ConstituencyTree(torch.tensor([4, 2]), labelled=labelled)
    scores = random_scores(2, 4, 4, *([2] if labelled else [])).requires_grad_()
    for operation in (structure.log_partition, structure.entropy):
        assert gradcheck(operation, (scores,))
    assert gradgradcheck(structure.log_partition, (scores,))
    assert gradcheck(structure.marginals, (scores,))


def test_what_is_forbidden_has_no_gradient():
    scores = random_scores(5, 5, 2)
    scores[1, 3] = scores[0, 2, 0] = -torch.inf
    scores[3, 1] = torch.nan  # below the diagonal
    scores.requires_grad_()
    weight = random_scores(5, 5, 2, seed=1)
    (first,) = torch.autograd.grad(LABELLED.log_partition(scores), scores, create_graph=True)
    (second,) = torch.autograd.grad((first * weight).sum(), scores)
    for gradient in (first, second):
        assert gradient.isfinite().all()
        assert (gradient[1, 3] == 0).all() and gradient[0, 2, 0] == 0
        assert (gradient[torch.ones(5, 5).tril(-1).bool()] == 0).all()


# ---- large instances


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 30.0])
def test_large_projections_are_certified_by_their_own_argmax(scale):
    scores, trees = scale * random_scores(2, 16, 16), pb.ConstituencyTree(torch.tensor([16, 9]))
    point = trees.sparsemap(scores)
    rest = scores - point
    gap = trees.inner(rest, trees.argmax(rest)) - trees.inner(rest, point)
    assert (gap.abs() <= 1e-8 * max(1.0, scale)).all()
    assert_close(trees.support(scores).mean(), point, atol=1e-7, rtol=0)


def test_a_projection_of_a_long_sentence_has_a_derivative():
    """More trees mix than there is room for, so that the derivative searches again."""
    scores = (0.3 * random_scores(12, 12, 9)).requires_grad_()
    direction = random_scores(12, 12, 9, seed=1)
    (slope,) = torch.autograd.grad(LABELLED.sparsemap(scores), scores, direction)
    step = 1e-7
    with torch.no_grad():
        ahead, behind = (LABELLED.sparsemap(scores + h * direction) for h in (step, -step))
    assert_close((slope * direction).sum(), ((ahead - behind) * direction).sum() / (2 * step), rtol=1e-4, atol=0)


def test_a_start_saves_rounds():
    scores = 0.3 * random_scores(1, 10, 10)
    solution = TREES.solve(scores)
    again = TREES.solve(scores + 1e-4 * random_scores(1, 10, 10, seed=1), start=solution.mixture.vertices)
    assert again.converged.all() and (again.iterations < solution.iterations).all()


def test_scores_of_any_size_leave_probabilities_whole():
    for offset in (1e6, -1e6):
        scores = random_scores(7, 7)
        assert_close(TREES.entropy(scores + offset), TREES.entropy(scores), atol=1e-8, rtol=0)
        assert_close(TREES.marginals(scores + offset), TREES.marginals(scores), atol=1e-8, rtol=0)


# ---- brackets


def test_brackets_and_spans_are_inverse():
    for n in range(1, 6):
        for tree in TREES.enumerate((n, n)).vertices:
            text = TREES.brackets(tree)
            assert torch.equal(TREES.spans(text), tree)
            assert torch.equal(TREES.spans(text, size=n + 2)[:n, :n], tree)
            assert TREES.brackets(TREES.spans(text, size=n + 2)) == text
    for tree in LABELLED.enumerate((3, 3, 2)).vertices:
        text = LABELLED.brackets(tree, words="abc", labels=["X", "Y"])
        assert torch.equal(LABELLED.spans(text, labels=["X", "Y"]), tree)


def test_brackets_show_words_and_labels():
    tree = TREES.spans((("the", "cat"), "sleeps"))
    assert torch.equal(tree, torch.tensor([[1.0, 1.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    assert TREES.brackets(tree) == "((0 1) 2)"
    assert TREES.brackets(tree, words=["the", "cat", "sleeps"]) == "((the cat) sleeps)"
    text, labels = "(S (NP (D the) (N cat)) (V sleeps))", ["S", "NP", "D", "N", "V"]
    tree = TREES.spans(text, labels)
    assert tree.shape == (3, 3, 5) and LABELLED.contains(tree)
    assert TREES.brackets(tree, ["the", "cat", "sleeps"], labels) == text
    assert TREES.brackets(tree) == "(0 (1 (2 0) (3 1)) (4 2))"
    nested = ("S", ("NP", ("D", "the"), ("N", "cat")), ("V", "sleeps"))
    assert torch.equal(TREES.spans(nested, labels), tree)
    assert TREES.brackets(torch.zeros(3, 3)) == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(a b c)", r"\(a b c\) is not a binary tree; expected a word or \(left right\)"),
        ("((a b) c", r"the brackets of '\(\(a b\) c' do not match"),
        ("(a b) c)", r"the brackets of '\(a b\) c\)' do not match"),
        ("a b", r"'a b' has 2 trees side by side; expected one"),
        ("", r"'' has 0 trees side by side; expected one"),
        ("((a b) ())", r"\(\) is not a binary tree"),
    ],
)
def test_text_that_is_not_a_binary_tree_is_refused(text, message):
    with pytest.raises(ValueError, match=rf"ConstituencyTree\.spans: {message}"):
        TREES.spans(text)


def test_bad_brackets_are_named():
    with pytest.raises(ValueError, match=r"'Q' is not a label; expected one of S, V"):
        TREES.spans("(S (Q a) (V b))", ["S", "V"])
    with pytest.raises(ValueError, match=r"\(\(a b\)\) is not a binary tree; expected \(label word\) or"):
        TREES.spans("(S ((a b)) (V b))", ["S", "V"])
    with pytest.raises(ValueError, match=r"size is 1; expected at least 2"):
        TREES.spans("(a b)", size=1)
    with pytest.raises(ValueError, match=r"there are 2 words; expected 3"):
        TREES.brackets(TREES.spans("((a b) c)"), words=["a", "b"])
    with pytest.raises(ValueError, match=r"6 spans over 3 words are not a tree"):
        TREES.brackets(torch.ones(3, 3).triu())
    crossing = torch.eye(5)
    crossing[0, 4] = crossing[0, 2] = crossing[1, 3] = crossing[2, 4] = 1
    with pytest.raises(ValueError, match=r"nothing splits the span from 0 to 4"):
        TREES.brackets(crossing)
    labelled = TREES.spans("(S (V a) (V b))", ["S", "V"])
    with pytest.raises(ValueError, match=r"there are 1 labels; expected 2"):
        TREES.brackets(labelled, labels=["S"])
    with pytest.raises(ValueError, match=r"there are 2 labels; expected 0"):
        TREES.brackets(torch.ones(1, 1), labels=["S", "V"])
    with pytest.raises(ValueError, match=r"spans have shape \(2, 3, 3\); expected one tree, \(n, n\) or"):
        TREES.brackets(torch.zeros(2, 3, 3))


# ---- errors


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"ConstituencyTree: scores have parts of shape \(3, 4\); expected .* n, n\)"):
        TREES.argmax(torch.zeros(5, 3, 4))
    with pytest.raises(ValueError, match=r"parts of shape \(3, 4, 2\); expected \(\.\.\., n, n, t\)"):
        LABELLED.argmax(torch.zeros(3, 4, 2))
    names = ("argmax", "sparsemap", "log_partition", "marginals", "sample", "support")
    forbidden, unclear = torch.zeros(2, 3, 3), torch.zeros(2, 3, 3)
    forbidden[1, 0, 2], unclear[1, 0, 1] = -torch.inf, torch.nan
    for name in names:
        with pytest.raises(ValueError, match=r"ConstituencyTree: lengths\[1\] is 4; expected between 0 and 3"):
            getattr(pb.ConstituencyTree(torch.tensor([3, 4])), name)(torch.zeros(2, 3, 3))
        with pytest.raises(ValueError, match=r"ConstituencyTree: example \[1\] has no binary tree"):
            getattr(TREES, name)(forbidden)
        with pytest.raises(ValueError, match=r"the scores of example \[1\] contain NaN or \+inf"):
            getattr(TREES, name)(unclear)
    with pytest.raises(ValueError, match=r"there are .* vertices; expected at most"):
        TREES.enumerate((20, 20))
