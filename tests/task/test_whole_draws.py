"""Costly inputs are drawn whole twice at the most, whatever shapes and seeds are asked for."""

import pytest
import torch

from hipwright.errors import TaskError
from hipwright.task.host import whole_draws
from hipwright.task.host.whole_draws import WholeDraws

GIVEN = [torch.empty(64, 32, device="meta"), torch.empty(64, 8, dtype=torch.int64, device="meta")]


class Drawn:
    """Inputs whose second leaf cannot be drawn at another width; counts whole draws."""

    def __init__(self, values: str = "randn") -> None:
        self.whole, self.values = 0, values

    def __call__(self, seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        x = torch.randn(64, 32)
        self.whole += x.shape == (64, 32)
        if self.values == "fails" and x.shape != (64, 32):
            raise TaskError("no other sizes")
        return [x, torch.rand(x.shape[0], 32).topk(8).indices]


@pytest.fixture
def costly(monkeypatch):
    monkeypatch.setattr(whole_draws, "COSTLY", 16)
    monkeypatch.setattr(whole_draws, "KEPT", 16)


@pytest.mark.usefixtures("costly")
@pytest.mark.parametrize("values", ["randn", "fails"])
def test_many_shapes_and_seeds_cost_two_whole_draws(values):
    drawn, draws = Drawn(values), WholeDraws()
    for seed in (0, 1, 2, 977, 10**9 + 7):
        for shapes in (((3, 32), (3, 4)), ((16, 32), (16, 8)), ((7, 20), (7, 1))):
            found = draws.resized(GIVEN, shapes, seed, None, drawn)
            assert tuple(tuple(leaf.shape) for leaf in found) == shapes
            assert int(found[1].max()) < 32
    assert drawn.whole <= 2


@pytest.mark.usefixtures("costly")
def test_floats_are_the_seeds_own_where_the_file_draws_them():
    drawn, draws = Drawn(), WholeDraws()
    first, second, again = (draws.resized(GIVEN, ((9, 32), (9, 4)), seed, None, drawn) for seed in (4, 6, 4))
    assert not torch.equal(first[0], second[0]) and torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])


@pytest.mark.usefixtures("costly")
def test_what_is_written_to_a_leaf_stays_out_of_the_kept_draw():
    drawn, draws = Drawn("fails"), WholeDraws()
    shapes = ((64, 32), (64, 4))  # the first leaf as it was drawn
    first = draws.resized(GIVEN, shapes, 2, None, drawn)
    before = first[0].clone()
    first[0].zero_()
    assert torch.equal(draws.resized(GIVEN, shapes, 2, None, drawn)[0], before)


def test_cheap_inputs_are_drawn_anew_under_each_seed():
    drawn, draws = Drawn(), WholeDraws()
    found = [draws.resized(GIVEN, ((9, 32), (9, 4)), seed, None, drawn) for seed in (4, 6)]
    assert drawn.whole == 4 and not torch.equal(found[0][1], found[1][1])
