"""The time of a launch on the cpu target: threads and products cost time there that is nobody's fault."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hipwright.device.cpu.guarded import GuardedLauncher
from hipwright.records import TensorSpec, Workload
from hipwright.verify.candidate import LAUNCH_LIMIT_S
from hipwright.verify.cpu.cases import CpuCases
from hipwright.verify.oracle import PlannedWorkload


@pytest.mark.parametrize(
    ("blocks", "seconds"),
    [(1, 2.0), (1000, 4.05), (8192, 10.0), (2**31 - 1, 10.0)],
)
def test_threads_add_to_it_up_to_a_bound(blocks: int, seconds: float) -> None:
    launcher = GuardedLauncher({}, "forward", 0, 0xA5, 2.0, 64 << 10)
    assert launcher._limit_us((blocks, 1, 1), (1024, 1, 1)) / 1e6 == pytest.approx(seconds, rel=0.01)


def workload(name: str, *shape: int, origin: Any = "derived") -> Workload:
    return Workload(
        name=name, origin=origin, specs=(TensorSpec(dtype="float32", shape=shape, stride=(1,) * len(shape)),)
    )


@pytest.mark.parametrize(
    ("operations", "derived", "seconds"),
    [
        (0.0, (4, 8), LAUNCH_LIMIT_S),
        (1e9, (4, 8), LAUNCH_LIMIT_S + 0.8),  # a 64th of it is done there
        (1e13, (4, 8), 7 * LAUNCH_LIMIT_S),
        (1e8, None, LAUNCH_LIMIT_S + 5.0),  # the task's own shape alone
    ],
)
def test_products_add_to_it_as_far_as_they_are_done(operations: float, derived: Any, seconds: float) -> None:
    given = workload("given", 32, 64, origin="given")
    planned = [
        PlannedWorkload(given, "full"),
        *([PlannedWorkload(workload("d", *derived), "families")] if derived else []),
    ]
    handle = SimpleNamespace(task=SimpleNamespace(workloads=(given,)), operations=lambda name: operations)
    cases = CpuCases.__new__(CpuCases)
    cases.oracle = SimpleNamespace(handle=handle, planned=lambda: tuple(planned))  # type: ignore[assignment]
    assert cases._launch_limit() == pytest.approx(seconds, rel=0.05)
