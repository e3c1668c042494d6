"""What is particular to taggings, beyond the contract of every structure."""

import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

import pullback as pb
from families import FIRST, LAST, STEPS, TAGGINGS, tagging_of

OPERATIONS = ("argmax", "sparsemap", "log_partition", "marginals", "sample", "support", "entropy", "max_marginals")


def random_scores(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_tables(t, seed=1):
    """Transitions, start and end that require grad."""
    return [random_scores(*shape, seed=seed + i).requires_grad_() for i, shape in enumerate([(t, t), (t,), (t,)])]


@pytest.mark.parametrize(("n", "t"), [(1, 3), (2, 3), (4, 2), (3, 1)])
def test_there_are_as_many_sequences_as_powers(n, t):
    vertices = pb.Tagging(torch.zeros(t, t)).enumerate((n, t)).vertices
    assert len(vertices) == len(vertices.unique(dim=0)) == t**n


def test_the_score_of_a_sequence_reads_the_tag_before_first():
    scores, (transitions, start, end) = random_scores(3, 2), random_tables(2)
    tagging = pb.Tagging(transitions, start=start, end=end)
    for a, b, c in itertools.product(range(2), repeat=3):
        expected = (
            scores[0, a] + scores[1, b] + scores[2, c] + start[a] + transitions[a, b] + transitions[b, c] + end[c]
        )
        vertex = pb.Tagging.one_hot(torch.tensor([a, b, c]), 2).double()
        assert_close(tagging.inner(scores, vertex) + tagging.own_score(vertex), expected)


def test_tags_and_one_hot_rows_are_inverse():
    tags = torch.tensor([[2, 0, 1], [1, 1, -1], [-1, -1, -1]])
    vertices = pb.Tagging.one_hot(tags, 3)
    assert torch.equal(pb.Tagging.tags(vertices), tags)
    free = pb.Tagging(torch.zeros(3, 3), lengths=torch.tensor([3, 2, 0]))
    assert free.contains(vertices).all()
    assert not pb.Tagging(torch.zeros(3, 3)).contains(vertices)[1:].any()


def as_pairs(tagging, scores):
    """The same sequences as a chain: scores of pairs of neighbors."""
    scores = scores.clone()
    scores[..., 0, :] += tagging.start
    scores[..., -1, :] += tagging.end
    pairs = scores.unsqueeze(-2) + tagging.transitions
    return torch.cat([scores[..., :1, None, :].expand_as(pairs[..., :1, :, :]), pairs[..., 1:, :, :]], -3)


@pytest.mark.parametrize("scale", [0.001, 1.0, 30.0, 1000.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_tagging_is_a_chain_whose_pairs_add_up(scale, dtype):
    """Whether in products of weights or on logarithms, which large scores ask for."""
    tables = [scale * table.detach().to(dtype) for table in random_tables(4)]
    tagging, scores = tagging_of(*tables), random_scores(20, 30, 4, scale=scale).to(dtype).requires_grad_()
    pairs, tolerance = as_pairs(tagging, scores), 1e-9 if dtype == torch.float64 else 2e-3
    chain = pb.Chain()
    assert_close(
        tagging.log_partition(scores),
        chain.log_partition(pairs),
        rtol=1e-12 if dtype.itemsize == 8 else 1e-5,
        atol=1e-9,
    )
    assert_close(tagging.log_partition(scores.detach()), tagging.log_partition(scores).detach())
    marginals, expected = tagging.marginals(scores), chain.marginals(pairs)
    assert_close(marginals, expected.sum(-2), atol=tolerance, rtol=0)
    assert_close(tagging.pair_marginals(scores), expected, atol=tolerance, rtol=0)
    weight = random_scores(20, 30, 4, seed=5).to(dtype)
    (found,) = torch.autograd.grad((marginals * weight).sum(), scores)
    (exact,) = torch.autograd.grad((expected.sum(-2) * weight).sum(), scores)
    assert_close(found, exact, atol=10 * tolerance, rtol=0)
    best = tagging.argmax(scores)
    assert_close(tagging.inner(scores, best) + tagging.own_score(best), chain.inner(pairs, chain.argmax(pairs)))


def test_a_path_that_underflows_on_the_way_may_be_the_only_one():
    transitions = torch.tensor([[0.0, -600.0], [-torch.inf, 0.0]], dtype=torch.float64)
    scores = torch.zeros(1, 6, 2, dtype=torch.float64)
    scores[0, :3, 1], scores[0, 5, 0] = -400.0, -torch.inf
    tagging = pb.Tagging(transitions)
    values = scores.new_tensor([-600.0, -600.0, -600.0, -1000.0, -1400.0, -1200.0])
    assert_close(tagging.log_partition(scores), values.logsumexp(0, keepdim=True))
    assert_close(tagging.marginals(scores)[0, 2], values.new_tensor([1.0, 0.0]))


@pytest.mark.parametrize("lengths", [None, torch.tensor([3, 0, 1])], ids=["full", "lengths"])
def test_gradients_reach_transitions_start_and_end(lengths):
    scores, tables = random_scores(3, 3, 3).requires_grad_(), random_tables(3)

    def call(name):
        return lambda scores, *tables: getattr(tagging_of(*tables, lengths=lengths), name)(scores)

    for name in ("log_partition", "marginals", "entropy", "sparsemap", "pair_marginals"):
        assert gradcheck(call(name), (scores, *tables)), name
    assert gradgradcheck(call("log_partition"), (scores, *tables))
    vertex = tagging_of(*tables, lengths=lengths).argmax(scores)
    assert gradcheck(lambda s, *tables: tagging_of(*tables, lengths=lengths).log_prob(s, vertex), (scores, *tables))
    assert gradcheck(lambda s, *tables: tagging_of(*tables, lengths=lengths).topk(s, 1).scores, (scores, *tables))
    assert gradcheck(lambda s, *tables: tagging_of(*tables, lengths=lengths).support(s).mean(), (scores, *tables))
    for regularizer in (pb.SquaredNorm(), pb.Entropy(), pb.Unregularized()):
        loss = lambda s, *tables, r=regularizer: pb.FenchelYoungLoss(r)(tagging_of(*tables, lengths=lengths), s, vertex)
        assert gradcheck(loss, (scores, *tables))


def test_every_example_may_have_transitions_of_its_own():
    scores, transitions = random_scores(4, 5, 3), random_scores(4, 3, 3, seed=1).requires_grad_()
    for name in ("log_partition", "marginals", "sparsemap", "argmax", "max_marginals"):
        each = [getattr(pb.Tagging(one), name)(row) for one, row in zip(transitions, scores)]
        assert_close(getattr(pb.Tagging(transitions), name)(scores), torch.stack(each))
    (gradient,) = torch.autograd.grad(pb.Tagging(transitions).log_partition(scores).sum(), transitions)
    assert_close(gradient.sum((-1, -2)), torch.full((4,), 4.0, dtype=torch.float64))


@pytest.mark.parametrize("ends", ["both", "start", "end", "none"])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_tables_that_examples_share_have_the_sum_of_their_gradients(batch, ends):
    scores, (transitions, start, end) = random_scores(*batch, 4, 3).requires_grad_(), random_tables(3)
    tables = [transitions, start if ends in ("both", "start") else None, end if ends in ("both", "end") else None]
    given = [scores, *(table.requires_grad_() for table in tables if table is not None)]
    repeated = [table if table is None else table.expand(*batch, *table.shape) for table in tables]
    weight = random_scores(*batch, 1, seed=5).squeeze(-1)
    found = []
    for each in (tables, repeated):
        value = (weight * tagging_of(*each).log_partition(scores)).sum()
        first = torch.autograd.grad(value, given, create_graph=True)
        second = torch.autograd.grad(sum((of**2).sum() for of in first), given)
        with torch.autocast("cpu", torch.bfloat16):  # the derivative is as precise inside it
            again = torch.autograd.grad((weight * tagging_of(*each).log_partition(scores)).sum(), given)
        found.append([value, *first, *second, *again])
    assert_close(*found)


def test_several_gradients_are_computed_at_once():
    scores, tables = random_scores(3, 4, 3).requires_grad_(), [table.requires_grad_() for table in random_tables(3)]
    value, given, directions = tagging_of(*tables).log_partition(scores), (scores, *tables), random_scores(5, 3, seed=5)
    together = torch.autograd.grad(value, given, directions, retain_graph=True, is_grads_batched=True)
    each = [torch.autograd.grad(value, given, direction, retain_graph=True) for direction in directions]
    assert_close(together, tuple(map(torch.stack, zip(*each))))


def test_a_sequence_in_integers_has_the_score_of_the_same_in_floats():
    tagging, every = pb.Tagging(STEPS, end=LAST), pb.Tagging(torch.zeros(3, 3)).enumerate((4, 3)).vertices
    possible = tagging.contains(every.double())
    assert 0 < possible.sum() < len(every)
    for dtype in (torch.int64, torch.bool):
        assert_close(tagging.own_score(every.to(dtype)), tagging.own_score(every.double()))
        assert torch.equal(tagging.contains(every.to(dtype)), possible)


def test_a_forbidden_transition_has_no_gradient_and_is_never_taken():
    transitions = STEPS.clone().requires_grad_()
    start, end = FIRST.clone().requires_grad_(), LAST.clone().requires_grad_()
    tagging, scores = pb.Tagging(transitions, start=start, end=end), random_scores(5, 4, 3).requires_grad_()
    for name in ("log_partition", "marginals", "sparsemap", "entropy"):
        value = getattr(tagging, name)(scores)
        weight = torch.linspace(-1, 1, value.numel(), dtype=value.dtype).reshape(value.shape)
        for table, gradient in zip(
            (transitions, start, end), torch.autograd.grad((value * weight).sum(), (transitions, start, end))
        ):
            assert gradient.isfinite().all() and (gradient[table == -torch.inf] == 0).all()
    samples = pb.Tagging.tags(tagging.sample(scores, (500,)))
    assert not ((samples[..., :-1] == 0) & (samples[..., 1:] == 2)).any()
    assert (samples[..., 0] != 1).all()


@pytest.mark.parametrize("case", TAGGINGS, ids=repr)
def test_pair_marginals_are_those_of_the_vertices(case):
    scores, before = case.scores(), case.vertices()[..., :-1, :]
    probabilities = case.vertex_scores(scores).softmax(0)[..., None, None, None]
    both = (probabilities * before.unsqueeze(-1) * case.vertices()[..., 1:, None, :]).sum(0)
    found = case.structure.pair_marginals(scores)
    assert_close(found[..., 1:, :, :], both, atol=1e-12, rtol=0)
    assert_close(found.sum(-2), case.structure.marginals(scores), atol=1e-12, rtol=0)
    assert (found[..., 0, 1:, :] == 0).all()


@pytest.mark.parametrize("case", TAGGINGS, ids=repr)
def test_the_own_score_of_a_mixture_is_the_largest_expected_one(case):
    """SparseMAP attains it, a CRF does not exceed it, and with any scores it stays below the best vertex."""
    scores = case.scores(scale=0.3)
    solution = case.structure.solve(scores)
    at = len(case.batch)
    each = case.structure.own_score(solution.mixture.vertices.movedim(at, 0)).movedim(0, at)
    expected = (solution.mixture.probabilities * each).sum(-1)
    assert_close(case.structure.own_score(solution.mixture.mean()), expected, atol=1e-8, rtol=0)
    for seed in range(5):
        other = case.scores(seed=seed, scale=2.0)
        p = case.vertex_scores(other).softmax(0)
        mean = (p[..., None, None] * case.vertices()).sum(0)
        own = case.structure.own_score(case.vertices())
        chance = torch.where(p > 0, p * own.masked_fill(own == -torch.inf, 0), 0).sum(0)
        best = case.structure.own_score(mean)
        assert (best >= chance - 1e-9).all()
        assert (best <= case.vertex_scores(other).amax(0) - case.structure.inner(other, mean) + 1e-9).all()


@pytest.mark.parametrize("case", TAGGINGS, ids=repr)
def test_project_knows_what_is_forbidden_and_no_other_score(case):
    tagging, points = case.structure, case.scores(seed=3)
    tables = (tagging.transitions, tagging.start, tagging.end)
    forbidden = [None if x is None else x.masked_fill(x > -torch.inf, 0) for x in tables]
    plain = tagging_of(*forbidden, lengths=tagging.lengths, mask=tagging.mask)
    assert torch.equal(tagging.project(points), plain.sparsemap(points))
    for point in (tagging.argmax(points), tagging.marginals(points), tagging.sparsemap(points)):
        assert_close(tagging.project(point), point, atol=1e-7, rtol=0)


def test_tags_that_do_not_interact_are_independent_choices():
    scores, each = random_scores(3, 5, 4), pb.Independent(pb.Categorical())
    free = pb.Tagging(torch.zeros(4, 4))
    for name in ("log_partition", "marginals", "sparsemap", "entropy", "argmax"):
        assert_close(getattr(free, name)(scores), getattr(each, name)(scores))


def test_what_is_known_of_the_tags_gives_a_marginal_likelihood():
    scores, (transitions, start, end) = random_scores(2, 4, 3), random_tables(3)
    known = torch.ones(2, 4, 3, dtype=torch.bool)
    known[0, 0], known[1, 2] = torch.tensor([True, False, False]), torch.tensor([True, True, False])
    every, some = (
        pb.Tagging(transitions, start=start, end=end),
        pb.Tagging(transitions, start=start, end=end, mask=known),
    )
    found = every.log_partition(scores) - some.log_partition(scores)
    marginals = every.marginals(scores)
    assert_close(found, -torch.stack([marginals[0, 0, 0], marginals[1, 2, :2].sum()]).log())


def test_bio_allows_an_inside_tag_only_within_its_span():
    names, transitions, start, end = pb.Tagging.bio(["PER", "LOC"])
    assert names == ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
    vertices = pb.Tagging(transitions, start=start, end=end).enumerate((3, 5))
    listed = {tuple(names[i] for i in row) for row in pb.Tagging.tags(vertices.vertices).tolist()}
    valid = {row for row in itertools.product(names, repeat=3) if is_bio(row)}
    assert listed == valid


def is_bio(row):
    before = ("O", *row)
    return all(tag[0] != "I" or last[1:] == tag[1:] != "" for last, tag in zip(before, row))


def test_bioes_allows_whole_spans_only():
    names, transitions, start, end = pb.Tagging.bioes(["X", "Y"])
    assert names == ("O", "B-X", "I-X", "E-X", "S-X", "B-Y", "I-Y", "E-Y", "S-Y")
    vertices = pb.Tagging(transitions, start=start, end=end).enumerate((4, 9))
    listed = {" ".join(names[i] for i in row) + " " for row in pb.Tagging.tags(vertices.vertices).tolist()}
    pieces = [
        "O ",
        *(
            f"{piece} "
            for x in "XY"
            for piece in (f"S-{x}", f"B-{x} E-{x}", f"B-{x} I-{x} E-{x}", f"B-{x} I-{x} I-{x} E-{x}")
        ),
    ]
    valid = {
        text
        for count in range(1, 5)
        for text in map("".join, itertools.product(pieces, repeat=count))
        if len(text.split()) == 4
    }
    assert listed == valid
    with pytest.raises(ValueError, match=r"Tagging\.bioes: labels are 'PER'; expected different names"):
        pb.Tagging.bioes("PER")


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0, 1000.0])
def test_large_projections_are_certified_by_their_own_argmax(scale):
    scores, tables = scale * random_scores(2, 40, 8), [scale * table.detach() for table in random_tables(8)]
    tagging = tagging_of(*tables, lengths=torch.tensor([40, 17]))
    point = tagging.sparsemap(scores)
    rest = scores - point
    best = tagging.argmax(rest)
    gap = tagging.inner(rest, best) + tagging.own_score(best) - tagging.inner(rest, point) - tagging.own_score(point)
    assert (gap.abs() <= 1e-8 * max(1.0, scale)).all()


def test_half_precision_scores_take_transitions_of_any_precision():
    scores, tables = random_scores(2, 4, 3), random_tables(3)
    for dtype in (torch.bfloat16, torch.float16):
        point = tagging_of(*tables).marginals(scores.to(dtype))
        assert point.dtype == dtype
        assert_close(point.double(), tagging_of(*tables).marginals(scores), atol=0.05, rtol=0)
        gradients = torch.autograd.grad(tagging_of(*tables).log_partition(scores.to(dtype)).sum(), tables)
        assert all(gradient.dtype == torch.float64 and gradient.isfinite().all() for gradient in gradients)


def test_bad_input_is_named():
    free = torch.zeros(3, 3)
    with pytest.raises(ValueError, match=r"Tagging: scores have parts of shape \(4, 2\) and transitions \(3, 3\)"):
        pb.Tagging(free).argmax(torch.zeros(5, 4, 2))
    with pytest.raises(ValueError, match=r"Tagging: transitions has shape \(3, 2\); expected \(\.\.\., t, t\)"):
        pb.Tagging(torch.zeros(3, 2))
    with pytest.raises(TypeError, match=r"Tagging: start is of dtype torch.int64; expected a floating tensor"):
        pb.Tagging(free, start=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"Tagging: transitions is a list"):
        pb.Tagging([[0.0]])
    with pytest.raises(ValueError, match=r"Tagging: end has shape \(2,\) for scores of shape \(5, 4, 3\)"):
        pb.Tagging(free, end=torch.zeros(2)).argmax(torch.zeros(5, 4, 3))
    with pytest.raises(ValueError, match=r"Tagging: transitions has shape \(2, 3, 3\) for scores"):
        pb.Tagging(torch.zeros(2, 3, 3)).log_partition(torch.zeros(5, 4, 3))
    with pytest.raises(ValueError, match=r"Tagging: lengths\[1\] is 5; expected between 0 and 4"):
        pb.Tagging(free, lengths=torch.tensor([3, 5])).enumerate((2, 4, 3))
    for name in OPERATIONS:
        with pytest.raises(ValueError, match=r"lengths.*\[1\].*expected"):
            getattr(pb.Tagging(free, lengths=torch.tensor([3, 4])), name)(torch.zeros(2, 3, 3))
    closed = torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]])
    scores = torch.zeros(2, 3, 2)
    scores[1, 0, 0] = scores[1, 2, 1] = -torch.inf
    gap = torch.zeros(2, 3, 3)
    gap[1, 2] = -torch.inf
    for name in OPERATIONS:
        with pytest.raises(ValueError, match=r"Tagging: example \[1\] has no sequence of tags"):
            getattr(pb.Tagging(closed), name)(scores)
        with pytest.raises(
            ValueError, match=r"Tagging: position 2 of example \[1\] has no tag that its scores and mask"
        ):
            getattr(pb.Tagging(free), name)(gap)
        with pytest.raises(ValueError, match=r"Tagging: the transitions of example \[0\] contain NaN"):
            getattr(pb.Tagging(torch.full((2, 2), torch.nan)), name)(torch.zeros(2, 3, 2))
        with pytest.raises(ValueError, match=r"Tagging: the end scores of example \[0\] contain NaN"):
            getattr(pb.Tagging(torch.zeros(2, 2), end=torch.full((2,), torch.nan)), name)(torch.zeros(2, 3, 2))
    with pytest.raises(ValueError, match=r"there are .* vertices; expected at most"):
        pb.Tagging(free).enumerate((30, 3))


def test_pairs_are_refused_in_the_words_of_taggings():
    closed, scores = torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]]), torch.zeros(2, 3, 2)
    scores[1, 0, 0] = scores[1, 2, 1] = -torch.inf
    with pytest.raises(ValueError, match=r"^Tagging: example \[1\] has no sequence of tags that its scores"):
        pb.Tagging(closed).pair_marginals(scores)
    wrong = r"^Tagging: the scores, transitions, start or end of example \[0\] contain NaN or \+inf; expected numbers"
    for tagging in (pb.Tagging(closed * torch.nan), pb.Tagging(closed, end=torch.tensor([0.0, torch.inf]))):
        with pytest.raises(ValueError, match=wrong):
            tagging.pair_marginals(torch.zeros(2, 3, 2))
    with pytest.raises(ValueError, match=r"^Tagging: lengths\[1\] is 4; expected between 0 and 3"):
        pb.Tagging(closed, torch.tensor([3, 4])).pair_marginals(torch.zeros(2, 3, 2))


@pytest.mark.parametrize("name", ["transitions", "start", "end"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_tables_without_numbers_are_worth_nothing_to_any_vertex(name, number):
    tables = {"transitions": torch.zeros(2, 2), name: torch.full((2, 2) if name == "transitions" else (2,), number)}
    words = name if name == "transitions" else f"{name} scores"
    tagging, vertices = pb.Tagging(**tables), pb.Tagging.one_hot(torch.tensor([[0, 1, 1], [1, 0, 0]]), 2)
    for call in (tagging.own_score, tagging.contains, lambda vertices: tagging.enumerate(vertices.shape)):
        with pytest.raises(
            ValueError, match=rf"^Tagging: the {words} of example \[.*\] contain NaN or \+inf; expected num"
        ):
            call(vertices)


def test_a_search_that_knows_parts_alone_is_refused():
    class Copied(pb.Structure):
        event_dims, has_own_scores = 2, True

        def argmax(self, scores):
            return pb.Tagging(STEPS).argmax(scores)

    with pytest.raises(TypeError, match=r"Copied: the inherited search knows the scores of parts alone"):
        Copied().sparsemap(random_scores(3, 3))
    with pytest.raises(TypeError, match=r"Copied has scores of its own, and needs a `project` of its own"):
        Copied().project(random_scores(3, 3))


def test_log_prob_of_half_precision_is_the_same_under_autocast():
    generator = torch.Generator().manual_seed(0)
    scores, transitions = torch.randn(4, 3, generator=generator).half(), torch.randn(3, 3, generator=generator).half()
    tagging = pb.Tagging(transitions)
    tags = tagging.argmax(scores)
    with torch.autocast("cpu", torch.bfloat16):
        inside = tagging.log_prob(scores, tags)
    assert_close(inside.float(), tagging.log_prob(scores, tags).float(), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_tables_beside_scores_of_half_precision_keep_their_digits(dtype):
    far = torch.tensor([[0.0, 7e4], [0.0, -7e4]])  # beyond the range of float16
    near = torch.tensor([[0.0, 1.003], [1.0, 0.0]])  # alike in bfloat16
    scores = torch.zeros(3, 2, dtype=dtype)
    for transitions in (far, near):
        taggings = pb.Tagging(transitions)
        for operation in ("argmax", "marginals", "pair_marginals", "sparsemap"):
            found = getattr(taggings, operation)(scores)
            assert found.dtype == dtype
            assert_close(found, getattr(taggings, operation)(scores.float()).to(dtype))
