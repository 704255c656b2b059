"""Static-shape variants: kernels with the captured sizes as constants, beside the general ones."""

from __future__ import annotations

import re

import msgspec
import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import write
from tests.engine.harness import Op, captured, compare, reference, run

CASES = {
    "rows": (Op(lambda x: torch.softmax(x.relu() * 2, -1)), (70, 130)),
    "columns": (Op(lambda x: x.sum(0)), (70, 130)),
    "window": (Op(lambda x: F.max_pool2d(x, 3, 2, 1)), (2, 3, 17, 19)),
    "scan": (Op(lambda x: x.cumsum(1)), (5, 300)),
    "sliced": (Op(lambda x: x[:, 1:] - x[:, :-1]), (6, 33)),
}


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("name", CASES)
def test_right_at_the_captured_and_at_other_sizes(name: str) -> None:
    model, shape = CASES[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    program = write(captured(model, [x]), {"exact": True})
    assert "_exact[" in program.text and "_exact[" not in write(captured(model, [x])).text
    for given in (x, torch.cat([x, x + 1])):
        expected, native, _ = reference(model, [given])
        compare(run(program, model, [given], wave=32)[0], expected, native)


@pytest.mark.parametrize("name", ["rows", "window"])
def test_each_kernel_is_launched_for_its_sizes_only(name: str) -> None:
    model, shape = CASES[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    program = write(captured(model, [x]), {"exact": True})
    broken = re.sub(r"_body\(([^{}]*\bx_\w*1\b[^{}]*)\);", "_body;", program.text)
    assert broken != program.text
    program = msgspec.structs.replace(program, text=broken)
    expected, native, _ = reference(model, [x])
    compare(run(program, model, [x], wave=32)[0], expected, native)
    other = torch.cat([x, x + 1])
    expected, native, _ = reference(model, [other])
    with pytest.raises(AssertionError):
        compare(run(program, model, [other], wave=32)[0], expected, native)
