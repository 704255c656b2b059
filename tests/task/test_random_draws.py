"""The random operators of a reference: the float64 run draws what the module draws."""

import numpy as np
import pytest

from hipwright.task.host import state as states
from hipwright.task.host.load import TaskModule
from hipwright.task.host.reference import ReferenceModel
from hipwright.torchio import tree_from_torch

DRAWS = {
    "dropout": "F.dropout(x, 0.3, True)",
    "by probabilities": "x * torch.bernoulli(torch.sigmoid(x))",
    "uniform": "x + torch.rand(x.shape[1]) + torch.rand_like(x)",
    "normal": "torch.normal(x, 0.5) + torch.randn(5, x.shape[1]).mean(0)",
    "in place": "x + torch.empty_like(x).exponential_()",
    "rrelu": "F.rrelu(x, 0.1, 0.4, True)",
    "a mask": "torch.native_dropout(x, 0.3, True)[0]",
    "multinomial": "x.gather(-1, torch.multinomial(torch.softmax(x, -1), 3))",
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("how", DRAWS)
def test_the_float64_reference_draws_the_modules_numbers(how, dtype):
    source = (
        "import torch, torch.nn.functional as F\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        f"        return {DRAWS[how]}\n\n\ndef get_inputs():\n    return [torch.randn(40, 30, dtype=torch.{dtype})]\n"
    )
    reference = ReferenceModel(TaskModule("drawn.py", source))
    inputs = tree_from_torch(reference.file.inputs(3, None))
    state = states.build(reference.model())
    native, _, told = reference.run(inputs, state, "native", seed=11)
    exact, _, also = reference.run(inputs, state, "float64", seed=11)
    other = reference.run(inputs, state, "float64", seed=12)[0]
    assert told["random"] and also["reference_dtype"] == "float64" and exact.dtype == "float64"
    far = np.abs(native.to_f64() - exact.to_f64()) > (0.1 if dtype == "bfloat16" else 1e-5)
    assert far.mean() <= 0.002, "a mask differs"  # a probability may round to the other side
    assert (np.abs(other.to_f64() - exact.to_f64()) > 0.02).mean() > 0.05


def test_numbers_of_the_host_are_told_apart():
    source = (
        "import random\nimport torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x * random.random()\n\n\ndef get_inputs():\n    return [torch.randn(4)]\n"
    )
    reference = ReferenceModel(TaskModule("drawn.py", source))
    told = reference.run(tree_from_torch(reference.file.inputs(3, None)), states.build(reference.model()))[2]
    assert told["random"] and told["host_random"]


def test_a_draw_that_this_shape_does_not_show():
    """A program may draw as the module does, but need not: no generator is asked for."""
    source = (
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x + torch.rand(1)[: x.shape[0] - 1]\n\n\ndef get_inputs():\n    return [torch.randn(SIZE)]\n"
    )
    for size, shows in ((1, False), (2, True)):
        reference = ReferenceModel(TaskModule("drawn.py", source.replace("SIZE", str(size))))
        told = reference.run(tree_from_torch(reference.file.inputs(3, None)), states.build(reference.model()))[2]
        assert told["random"] and not told["host_random"] and bool(told["generator"]) is shows
