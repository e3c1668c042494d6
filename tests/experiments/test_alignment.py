"""Words and their phones: alignments, pronunciations and files."""

import pytest
import torch

import pullback as pb
from pullback.experiments.mistakes import Mistake
from pullback.experiments.task import batch_of
from pullback.experiments.tasks.alignment import DOWN, MATCH, SLOTS, Pronunciation, edit_distance
from small_runs import SMALL

TASK = SMALL["alignment"].task


def write(folder, **parts):
    (folder / "g2p").mkdir()
    for part in ("train", "dev", "test"):
        (folder / "g2p" / f"xyz_{part}.tsv").write_text(parts.get(part, "ab\tA B\n"), encoding="utf-8")
    return Pronunciation(language="xyz", data_folder=str(folder))


def test_every_phone_has_one_slot_and_every_slot_at_most_one_phone():
    words = batch_of(TASK.data()["train"], 20)
    alignments = TASK.alignments(words)
    for z in (TASK.known()["random"](words), TASK.known()["diagonal"](words)):
        assert alignments.contains(z).all()
        made = z[:, 1:, 1:, MATCH]
        assert torch.equal(made.sum((1, 2)), words.phone_count.float()) and made.sum(1).max() == 1
        assert torch.equal(made.sum((1, 2)) + z[:, 1:, :, DOWN].sum((1, 2)), SLOTS * words.letter_count.float())
        slots = (made * torch.arange(made.shape[1]).unsqueeze(-1)).sum(1)
        for row, count in zip(slots, words.phone_count):
            assert (row[:count].diff() > 0).all()


def test_the_loss_is_the_surprise_of_what_the_alignment_says():
    words = batch_of(TASK.data()["train"], 3)
    model, z = TASK.model(pb.ste()), TASK.known()["diagonal"](words)
    losses = model.criterion(model.decoder(words, z), words.y)
    log_p = model.decoder.log_probabilities(words)
    for i in range(3):
        expected = 0.0
        for slot in range(SLOTS * int(words.letter_count[i])):
            made = z[i, slot + 1, 1:, MATCH]
            phone = int(words.y[i, made.argmax()]) if made.any() else 0
            expected -= log_p[i, slot, phone]
        torch.testing.assert_close(losses[i], expected)


def test_a_word_is_pronounced_without_its_alignment():
    words = batch_of(TASK.data()["test"], 2)
    decoder = TASK.model(pb.ste()).decoder
    log_p = torch.zeros(2, SLOTS * words.letters.shape[1], len(TASK.dictionary.phones))
    log_p[:, 0, 3] = log_p[:, 2, 5] = 1.0  # silent elsewhere, where the first of equals is chosen
    log_p[1, SLOTS * int(words.letter_count[1]) :, 4] = 1.0  # padding makes no sound
    decoder.log_probabilities = lambda words: log_p
    assert decoder.pronounce(words) == [[3, 5], [3, 5]]


def test_perfect_pronunciations_have_no_errors():
    model, split = TASK.model(pb.ste()), TASK.data()["test"]
    words = batch_of(split)
    truth = [row[:count] for row, count in zip(words.y.tolist(), words.phone_count.tolist())]
    model.decoder.pronounce = lambda words: truth
    assert TASK.measures(model, split) == {"exact": 1.0, "phone_errors": 0.0}
    model.decoder.pronounce = lambda words: [[] for _ in truth]
    assert TASK.measures(model, split) == {"exact": 0.0, "phone_errors": 1.0}


@pytest.mark.parametrize(
    ("found", "true", "distance"),
    [
        ([], [], 0),
        ([1], [], 1),
        ([], [1, 2], 2),
        ([1, 2, 3], [1, 3], 1),
        ([1, 2], [2, 1], 2),
        ([5, 6, 7], [6, 7, 8], 2),
    ],
)
def test_errors_are_counted_as_edits(found, true, distance):
    assert edit_distance(found, true) == edit_distance(true, found) == distance


def test_a_word_with_more_phones_than_slots_is_left_out_of_training_alone(tmp_path):
    task = write(tmp_path, train="ab\tA B\na\tA B C\n", test="a\tA B C\nab\tA C\n")
    data = task.data()
    assert len(data["train"]) == 1 and len(data["test"]) == 2
    assert batch_of(data["test"]).y.max() == 3  # B is known, C was not seen in training: unknown
    with torch.no_grad():
        measures = task.measures(task.model(pb.ste()).eval(), data["test"])
        assert len(task.pictures(task.model(pb.ste()).eval(), data["test"])) == 0
    assert measures["exact"] <= 0.5


@pytest.mark.parametrize("line", ["ab A B", "\tA", "ab\t", "ab\t "])
def test_a_line_that_is_no_word_with_phones_is_named(line, tmp_path):
    with pytest.raises(Mistake, match=r"g2p/xyz_dev.tsv, line 2: not a word, a tab and its phones"):
        write(tmp_path, dev=f"ab\tA B\n{line}\n").data()


def test_a_file_that_is_empty_or_missing_is_named(tmp_path):
    with pytest.raises(Mistake, match=r"g2p/xyz_test.tsv has no words"):
        write(tmp_path, test="").data()
    with pytest.raises(Mistake, match=r"dut_train\.tsv is not there.  --data is a folder with a folder g2p in it"):
        Pronunciation(language="dut", data_folder=str(tmp_path)).data()
    with pytest.raises(Mistake, match="ita alone is built in"):
        Pronunciation(language="dut")


def test_pictures_show_alignments():
    with torch.no_grad():
        pictures = TASK.pictures(TASK.model(pb.ste()).eval(), TASK.data()["test"])
    assert len(pictures) == 3 and all(picture.svg.startswith("<svg") for picture in pictures)
