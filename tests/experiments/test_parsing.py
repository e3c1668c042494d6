"""Parsing: treebanks as they are read, trees that need no learning, and losses on true trees."""

import dataclasses

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.experiments.mistakes import Mistake
from pullback.experiments.rows import LearnsLabel, make_estimator
from pullback.experiments.task import DecodesLabel, batch_of
from pullback.experiments.tasks.conllu import Sentence, read
from pullback.experiments.tasks.parsing import FILES, Parsing
from pullback.experiments.words import Lexicon, WordVectors, shape_of
from small_runs import SMALL

ROW = "{}\t{}\t_\t{}\t_\t_\t{}\t_\t_\t_"


def lines(*rows):
    """Lines of a file, from ids, words, tags and heads."""
    return [ROW.format(*row) for row in rows]


SHE_READS = lines((1, "She", "PRON", 2), (2, "reads", "VERB", 0), (3, ".", "PUNCT", 2))


def test_sentences_are_read_without_comments_and_words_that_are_not_in_the_tree():
    text = ["# text = …", *lines(("1-2", "can't", "_", "_")), *SHE_READS, *lines(("3.1", "and", "_", "_")), "", ""]
    (sentence,) = read(text, "a file")
    assert sentence == Sentence(("She", "reads", "."), ("PRON", "VERB", "PUNCT"), (2, 0, 2))
    assert list(read([*text, *SHE_READS], "a file")) == [sentence, sentence]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["1\tShe"], "a file, line 1: 2 columns between tabs; expected 10"),
        (lines((1, "She", "PRON", "x")), "line 1: the head is 'x'; expected one of 0 to 1"),
        (lines((1, "She", "PRON", 0), (2, "reads", "VERB", 3)), "line 2: the head is '3'; expected one of 0 to 2"),
        (lines((1, "She", "PRON", 0), (3, "reads", "VERB", 1)), "line 2: the word has number '3'; expected 2"),
        (lines((1, "She", "PRON", 2), (2, "reads", "VERB", 1)), "are not a tree with one root"),
        (lines((1, "She", "PRON", 0), (2, "reads", "VERB", 0)), "are not a tree with one root"),
        (lines((1, "a", "X", 0), (2, "b", "X", 3), (3, "c", "X", 2)), "are not a tree with one root"),
    ],
)
def test_what_is_no_treebank_is_refused_with_its_line(rows, message):
    with pytest.raises(Mistake, match="a file") as found:
        list(read(rows, "a file"))
    assert message in str(found.value)


def test_arcs_that_cross_are_found():
    words = ("a", "b", "c", "d")
    for heads in [(0, 1, 2, 3), (2, 0, 2, 2), (0, 4, 1, 1), (3, 4, 0, 3), (2, 0, 4, 1)]:
        arcs = pb.DependencyTree.arcs(torch.tensor([heads]))
        expected = bool(pb.DependencyTree(projective=True).contains(arcs.float()))
        assert Sentence(words, words, heads).is_projective == expected


def test_projective_parsers_learn_from_projective_trees_and_are_tested_on_all(tmp_path):
    crossing = lines((1, "a", "X", 3), (2, "b", "X", 4), (3, "c", "X", 0), (4, "d", "X", 3))
    write(tmp_path, "\n".join([*SHE_READS, "", *crossing]))
    task = Parsing(data_folder=str(tmp_path))
    assert [len(split) for split in task.data().values()] == [2, 2, 2]
    assert [len(split) for split in dataclasses.replace(task, projective=True).data().values()] == [1, 2, 2]


def write(folder, content):
    """Every file of the treebank with this content."""
    for name in FILES.values():
        folder.joinpath(name).parent.mkdir(exist_ok=True)
        folder.joinpath(name).write_text(content, encoding="utf-8")


def test_files_that_are_missing_or_hold_no_short_sentence_are_named(tmp_path):
    with pytest.raises(Mistake, match=r"train\.conllu is not there.  --data is a folder with a folder ud_english_ewt"):
        Parsing(data_folder=str(tmp_path)).data()
    write(tmp_path, "\n".join(SHE_READS))
    with pytest.raises(Mistake, match="no sentence has up to 2 words"):
        Parsing(data_folder=str(tmp_path), longest=2).data()


@pytest.mark.parametrize(
    ("settings", "answer"),
    [
        ({"longest": 0}, "longest is 0; expected an integer ≥ 1"),
        ({"hidden": 0}, "hidden is 0; expected an integer ≥ 1"),
        ({"dropout": 1.0}, "dropout is 1.0; expected a number ≥ 0 and < 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, answer):
    with pytest.raises(Mistake, match=answer):
        Parsing(**settings)


@pytest.mark.parametrize("projective", [True, False])
def test_yardsticks_are_what_they_say(projective):
    task = Parsing(projective=projective, hidden=4)
    test = task.data()["test"]
    batch = batch_of(test)
    inside = batch.heads >= 0
    scores = {}
    for name, known in task.known().items():
        assert task.trees(batch).contains(known(batch).float()).all() or name == "gold"
        scores[name] = task.measures(task.model(DecodesLabel(known)).eval(), test)
    assert set(scores["gold"].values()) == {1.0}
    below_first = (batch.heads == 1).sum() + (batch.heads[:, 0] == 0).sum()
    assert scores["flat"]["uas"] == pytest.approx(float(below_first / inside.sum()))
    above = batch.heads - torch.arange(1, batch.heads.shape[1] + 1)
    last = batch.lengths.unsqueeze(-1) == torch.arange(1, batch.heads.shape[1] + 1)
    for name, right in (("chain", above == -1), ("reversed_chain", torch.where(last, batch.heads == 0, above == 1))):
        assert scores[name]["uas"] == pytest.approx(float(right[inside].float().mean()))
    assert 0 < scores["random"]["uas"] < 0.5


def test_uas_counts_words_and_whole_trees():
    task = Parsing(hidden=4)
    test = task.data()["test"]

    def one_mistake(batch):
        """The true trees, but the last word of the first sentence below the first word that is not its head."""
        heads = batch.heads.clone()
        last = int(batch.lengths[0]) - 1
        assert not (heads[0] == last + 1).any()  # it has no modifiers: any head makes a tree
        heads[0, last] = 1 + int(heads[0, last] == 1)
        return pb.DependencyTree.arcs(heads)

    found = task.measures(task.model(DecodesLabel(one_mistake)).eval(), test)
    batch = batch_of(test)
    words = int(batch.lengths.sum())
    assert found["uas"] == pytest.approx(1 - 1 / words)
    assert found["whole_trees"] == pytest.approx(1 - 1 / len(test))
    counted = words - int(batch.is_punctuation.sum())
    wrong = int(not batch.is_punctuation[0, batch.lengths[0] - 1])
    assert found["uas_without_punctuation"] == pytest.approx(1 - wrong / counted) and counted < words


@pytest.mark.parametrize("projective", [True, False])
@pytest.mark.parametrize("loss", ["perceptron", "crf", "sparsemap"])
def test_each_loss_pulls_the_prediction_to_the_true_tree(loss, projective):
    task = Parsing(projective=projective, hidden=8)
    estimator = make_estimator(task, loss, {}, 0.0)
    assert isinstance(estimator, LearnsLabel)
    batch = batch_of(task.data()["train"], 4)
    trees, scores = task.trees(batch), torch.randn(batch.y.shape, generator=torch.Generator().manual_seed(1))
    scores.requires_grad_()
    estimator.look_at(batch)
    estimator.loss(trees, scores, lambda z: z.new_zeros(len(z))).sum().backward()
    predicted = task.losses()[loss].predict(trees, scores.detach())
    torch.testing.assert_close(scores.grad, predicted - batch.y, atol=1e-4, rtol=0)


def test_the_encoder_learns_a_few_sentences_by_heart():
    torch.manual_seed(1)
    task = Parsing(hidden=32, dropout=0.0)
    model = task.model(make_estimator(task, "crf", {}, 0.0)).train()
    batch = batch_of(task.data()["train"], 8)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(40):
        optimizer.zero_grad()
        model.loss(batch, batch.y).mean().backward()
        optimizer.step()
    assert (pb.DependencyTree.heads(model.eval().latent(batch)) == batch.heads).all()


def test_a_picture_shows_the_words_of_its_sentence():
    task = SMALL["parsing"].task
    pictures = task.pictures(task.model(pb.frozen()).eval(), task.data()["test"])
    assert pictures and all(word in picture.svg for picture in pictures for word in picture.title.split()[:1])


# ---- words


@pytest.mark.parametrize(("word", "shape"), [("Prague", "Xx"), ("UN", "X"), ("1968", "d"), ("n't", "x'x"), ("", "")])
def test_shapes_are_kinds_of_letters(word, shape):
    assert shape_of(word) == shape


def test_words_seen_once_are_unknown_and_keep_their_ending():
    lexicon = Lexicon([["walking", "walking", "talking"]], [], "")
    (walking, talking, parking) = lexicon.numbers(["walking", "talking", "PARKING"]).tolist()
    assert walking[0] > 1 and talking[0] == parking[0] == 1  # the word
    assert walking[2] == talking[2] == parking[2] > 1  # its ending
    assert walking[3] == talking[3] > 1 and parking[3] == 1  # its shape
    assert WordVectors(lexicon)(lexicon.numbers(["walking"])[None]).shape == (1, 1, 64 + 24 + 24 + 16)


def test_glove_is_used_where_the_data_folder_has_it(tmp_path):
    folder = tmp_path / "glove100"
    folder.mkdir()
    folder.joinpath("words.txt").write_text("the\ntree\nunused\n")
    vectors = np.arange(300, dtype=np.float16).reshape(3, 100)
    np.save(folder / "vectors.f16.npy", vectors)
    lexicon = Lexicon([["The", "Tree", "grows"]], [["The", "Tree", "grows"]], str(tmp_path))
    found = WordVectors(lexicon).glove[lexicon.numbers(["Tree", "the", "grows"])[:, -1]]
    the, tree = torch.tensor(vectors[:2]).float() / torch.tensor(vectors[:2]).float().std()
    torch.testing.assert_close(found, torch.stack([tree, the, torch.zeros(100)]))
    np.save(folder / "vectors.f16.npy", vectors[:2])
    with pytest.raises(Mistake, match="expected a row of 100 for each of 3 words"):
        Lexicon([["The"]], [["The"]], str(tmp_path))
    folder.joinpath("vectors.f16.npy").write_text("no array")
    with pytest.raises(Mistake, match="cannot be read"):
        Lexicon([["The"]], [["The"]], str(tmp_path))
