"""Tasks: their data, their models, and the structures that nobody has to learn."""

import dataclasses

import pytest
import torch

import pullback as pb
from pullback.experiments.mistakes import Mistake
from pullback.experiments.supervision import SupervisedTask
from pullback.experiments.task import DecodesLabel, batch_of
from pullback.experiments.tasks import clusters, listops
from pullback.experiments.tasks.expressions import parse
from pullback.experiments.tasks.listops import ListOps
from pullback.experiments.tasks.subset import SubsetToy, distances
from small_runs import SETUPS, SMALL


@pytest.mark.parametrize("name", SMALL)
def test_data_are_the_same_whenever_they_are_asked_for(name):
    first, second = (batch_of(SMALL[name].task.data()["train"], 10) for _ in range(2))
    for field in dataclasses.fields(first):
        assert torch.equal(getattr(first, field.name), getattr(second, field.name))


@pytest.mark.parametrize("name", SMALL)
def test_known_structures_are_structures(name):
    task = SMALL[name].task
    batch = batch_of(task.data()["test"], 10)
    structure = task.model(pb.ste()).structure_of(batch)
    for row, known in task.known().items():
        within = (name, row) != ("rationales", "every_word")  # all words, whatever the budget
        assert structure.contains(known(batch)).all() == within


# the true structures of these
NOBODY_KNOWS = {"polarity", "polarity-bilstm", "rationales", "rationales-spans", "alignment", "vae", "vae-bits"}


@pytest.mark.parametrize("name", SETUPS)
def test_every_yardstick_is_a_row(name):
    task = SETUPS[name].task
    assert set(task.yardsticks()) <= set(task.estimators())


@pytest.mark.parametrize("name", [name for name in SETUPS if name != "polarity-bilstm"])  # a yardstick itself
def test_every_task_has_its_yardsticks(name):
    task = SETUPS[name].task
    rows = task.estimators()
    learned = {"perceptron", "crf"} if isinstance(task, SupervisedTask) else {"ste", "spigot"}
    true = {"gold"} if isinstance(task, SupervisedTask) else {"gold", "supervised"}
    assert {"frozen", "random"} <= set(task.yardsticks())
    assert {"gold", "supervised"} & set(rows) == (set() if name in NOBODY_KNOWS else true)
    assert len(rows) == len(set(rows)) and {"sparsemap", *learned} <= set(rows)


def test_gold_is_tested_with_the_true_structure():
    task = SMALL["listops"].task
    model = task.model(DecodesLabel(task.known()["gold"])).eval()
    measures = task.measures(model, task.data()["test"])
    assert measures["edges"] == measures["uas"] == 1 and measures["flat_uas"] < 1


# ---- clusters


def test_labels_are_balanced_inside_each_cluster():
    parts = clusters.Clusters(features=20).data()
    assert [len(part) for part in parts.values()] == [5000, 1000, 1000]
    for cluster in range(3):
        share = parts["train"].y[parts["train"].z == cluster].float().mean()
        assert 0.45 < share < 0.55


def test_the_decoder_of_clusters_is_a_bilinear_layer():
    decoder = clusters.Decoder(3, 20)
    points, z = clusters.Points(torch.randn(7, 20), torch.zeros(7), torch.zeros(7)), torch.rand(7, 3)
    torch.testing.assert_close(decoder(points, z), decoder.bilinear(z, points.x))


# ---- subset


def test_the_expected_loss_of_the_toy_is_exact():
    task, torch_seed = SubsetToy(n=4, k=2, instances=3), 5
    scores = torch.randn(3, 4, generator=torch.Generator().manual_seed(torch_seed))
    y = task.data()["train"].y
    samples = pb.Subset(2).sample(scores, (20_000,), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(task.expected_loss(scores, y), distances(samples, y).mean(0), atol=0.05, rtol=0)


def test_the_exact_gradient_has_no_bias_on_the_toy():
    task = SMALL["subset"].task
    with torch.no_grad():
        measures = task.measures(task.model(pb.minimum_risk()).eval(), task.data()["test"])
    assert measures["bias"] < 1e-5 and measures["cosine"] > 0.999 and measures["variance"] == 0
    assert measures["gap"] >= 0 and measures["expected_gap"] >= 0


# ---- listops


def test_expressions_are_read_as_they_are_written():
    one = parse(["[MAX", "2", "[MIN", "8", "3", "]", "[MED", "1", "4", "6", "9", "]", "]"])
    assert one.value == 5 and one.depth == 2
    assert one.heads == (0, 1, 1, 3, 3, 3, 1, 7, 7, 7, 7, 7, 1)


@pytest.mark.parametrize("text", ["[MAX 2", "2 3", "]", "[SUM 2 ]", "[MAX ]", ""])
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(ValueError, match=r"is not an expression|invalid literal"):
        parse(text.split())


@pytest.mark.parametrize("name", ["listops", "listops-published"])
def test_drawn_expressions_keep_their_bounds(name):
    task = SETUPS[name].task
    batch = batch_of(task.data()["train"], 60)
    assert task.shortest <= batch.lengths.min() and batch.lengths.max() <= task.longest
    assert batch.depth.bincount()[1:].tolist() == [60 // task.depth] * task.depth
    assert batch.y.min() >= 0 and batch.y.max() <= 9


def test_no_expression_is_in_two_splits():
    parts = {
        name: {one.tokens for one in map(split.one, range(300))}
        for name, split in ListOps(depth=1, train=300, test=300).data().items()
    }
    assert not parts["train"] & parts["test"] and not parts["train"] & parts["validation"]
    assert not parts["validation"] & parts["test"] and min(map(len, parts.values())) > 20


def test_typed_trees_have_operators_as_heads():
    for typed in (True, False):
        task = ListOps(depth=2, typed=typed)
        batch = batch_of(task.data()["train"], 8)
        heads = pb.DependencyTree.heads(task.trees(batch).sample(torch.zeros_like(batch.arcs)))
        governing = batch.tokens.gather(1, (heads - 1).clamp_min(0))[heads > 0]
        assert bool(listops.is_operator(governing).all()) == typed
        assert (heads[:, 0] == 0).all() and (heads[:, 1:] != 0).all()


def test_a_published_file_is_read(tmp_path):
    file = tmp_path / "listops" / "test.tsv"
    file.parent.mkdir()
    file.write_text("8\t( ( ( [MAX 2 ) 8 ) ] )\n3\t( ( [SM 1 ) 2 ] )\n")
    batch = batch_of(ListOps(data_folder=str(tmp_path), published="test.tsv").data()["test"])
    assert batch.y.tolist() == [8] and batch.lengths.tolist() == [4]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("8 [MAX 2 ]\n", "line 1: not a label, a tab and an expression"),
        ("x\t[MAX 2 3 ]\n", "line 1: the value is 3, the label says x"),
        ("7\t[MAX 2 8 ]\n", "the value is 8, the label says 7"),
        ("7\t[MAX 2 8\n", "is not an expression"),
        ("3\t[SM 1 2 ]\n", "no expression uses"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(content, message, tmp_path):
    file = tmp_path / "listops" / "test.tsv"
    file.parent.mkdir()
    file.write_text(content)
    with pytest.raises(Mistake, match=message):
        ListOps(data_folder=str(tmp_path), published="test.tsv").data()


def test_a_file_that_is_missing_or_damaged_is_named(tmp_path):
    with pytest.raises(Mistake, match=r"test_d20a\.tsv is not there.  --data is a folder with a folder listops in it"):
        ListOps(data_folder=str(tmp_path)).data()
    (tmp_path / "listops").mkdir()
    (tmp_path / "listops" / "test_d20a.tsv.xz").write_text("not compressed")
    with pytest.raises(Mistake, match=r"test_d20a\.tsv\.xz cannot be read"):
        ListOps(data_folder=str(tmp_path)).data()
