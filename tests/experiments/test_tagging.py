"""Tagging: posts as they are read, names as spans, and transitions that are learned."""

import pytest
import torch

import pullback as pb
from pullback.experiments.mistakes import Mistake
from pullback.experiments.rows import make_estimator
from pullback.experiments.spans import share_of_found, spans_of
from pullback.experiments.task import DecodesLabel, batch_of
from pullback.experiments.tasks.tagging import FILES, SCHEME, NameTagging, Post, read
from small_runs import SMALL

PERSON, INSIDE = SCHEME.names.index("B-person"), SCHEME.names.index("I-person")


def test_posts_are_read_with_lines_that_are_empty_or_hold_a_tab_between_them():
    lines = ["Ada\tB-person", "Lovelace\tI-person", "!\tO", "\t", "", "hi\tO"]
    assert list(read(lines, "a file")) == [
        Post(("Ada", "Lovelace", "!"), (PERSON, INSIDE, 0)),
        Post(("hi",), (0,)),
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["Ada"], "a file, line 1: 'Ada' is not a word, a tab and a tag"),
        (["Ada\tB-animal"], r"line 1: 'Ada\tB-animal' is not a word, a tab and a tag"),
        (["hi\tO", "Ada\tI-person"], "line 2: I-person begins a name; expected B-person before it"),
        (["Ada\tI-person"], "line 1: I-person begins a name"),
        (["Ada\tB-group", "Ada\tI-person"], "line 2: I-person begins a name"),
    ],
)
def test_what_are_no_posts_is_refused_with_its_line(lines, message):
    with pytest.raises(Mistake) as found:
        list(read(lines, "a file"))
    assert message.replace(r"\t", "\\t") in str(found.value)


def test_files_that_are_missing_or_empty_are_named(tmp_path):
    with pytest.raises(Mistake, match=r"wnut17train\.conll is not there.  --data is a folder with a folder wnut17"):
        NameTagging(data_folder=str(tmp_path)).data()
    (tmp_path / "wnut17").mkdir()
    for name in FILES.values():
        tmp_path.joinpath(name).write_text("\n")
    with pytest.raises(Mistake, match="there are no posts in it"):
        NameTagging(data_folder=str(tmp_path)).data()


@pytest.mark.parametrize("settings", [{"hidden": 0}, {"dropout": 1.0}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(Mistake, match="expected"):
        NameTagging(**settings)


# ---- spans


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("", set()),
        ("O O", set()),
        ("B-x", {(0, 1, "x")}),
        ("B-x I-x O B-x", {(0, 2, "x"), (3, 4, "x")}),
        ("B-x B-x I-x", {(0, 1, "x"), (1, 3, "x")}),
        ("O I-x I-x", {(1, 3, "x")}),
        ("B-x I-y", {(0, 1, "x"), (1, 2, "y")}),
        ("B-creative-work I-creative-work", {(0, 2, "creative-work")}),
    ],
)
def test_tags_mark_spans(tags, spans):
    assert spans_of(tags.split()) == spans


def test_a_span_counts_where_both_ends_and_the_label_are_right():
    gold = {(0, 2, "x"), (3, 4, "y")}
    found = share_of_found([(gold, gold), ({(0, 2, "x"), (3, 4, "x"), (5, 6, "x")}, gold), ({(0, 1, "x")}, gold)])
    assert found == {"f1": 2 * 3 / (6 + 6), "precision": 3 / 6, "recall": 3 / 6}
    assert share_of_found([(set(), gold)]) == share_of_found([]) == {"f1": 0, "precision": 0, "recall": 0}


def test_spans_are_counted_as_tags_alone_tell():
    """Against a count by pairs of positions: a span is where a name starts, ends, and does not start again inside."""
    generator = torch.Generator().manual_seed(1)
    tags = pb.Tagging(SCHEME.transitions, start=SCHEME.start).sample(
        torch.zeros(30, 8, len(SCHEME.names)), generator=generator
    )
    for row in pb.Tagging.tags(tags).tolist():
        names = [SCHEME.names[tag] for tag in row]
        by_pairs = {
            (i, j, names[i][2:])
            for i in range(8)
            for j in range(i + 1, 9)
            if names[i].startswith("B-")
            and all(name == f"I-{names[i][2:]}" for name in names[i + 1 : j])
            and (j == 8 or names[j] != f"I-{names[i][2:]}")
        }
        assert spans_of(names) == by_pairs


# ---- the task


def test_yardsticks_are_what_they_say():
    task = NameTagging(hidden=4)
    test = task.data()["test"]
    scores = {name: task.measures(task.model(DecodesLabel(known)).eval(), test) for name, known in task.known().items()}
    assert set(scores["gold"].values()) == {1.0} and set(scores["outside"].values()) == {0.0}
    assert scores["random"]["f1"] < 0.3


@pytest.mark.parametrize("transitions", ["learned", "fixed", "none"])
@pytest.mark.parametrize("loss", ["perceptron", "crf", "sparsemap"])
def test_each_loss_pulls_the_prediction_to_the_true_tags(loss, transitions):
    torch.manual_seed(1)
    task = NameTagging(hidden=4, transitions=transitions)
    model = task.model(make_estimator(task, loss, {}, 0.0)).train()
    batch = batch_of(task.data()["train"], 4)
    scores = torch.randn(batch.y.shape, requires_grad=True)
    if transitions == "learned":
        torch.nn.init.normal_(model.encoder.learned_transitions)
    structure = model.structure_of(batch)
    model.estimator.look_at(batch)
    model.estimator.loss(structure, scores, lambda z: z.new_zeros(len(z))).sum().backward()
    predicted = task.losses()[loss].predict(structure, scores.detach()).detach()
    torch.testing.assert_close(scores.grad, predicted - batch.y, atol=1e-4, rtol=0)
    if transitions == "learned":
        gradient = model.encoder.learned_transitions.grad
        assert gradient.abs().max() > 0.5 and gradient[0, INSIDE] == 0  # what is forbidden is never learned


def test_a_crf_without_transitions_is_a_softmax_for_each_word():
    task = NameTagging(hidden=4, transitions="none")
    estimator = make_estimator(task, "crf", {}, 0.0)
    batch = batch_of(task.data()["train"], 4)
    scores = torch.randn(batch.y.shape)
    estimator.look_at(batch)
    found = estimator.loss(task.model(estimator).structure_of(batch), scores, lambda z: z.new_zeros(len(z)))
    each = torch.nn.functional.cross_entropy(scores.mT, batch.tags, ignore_index=-1, reduction="none")
    torch.testing.assert_close(found, each.sum(-1))


def test_names_begin_with_a_b_unless_tags_are_predicted_for_themselves():
    for transitions, whole in (("learned", True), ("fixed", True), ("none", False)):
        torch.manual_seed(1)
        task = NameTagging(hidden=4, transitions=transitions)
        model = task.model(pb.frozen()).eval()
        torch.nn.init.normal_(model.encoder.tags.weight, std=20)
        batch = batch_of(task.data()["test"])
        valid = pb.Tagging(SCHEME.transitions, start=SCHEME.start, lengths=batch.lengths).contains(model.latent(batch))
        assert bool(valid.all()) == whole


def test_a_picture_shows_the_words_of_its_post():
    task = SMALL["tagging"].task
    pictures = task.pictures(task.model(pb.frozen()).eval(), task.data()["test"])
    assert pictures and all("<svg" in picture.svg for picture in pictures)
