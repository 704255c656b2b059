"""Traces of plans whose library operators read values: shapes alone do not do, small zeros do."""

from __future__ import annotations

import pytest
import torch

from hipwright.errors import CandidateError
from hipwright.program import parse
from hipwright.program.lower import trace as traces
from hipwright.program.lower.trace import trace

TEXT = """HIP = r'''
#include <hip/hip_runtime.h>
'''


def forward(self, x):
    return torch.ops.aten.istft.default(x, 10)
"""
TABLE = {"params": {}, "buffers": {}, "attrs": {}, "modules": {}, "training": False}


def test_the_windows_of_istft_are_read() -> None:
    x = torch.randn(6, 4, dtype=torch.complex64)
    onto_meta, run = (trace(parse(TEXT), {}, TABLE, [x], meta=meta) for meta in (True, False))
    assert [op["op"] for op in onto_meta["ops"]] == [op["op"] for op in run["ops"]]
    assert onto_meta["ops"][-1]["out"] == run["ops"][-1]["out"]


def test_a_window_that_is_given_is_no_zeros() -> None:
    text = TEXT.replace("(self, x)", "(self, x, w)").replace("(x, 10)", "(x, 10, None, None, w)")
    x, w = torch.randn(6, 4, dtype=torch.complex64), torch.hann_window(10)
    onto_meta, run = (trace(parse(text), {}, TABLE, [x, w], meta=meta) for meta in (True, False))
    assert onto_meta["ops"][-1]["out"] == run["ops"][-1]["out"]


def test_large_tensors_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_MOST_ZEROS", 8)
    with pytest.raises(CandidateError):
        trace(parse(TEXT), {}, TABLE, [torch.randn(6, 4, dtype=torch.complex64)], meta=True)
