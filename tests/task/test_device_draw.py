"""Values drawn on the device satisfy the rules of the task's domain."""

import pytest
import torch

from hipwright.task.device import draw as device_draw
from hipwright.task.device.model import DeviceFile

CPU = torch.device("cpu")
MODEL = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, *a):\n        return a[0]\n"


def _draw(make: str, family: str, *, restricted: bool = False, slot: int = 0, seed: int = 3):
    file = DeviceFile("task.py", f"{MODEL}def get_inputs():\n    return [{make}]\n", CPU)
    workload = {"name": "given", "origin": "given", "index": 0, "shapes": None, "specs": []}
    header = {"workload": workload, "given": [], "seed": seed, "family": family, "restricted": restricted, "slot": slot}
    return device_draw.inputs(file, header)[0]


def test_labels_masks_and_odd_numbers_stay():
    for make in (
        "torch.randint(0, 9, (500,))",
        "torch.randint(0, 3, (500,)).float()",
        "torch.rand(500) > 0.5",
        "torch.full((500,), float('inf'))",
    ):
        assert torch.equal(_draw(make, "normal"), _draw(make, "given"))


def test_a_pattern_of_zeros_stays_where_it_is():
    values = _draw("torch.rand(64, 64).tril()", "normal")
    assert torch.equal(values, values.tril()) and float(values.min()) < -1
    # zeros that another draw does not have are no pattern
    assert (_draw("torch.relu(torch.randn(64, 64))", "normal") != 0).double().mean() > 0.7


def test_a_symmetric_matrix_stays_symmetric():
    values = _draw("(lambda m: m + m.T)(torch.rand(80, 80))", "outliers")
    assert torch.equal(values, values.T) and float(values.abs().max()) > 5


@pytest.mark.parametrize("family", ["normal", "outliers"])
@pytest.mark.parametrize("make", ["torch.linspace(0, 1, 33)", "torch.randn(5, 40).sort().values.to(torch.float8_e5m2)"])
def test_a_list_in_order_stays_in_order(make, family):
    values = _draw(make, family)
    assert (values.float().diff(dim=-1) >= 0).all() and not torch.equal(values.float(), _draw(make, "given").float())
    assert not (_draw("torch.randn(33)", family).diff() >= 0).all()


@pytest.mark.parametrize("family", ["normal", "outliers"])
@pytest.mark.parametrize(
    "make", ["torch.rand(300, 40)", "torch.rand(300, 40) * 0.5 + 0.25", "torch.rand(3000) * 8 + 2"]
)
def test_restricted_values_stay_in_the_given_range(make, family):
    given, values = _draw(make, "given"), _draw(make, family, restricted=True)
    assert float(values.min()) >= float(given.min()) - 1e-6
    if float(given.max()) <= 1.0:
        assert float(values.max()) <= float(given.max()) + 1e-6
    assert not torch.equal(given, values) and values.unique().numel() > 100


def test_restricted_probabilities_still_sum_to_one():
    values = _draw("torch.softmax(torch.randn(100, 30), 1)", "outliers", restricted=True)
    assert torch.allclose(values.sum(1), torch.ones(100), atol=1e-3) and float(values.min()) >= 0


def test_strides_stay_and_seeds_and_slots_differ():
    make = "torch.randn(20, 30).t()[::2]"
    given, values = _draw(make, "given"), _draw(make, "normal")
    assert values.stride() == given.stride() and values.shape == given.shape
    assert torch.equal(values, _draw(make, "normal"))
    assert not torch.equal(values, _draw(make, "normal", slot=1))
    assert not torch.equal(values, _draw(make, "normal", seed=4))
    assert not torch.equal(given, _draw(make, "given", slot=1))


def test_half_types_keep_their_dtype():
    values = _draw("torch.randn(2000).bfloat16()", "outliers")
    assert values.dtype == torch.bfloat16 and 20 <= float(values.abs().max()) <= 100


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"])
@pytest.mark.parametrize("family", ["normal", "outliers"])
def test_floats_of_8_bits_are_drawn_through_wider_ones(dtype, family, monkeypatch):
    """Most operators refuse them on a GPU."""
    refuse = torch.Tensor.isfinite

    def isfinite(tensor):
        if tensor.element_size() == 1:
            raise NotImplementedError('"isfinite" not implemented for 8-bit floats')
        return refuse(tensor)

    monkeypatch.setattr(torch.Tensor, "isfinite", isfinite)
    values = _draw(f"torch.randn(300, 40).to(torch.{dtype})", family)
    given = _draw(f"torch.randn(300, 40).to(torch.{dtype})", "given")
    assert values.dtype == given.dtype == getattr(torch, dtype)
    assert not torch.equal(values.float(), given.float()) and bool(values.float().isfinite().all())
    assert device_draw.low([given]) == -1.0
    few = _draw(f"torch.ones(8, 4).to(torch.{dtype})", family)
    assert few.shape == (8, 4)
