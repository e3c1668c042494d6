"""What is particular to segmentations, beyond the contract of every structure."""

import pytest
import torch
from torch.testing import assert_close

import pullback as pb


def random_scores(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def count(n, w, t):
    """Compositions of n into parts of at most w, each with one of t labels."""
    counts = [1]
    for i in range(1, n + 1):
        counts.append(t * sum(counts[max(0, i - w) :]))
    return counts[n]


def as_paths(n, w, t):
    """The same as paths through positions; segments that end beyond the last are no edges."""
    start, width, _ = torch.meshgrid(torch.arange(n), torch.arange(w), torch.arange(t), indexing="ij")
    edges = torch.stack([start, start + width + 1], -1)
    return edges.masked_fill((edges[..., 1:] > n), -1).reshape(-1, 2)


@pytest.mark.parametrize(("n", "w", "t"), [(1, 1, 1), (5, 5, 1), (5, 2, 1), (4, 2, 3), (3, 7, 2)])
def test_there_are_as_many_segmentations_as_labelled_compositions(n, w, t):
    vertices = pb.Segmentation().enumerate((n, w, t)).vertices
    assert len(vertices) == len(vertices.unique(dim=0)) == count(n, w, t)
    value = pb.Segmentation().log_partition(torch.zeros(n, w, t, dtype=torch.float64))
    assert_close(value.exp(), torch.tensor(float(count(n, w, t)), dtype=torch.float64))


def test_a_long_sequence_has_as_many_segmentations_as_fibonacci_says():
    value = pb.Segmentation().log_partition(torch.zeros(80, 2, 1, dtype=torch.float64))
    assert_close(value.exp(), torch.tensor(float(count(80, 2, 1)), dtype=torch.float64))


def test_every_position_is_in_one_segment():
    for segmentation in pb.Segmentation().enumerate((4, 3, 2)).vertices:
        covered = []
        for start, width, _ in pb.Segmentation.segments(segmentation):
            covered += range(start, start + width)
        assert covered == [0, 1, 2, 3]


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 100.0])
def test_a_segmentation_is_a_path_through_positions(scale):
    n, w, t = 7, 3, 2
    scores, lengths = scale * random_scores(3, n, w, t), torch.tensor([7, 4, 0])
    segmentations, paths = pb.Segmentation(lengths), pb.Path(as_paths(n, w, t), 0, lengths)
    for name in ("argmax", "marginals", "sparsemap"):
        expected = getattr(paths, name)(scores.flatten(1)).reshape(scores.shape)
        assert_close(getattr(segmentations, name)(scores), expected)
    for name in ("log_partition", "entropy"):
        assert_close(getattr(segmentations, name)(scores), getattr(paths, name)(scores.flatten(1)))
    assert_close(segmentations.topk(scores, 4).scores, paths.topk(scores.flatten(1), 4).scores)


def test_segments_of_one_position_are_a_sequence_of_choices():
    scores = random_scores(2, 5, 1, 4)
    each = pb.Independent(pb.Categorical())
    for name in ("argmax", "marginals", "sparsemap"):
        assert_close(getattr(pb.Segmentation(), name)(scores)[:, :, 0], getattr(each, name)(scores[:, :, 0]))
    assert_close(pb.Segmentation().log_partition(scores), each.log_partition(scores[:, :, 0]))


@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 30.0, 1000.0])
def test_large_projections_are_certified_by_their_own_argmax(scale):
    segmentations = pb.Segmentation(torch.tensor([60, 37]))
    scores = scale * random_scores(2, 60, 6, 5)
    point = segmentations.sparsemap(scores)
    rest = scores - point
    gap = segmentations.inner(rest, segmentations.argmax(rest)) - segmentations.inner(rest, point)
    assert (gap.abs() <= 1e-8 * max(1.0, scale)).all()


def test_segments_and_vertex_are_inverse():
    segments = [(0, 2, 1), (2, 1, 0), (3, 3, 2)]
    vertex = pb.Segmentation.vertex(segments, 6, 3, 4)
    assert pb.Segmentation().contains(vertex)
    assert pb.Segmentation.segments(vertex) == segments
    batch = [segments, [(0, 3, 0)], []]
    both = pb.Segmentation.vertex(batch, 6, 3, 4)
    assert both.shape == (3, 6, 3, 4) and pb.Segmentation.segments(both) == batch
    assert pb.Segmentation(torch.tensor([6, 3, 0])).contains(both).all()
    assert pb.Segmentation.segments(pb.Segmentation.vertex([[], segments], 6, 3, 4)) == [[], segments]
    with pytest.raises(ValueError, match=r"a segment is \(4, 3\); expected \(start, width, label\) within 6"):
        pb.Segmentation.vertex([(4, 3)], 6, 3, 2)
    with pytest.raises(ValueError, match=r"a segment is \(4, 3, 0\); expected \(start, width, label\) within 6"):
        pb.Segmentation.vertex([(4, 3, 0)], 6, 3, 4)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"Segmentation: lengths\[1\] is 5; expected between 0 and 4"):
        pb.Segmentation(torch.tensor([3, 5])).argmax(torch.zeros(2, 4, 2, 2))
    scores = torch.zeros(2, 3, 1, 2)
    scores[1, 2] = -torch.inf
    for name in ("argmax", "sparsemap", "log_partition", "marginals", "sample", "support"):
        with pytest.raises(ValueError, match=r"Segmentation: example \[1\] has no segmentation"):
            getattr(pb.Segmentation(), name)(scores)
    scores[1, 1, 0, 0] = torch.inf
    for name in ("argmax", "sparsemap", "log_partition", "marginals", "sample", "support"):
        with pytest.raises(ValueError, match=r"Segmentation: the scores of example \[1\] contain NaN or \+inf"):
            getattr(pb.Segmentation(), name)(scores)
