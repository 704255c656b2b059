"""Places of values that honest kernels may order otherwise are marked: exponents differ by what is subtracted."""

import torch

from hipwright.task.host.double_precision import float64
from hipwright.task.host.modes.ties import TieMarker


def _marked(dtype: torch.dtype, apart: float, distance: float = 20.0) -> bool:
    """Whether the places of two scores at a distance from the largest, so far apart, are marked."""
    scores = torch.tensor([[distance, 0.0, apart, -5.0]], dtype=torch.float64)
    marker = TieMarker(str(dtype).removeprefix("torch."), [scores])
    with torch.no_grad(), float64(marker):
        _, words = torch.softmax(scores, dim=-1).sort(dim=-1, descending=True)
    assert words[0, 0] == 0 and words[0, 3] == 3  # what is far from all others never is
    return bool((words[0, 1:3] < 0).all())


def test_neighbours_within_the_error_of_their_exponents_are_marked():
    assert _marked(torch.float32, 3e-6) and not _marked(torch.float32, 7e-6)


def test_what_is_farther_from_the_largest_has_a_larger_error():
    assert _marked(torch.float32, 1e-6, 2.0) and not _marked(torch.float32, 3e-6, 2.0)
    assert _marked(torch.float32, 9e-6, 50.0) and not _marked(torch.float32, 2e-5, 50.0)


def test_half_types_are_computed_in_float32_and_have_the_error_of_one_rounding():
    eps = torch.finfo(torch.bfloat16).eps
    assert _marked(torch.bfloat16, 2 * eps) and not _marked(torch.bfloat16, 8 * eps)
