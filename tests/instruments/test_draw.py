"""Drawings: what any of them is, whatever the structure."""

import itertools
import re
import xml.etree.ElementTree as ET

import pytest
import torch

import families
import pullback as pb
from drawings import SVG, shapes, texts, titles
from pullback.instruments.drawing import Canvas, Example, picture


def points(case: families.Case) -> torch.Tensor:
    """A mixture of the structure for each example."""
    if case.structure.offers(pb.LogLinear):
        return case.structure.marginals(case.scores(scale=2.0))
    return case.structure.sparsemap(case.scores())


def indices(case: families.Case) -> list[tuple[int, ...]]:
    """Every example of the batch."""
    return list(itertools.product(*(range(size) for size in case.batch)))


CASES = families.one_of_each_kind(families.WHOLE)


# ---- every structure


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_every_structure_is_drawn_as_well_formed_xml(case):
    mixtures, gold = points(case), case.structure.argmax(case.scores(1))
    for index in indices(case):
        for point in (mixtures, gold):
            for compared in (None, gold):
                drawing = pb.draw(case.structure, point, gold=compared, index=index)
                root = ET.fromstring(drawing.svg)
                assert root.tag == f"{SVG}svg" and root.get("role") == "img"
                assert root.find(f"{SVG}title").text == root.get("aria-label") == drawing.title
                assert root.find(f"{SVG}desc") is not None


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_nothing_is_drawn_outside_of_the_paper(case):
    drawing = pb.draw(
        case.structure, points(case), gold=case.structure.argmax(case.scores(1)), index=(0,) * len(case.batch)
    )
    root = ET.fromstring(drawing.svg)
    x, y, width, height = map(float, root.get("viewBox").split())
    assert (drawing.width, drawing.height) == (width, height)

    def check(element, dx, dy):
        moved = re.fullmatch(r"translate\((\S+) (\S+)\)", element.get("transform", ""))
        dx, dy = (dx + float(moved[1]), dy + float(moved[2])) if moved else (dx, dy)
        for name, low, high, shift in (("x", x, x + width, dx), ("y", y, y + height, dy)):
            for attribute in (name, f"c{name}"):
                if attribute in element.attrib:
                    assert low <= float(element.get(attribute)) + shift <= high
        for child in element:
            check(child, dx, dy)

    check(root, 0.0, 0.0)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_what_is_in_padding_is_never_drawn(case):
    """Drawings do not change where numbers outside the lengths and masks do."""
    point = points(case)
    spoiled = point.masked_fill(~case.allowed(), torch.nan)
    for index in indices(case):
        expected = pb.draw(case.structure, point, index=index)
        assert pb.draw(case.structure, spoiled, index=index).svg == expected.svg


@pytest.mark.parametrize("case", [case for case in CASES if families.is_alike_for_all(case)], ids=repr)
def test_an_example_of_a_batch_is_drawn_like_the_same_example_alone(case):
    point = points(case)
    alone = pb.draw(case.structure, point[1])
    assert pb.draw(case.structure, point, index=1).svg == pb.draw(case.structure, point, index=(1,)).svg == alone.svg


# ---- a drawing


def test_a_drawing_is_its_svg_in_notebooks_files_and_as_text(tmp_path):
    drawing = pb.draw(pb.Categorical(), torch.tensor([0.25, 0.75]))
    assert drawing._repr_svg_() == str(drawing) == drawing.svg
    drawing.save(tmp_path / "choice.svg")
    assert (tmp_path / "choice.svg").read_text("utf-8") == drawing.svg + "\n"
    assert len(repr(drawing)) < 100


def test_a_drawing_is_not_saved_as_something_it_is_not(tmp_path):
    drawing = pb.draw(pb.Categorical(), torch.tensor([0.25, 0.75]))
    with pytest.raises(ValueError, match=r"'choice.png'; expected a name that ends in .svg"):
        drawing.save(tmp_path / "choice.png")


def test_text_is_escaped_wherever_it_stands():
    words = ["<b>", 'a"b', "R&D", "\x00\x0b", "]]>", "\ud800", " ", "line\nbreak"]
    point = torch.eye(8)[0]
    for drawing in (
        pb.draw(pb.Categorical(), point, words),
        pb.draw(pb.Binary(), point, words),
        pb.draw(pb.Ranking(), pb.Ranking().argmax(torch.arange(8.0)), words),
        pb.draw(pb.Tagging(torch.zeros(8, 8)), torch.eye(8), words, choices=words, title="<title> & 'more'"),
        pb.draw(pb.Matching(), torch.eye(8), words, choices=words),
    ):
        drawing.svg.encode("utf-8")
        assert "<b>" not in drawing.svg and "R&D" not in drawing.svg
        assert {"<b>", 'a"b', "R&D", "��", "]]>", "�", "␣", "line break"} <= set(texts(drawing))


def test_drawings_have_no_ids_scripts_or_outside_resources():
    drawing = pb.draw(pb.DependencyTree(), pb.DependencyTree.arcs(torch.tensor([2, 0, 2])))
    root = ET.fromstring(drawing.svg)
    assert not [each for each in root.iter() if "id" in each.attrib or each.tag.endswith(("script", "image", "use"))]
    assert re.findall(r"https?://[^\"]*|url\(", drawing.svg) == ["http://www.w3.org/2000/svg"]


def test_every_style_rule_is_for_drawings_alone():
    style = ET.fromstring(pb.draw(pb.Categorical(), torch.ones(1)).svg).find(f"{SVG}style").text
    light, dark = style.split("@media (prefers-color-scheme:dark)")
    for sheet in (light, dark.strip("{}") + "}"):
        selectors = [selector for rule in re.findall(r"([^{}]+)\{[^}]*\}", sheet) for selector in rule.split(",")]
        assert selectors and all(selector.startswith(".pullback-drawing ") for selector in selectors)


def test_the_description_tells_what_is_seen():
    drawing = pb.draw(pb.DependencyTree(), pb.DependencyTree.arcs(torch.tensor([2, 0])), ["she", "reads"])
    assert drawing.title == "DependencyTree over she reads"
    assert ET.fromstring(drawing.svg).find(f"{SVG}desc").text == "root → reads: 1.000; reads → she: 1.000"


def test_a_legend_is_there_if_there_is_gold():
    point = torch.tensor([1.0, 0.0])
    assert "in gold alone" not in texts(pb.draw(pb.Categorical(), point))
    assert "in gold alone" in texts(pb.draw(pb.Categorical(), point, gold=point))


def test_points_of_any_dtype_that_require_grad_are_drawn():
    point = torch.tensor([0.25, 0.75])
    expected = pb.draw(pb.Categorical(), point).svg
    assert pb.draw(pb.Categorical(), point.double().requires_grad_()).svg == expected
    assert pb.draw(pb.Categorical(), point.bfloat16()).svg == expected
    assert shapes(pb.draw(pb.Binary(), torch.tensor([True, False]), gold=torch.tensor([0, 1])), "missed")


# ---- what cannot be drawn


def test_a_batch_is_refused_without_an_index():
    with pytest.raises(ValueError, match=r"shape \(3, 4\), a batch of shape \(3,\); expected one example, or index="):
        pb.draw(pb.Categorical(), torch.eye(4)[:3])
    assert pb.draw(pb.Categorical(), torch.eye(4)[:1]).svg == pb.draw(pb.Categorical(), torch.eye(4)[0]).svg


@pytest.mark.parametrize("index", [3, (0, 0), -4])
def test_an_index_that_is_no_example_is_refused(index):
    with pytest.raises(IndexError, match=r"index is .* for a batch of shape \(3,\)"):
        pb.draw(pb.Categorical(), torch.eye(4)[:3], index=index)


def test_scores_are_told_from_points():
    with pytest.raises(ValueError, match=r"numbers from -2 to 5; expected probabilities from 0 to 1, such as `argmax`"):
        pb.draw(pb.Categorical(), torch.tensor([-2.0, 5.0]))
    with pytest.raises(ValueError, match="holds NaN"):
        pb.draw(pb.Categorical(), torch.tensor([torch.nan, 0.5]))


def test_words_of_a_sentence_are_counted_without_the_root():
    tree = pb.DependencyTree.arcs(torch.tensor([2, 0, 2]))
    with pytest.raises(
        ValueError, match=r"4 items were given for DependencyTree; expected 3, one for each word \(the root"
    ):
        pb.draw(pb.DependencyTree(), tree, ["root", "she", "reads", "books"])


def test_items_are_counted_within_the_length_of_the_example():
    trees = pb.DependencyTree(torch.tensor([3, 2]))
    point = trees.argmax(torch.zeros(2, 4, 4))
    assert {"she", "reads"} <= set(texts(pb.draw(trees, point, ["she", "reads"], index=1)))
    with pytest.raises(ValueError, match="3 items were given for DependencyTree; expected 2"):
        pb.draw(trees, point, ["she", "reads", "<pad>"], index=1)


@pytest.mark.parametrize(
    ("structure", "shape", "options", "message"),
    [
        (pb.Categorical(), (3,), {"items": ["a"]}, "1 items were given for Categorical; expected 3"),
        (pb.Categorical(), (3,), {"items": 3}, "items are a int; expected a list"),
        (pb.Matching(), (2, 3), {"items": "abc"}, "expected 2, one for each row"),
        (pb.Matching(), (2, 3), {"choices": "ab"}, "2 choices were given .*; expected 3, one for each column"),
        (pb.DependencyTree(labelled=True), (2, 2, 2), {"choices": "a"}, "expected 2, one for each label of arcs"),
        (pb.Path(torch.tensor([[0, 7]]), 0, 7), (1,), {"items": "ab"}, "none for node 7"),
        (pb.Independent(pb.Categorical()), (2, 3), {"items": [["a", "b", "c"]]}, "one for each of 2 copies"),
        (pb.product(pb.Binary(), shapes=[(2,)]), (2,), {"items": ["a", "b"]}, "one entry for each of 1 block"),
        (pb.Categorical(), (3,), {"gold": torch.zeros(2)}, r"gold has shape \(2,\); expected that of the point"),
        (pb.Categorical(), (3,), {"threshold": 0.0}, "threshold is 0.0; expected a probability above 0"),
        (pb.DependencyTree(), (3, 4), {}, r"expected \(..., n \+ 1, n \+ 1\)"),
        (pb.DependencyTree(), (4,), {}, r"shape \(4,\); the parts of DependencyTree have 2"),
        (pb.Categorical(torch.tensor([9])), (1, 3), {}, "lengths"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_words(structure, shape, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        pb.draw(structure, torch.zeros(shape), **options)


def test_what_is_no_structure_or_no_tensor_is_refused():
    with pytest.raises(TypeError, match="a str was given; expected a structure"):
        pb.draw("tree", torch.zeros(3))
    with pytest.raises(TypeError, match="the point is a list; expected a tensor"):
        pb.draw(pb.Categorical(), [0.0, 1.0])
    with pytest.raises(TypeError, match="the gold is a list; expected a tensor"):
        pb.draw(pb.Categorical(), torch.eye(2)[0], gold=[0.0, 1.0])


# ---- structures of one's own


class Pairs(pb.Structure):
    """A structure that no drawing was registered for."""

    event_dims = 2

    def argmax(self, scores):
        return (self.restrict(scores) > 0).to(scores.dtype)


class Window(Pairs):
    event_dims = 1


def test_a_structure_without_a_drawing_has_a_bar_for_each_part():
    drawing = pb.draw(Pairs(), torch.tensor([[0.5, 0.0], [0.001, 1.0]]), gold=torch.tensor([[0.0, 1.0], [0.0, 1.0]]))
    assert titles(drawing, "part") == ["[0, 0]: 0.500", "[1, 1]: 1.000"]
    assert titles(drawing, "outline", "missed") == ["[0, 1]: 0.000, in gold"]
    assert titles(drawing, "outline", "agreed") == ["[1, 1]: 1.000, in gold"]


def test_of_many_parts_the_largest_have_a_bar():
    drawing = pb.draw(Pairs(), torch.linspace(0.02, 1, 100).reshape(10, 10))
    assert len(shapes(drawing, "part")) == 60 and "and 40 more" in texts(drawing)
    assert min(float(title.split()[-1]) for title in titles(drawing, "part")) > 0.4


def test_numbers_that_are_no_probabilities_have_bars_too():
    class Signed(Window):
        is_zero_one = False

    drawing = pb.draw(Signed(), torch.tensor([-4.0, 0.0, 2.0]), ["a", "b", "c"])
    assert titles(drawing, "part") == ["a: -4.000", "c: 2.000"]
    assert [float(bar.get("width")) for bar in shapes(drawing, "part")] == [160.0, 80.0]


def test_a_picture_may_be_registered_for_a_structure_of_ones_own():
    class Own(Window):
        pass

    @picture.register
    def _(structure: Own, example: Example) -> Canvas:
        canvas = Canvas()
        for part in example.parts():
            canvas.part_box(30.0 * part.index[0], 0, 28, 28, part, f"{part.index}")
        return canvas

    class Derived(Own):
        pass

    for structure in (Own(), Derived()):
        assert len(shapes(pb.draw(structure, torch.tensor([0.5, 0.0, 1.0])), "part")) == 2
    assert len(shapes(pb.draw(pb.Independent(Own()), torch.ones(2, 3)), "part")) == 6


def test_a_picture_of_the_library_may_be_registered_for_another_structure():
    picture.register(Window)(picture.dispatch(pb.Subset))
    words, point = ["so", "very", "good"], torch.tensor([0.0, 1.0, 0.5])
    assert (
        shapes(pb.draw(Window(), point, words), "part")[0].attrib
        == shapes(pb.draw(pb.Binary(), point, words), "part")[0].attrib
    )
