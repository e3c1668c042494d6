"""Film reviews: how they are read, and the two tasks that read them."""

import dataclasses
import lzma

import numpy
import pytest
import torch

import pullback as pb
from pullback.experiments.mistakes import Mistake
from pullback.experiments.task import DecodesLabel, batch_of
from pullback.experiments.tasks import polarity, reviews
from pullback.experiments.tasks.polarity import Polarity
from pullback.experiments.tasks.rationales import Rationales, chosen
from pullback.experiments.tasks.reviews import GloveOrTrained, read_reviews

LINES = ["1\t0\ta good film", "0\t7\ta bad bad film", "1\t8\tgood", "0\t9\ta dull film of no use"]


def write(folder, lines=LINES, words=None, vectors=None):
    """A data folder with these reviews, and with GloVe's vectors if there are any."""
    (folder / "sentence_polarity").mkdir()
    (folder / "sentence_polarity" / "sentence_polarity.tsv").write_text("".join(f"{line}\n" for line in lines))
    if words is not None:
        (folder / "glove100").mkdir()
        (folder / "glove100" / "words.txt").write_text("\n".join(words))
        with lzma.open(folder / "glove100" / "vectors.f16.npy.xz", "wb") as file:
            numpy.save(file, vectors)
    return str(folder)


def decoding_from(task, row):
    """A model that decodes from a structure which is known."""
    return task.model(DecodesLabel(task.known()[row])).eval()


# ---- reading


def test_reviews_are_read_by_fold_and_long_ones_are_cut(tmp_path):
    found = read_reviews(write(tmp_path), 5)
    assert [len(found.splits[name]) for name in ("train", "validation", "test")] == [2, 1, 1]
    batch = batch_of(found.split("test"))
    assert found.words(batch, 0) == ["a", "dull", "film", "of", "no"] and batch.y.tolist() == [0]
    batch = batch_of(found.split("train"))
    assert batch.lengths.tolist() == [3, 4] and batch.y.tolist() == [1, 0]
    assert batch.inside.sum(-1).tolist() == [3, 4]


def test_a_word_has_the_vector_of_glove_or_one_that_is_trained(tmp_path):
    vectors = numpy.arange(200, dtype="float16").reshape(2, 100) / 64
    found = read_reviews(write(tmp_path, words=["film", "good"], vectors=vectors), 9)
    torch.manual_seed(0)
    module = GloveOrTrained(found)
    words = ["film", "good", "bad", "a", "dull", "use"]
    vector = dict(zip(words, module(torch.tensor(found.vocabulary.numbers(words)))))
    assert torch.equal(vector["film"], torch.from_numpy(vectors[0]).float())
    assert torch.equal(vector["good"], torch.from_numpy(vectors[1]).float())
    assert torch.equal(vector["dull"], vector["use"])  # training has neither
    assert not torch.equal(vector["bad"], vector["dull"]) and not torch.equal(vector["bad"], vector["a"])
    assert not module(torch.tensor([0])).any()
    assert not any("glove" in name for name in module.state_dict())


@pytest.mark.parametrize(
    "line", ["good film", "2\t0\tgood", "1\t10\tgood", "1\tx\tgood", "1\t0", "1\t0\t  ", "1\t0 good film"]
)
def test_a_line_that_is_no_review_is_named(line, tmp_path):
    with pytest.raises(Mistake, match=r"sentence_polarity\.tsv, line 5: not a label 0 or 1"):
        Polarity(data_folder=write(tmp_path, [*LINES, line])).data()


def test_a_split_without_a_review_is_named(tmp_path):
    with pytest.raises(Mistake, match="no sentence for validation"):
        Polarity(data_folder=write(tmp_path, [LINES[0], LINES[3]])).data()


def test_files_that_are_missing_or_damaged_are_named(tmp_path):
    with pytest.raises(Mistake, match=r"sentence_polarity\.tsv is not there.*Pang and Lee"):
        Rationales(data_folder=str(tmp_path)).data()
    folder = write(tmp_path, words=["film", "good", "bad"], vectors=numpy.zeros((2, 100), "float16"))
    with pytest.raises(Mistake, match=r"has shape \(2, 100\); expected a row of 100 for each of 3 words"):
        Rationales(data_folder=folder).data()
    (tmp_path / "glove100" / "vectors.f16.npy.xz").write_text("not compressed")
    with pytest.raises(Mistake, match=r"vectors\.f16\.npy\.xz cannot be read"):
        Rationales(data_folder=folder).data()
    (tmp_path / "glove100" / "vectors.f16.npy.xz").unlink()
    with pytest.raises(Mistake, match=r"vectors\.f16\.npy is not there.*GloVe"):
        Rationales(data_folder=folder).data()


def test_the_sample_is_balanced():
    splits = read_reviews("", 40).splits
    assert [len(splits[name]) for name in splits] == [200, 30, 30]
    assert all(2 * sum(one.label for one in sentences) == len(sentences) for sentences in splits.values())


def test_pictures_are_of_sentences_from_all_over_a_split(tmp_path):
    batch = batch_of(read_reviews("", 40).split("test"))
    numbers = reviews.some_short(batch, longest=12, count=4)
    assert len(numbers) == 4 and batch.lengths[numbers].min() >= 5 and batch.lengths[numbers].max() <= 12
    assert 0 < batch.y[numbers].sum() < 4
    short = batch_of(read_reviews(write(tmp_path), 9).split("train"))
    assert reviews.some_short(short, longest=12, count=4) == []


# ---- polarity


def test_flat_trees_and_chains_have_the_heads_that_they_say(tmp_path):
    batch = batch_of(read_reviews(write(tmp_path), 9).split("train"))
    assert pb.DependencyTree.heads(polarity.flat(batch)).tolist() == [[0, 0, 0, -1], [0, 0, 0, 0]]
    assert pb.DependencyTree.heads(polarity.chain(batch)).tolist() == [[0, 1, 2, -1], [0, 1, 2, 3]]
    assert polarity.depths(polarity.flat(batch)).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert polarity.depths(polarity.chain(batch)).tolist() == [[1, 2, 3, 0], [1, 2, 3, 4]]


def test_the_decoder_hears_a_word_through_the_tree_alone():
    task = Polarity(rounds=2)
    batch = task.reviews.collate([task.reviews.splits["train"][0]])
    n = int(batch.lengths)
    decoder = task.model(pb.ste()).decoder.eval()
    one, two = (task.reviews.rows == 2).nonzero(), (task.reviews.rows == 3).nonzero()  # words with vectors of their own

    def is_heard(position, tree):
        other = batch.tokens.clone()
        other[0, position] = two if other[0, position] == one else one
        changed = dataclasses.replace(batch, tokens=other)
        return not torch.equal(decoder(batch, tree), decoder(changed, tree))

    assert [is_heard(i, polarity.chain(batch)) for i in range(n)] == [i < 2 for i in range(n)]
    assert all(is_heard(i, polarity.flat(batch)) for i in range(n))


def test_measures_say_what_trees_are_like():
    task = Polarity(rounds=2)
    data = task.data()["test"]
    batch = batch_of(data)
    flat, chain = (task.measures(decoding_from(task, row), data) for row in ("flat", "chain"))
    assert flat["heard"] == 1 and flat["depth"] == 1 and flat["neighbors"] == 0
    assert chain["neighbors"] == pytest.approx(1 - len(batch.y) / float(batch.lengths.sum()))
    assert chain["heard"] == pytest.approx(float(batch.lengths.clamp_max(2).sum() / batch.lengths.sum()))
    assert chain["depth"] == pytest.approx(float((batch.lengths * (batch.lengths + 1) / 2).sum() / batch.lengths.sum()))


def test_a_decoder_without_a_tree_ignores_it():
    task = Polarity(decoder="bilstm")
    batch = batch_of(task.data()["test"], 5)
    model = task.model(pb.frozen()).eval()
    first, second = (model.decoder(batch, tree(batch)) for tree in (polarity.flat, polarity.chain))
    assert torch.equal(first, second)
    assert (
        set(task.measures(model, task.data()["test"])) == {"accuracy"}
        and task.pictures(model, task.data()["test"]) == []
    )


@pytest.mark.parametrize("change", [{"rounds": 0}, {"longest": 0}])
def test_settings_of_polarity_are_checked(change):
    with pytest.raises(Mistake, match="expected an integer ≥ 1"):
        Polarity(**change)


# ---- rationales


@pytest.mark.parametrize("choice", ["words", "spans"])
def test_random_rationales_use_the_budget(choice):
    task = Rationales(choice=choice, share=0.3)
    batch = batch_of(task.data()["train"])
    torch.manual_seed(0)
    found = chosen(task.known()["random"](batch))
    assert torch.equal(found.sum(-1).long(), task.budget(batch)) and not (found.bool() & ~batch.inside).any()
    assert torch.equal(task.budget(batch), torch.ceil(0.3 * batch.lengths).long())
    inner = torch.nn.functional.pad(found, (1, 0)).diff() == 1  # where a span begins
    assert (inner.sum(-1) == 1).all() == (choice == "spans")


@pytest.mark.parametrize("choice", ["words", "spans"])
def test_the_decoder_sees_the_chosen_words_alone(choice):
    task = Rationales(choice=choice)
    batch = batch_of(task.data()["train"], 20)
    decoder = task.model(pb.ste()).decoder.eval()
    z = task.known()["random"](batch)
    hidden = torch.where(chosen(z) > 0, batch.tokens, batch.inside.long())  # another word everywhere else
    answers, share = decoder(batch, z)
    again, _ = decoder(dataclasses.replace(batch, tokens=hidden), z)
    torch.testing.assert_close(answers, again)
    torch.testing.assert_close(share, task.budget(batch) / batch.lengths)
    everything, _ = decoder(batch, task.known()["every_word"](batch))
    assert not torch.allclose(answers, everything)


def test_no_words_are_a_rationale_too():
    task = Rationales()
    batch = batch_of(task.data()["train"], 3)
    answers, share = task.model(pb.ste()).eval().decoder(batch, torch.zeros(batch.tokens.shape))
    assert answers.isfinite().all() and not share.any()


def test_spans_pay_for_being_off_the_budget():
    logits, label = torch.zeros(2, 2), torch.tensor([0, 1])
    share = torch.tensor([0.1, 0.7])
    words, spans = (Rationales(choice=choice, share=0.2, price=4.0) for choice in ("words", "spans"))
    torch.testing.assert_close(
        spans.criterion((logits, share), label), torch.tensor([0.4, 2.0]) + torch.log(torch.tensor(2.0))
    )
    torch.testing.assert_close(words.criterion((logits, share), label), torch.log(torch.tensor([2.0, 2.0])))


def test_measures_of_rationales_count_words():
    for choice in ("words", "spans"):
        task = Rationales(choice=choice)
        data = task.data()["test"]
        every = task.measures(decoding_from(task, "every_word"), data)
        assert every["chosen"] == 1 and every["alone"] == every["empty"] == 0
    batch = batch_of(data)
    found = Rationales().measures(decoding_from(Rationales(), "random"), data)
    assert found["chosen"] == pytest.approx(float(Rationales().budget(batch).sum() / batch.lengths.sum()))
    assert 0 < found["alone"] < 1


@pytest.mark.parametrize("choice", ["words", "spans"])
def test_a_picture_highlights_what_was_chosen(choice):
    task = Rationales(choice=choice)
    data = task.data()["test"]
    first, *_ = task.pictures(decoding_from(task, "every_word"), data)
    batch = batch_of(data)
    number = int((batch.lengths >= 5).nonzero()[0])
    assert first.svg.count("<rect") > int(batch.lengths[number]) and "the model says" in first.title


@pytest.mark.parametrize(
    "change", [{"share": 0.0}, {"share": 1.5}, {"longest": 0}, {"price": float("nan")}, {"together": float("inf")}]
)
def test_settings_of_rationales_are_checked(change):
    with pytest.raises(Mistake, match=f"{next(iter(change))} is .*; expected"):
        Rationales(**change)
