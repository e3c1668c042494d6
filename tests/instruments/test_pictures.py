"""What is seen of each structure: as many shapes as parts, in the right class and at the right place."""

import pytest
import torch

import pullback as pb
from drawings import SVG, shapes, texts, titles


def numbers(elements, attribute):
    return [float(each.get(attribute)) for each in elements]


# ---- dependency trees

WORDS = ["she", "reads", "long", "books"]
GOLD = pb.DependencyTree.arcs(torch.tensor([2, 0, 4, 2]))


def test_a_dependency_tree_has_an_arc_for_each_part_above_the_threshold():
    trees = pb.DependencyTree()
    point = trees.marginals(torch.randn(5, 5, generator=torch.Generator().manual_seed(0)) + 3 * GOLD)
    for threshold in (0.001, 0.01, 0.2):
        drawing = pb.draw(trees, point, WORDS, threshold=threshold)
        assert len(shapes(drawing, "line", "part")) == len(shapes(drawing, "tip")) == int((point >= threshold).sum())


def test_the_arcs_of_a_dependency_tree_lead_from_head_to_modifier():
    drawing = pb.draw(pb.DependencyTree(), GOLD, WORDS)
    assert set(titles(drawing, "line", "part")) == {
        "root → reads: 1.000", "reads → she: 1.000", "reads → books: 1.000", "books → long: 1.000"
    }  # fmt: skip
    words = {text.text or text[0].tail: float(text.get("x")) for text in shapes(drawing) if text.tag == f"{SVG}text"}
    for arc, tip in zip(shapes(drawing, "line", "part"), shapes(drawing, "tip")):
        head, modifier = arc.find(f"{SVG}title").text.split(":")[0].split(" → ")
        start, end = (float(tip_or_arc.get("d")[1:].split()[0]) for tip_or_arc in (arc, tip))
        assert abs(end - words[modifier]) < 20
        assert head == "root" or abs(start - words[head]) < 20
    assert "root" in texts(drawing)


def test_a_more_probable_arc_is_wider_and_darker():
    point = 0.75 * GOLD + 0.25 * pb.DependencyTree.arcs(torch.tensor([0, 1, 2, 3]))
    drawing = pb.draw(pb.DependencyTree(), point, WORDS)
    arcs = shapes(drawing, "line", "part")
    probabilities = [float(title.split()[-1]) for title in titles(drawing, "line", "part")]
    for attribute in ("stroke-width", "stroke-opacity"):
        by_probability = dict(zip(probabilities, numbers(arcs, attribute)))
        assert by_probability[0.25] < by_probability[0.75]
    assert ".75" in texts(drawing) and ".25" in texts(drawing)


def test_gold_arcs_are_told_apart():
    other = pb.DependencyTree.arcs(torch.tensor([2, 0, 2, 2]))
    drawing = pb.draw(pb.DependencyTree(), other, WORDS, gold=GOLD)
    assert len(shapes(drawing, "line", "part", "agreed")) == 3
    assert titles(drawing, "line", "part", "extra") == ["reads → long: 1.000"]
    assert titles(drawing, "line", "missed") == ["books → long: 0.000, in gold"]


def test_a_gold_arc_that_is_improbable_is_dashed_and_drawn():
    other = pb.DependencyTree.arcs(torch.tensor([0, 1, 2, 3]))
    drawing = pb.draw(pb.DependencyTree(), 0.3 * GOLD + 0.7 * other, WORDS, gold=GOLD)
    drawn, dashed = titles(drawing, "line", "part", "agreed"), titles(drawing, "line", "missed")
    assert len(drawn) == len(dashed) == 4
    assert {f"{title}, in gold" for title in drawn} == set(dashed)


def test_no_two_arcs_lie_on_each_other():
    point = pb.DependencyTree().marginals(torch.zeros(6, 6))
    paths = [arc.get("d") for arc in shapes(pb.draw(pb.DependencyTree(), point), "line", "part")]
    assert len(set(paths)) == len(paths) == 25


def test_a_labelled_arc_has_its_likeliest_label():
    trees, names = pb.DependencyTree(labelled=True), ["nsubj", "root", "obj"]
    gold = pb.DependencyTree.arcs(torch.tensor([2, 0, 2]), torch.tensor([0, 1, 2]), 3)
    other = pb.DependencyTree.arcs(torch.tensor([2, 0, 2]), torch.tensor([2, 1, 2]), 3)
    drawing = pb.draw(trees, 0.2 * gold + 0.8 * other, ["she", "reads", "books"], choices=names, gold=gold)
    assert len(shapes(drawing, "line", "part")) == 3
    assert {"obj .80", "obj", "root"} <= set(texts(drawing))
    (missed,) = shapes(drawing, "share", "missed")
    assert missed.find(f"{SVG}title").tail == "nsubj"


def test_padding_has_no_words_and_no_arcs():
    trees = pb.DependencyTree(torch.tensor([4, 2, 0]))
    point = trees.argmax(torch.zeros(3, 5, 5))
    for index, n in enumerate((4, 2, 0)):
        drawing = pb.draw(trees, point, [f"w{i}" for i in range(n)], index=index)
        assert len([text for text in texts(drawing) if text.startswith("w")]) == n
        assert len(shapes(drawing, "line", "part")) == n


# ---- constituency trees


def test_a_constituency_tree_has_a_node_for_each_span_of_several_words():
    tree = pb.ConstituencyTree.spans("((the cat) (sleeps outside))")
    drawing = pb.draw(pb.ConstituencyTree(), tree, ["the", "cat", "sleeps", "outside"])
    assert set(titles(drawing, "part")) == {
        "the cat: 1.000", "sleeps outside: 1.000", "the cat sleeps outside: 1.000"
    }  # fmt: skip
    assert len(shapes(drawing, "line")) == 6
    assert "the cat: 1.000" in shapes(drawing)[0].find(f"{SVG}desc").text


def test_a_mixture_of_constituency_trees_has_a_bar_for_each_span():
    trees = pb.ConstituencyTree()
    point = trees.marginals(torch.zeros(4, 4))
    drawing = pb.draw(trees, point)
    assert len(shapes(drawing, "fill", "part")) == int((point.triu(1) > 0.01).sum()) == 6
    boxes = [
        [float(box.get(name)) for name in ("x", "y", "width", "height")] for box in shapes(drawing, "fill", "part")
    ]
    for i, (x, y, width, height) in enumerate(boxes):
        for x2, y2, width2, height2 in boxes[:i]:
            assert x >= x2 + width2 or x2 >= x + width or y >= y2 + height2 or y2 >= y + height


def test_spans_of_gold_alone_are_dashed():
    tree, gold = (pb.ConstituencyTree.spans(text) for text in ("((a b) (c d))", "(a (b (c d)))"))
    for point in (tree, 0.9 * tree + 0.1 * pb.ConstituencyTree.spans("(((a b) c) d)")):
        drawing = pb.draw(pb.ConstituencyTree(), point, "abcd", gold=gold)
        assert titles(drawing, "missed") == ["b c d: 0.000, in gold"]
        assert len(shapes(drawing, "part", "agreed")) == 2


def test_a_labelled_constituency_tree_has_its_labels_on_words_too():
    labels = ["S", "NP", "D", "N", "V"]
    tree = pb.ConstituencyTree.spans("(S (NP (D the) (N cat)) (V sleeps))", labels)
    drawing = pb.draw(pb.ConstituencyTree(labelled=True), tree, ["the", "cat", "sleeps"], choices=labels)
    assert len(shapes(drawing, "part")) == 5
    assert {"the", "cat", "sleeps", *labels} == set(texts(drawing))


# ---- tables


def test_a_matching_is_a_table_with_a_cell_for_each_pair():
    matching = pb.Matching(torch.tensor([[2, 3], [1, 1]]))
    point = matching.argmax(torch.zeros(2, 2, 3))
    drawing = pb.draw(matching, point, ["r", "s"], choices="abc", index=0)
    assert len(shapes(drawing, "track")) == 6 and len(shapes(drawing, "cell")) == 2
    assert len(shapes(pb.draw(matching, point, index=1), "track")) == 1


def test_gold_pairs_have_an_outline():
    point, gold = torch.tensor([[0.6, 0.4], [0.4, 0.6]]), torch.eye(2).flip(0)
    drawing = pb.draw(pb.Matching(), point, "ab", choices="xy", gold=gold)
    assert titles(drawing, "outline", "missed") == ["a, y: 0.400, in gold", "b, x: 0.400, in gold"]
    assert titles(pb.draw(pb.Matching(), point, gold=1 - gold), "outline", "agreed") == [
        "0, 0: 0.600, in gold", "1, 1: 0.600, in gold"
    ]  # fmt: skip


def test_an_alignment_shows_its_moves():
    alignment = pb.Alignment()
    point = alignment.argmax(torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(1)))
    drawing = pb.draw(alignment, point, "abcd", choices="vwxyz")
    assert len(shapes(drawing, "line", "part")) == len(shapes(drawing, "cell")) == int(point.sum())
    assert any("into d, z" in title for title in titles(drawing, "line", "part"))


def test_the_path_of_a_cell_alignment_is_one_line():
    dtw = pb.Alignment(kind="dtw")
    point = dtw.argmax(torch.zeros(3, 4))
    (line,) = shapes(pb.draw(dtw, point), "through")
    assert line.get("d").count("L") == int(point.sum()) - 1
    assert not shapes(pb.draw(dtw, dtw.marginals(torch.zeros(3, 4))), "through")


# ---- sequences


@pytest.mark.parametrize("n", [1, 3, 40])
def test_a_segmentation_has_a_bar_for_each_segment(n):
    segments = [(i, 1, i % 2) for i in range(n)]
    point = pb.Segmentation.vertex(segments, n, 2, 2)
    drawing = pb.draw(pb.Segmentation(), point, choices=["X", "Y"])
    assert len(shapes(drawing, "part")) == n
    assert len(shapes(drawing, "label1")) == n // 2


def test_segments_that_overlap_are_drawn_below_each_other():
    point = pb.Segmentation().marginals(torch.zeros(3, 3, 1))
    bars = shapes(pb.draw(pb.Segmentation(), point), "part")
    places = [[float(bar.get(name)) for name in ("x", "y", "width")] for bar in bars]
    assert len(places) == 6
    for i, (x, y, width) in enumerate(places):
        assert all(y != y2 or x >= x2 + width2 or x2 >= x + width for x2, y2, width2 in places[:i])


def test_gold_segments_have_an_outline():
    point, gold = (
        pb.Segmentation.vertex(parts, 3, 2, 1) for parts in ([(0, 1, 0), (1, 2, 0)], [(0, 1, 0), (1, 1, 0), (2, 1, 0)])
    )
    drawing = pb.draw(pb.Segmentation(), point, "abc", gold=gold)
    assert titles(drawing, "outline", "agreed") == ["a: 1.000, in gold"]
    assert titles(drawing, "outline", "missed") == ["b: 0.000, in gold", "c: 0.000, in gold"]


def test_a_tagging_has_a_box_for_each_tag():
    tagging = pb.Tagging(torch.zeros(3, 3), lengths=torch.tensor([4]))
    point = tagging.marginals(torch.randn(1, 5, 3, generator=torch.Generator().manual_seed(0)))
    drawing = pb.draw(tagging, point, "abcd", choices=["N", "V", "D"])
    assert len(shapes(drawing, "tag")) == int((point > 0.01).sum()) == 12
    assert not shapes(drawing, "ghost")
    assert len(shapes(pb.draw(tagging, tagging.argmax(point)), "ghost")) == 3


def test_of_many_tags_those_in_use_are_drawn():
    point = pb.Tagging.one_hot(torch.tensor([3, 17, 3]), 20)
    drawing = pb.draw(pb.Tagging(torch.zeros(20, 20)), point, ["a", "b", "c"], choices=[f"t{i}" for i in range(20)])
    assert set(texts(drawing)) == {"a", "b", "c", "t3", "t17"}


def test_a_chain_has_a_line_for_each_pair_of_neighbors():
    chain = pb.Chain()
    point = chain.marginals(torch.randn(4, 2, 2, generator=torch.Generator().manual_seed(0)))
    drawing = pb.draw(chain, point, "abcd", choices=["N", "V"])
    assert len(shapes(drawing, "line", "part")) == int((point[1:] > 0.01).sum()) == 12
    assert len(shapes(drawing, "tag")) == 8


def test_long_sequences_are_broken_into_lines():
    point = pb.Tagging.one_hot(torch.zeros(60, dtype=torch.long), 2)
    drawing = pb.draw(pb.Tagging(torch.zeros(2, 2)), point)
    assert drawing.width < 600
    assert len(shapes(drawing, "tag")) == 60


# ---- items


def test_the_items_of_a_subset_have_a_background_by_probability():
    drawing = pb.draw(pb.Subset(2), torch.tensor([1.0, 0.5, 0.5, 0.0]), ["a", "b", "c", "d"])
    assert titles(drawing, "fill", "part") == ["a: 1.000", "b: 0.500", "c: 0.500"]
    first, second, third = numbers(shapes(drawing, "fill", "part"), "fill-opacity")
    assert first > second == third
    assert {"a", "b", "c", "d"} <= set(texts(drawing))


def test_items_beyond_the_length_are_not_drawn():
    bits = pb.Binary(torch.tensor([3, 1]))
    point = torch.ones(2, 3)
    assert [len(shapes(pb.draw(bits, point, index=i), "part")) for i in (0, 1)] == [3, 1]
    assert texts(pb.draw(bits, point, index=1)) == ["0"]


def test_a_choice_has_a_bar_as_long_as_it_is_probable():
    drawing = pb.draw(pb.Categorical(), torch.tensor([0.75, 0.25, 0.0]), ["a", "b", "c"])
    assert numbers(shapes(drawing, "part"), "width") == [120.0, 40.0]
    assert len(shapes(drawing, "track")) == 3
    assert {"a", "b", "c", ".75", ".25", "0"} == set(texts(drawing))


def test_a_ranking_has_a_line_from_each_item_to_its_rank():
    ranks = pb.Ranking().argmax(torch.tensor([0.3, 2.0, -1.0]))
    drawing = pb.draw(pb.Ranking(), ranks, ["a", "b", "c"], gold=torch.tensor([3.0, 2.0, 1.0]))
    assert titles(drawing, "line", "part") == ["a: 2.00", "b: 3.00", "c: 1.00"]
    assert titles(drawing, "line", "part", "agreed") == ["c: 1.00"]
    assert titles(drawing, "line", "missed") == ["a: 3.00, in gold", "b: 2.00, in gold"]
    ends = dict(zip(titles(drawing, "tip"), numbers(shapes(drawing, "tip"), "cy")))
    assert ends["b: 3.00"] < ends["a: 2.00"] < ends["c: 1.00"]  # the largest rank is at the top


# ---- graphs


def test_a_spanning_tree_has_a_line_for_each_edge():
    trees = pb.SpanningTree(torch.tensor([4, 2]))
    point = trees.argmax(torch.zeros(2, 4, 4))
    drawing = pb.draw(trees, point, "abcd", index=0)
    assert len(shapes(drawing, "line", "part")) == 3 and len(shapes(drawing, "node")) == 4
    assert titles(pb.draw(trees, point, "ab", index=1), "line", "part") == ["a – b: 1.000"]


EDGES = torch.tensor([[0, 1], [1, 3], [0, 2], [2, 3], [0, 3], [0, 3], [9, 3]])  # two alike, and one that is on no path


def test_a_path_is_drawn_in_its_graph():
    paths = pb.Path(EDGES, 0, 3)
    drawing = pb.draw(paths, paths.argmax(torch.tensor([1.0, 1, 0, 0, 0, 0, 0])), ["start", "a", "b", "end"])
    assert titles(drawing, "line", "part") == ["start → a: 1.000", "a → end: 1.000"]
    assert len(shapes(drawing, "ghost")) == 4 and len(shapes(drawing, "node")) == 4


def test_edges_between_the_same_nodes_are_drawn_apart():
    paths = pb.Path(EDGES, 0, 3)
    lines = [line.get("d") for line in shapes(pb.draw(paths, paths.marginals(torch.zeros(7))), "line", "part")]
    assert len(set(lines)) == len(lines) == 6


def test_nodes_may_be_named_by_a_dictionary():
    paths = pb.Path(torch.tensor([[100, 7]]), 100, 7)
    assert {"from", "to"} == set(texts(pb.draw(paths, torch.ones(1), {100: "from", 7: "to"})))


def test_a_graph_of_each_example_is_drawn():
    edges = torch.tensor([[[0, 1], [1, 2]], [[5, 6], [-1, -1]]])
    paths = pb.Path(edges, torch.tensor([0, 5]), torch.tensor([2, 6]))
    drawings = [pb.draw(paths, torch.ones(2, 2), index=i) for i in (0, 1)]
    assert [texts(drawing) for drawing in drawings] == [["0", "1", "2"], ["5", "6"]]


def test_of_a_large_graph_the_edges_are_listed():
    chain = torch.stack([torch.arange(50), torch.arange(1, 51)], -1)
    drawing = pb.draw(pb.Path(chain, 0, 50), torch.ones(50))
    assert titles(drawing, "part") == [f"{i} → {i + 1}: 1.000" for i in range(50)]


# ---- several variables


def test_copies_are_drawn_side_by_side():
    point = torch.eye(3)
    drawing = pb.draw(pb.Independent(pb.Categorical()), point, ["a", "b", "c"])
    assert titles(drawing, "part") == ["a: 1.000", "b: 1.000", "c: 1.000"]
    each = pb.draw(pb.Independent(pb.Categorical()), point[:2], [["a", "b", "c"], ["x", "y", "z"]])
    assert titles(each, "part") == ["a: 1.000", "y: 1.000"]


def test_copies_have_their_own_lengths_and_gold():
    copies = pb.Independent(pb.DependencyTree(torch.tensor([[2, 1]])))
    point = copies.argmax(torch.zeros(1, 2, 3, 3))
    assert len(shapes(pb.draw(copies, point, index=0, gold=point), "line", "part", "agreed")) == 3


def test_the_blocks_of_a_product_are_drawn_with_their_own_items():
    both = pb.product(pb.Categorical(), pb.DependencyTree(), shapes=[(2,), (3, 3)])
    point = both.pack(torch.tensor([0.0, 1.0]), pb.DependencyTree.arcs(torch.tensor([0, 1])))
    drawing = pb.draw(both, point, [["yes", "no"], ["she", "reads"]], gold=point)
    assert titles(drawing, "part") == ["no: 1.000", "root → she: 1.000", "she → reads: 1.000"]
    assert {"Categorical", "DependencyTree"} <= set(texts(drawing))
    pb.draw(both, point)
    pb.draw(both, point, [None, ["she", "reads"]])
