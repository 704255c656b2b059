"""The short way to launch does what the long way does, and leaves to it whatever is not plain."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.device.gpu.launcher import GpuLauncher
from hipwright.errors import CandidateError
from hipwright.program import parse
from hipwright.program.lower.arguments import Allocator, make_launch
from hipwright.program.lower.closures import lower
from hipwright.program.signature import parse_signatures

from .fake_driver import FakeDriver

HIP = """
extern "C" __global__ void all(const float* x, const float4* wide, unsigned char* bytes, void* any, int n, long m,
                               unsigned u, float f, double d, bool b) {}
extern "C" __global__ void half_scalar(_Float16* x, _Float16 h, __hip_bfloat16 g) {}
"""
SIZES = {"all": (8, 8, 8, 8, 4, 8, 4, 4, 8, 1), "half_scalar": (8, 2, 2)}
SIGNATURES = parse_signatures(HIP).signatures
MEMORY = torch.zeros(64)
PLAIN: list[Any] = [
    MEMORY,
    MEMORY[4:],
    MEMORY.view(torch.uint8),
    MEMORY.view(torch.int16),
    -3,
    1 << 40,
    7,
    0.1,
    0.1,
    True,
]
ODD: list[list[Any]] = [
    [None, MEMORY.double(), 3, torch.nn.Parameter(torch.zeros(3)), MEMORY[2:]],  # any pointer
    [MEMORY[1:], MEMORY[4:], None, torch.zeros(0), "x"],
    [MEMORY.view(torch.uint8).bool(), MEMORY.view(torch.int8), MEMORY],
    [MEMORY.double(), 1.5, None, (MEMORY,)],
    [True, 1 << 31, -(1 << 31), 2.0, MEMORY, None],  # any number
    [1 << 63, -1, False, "1"],
    [-1, 1 << 32, (1 << 32) - 1, 1.0],
    [3, float("inf"), float("nan"), 1e39, 3.4028235677973366e38, -1e-46, "f", None, True],
    [3, float("-inf"), 1e308, None, False],
    [0, 1, 0.0, None],
]
GEOMETRIES: list[Any] = [
    ((4, 1, 1), 32),
    (4, (32, 1, 1)),
    ((4, 2), 32),
    (0, 32),
    (1.0, 32),
    ([4], 32),
    (4, 2048),
    (True, 32),
    (-1, 32),
]
SIZES_GIVEN: list[Any] = [
    (2, 3),
    ((2, 3),),
    ([2, 3],),
    (torch.Size([2, 3]),),
    (),
    ((),),
    (0, 4),
    (2.0,),
    (-1,),
    ((2, -3),),
    ("a",),
    (None,),
]


def launcher(sizes: dict[str, tuple[int, ...]] = SIZES) -> tuple[FakeDriver, GpuLauncher]:
    driver = FakeDriver(sizes)
    made = GpuLauncher(driver, b"code", SIGNATURES, device="cpu", poison=None, zones=False)
    made.record = False
    return driver, made


class Long:
    """A launcher that offers no short way."""

    def __init__(self, inner: GpuLauncher) -> None:
        self.launch, self.empty = inner.launch, inner.empty


def told(driver: FakeDriver, launch: Any, *args: Any) -> Any:
    """What reached the driver, or what was said."""
    try:
        launch(*args)
    except CandidateError as error:
        return error.message
    except Exception as error:
        return type(error), str(error)
    return driver.launches.pop() if driver.launches else "nothing"


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_both_ways_do_and_say_the_same(data: st.DataObject) -> None:
    (driver, short), (other, inner) = launcher(), launcher()
    ways = make_launch(SIGNATURES["all"], short), make_launch(SIGNATURES["all"], Long(inner))
    plain = (4, 32, 0)
    for launch in ways:  # the geometry is known from here on
        launch(*plain, *PLAIN)
    driver.launches.clear(), other.launches.clear()
    args = list(PLAIN)
    for place in data.draw(st.lists(st.integers(0, len(PLAIN) - 1), max_size=2)):
        args[place] = data.draw(st.sampled_from(ODD[place]))
    shape = data.draw(st.sampled_from([plain, plain, plain, *((*g, lds) for g in GEOMETRIES for lds in (0, 64, -1))]))
    assert told(driver, ways[0], *shape, *args) == told(other, ways[1], *shape, *args)
    assert told(driver, ways[0], *shape, *args) == told(other, ways[1], *shape, *args), "and once more"


def test_plain_launches_go_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, short = launcher()
    long_ways: list[Any] = []
    through = short.launch
    monkeypatch.setattr(short, "launch", lambda *args: (long_ways.append(args), through(*args)))
    launch = make_launch(SIGNATURES["all"], short)
    for _ in range(3):
        launch(4, 32, 0, *PLAIN)
    assert len(long_ways) == 1, "the first"
    assert driver.launches[0] == driver.launches[1] == driver.launches[2]
    launch(5, 32, 0, *PLAIN)
    assert len(long_ways) == 2, "another geometry's first"
    short.record = True
    launch(4, 32, 0, *PLAIN)
    assert len(long_ways) == 3, "what is noted"


def test_halves_by_value_are_rounded_by_the_long_way() -> None:
    driver, short = launcher()
    launch = make_launch(SIGNATURES["half_scalar"], short)
    x = torch.zeros(4, dtype=torch.float16)
    for _ in range(2):
        launch(1, 32, 0, x, 0.1, 0.1)
    assert driver.launches[1].values[1:] == [b"\x66\x2e", b"\xcd\x3d"]


def test_a_fault_of_the_device_breaks_the_launcher() -> None:
    driver, short = launcher()
    launch = make_launch(SIGNATURES["all"], short)
    launch(4, 32, 0, *PLAIN)

    def fault(values: list[bytes]) -> None:
        driver.error = "an illegal address"
        raise CandidateError("the launch failed", stage="launch")

    driver.bodies["all"] = fault
    with pytest.raises(CandidateError, match="the launch failed"):
        launch(4, 32, 0, *PLAIN)
    assert short.broken


def test_a_closed_launcher_forgets_its_kernels() -> None:
    _, short = launcher()
    launch = make_launch(SIGNATURES["all"], short)
    launch(4, 32, 0, *PLAIN), launch(4, 32, 0, *PLAIN)
    short.close()
    with pytest.raises(AssertionError):  # the fake driver's: the module is gone
        launch(4, 32, 0, *PLAIN)


@pytest.mark.parametrize("size", SIZES_GIVEN)
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_quick_memory_is_torch_empty(size: tuple[Any, ...], dtype: Any) -> None:
    _, short = launcher()
    assert short.fast_empty is not None
    made = []
    for given_launcher in (short, Long(short)):
        try:
            out = Allocator(given_launcher).empty(*size, dtype=dtype)
            made.append((out.shape, out.stride(), out.dtype, str(out.device)))
        except CandidateError as error:
            made.append(error.message)
    assert made[0] == made[1]


@pytest.mark.parametrize(("zones", "poison"), [(True, None), (False, 0xA5)])
def test_guarded_memory_is_never_quick(zones: bool, poison: int | None) -> None:
    made = GpuLauncher(FakeDriver(SIZES), b"code", SIGNATURES, device="cpu", zones=zones, poison=poison)
    assert made.fast_empty is None
    assert Allocator(made).empty(3, dtype=torch.float32).isnan().all(), "poison"


def test_without_the_compilers_call_memory_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C._dynamo.guards, "_empty_strided_cpu")
    _, short = launcher()
    assert short.fast_empty is not None
    assert short.fast_empty((2, 3), torch.int32).stride() == (3, 1)


def test_a_plan_of_many_launches_asks_nothing_twice() -> None:
    """What is a number by all its bindings is not looked at when the plan runs."""
    text = f"HIP = r'''{HIP}'''\nBLOCK = knob(32, choices=(32, 64))\n" + (
        "def forward(self, x):\n    n = x.shape[0]\n    captured = n == 4 and x.ndim == 1\n"
        "    for i in range(2):\n        if captured and i < n:\n"
        "            half_scalar[cdiv(n, BLOCK), BLOCK](x, 0.5, 0.5)\n    return x\n"
    )
    parsed = parse(text)
    driver = FakeDriver(SIZES)
    made = GpuLauncher(driver, b"code", parsed.signatures, device="cpu", poison=None, zones=False)
    table = {"params": {}, "buffers": {}, "attrs": {}, "modules": {}, "training": False}
    plan = lower(parsed, {}, table, made)
    plan.forward(torch.zeros(4, dtype=torch.float16))
    assert [one.grid for one in driver.launches] == [(1, 1, 1)] * 2
    assert not {"__hw_host", "__hw_h_cdiv"} & set(plan._forward.__code__.co_names)
