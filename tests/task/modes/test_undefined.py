"""Outputs of memory that nothing wrote are the task's fault, however the module makes them; scratch memory is none."""

from pathlib import Path

import pytest

from hipwright.errors import TaskError
from hipwright.task import open_task

HEAD = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        {body}


def get_inputs():
    return [torch.randn(4, 8)]
"""
UNDEFINED = {
    "torch.empty(4, 8), x + 1": "output[0]",
    "{'a': x + 1, 'b': torch.empty_like(x) + x}": "output['b']",
    "x.new_empty_strided((4, 8), (8, 1)).mul(2).gt(1)": "output",
    "torch.cat([x, x.new_empty((1, 8))])": "output",
    "torch.empty_strided((8, 4), (1, 8), dtype=torch.int64)": "output",
    "torch.empty_permuted((4, 8), (1, 0)).index_copy(0, torch.tensor([1]), x[:1])": "output",
}
DEFINED = ["torch.empty(4, 8).copy_(x)", "torch.empty_like(x).zero_() + x", "x.new_empty((4, 8)).fill_(2), x.mean()"]


def special(tmp_path: Path, zygote, body: str) -> dict:
    path = tmp_path / "module.py"
    path.write_text(HEAD.format(body=f"return {body}"))
    handle = open_task(path, zygote)
    try:
        return handle.special(handle.inputs("given", 0), handle.init_state(0))
    finally:
        handle.close()


@pytest.mark.parametrize("body", UNDEFINED)
def test_memory_that_nothing_wrote_is_named(body: str, tmp_path: Path, zygote) -> None:
    with pytest.raises(TaskError) as caught:
        special(tmp_path, zygote, body)
    assert f"module.py: {UNDEFINED[body]} is not defined" in str(caught.value)


@pytest.mark.parametrize("body", DEFINED)
def test_memory_that_forward_writes_is_as_good_as_any(body: str, tmp_path: Path, zygote) -> None:
    assert "integers" in special(tmp_path, zygote, body)
