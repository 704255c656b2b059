"""Parts of the pipeline that need no task: shares of library calls, features of builds."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.evaluation.features import features
from hipwright.evaluation.results import library_shares
from hipwright.measure.cost import coverage
from hipwright.records import Build, KernelResources


def operator(name: str, *shapes: tuple[int, ...]) -> dict[str, Any]:
    specs = [{"dtype": "float32", "shape": list(shape), "stride": []} for shape in shapes]
    return {"op": f"aten.{name}.default", "in": specs[:-1], "out": specs[-1:]}


PRODUCT = operator("mm", (256, 256), (256, 256), (256, 256))
RELU = operator("relu", (512, 512), (512, 512))
VIEW = operator("transpose", (512, 512), (512, 512))


def test_shares_and_coverage_add_up_to_the_reference() -> None:
    calls = [{"name": "linear", "ops": [VIEW, PRODUCT]}, {"name": "t", "ops": [VIEW]}]
    shares = library_shares(calls, [PRODUCT, RELU])
    assert list(shares) == ["linear"]
    assert shares["linear"] + coverage([VIEW, PRODUCT], [PRODUCT, RELU]) == pytest.approx(1.0, abs=1e-3)


def test_a_call_made_twice_is_counted_twice() -> None:
    once = library_shares([{"name": "relu", "ops": [RELU]}], [PRODUCT, RELU, RELU])
    twice = library_shares([{"name": "relu", "ops": [RELU]}] * 2, [PRODUCT, RELU, RELU])
    assert twice["relu"] == pytest.approx(2 * once["relu"], abs=1e-3)


def test_features_stay_in_range_and_follow_the_build() -> None:
    narrow = KernelResources(name="k", occupancy=2, widest_vmem_bytes=4, instructions={"valu": 4, "vmem_load": 4})
    wide = KernelResources(
        name="k", occupancy=8, lds_bytes=64, widest_vmem_bytes=16, instructions={"valu": 400, "vmem_load": 1}
    )
    launch = {"grid": [64, 1, 1], "block": [256, 1, 1]}
    low, high = (features([Build(target="gfx942", ok=True, kernels=(k,))], [launch], []) for k in (narrow, wide))
    for level in ("memory_level", "compute_level", "parallelism_level"):
        assert 0.0 <= low[level] < high[level] <= 1.0
    assert features([], [], []) == {}
