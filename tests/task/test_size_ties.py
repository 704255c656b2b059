"""Sizes that change together though they are not equal, or not in the same dimension."""

import pytest

from hipwright.task import open_task
from hipwright.task.size_ties import SharedSize, across, multiples, partitions
from hipwright.task.sizes import ShapeSpace, elements


def only(accepts):
    """A probe of the shapes that a condition accepts."""
    return lambda shapes: elements(shapes) if accepts(*shapes) else None


def test_partitions_go_from_coarse_to_fine_and_differ():
    image, target = [(0, 2), (0, 3)], [(1, 1), (1, 2)]
    assert list(partitions([*image, *target])) == [
        [((0, 2), (0, 3), (1, 1), (1, 2))],
        [((1, 1),), ((0, 2), (1, 2)), ((0, 3),)],
        [((0, 2), (1, 1)), ((0, 3), (1, 2))],
    ]
    assert list(partitions([(0, 0), (1, 0)])) == [[((0, 0), (1, 0))]]
    assert list(across([(0, 0), (0, 1), (1, 1)])) == [((0, 0), (1, 1)), ((0, 1), (1, 1))]
    assert multiples({512, 256, 3, 128, 100}) == [(256, 512), (128, 256), (128, 512)]


def test_equal_dimensions_of_one_tensor_are_matched_in_their_order():
    space = ShapeSpace(((8, 96, 96), (96, 96)), only(lambda a, b: a[1:] == b))
    assert [s.places for s in space.symbols if s.size == 96] == [((0, 1), (0, 2), (1, 0), (1, 1))]
    assert {s.places for s in space.split() if s.size == 96} == {((0, 1), (1, 0)), ((0, 2), (1, 1))}


def test_one_of_two_equal_dimensions_may_be_the_tied_one():
    weight = 96  # a parameter has this size: the rows of the first tensor stay
    space = ShapeSpace(((96, 96), (96, 20)), only(lambda a, b: a[0] == weight and a[1] == b[0]))
    assert SharedSize(96, ((0, 1), (1, 0))) in space.symbols
    alone = ShapeSpace(((96, 96), (96, 20)), only(lambda a, b: a[1] == b[0] == weight))
    assert SharedSize(96, ((0, 0),)) in alone.symbols


@pytest.mark.parametrize("factor", [2, 4, 16])
def test_a_size_and_its_multiple_change_together(factor):
    given = ((2, 64, 24, 24), (2, 32, 24 * factor, 24 * factor))
    probe = only(lambda a, b: (a[1], b[1]) == (64, 32) and b[2:] == (factor * a[2], factor * a[3]))
    space = ShapeSpace(given, probe)
    tied = [s for s in space.symbols if s.factors]
    assert [(s.size, s.places, s.factors) for s in tied] == [
        (24, ((0, 2), (1, 2)), (1, factor)),
        (24, ((0, 3), (1, 3)), (1, factor)),
    ]
    shapes = space.derived()
    assert len(shapes) >= 3 and all(probe(found) for found in shapes)
    assert any(a[2] != a[3] for a, _ in shapes), "height and width apart"
    assert all(s.factors == () for s in space.split() if s not in tied)


UPSAMPLED = """
import torch


class Model(torch.nn.Module):
    def forward(self, logits, labels):
        large = torch.nn.functional.interpolate(logits, scale_factor=4, mode="bilinear")
        return torch.nn.functional.cross_entropy(large, labels, reduction="none")


def get_inputs():
    return [torch.randn(4, 150, 128, 128), torch.randint(0, 150, (4, 512, 512))]
"""


def test_a_tie_that_shapes_alone_do_not_ask_for(zygote, tmp_path):
    """cross_entropy takes labels of any size as long as it has no values."""
    (tmp_path / "upsampled.py").write_text(UPSAMPLED)
    with open_task(tmp_path / "upsampled.py", zygote) as handle:
        small = handle.derive(4096)
        derived = [w for w in handle.task.workloads if w.origin == "derived"]
        assert small is not None and len(derived) >= 3
        for workload in (small, *derived):
            image, labels = (spec.shape for spec in workload.specs)
            assert labels == (image[0], 4 * image[2], 4 * image[3])
            handle.reference(handle.inputs(workload.name, 3), handle.init_state(0))
