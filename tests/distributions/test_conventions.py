"""The conventions of torch.distributions, held against the distributions that PyTorch itself has."""

import pytest
import torch
from torch import distributions as td
from torch.testing import assert_close

import pullback as pb
from families import LENGTHS, MASK, STEPS, WORDS

BATCHES = [(), (3,), (1,), (2, 3), (2, 1)]
batches = pytest.mark.parametrize("batch", BATCHES, ids=str)
TREES = pb.DependencyTree()


def random_scores(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(autouse=True)
def _validation_is_on():
    """As it is until something is compiled: torch.compile turns it off, for the whole process."""
    before = td.Distribution._validate_args
    td.Distribution.set_default_validate_args(True)
    yield
    td.Distribution.set_default_validate_args(before)


def one_hot(scores):
    return pb.Gibbs(pb.Categorical(), scores), td.OneHotCategorical(logits=scores)


def bits(scores):
    return pb.Gibbs(pb.Binary(), scores), td.Independent(td.Bernoulli(logits=scores), 1)


def several(scores):
    each = td.OneHotCategorical(logits=scores)
    return pb.Gibbs(pb.Independent(pb.Categorical()), scores), td.Independent(each, 1)


PAIRS = pytest.mark.parametrize(("pair", "event"), [(one_hot, (4,)), (bits, (4,)), (several, (2, 3))])


@PAIRS
@batches
def test_shapes_and_numbers_are_those_of_torch(pair, event, batch):
    ours, theirs = pair(random_scores(*batch, *event))
    assert ours.batch_shape == theirs.batch_shape and ours.event_shape == theirs.event_shape
    assert not ours.has_rsample and ours.support.is_discrete
    assert ours.support.event_dim == theirs.support.event_dim == len(event)
    for sample_shape in ((), (5,), (2, 3), torch.Size([4])):
        drawn = ours.sample(sample_shape)
        assert drawn.shape == theirs.sample(torch.Size(sample_shape)).shape and drawn.dtype == torch.float64
        assert_close(ours.log_prob(drawn), theirs.log_prob(drawn), atol=1e-12, rtol=0)
    for answer in ("mean", "variance", "stddev"):
        assert_close(getattr(ours, answer), getattr(theirs, answer))
    assert_close(ours.entropy(), theirs.entropy())
    assert_close(ours.perplexity(), theirs.perplexity())
    assert_close(
        ours.mode, (ours.mean == ours.mean.amax(-1, keepdim=True)).double() if pair is not bits else theirs.mode
    )


@PAIRS
@batches
@pytest.mark.parametrize("front", [(), (1,), (3,), (2, 1), (5, 1, 1), (2, 3)], ids=str)
def test_values_broadcast_as_in_torch(pair, event, batch, front):
    ours, theirs = pair(random_scores(*batch, *event))
    value = pair(random_scores(*front, *event, seed=1))[1].sample()
    try:
        expected = theirs.log_prob(value)
    except (ValueError, RuntimeError, IndexError):
        with pytest.raises(ValueError, match="the value has shape"):
            ours.log_prob(value)
    else:
        assert_close(ours.log_prob(value), expected, atol=1e-12, rtol=0)
        assert ours.support.check(value).shape == expected.shape


@PAIRS
@batches
@pytest.mark.parametrize("wanted", [(), (3,), (2, 3), (4, 2, 3), (5, 2)], ids=str)
def test_expand_is_that_of_torch(pair, event, batch, wanted):
    ours, theirs = pair(random_scores(*batch, *event))
    try:
        expected = theirs.expand(wanted)
    except RuntimeError:
        with pytest.raises(ValueError, match=r"Gibbs\.expand: the batch has shape"):
            ours.expand(wanted)
    else:
        expanded = ours.expand(wanted)
        assert expanded.batch_shape == expected.batch_shape and expanded.event_shape == expected.event_shape
        assert_close(expanded.mean, expected.mean)
        drawn = expanded.sample((2,))
        assert_close(expanded.log_prob(drawn), expected.log_prob(drawn), atol=1e-12, rtol=0)
        assert ours.batch_shape == batch


@batches
@pytest.mark.parametrize("expand", [True, False])
def test_enumerated_values_are_those_of_torch(batch, expand):
    ours, theirs = one_hot(random_scores(*batch, 4))
    assert ours.has_enumerate_support
    assert torch.equal(ours.enumerate_support(expand), theirs.enumerate_support(expand))
    assert ours.enumerate_support().shape == (4, *batch, 4)


@PAIRS
@pytest.mark.parametrize("other", BATCHES, ids=str)
@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_divergences_are_those_of_torch(pair, event, batch, other):
    (p, their_p), (q, their_q) = (pair(random_scores(*shape, *event, seed=i)) for i, shape in enumerate((batch, other)))
    whole = torch.broadcast_shapes(batch, other)
    expected = td.kl_divergence(their_p.expand(whole), their_q.expand(whole))  # their bits do not broadcast here
    assert_close(td.kl_divergence(p, q), expected)


@PAIRS
def test_gradients_are_those_of_torch(pair, event):
    leaf = random_scores(3, *event).requires_grad_()
    value = pair(leaf)[0].sample()
    prior = pair(torch.zeros(3, *event, dtype=torch.float64))

    def gradient(which):
        distribution = pair(leaf)[which]
        total = distribution.log_prob(value) + 2 * distribution.entropy()
        total = total + 3 * td.kl_divergence(distribution, prior[which]) + distribution.variance.flatten(1).sum(-1)
        return torch.autograd.grad((total * torch.arange(1, 4)).sum(), leaf)[0]

    assert_close(gradient(0), gradient(1))


def test_wrappers_of_torch_take_it():
    scores = random_scores(2, 3, 4, 4)
    each = td.Independent(pb.Gibbs(TREES, scores), 1)
    whole = pb.Gibbs(pb.Independent(TREES), scores)
    drawn = each.sample((5,))
    assert_close(each.log_prob(drawn), whole.log_prob(drawn))
    assert_close(each.entropy(), whole.entropy())
    assert each.support.check(drawn).shape == (5, 2)
    assert_close(
        td.kl_divergence(each, td.Independent(pb.Gibbs(TREES, torch.zeros(3, 4, 4).double()), 1)),
        td.kl_divergence(whole, pb.Gibbs(pb.Independent(TREES), torch.zeros(3, 4, 4).double())),
    )


def test_a_mixture_of_torch_mixes_structures():
    weights, parts = random_scores(2, 3), pb.Gibbs(TREES, random_scores(2, 3, 3, 3))
    mixed = td.MixtureSameFamily(td.Categorical(logits=weights), parts)
    every = pb.Gibbs(TREES, torch.zeros(2, 3, 3)).enumerate_support().double()
    log_prob = mixed.log_prob(every)
    assert log_prob.shape == (3, 2)
    assert_close(log_prob.exp().sum(0), torch.ones(2).double())
    assert mixed.sample((7,)).shape == (7, 2, 3, 3)
    assert_close(mixed.mean, (weights.softmax(-1)[..., None, None] * parts.mean).sum(1))


def test_the_randomness_of_torch_and_generators_are_followed():
    for distribution in (
        pb.Gibbs(TREES, random_scores(2, 4, 4)),
        pb.SparseMAPDistribution(TREES, random_scores(2, 4, 4)),
    ):
        torch.manual_seed(3)
        first = distribution.sample((6,))
        torch.manual_seed(3)
        assert torch.equal(first, distribution.sample((6,)))
        draw = lambda seed, of=distribution: of.sample((6,), generator=torch.Generator().manual_seed(seed))
        assert torch.equal(draw(1), draw(1)) and not torch.equal(draw(1), draw(2))


@pytest.mark.parametrize("kind", [pb.Gibbs, pb.SparseMAPDistribution])
def test_a_value_that_is_not_a_vertex_is_refused_or_impossible(kind):
    trees, scores = pb.DependencyTree(WORDS), random_scores(3, 4, 4)
    values = trees.argmax(scores)
    values[2] = values[0]  # three words where there are two
    with pytest.raises(
        ValueError, match=rf"{kind.__name__}: the value of example \[2\] is not a vertex of DependencyTree"
    ):
        kind(trees, scores).log_prob(values)
    found = kind(trees, scores, validate_args=False).log_prob(values)
    assert found[:2].isfinite().all() and found[2] == -torch.inf
    assert kind(trees, scores).support.check(values).tolist() == [True, True, False]
    for wrong in (torch.full_like(values, 0.5), torch.full_like(values, torch.nan)):
        with pytest.raises(ValueError, match="is not a vertex"):
            kind(trees, scores).log_prob(wrong)
        assert (kind(trees, scores, validate_args=False).log_prob(wrong) == -torch.inf).all()


@pytest.mark.parametrize(
    "structure", [pb.Tagging(STEPS), pb.Tagging(STEPS, lengths=torch.tensor([2]))], ids=["whole", "short"]
)
def test_a_sequence_that_transitions_forbid_is_refused(structure):
    value = pb.Tagging.one_hot(torch.tensor([[0, 2, 1]]), 3).double()  # 0 to 2 is forbidden
    if structure.lengths is not None:
        value[:, 2] = 0
    with pytest.raises(ValueError, match="is not a vertex of Tagging"):
        pb.Gibbs(structure, random_scores(1, 3, 3)).log_prob(value)


@pytest.mark.parametrize("kind", [pb.Gibbs, pb.SparseMAPDistribution])
def test_validation_follows_the_settings_of_torch(kind):
    wrong = torch.full((4,), 0.5).double()
    assert kind(pb.Categorical(), random_scores(4))._validate_args
    td.Distribution.set_default_validate_args(False)
    assert kind(pb.Categorical(), random_scores(4)).log_prob(wrong) == -torch.inf
    with pytest.raises(ValueError, match="is not a vertex"):
        kind(pb.Categorical(), random_scores(4), validate_args=True).log_prob(wrong)
    td.Distribution.set_default_validate_args(True)
    assert kind(pb.Categorical(), random_scores(4), validate_args=False).expand((2,)).log_prob(wrong).shape == (2,)
    with pytest.raises(ValueError, match="is not a vertex"):
        kind(pb.Categorical(), random_scores(4)).expand((2,)).log_prob(wrong)


@pytest.mark.parametrize("kind", [pb.Gibbs, pb.SparseMAPDistribution])
def test_padding_may_hold_anything(kind):
    scores = random_scores(3, 4)
    clean = kind(pb.Categorical(lengths=LENGTHS, mask=MASK | (LENGTHS == 1)[:, None]), scores)
    dirty = kind(clean.structure, scores.masked_fill(torch.arange(4) >= LENGTHS[:, None], torch.nan))
    assert clean.arg_constraints["scores"].check(dirty.scores).all()
    assert_close(dirty.entropy(), clean.entropy())
    assert_close(dirty.log_prob(dirty.mode), clean.log_prob(clean.mode))
    assert_close(
        td.kl_divergence(dirty, pb.Gibbs(clean.structure, scores)),
        td.kl_divergence(clean, pb.Gibbs(clean.structure, scores)),
    )


@pytest.mark.parametrize("kind", [pb.Gibbs, pb.SparseMAPDistribution])
@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda kind: kind(pb.Categorical, torch.zeros(3)), TypeError, "structure is a .*; expected a Structure"),
        (lambda kind: kind(TREES, torch.zeros(4)), ValueError, "expected at least 2 dimension"),
        (lambda kind: kind(TREES, torch.zeros(2, 3)), ValueError, r"expected \(\.\.\., n \+ 1, n \+ 1\)"),
        (lambda kind: kind(pb.Binary(), [0.0]), TypeError, "scores are a list"),
        (lambda kind: kind(TREES, torch.full((2, 3, 3), torch.nan)), ValueError, r"of example \[0\] contain NaN"),
        (lambda kind: kind(pb.Binary(), torch.tensor([0, torch.inf])), ValueError, r"contain NaN or \+inf"),
        (lambda kind: kind(pb.Binary(), torch.zeros(2, 3)).log_prob([1.0]), TypeError, "value is a list"),
        (lambda kind: kind(pb.Binary(), torch.zeros(2, 3)).log_prob(torch.zeros(2, 4)), ValueError, r"parts, \(3,\)"),
        (lambda kind: kind(pb.Binary(), torch.zeros(2, 3)).log_prob(torch.zeros(())), ValueError, "value has shape"),
        (lambda kind: kind(pb.Binary(), torch.zeros(2, 3)).log_prob(torch.zeros(5, 3)), ValueError, "broadcasts to"),
        (lambda kind: kind(pb.Binary(), torch.zeros(2, 3)).sample(5), TypeError, "sample_shape is 5; expected a seq"),
        (lambda kind: kind(pb.DependencyTree(WORDS), torch.zeros(2, 4, 4)), ValueError, r"lengths have shape \(3,\)"),
    ],
)  # fmt: skip
def test_bad_input_is_named(kind, wrong, error, message):
    with pytest.raises(error, match=message):
        wrong(kind)


@pytest.mark.parametrize(
    "structure", [pb.Matching(), pb.SpanningTree.forest(2), pb.Independent(pb.Matching())], ids=repr
)
def test_a_structure_without_sums_has_no_gibbs_distribution(structure):
    with pytest.raises(pb.MissingCapability, match=r"Gibbs needs a partition function, and .* has none"):
        pb.Gibbs(structure, torch.zeros(2, 3, 3))


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (pb.Subset(2), pb.Binary(), "the structures are Subset and Binary; expected the same structure"),
        (pb.Subset(2), pb.Subset(1), "are Subset and Subset that differ in k; expected"),
        (pb.Binary(), pb.Binary(torch.tensor([2])), "differ in lengths"),
        (pb.Binary(torch.tensor([1])), pb.Binary(torch.tensor([2])), "differ in lengths"),
        (pb.Categorical(), pb.Categorical(mask=torch.tensor([True, True, False])), "differ in mask"),
    ],
)  # fmt: skip
def test_divergences_between_unlike_structures_are_refused(one, other, message):
    for kind in (pb.Gibbs, pb.SparseMAPDistribution):
        with pytest.raises(ValueError, match=message):
            td.kl_divergence(kind(one, torch.zeros(1, 3)), pb.Gibbs(other, torch.zeros(1, 3)))


def test_divergences_know_equal_structures_from_trained_ones():
    scores = random_scores(3, 4, 4)
    one, other = pb.DependencyTree(WORDS.clone()), pb.DependencyTree(WORDS.clone())
    assert (td.kl_divergence(pb.Gibbs(one, scores), pb.Gibbs(other, scores)).abs() < 1e-12).all()
    both = [pb.product(pb.Categorical(), pb.Subset(1), shapes=[(2,), (3,)]) for _ in range(2)]
    assert td.kl_divergence(*(pb.Gibbs(each, torch.zeros(5)) for each in both)) == 0
    transitions = [torch.zeros(3, 3, requires_grad=True) for _ in range(2)]
    with pytest.raises(ValueError, match="differ in transitions"):
        td.kl_divergence(*(pb.Gibbs(pb.Tagging(table), torch.zeros(2, 3)) for table in transitions))
    with pytest.raises(ValueError, match=r"parts have shapes \(2,\) and \(3,\)"):
        td.kl_divergence(*(pb.Gibbs(pb.Binary(), torch.zeros(n)) for n in (2, 3)))
    with pytest.raises(TypeError, match=r"is infinite.*the other order"):
        td.kl_divergence(pb.Gibbs(pb.Binary(), torch.zeros(2)), pb.SparseMAPDistribution(pb.Binary(), torch.zeros(2)))


def test_a_variance_needs_zeros_and_ones():
    class Doubled(pb.Categorical):
        is_zero_one = False

    with pytest.raises(TypeError, match="those of Doubled are not"):
        _ = pb.Gibbs(Doubled(), torch.zeros(3)).variance


def test_a_batch_without_examples_gives_none():
    nothing = pb.Gibbs(TREES, torch.zeros(0, 3, 3))
    assert nothing.mode.shape == nothing.mean.shape == nothing.sample().shape == (0, 3, 3)
    assert nothing.sample((2,)).shape == (2, 0, 3, 3) and nothing.expand((4, 0)).batch_shape == (4, 0)
    assert nothing.log_prob(torch.zeros(0, 3, 3)).shape == td.kl_divergence(nothing, nothing).shape == (0,)


def test_a_distribution_says_what_it_is():
    assert repr(pb.Gibbs(TREES, torch.zeros(2, 4, 4))) == "Gibbs(DependencyTree, scores: (2, 4, 4))"
    assert repr(pb.Gibbs(TREES, torch.zeros(4, 4)).support) == "Vertices(DependencyTree)"
    assert repr(pb.Gibbs(TREES, torch.zeros(4, 4)).arg_constraints) == "{'scores': Scores(DependencyTree)}"


def test_an_elbo_compiles_and_maps_and_still_refuses():
    scores, value = random_scores(5, 4, 4), TREES.argmax(random_scores(5, 4, 4, seed=1))

    def elbo(scores, value):
        q = pb.Gibbs(TREES, scores, validate_args=True)
        prior = pb.Gibbs(TREES, torch.zeros_like(scores), validate_args=True)
        return q.log_prob(value) + q.entropy() - td.kl_divergence(q, prior) + q.mean.sum((-1, -2))

    expected = elbo(scores, value)
    torch.compiler.reset()
    for transformed in (torch.compile(elbo, fullgraph=True, backend="aot_eager"), torch.func.vmap(elbo)):
        assert_close(transformed(scores, value), expected)
        with pytest.raises(ValueError, match="is not a vertex"):
            transformed(scores, torch.zeros_like(value))
        with pytest.raises(ValueError, match=r"contain NaN or \+inf"):
            transformed(torch.full_like(scores, torch.nan), value)


def test_dtypes_come_back_as_they_came():
    scores = random_scores(2, 5).float()
    for distribution in (pb.Gibbs(pb.Subset(2), scores), pb.SparseMAPDistribution(pb.Subset(2), scores)):
        value = distribution.sample()
        answers = [
            value,
            distribution.mean,
            distribution.mode,
            distribution.entropy(),
            distribution.log_prob(value.int()),
        ]
        answers += [td.kl_divergence(distribution, pb.Gibbs(pb.Subset(2), scores)), distribution.enumerate_support()]
        assert {answer.dtype for answer in answers} == {torch.float32}
