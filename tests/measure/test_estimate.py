"""The order and the bounds of the static estimate."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.measure.estimate import LAUNCH, estimate
from hipwright.records import Build, KernelResources
from hipwright.targets import OFFLINE, TARGETS

MI300X = OFFLINE["gfx942"]


def resources(**changes: Any) -> KernelResources:
    base: dict[str, Any] = {
        "name": "k",
        "vgpr": 24,
        "sgpr": 20,
        "occupancy": 8,
        "vmem_bytes": 32,
        "widest_vmem_bytes": 16,
        "instructions": {"valu": 20, "salu": 10, "vmem_load": 1, "vmem_store": 1},
    }
    return KernelResources(**{**base, **changes})


def launch(elements: int, block: int = 256, per_thread: int = 4, lds: int = 0) -> dict[str, Any]:
    spec = {"dtype": "float32", "shape": [elements], "stride": [1]}
    grid = -(-elements // (block * per_thread))
    return {"kernel": "k", "grid": [grid, 1, 1], "block": [block, 1, 1], "lds": lds, "args": [spec, spec, elements]}


def microseconds(kernel: KernelResources, item: dict[str, Any], **kwargs: Any) -> float:
    build = Build(target="gfx942", ok=True, kernels=(kernel,))
    return estimate(MI300X, build, [item], [], 0.0, **kwargs).microseconds


def test_a_large_copy_runs_near_the_bandwidth() -> None:
    elements = 1 << 28
    seconds = microseconds(resources(), launch(elements)) * 1e-6 - LAUNCH
    floor = 2 * 4 * elements / MI300X.bandwidth
    assert floor <= seconds < 1.3 * floor


def test_narrow_loads_at_low_occupancy_are_latency_bound() -> None:
    narrow = resources(occupancy=1, vmem_bytes=8, widest_vmem_bytes=4)
    build = Build(target="gfx942", ok=True, kernels=(narrow,))
    item = launch(1 << 26, per_thread=1)
    assert estimate(MI300X, build, [item], [], 0.0).bound == "latency"
    assert microseconds(narrow, item) > 1.5 * microseconds(resources(), launch(1 << 26))


def test_few_blocks_cannot_fill_the_device() -> None:
    whole, one = launch(1 << 24), launch(1 << 24)
    one["grid"] = [4, 1, 1]
    assert microseconds(resources(), one) > 20 * microseconds(resources(), whole)


def test_arithmetic_bounds_a_kernel_that_does_much_of_it() -> None:
    heavy = resources(instructions={"valu": 4000, "trans": 400, "vmem_load": 1, "vmem_store": 1})
    build = Build(target="gfx942", ok=True, kernels=(heavy,))
    result = estimate(MI300X, build, [launch(1 << 26)], [], 0.0)
    assert result.bound == "compute"
    assert result.microseconds > microseconds(resources(), launch(1 << 26))


def test_bytes_counted_by_the_cpu_run_make_a_second_pass_cost_something() -> None:
    item = launch(1 << 26)
    once, twice = microseconds(resources(), item), microseconds(resources(), item, traffic={"k": 2.0})
    assert once < twice < 2 * once


def test_lds_limits_residency() -> None:
    small = resources(vmem_bytes=8, widest_vmem_bytes=4)
    item = launch(1 << 26, block=64)
    assert microseconds(small, {**item, "lds": 60 * 1024}) > microseconds(small, item)


@pytest.mark.parametrize("target", OFFLINE)
def test_library_products_cost_at_least_their_roofline(target: str) -> None:
    square = {"dtype": "float32", "shape": [4096, 4096], "stride": [4096, 1]}
    call = {"op": "aten.mm.default", "in": [square, square], "out": [square]}
    view = {"op": "aten.view.default", "in": [square], "out": [square]}
    result = estimate(OFFLINE[target], Build(target=target, ok=True), [], [call, view], 3 * 4 * 4096**2)
    floor = 2 * 4096**3 / OFFLINE[target].flops["float32"]
    assert result.microseconds * 1e-6 > floor
    assert 0 < result.roofline_fraction <= 1
    assert [row["name"] for row in result.detail] == ["aten.mm.default"]


@pytest.mark.parametrize(("name", "passes"), [("topk.default", 5), ("kthvalue.default", 5), ("sort.stable", 8)])
def test_a_librarys_selection_goes_over_its_bytes_digit_by_digit(name: str, passes: int) -> None:
    """Charged for one pass, the library's top-k would always seem faster than a program that makes one pass."""
    rows = {"dtype": "float32", "shape": [4096, 65536], "stride": [65536, 1]}
    build = Build(target="gfx942", ok=True)
    calls = [{"op": f"aten.{one}", "in": [rows], "out": [rows]} for one in (name, "exp.default")]
    many, once = (estimate(MI300X, build, [], [call], 0.0).microseconds - LAUNCH * 1e6 for call in calls)
    assert many == pytest.approx(passes * once, rel=1e-3)


def test_an_nvidia_gpu_is_estimated_by_warps() -> None:
    h200 = TARGETS.architecture("sm_90a")
    assert h200 is not None and h200 == TARGETS.architecture("sm_90")
    assert TARGETS.architecture("sm_10") is None and TARGETS.architecture("gfx942") == MI300X
    elements, kernel = 1 << 28, resources(occupancy=16)
    build = Build(target="cuda", ok=True, kernels=(kernel,))
    seconds = estimate(h200, build, [launch(elements)], [], 0.0).microseconds * 1e-6 - LAUNCH
    floor = 2 * 4 * elements / h200.bandwidth
    assert floor <= seconds < 1.3 * floor
    moves = resources(occupancy=16, instructions={**kernel.instructions, "other": 4000})
    assert (
        estimate(h200, Build(target="cuda", ok=True, kernels=(moves,)), [launch(elements)], [], 0.0).microseconds
        == estimate(h200, build, [launch(elements)], [], 0.0).microseconds
    )
