"""Images of digits: lists to put in order."""

import pytest
import torch

import pullback as pb
from pullback.experiments.mistakes import Mistake
from pullback.experiments.task import DecodesLabel, batch_of
from pullback.experiments.tasks.digits import Digits, images_of_digits, soft_places
from small_runs import SMALL


def test_no_image_is_in_two_parts():
    parts = images_of_digits(seed=3)
    assert [len(digits) for _, digits in parts.values()] == [1197, 300, 300]
    shown = [{tuple(image) for image in images.tolist()} for images, _ in parts.values()]
    assert shown[0].isdisjoint(shown[1]) and shown[0].isdisjoint(shown[2]) and shown[1].isdisjoint(shown[2])


def test_lists_have_different_digits_in_any_order():
    lists = batch_of(Digits(n=5, train=2000).data()["train"])
    assert all(len(set(row)) == 5 for row in lists.digits.tolist())
    assert torch.equal(lists.y.gather(-1, lists.places), lists.digits)
    frequencies = lists.digits.flatten().bincount() / lists.digits.numel()
    torch.testing.assert_close(frequencies, torch.full((10,), 0.1), atol=0.02, rtol=0)
    first = lists.places[:, 0].bincount() / len(lists.places)
    torch.testing.assert_close(first, torch.full((5,), 0.2), atol=0.05, rtol=0)


def test_the_images_of_a_list_show_its_digits():
    task = Digits(n=10, train=20)
    images, digits = images_of_digits(task.data_seed)["train"]
    known = {tuple(image): digit for image, digit in zip(images.tolist(), digits.tolist())}
    lists = batch_of(task.data()["train"])
    for images_of_a_list, digits_of_a_list in zip(lists.images.tolist(), lists.digits.tolist()):
        assert [known[tuple(image)] for image in images_of_a_list] == digits_of_a_list


@pytest.mark.parametrize("name", ["digits", "digits-ranking"])
def test_gold_puts_every_image_at_its_place(name):
    task = SMALL[name].task
    with torch.no_grad():
        measures = task.measures(task.model(DecodesLabel(task.known()["gold"])).eval(), task.data()["test"])
    assert measures["exact"] == measures["elements"] == 1


def test_the_decoder_sees_the_images_in_the_order_of_the_matching():
    task = SMALL["digits"].task
    model, lists = task.model(pb.ste()), batch_of(task.data()["train"])
    order = lists.digits.argsort(-1)
    in_order = type(lists)(
        *(
            one.gather(1, order.reshape(*order.shape, *(1,) * (one.dim() - 2)).expand_as(one))
            for one in vars(lists).values()
        )
    )
    straight = torch.eye(task.n).expand(len(order), -1, -1)
    gold = task.known()["gold"](lists).float()
    torch.testing.assert_close(model.decoder(lists, gold), model.decoder(in_order, straight))


def test_ranks_are_places_that_have_a_gradient():
    ranks = torch.tensor([[2.0, 3.0, 1.0]], requires_grad=True)
    places = soft_places(ranks)
    torch.testing.assert_close(places.sum(-1), torch.ones(1, 3))
    assert (places.argmax(-1) + 1 == ranks).all() and places.amax(-1).min() > 0.7
    places[0, 0, 2].backward()
    assert ranks.grad[0, 0] > 0 and ranks.grad[0, 1:].abs().max() == 0
    narrow = soft_places(ranks.detach(), width=0.01)
    torch.testing.assert_close(narrow, pb.Matching.pairs(torch.tensor([[1, 2, 0]]), 3).float())


@pytest.mark.parametrize("settings", [{"n": 1}, {"n": 11}, {"train": 0}, {"test": 0}])
def test_lists_that_cannot_be_are_refused(settings):
    with pytest.raises(Mistake, match="expected"):
        Digits(**settings)


@pytest.mark.parametrize("name", ["digits", "digits-ranking"])
def test_pictures_show_where_images_were_put(name):
    task = SMALL[name].task
    with torch.no_grad():
        pictures = task.pictures(task.model(pb.ste()).eval(), task.data()["test"])
    assert len(pictures) == 3
    assert all("in order" in picture.title and picture.svg.startswith("<svg") for picture in pictures)
