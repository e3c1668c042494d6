"""Morphs: words as they are read, segments by themselves, and cuts that are counted."""

import pytest
import torch

import pullback as pb
from pullback.experiments.mistakes import Mistake
from pullback.experiments.task import DecodesLabel, batch_of
from pullback.experiments.tasks.morphseg import FILES, MorphSegmentation, miscounts, read, windows
from small_runs import SMALL

TASK = SMALL["morphseg"].task


def test_words_are_read_with_or_without_a_category():
    assert list(read(["abonovat\tabon @@ova @@t", "ach\tach\t000"], "a file")) == [("abon", "ova", "t"), ("ach",)]


@pytest.mark.parametrize("line", ["ach", "ach\t", "\t", "", "ach\tac", "ach\tac @@ @@h", "ach\tah @@c"])
def test_what_are_no_morphs_of_a_word_is_refused_with_its_line(line):
    with pytest.raises(Mistake, match=r"a file, line 2: .* is not a word, a tab and the morphs it is made of"):
        list(read(["ach\tach", line], "a file"))


def write(folder, **content):
    (folder / "morphseg").mkdir(exist_ok=True)
    for split, name in FILES.items():
        folder.joinpath(name).write_text("\n".join(content[split]), encoding="utf-8")
    return MorphSegmentation(data_folder=str(folder), fewest=2, longest=6, widest=4)


def test_words_that_are_too_long_or_were_trained_on_are_left_out(tmp_path):
    train = ["psa\tps @@a", "kosa\tkos @@a", "abdomen\tab @@dom @@en", "koste\tkoste"]
    task = write(tmp_path, train=train, validation=["psa\tp @@sa", "vosa\tvos @@a"], test=["voda\tvod @@a"])
    data = task.data()
    assert [len(split) for split in data.values()] == [2, 1, 1]
    batch = batch_of(data["train"])
    assert batch.lengths.tolist() == [3, 4] and batch.y.tolist() == [[0, 1, 1], [0, 1, 1]]  # padding, a rare one, "a"
    assert pb.Segmentation.segments(batch.segments) == [[(0, 2, 0), (2, 1, 0)], [(0, 3, 0), (3, 1, 0)]]


def test_files_that_are_missing_or_hold_no_word_are_named(tmp_path):
    with pytest.raises(Mistake, match=r"train\.tsv is not there.  --data is a folder with a folder morphseg in it"):
        MorphSegmentation(data_folder=str(tmp_path)).data()
    task = write(tmp_path, train=["psa\tps @@a"], validation=["psa\tps @@a"], test=["voda\tvod @@a"])
    with pytest.raises(Mistake, match=r"ces\.word\.dev\.tsv: no word is left"):
        task.data()


@pytest.mark.parametrize("setting", ["longest", "widest", "fewest", "hidden"])
def test_sizes_that_make_no_sense_are_refused(setting):
    with pytest.raises(Mistake, match=f"{setting} is 0; expected an integer ≥ 1"):
        MorphSegmentation(**{setting: 0})


def test_windows_look_ahead():
    rows = torch.arange(1.0, 7.0).reshape(1, 3, 2)
    expected = [[[1, 2], [3, 4]], [[3, 4], [5, 6]], [[5, 6], [0, 0]]]
    assert windows(rows, 2).tolist() == [expected]
    assert torch.equal(windows(rows, 1), rows.unsqueeze(2))


def test_the_decoder_reads_a_segment_by_its_own_letters_alone():
    torch.manual_seed(1)
    decoder = TASK.model(pb.frozen()).decoder
    batch = batch_of(TASK.data()["train"], 6)
    kinds = decoder.kinds(batch)
    torch.testing.assert_close(kinds.sum(-1), torch.ones(kinds.shape[:-1]))
    by_letters = {}
    for i, start, width in torch.ones(kinds.shape[:-1]).nonzero().tolist():
        if start + width < batch.lengths[i]:
            letters = tuple(batch.letters[i, start : start + width + 1].tolist())
            torch.testing.assert_close(kinds[i, start, width], by_letters.setdefault(letters, kinds[i, start, width]))
    different = torch.stack([row for letters, row in by_letters.items() if len(letters) == 2])
    assert (different - different[0]).abs().sum(-1)[1:].min() > 0


def test_the_decoder_counts_the_morphs_of_the_segments_it_is_given():
    torch.manual_seed(1)
    decoder = TASK.model(pb.frozen()).decoder
    batch = batch_of(TASK.data()["train"], 5)
    counts, kinds = decoder(batch, batch.segments), decoder.kinds(batch)
    for i, segments in enumerate(pb.Segmentation.segments(batch.segments)):
        torch.testing.assert_close(counts[i], sum(kinds[i, start, width - 1] for start, width, _ in segments))


def test_the_loss_is_least_where_the_counts_are_right():
    y = torch.tensor([[0.0, 1.0, 2.0]])
    right = miscounts(y, y)
    for wrong in ([0.0, 2.0, 2.0], [0.0, 1.0, 1.0], [1.0, 1.0, 2.0], [0.0, 0.0, 0.0]):
        assert miscounts(torch.tensor([wrong]), y) > right


def test_yardsticks_are_what_they_say():
    test = TASK.data()["test"]
    scores = {name: TASK.measures(TASK.model(DecodesLabel(known)).eval(), test) for name, known in TASK.known().items()}
    assert scores["gold"]["boundary_f1"] == scores["gold"]["words"] == 1
    assert scores["letters"]["boundary_recall"] == 1 > scores["letters"]["boundary_precision"] > 0
    assert scores["whole"]["boundary_recall"] < 0.1
    assert 0.2 < scores["random"]["boundary_f1"] < 0.6


def test_morphs_are_counted_by_the_likeliest_kind_of_each_segment():
    task = TASK
    model = task.model(DecodesLabel(task.known()["letters"])).eval()
    decoder = model.decoder
    torch.nn.init.zeros_(decoder.kind[-1].weight)
    torch.nn.init.zeros_(decoder.kind[-1].bias)
    with torch.no_grad():
        decoder.kind[-1].bias[1] = 1.0  # every segment is a rare morph
    batch = batch_of(task.data()["test"])
    letters, rare = batch.lengths.sum(), torch.minimum(batch.lengths, batch.y[:, 1]).sum()
    expected = 2 * rare / (letters + batch.y.sum())
    assert task.measures(model, task.data()["test"])["morph_f1"] == pytest.approx(float(expected))


def test_a_picture_shows_the_letters_of_its_word():
    pictures = TASK.pictures(TASK.model(pb.frozen()).eval(), TASK.data()["test"])
    assert pictures and all("<svg" in picture.svg for picture in pictures)
