"""Calls in one message wait for the device once, and return the same results as single calls."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from hipwright.device.gpu.launcher import GpuLauncher
from hipwright.program import parse
from hipwright.tensors import HostTensor, Tree
from hipwright.torchio import tree_from_torch
from hipwright.verify.gpu.calls import CandidateCalls
from hipwright.verify.gpu.state_tables import StateTables
from hipwright.verify.gpu.subject_factory import LoadedCandidate
from hipwright.verify.sequences.call_sequence import KEPT
from hipwright.verify.worker.program_subject import ProgramSubject
from hipwright.verify.worker.staging import PinnedStaging
from hipwright.verify.worker.watched import RunSetting, WatchedCandidate
from tests.device.fake_driver import FakeDriver, pointer

HIP = """#include <hip/hip_runtime.h>
extern "C" __global__ void add(const float* x, const float* w, float* b, float* y, int n) {}
"""
TEXT = f"""HIP = r'''{HIP}'''


def forward(self, x):
    assert x.shape[0] < 100
    y = torch.empty_like(x)
    add[1, 32](x, self.w, self.b, y, x.numel())
    return y
"""


def array(value: bytes, count: int) -> Any:
    """The floats that a pointer argument points to."""
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(pointer(value)))


class Kernel:
    """y = x + w[0]; b[0] += 1. odd: a further effect of calls with so many elements."""

    def __init__(self) -> None:
        self.odd: dict[int, str] = {}
        self.calls = 0
        self.log: list[str] = []  # launches and waits, in order

    def __call__(self, values: list[bytes]) -> None:
        n = int.from_bytes(values[4], "little")
        x, w, b, y = (array(v, count) for v, count in zip(values, (n, 2, 1, n), strict=False))
        y[:] = x + w[0]
        b[0] += 1
        self.calls += 1
        self.log.append("run")
        how = self.odd.get(n, "")
        if how == "beside":
            array(values[3], n + 1)[n] = 3.0
        elif how == "input":
            x[0] = 99.0
        elif how == "parameter":
            w[1] = 99.0
        elif how == "earlier" and self.calls > 1:
            self.first[:] = 5.0
        if self.calls == 1:
            self.first = y


def made(kernel: Kernel, staging: PinnedStaging | None) -> LoadedCandidate:
    driver = FakeDriver(sizes={"add": (8, 8, 8, 8, 4)}, bodies={"add": kernel})
    parsed = parse(TEXT)
    table = {
        "params": {"w": torch.tensor([2.0, 5.0])},
        "buffers": {"b": torch.zeros(1)},
        "attrs": {},
        "modules": {},
        "training": False,
    }
    launchers: list[Any] = []

    def subject(setting: RunSetting, state: Tree) -> ProgramSubject:
        launchers.append(
            GpuLauncher(
                driver,
                b"code",
                parsed.signatures,
                device="cpu",
                poison=setting.poison,
                shared_with=launchers[0] if launchers else None,
            )
        )
        inner = launchers[-1].sync
        launchers[-1].sync = lambda: (kernel.log.append("wait"), inner())[1]
        return ProgramSubject(parsed, {}, state, launchers[-1], "cpu")

    live = WatchedCandidate(subject, {"params": {}, "buffers": {}}, "cpu", staging)
    live.table = table
    loaded = LoadedCandidate(live, parsed, b"code", {}, launchers)
    live.prepare(RunSetting())
    return loaded


def given(*sizes: int) -> list[Tree]:
    return [tree_from_torch([torch.arange(float(n)) + k]) for k, n in enumerate(sizes)]


def reply(
    sizes: Sequence[int], odd: dict[int, str], *, together: bool, again: bool = False
) -> tuple[Any, Any, list[str]]:
    """(the replies, results as lists, launches and waits) of a last message; the messages before it allocate the
    memory.
    """
    kernel = Kernel()
    loaded = made(kernel, PinnedStaging("cpu"))
    runs = CandidateCalls(StateTables("cpu"), None)
    settings: list[dict[str, Any]] = [{"poison": (0xA5, 0x3C)[n == 2]} for n in range(len(sizes))]
    for _ in range(4):
        runs.many(loaded, {"runs": settings, "together": together}, given(*[n + 40 for n in sizes]))
    kernel.odd, kernel.calls = odd, 0
    kernel.log.clear()
    if again:
        state = {"params": {"w": HostTensor.of(np.float32([7, 5]))}, "buffers": {"b": HostTensor.of(np.float32([9]))}}
        steps = [{"keep": KEPT}, {"reuse": True, "carry": True, "memory": "left"}]
        header = {"runs": steps, "carried": [[], []], "together": together}
        info, trees = runs.sequence(loaded, header, [given(*sizes), [None, state]])
    else:
        info, trees = runs.many(loaded, {"runs": settings, "together": together}, given(*sizes))
    return info, [_plain(tree) for tree in trees], kernel.log


def _plain(tree: Any) -> Any:
    if isinstance(tree, HostTensor):
        return tree.bits().tolist()
    if isinstance(tree, dict):
        return {key: _plain(value) for key, value in tree.items()}
    return tree


ODD: list[dict[int, str]] = [
    {},
    {6: "beside"},
    {5: "input"},
    {7: "parameter"},
    {5: "parameter", 7: "beside"},
    {4: "beside"},
    {7: "beside"},
]


@pytest.mark.parametrize("sizes", [(4, 5, 6, 7), (4, 100, 6, 101), (100, 5, 6), (4,)])
@pytest.mark.parametrize("odd", ODD)
def test_they_tell_what_they_tell_one_by_one(sizes: tuple[int, ...], odd: dict[int, str]) -> None:
    alone, results, _ = reply(sizes, odd, together=False)
    info, found, _ = reply(sizes, odd, together=True)
    assert [set(run) for run in info["runs"]] == [set(run) for run in alone["runs"]]
    assert (info, found) == (alone, results)
    if odd and set(odd) <= set(sizes):
        assert any("verdict" in run or run.get("inputs_changed") or run.get("params_changed") for run in info["runs"])


def test_nothing_is_waited_for_before_all_runs() -> None:
    """At a second wait the device would be idle."""
    assert reply((4, 5, 6, 7), {}, together=True)[2] == ["run"] * 4 + ["wait"] * 4
    assert reply((4, 5, 6, 7), {}, together=False)[2] == ["run", "wait"] * 4
    again = reply((5, 5), {}, together=True, again=True)[2]
    assert again == ["run", "run", "wait", "wait"]


@pytest.mark.parametrize("odd", [{}, {4: "beside"}, {5: "beside"}, {5: "earlier"}, {5: "input"}])
@pytest.mark.parametrize("sizes", [(4, 5), (100, 5), (4, 100)])
def test_a_second_call_at_the_same_addresses(odd: dict[int, str], sizes: tuple[int, int]) -> None:
    same = tuple(5 if n < 100 else n for n in sizes) if {"earlier", "input"} & set(odd.values()) else sizes
    if same[0] != same[1] and 100 not in same:
        same = (same[1], same[1])  # the second has the first one's addresses
    alone = reply(same, odd, together=False, again=True)
    found = reply(same, odd, together=True, again=True)
    assert found[:2] == alone[:2]
    assert len(found[0]["runs"]) == len(found[1])


def test_what_does_not_fit_is_waited_for_at_once() -> None:
    kernel = Kernel()
    loaded = made(kernel, PinnedStaging("cpu"))
    runs = CandidateCalls(StateTables("cpu"), None)
    info, trees = runs.many(loaded, {"runs": [{}, {}, {}], "together": True}, given(4, 5, 6))
    assert [_plain(tree)["buffers"]["b"] for tree in trees] == [[1.0]] * 3, "not what a later call left there"
    assert [len(_plain(tree)["outputs"]) for tree in trees] == [4, 5, 6] and len(info["runs"]) == 3
