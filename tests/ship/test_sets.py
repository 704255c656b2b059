"""Sets of programs: which member serves a shape, correctness of each on its own shapes, packed weights, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hipwright.errors import GuardFailed, ProgramError
from hipwright.program import parse
from hipwright.program.lower.trace import trace
from hipwright.program.sets import SetMember, combine, owner
from hipwright.records import Program
from hipwright.ship.runtime import build as nvrtc
from hipwright.task.host.state import build as state_table
from hipwright.toolchain import clang
from hipwright.toolchain.amd import offline as amdgpu
from tests.engine.harness import CACHE, run

HIP = """HIP = r'''
#include <hip/hip_runtime.h>
#define LANES 4
__device__ float twice(float v) { return %s * v; }  // another one in each member
extern "C" __global__ void double_it(const float* x, float* y, long n) {
    long i = blockIdx.x * (long)BLOCK * LANES + threadIdx.x;
    for (int k = 0; k < LANES; ++k, i += BLOCK) if (i < n) y[i] = twice(x[i]);
}
'''
BLOCK = knob(%d, choices=[64, 128, 256])
TILE = BLOCK * 4
"""
PLAN = """
def forward(self, x):
    n = x.numel()
    assert %s
    x = x.contiguous()
    y = torch.empty_like(x)
    double_it[cdiv(n, TILE), BLOCK](x, y, n)
    return y
"""
LIBRARY = "HIP = r''''''\n\ndef forward(self, x):\n    return torch.mul(x, 2.0)\n"


def member(guard: str, block: int, factor: str = "2.f", when: str = "") -> SetMember:
    return SetMember(program=Program(text=HIP % (factor, block) + PLAN % guard), when=when)


def launched(program: Program, shape: tuple[int, ...]) -> list[str]:
    x = torch.empty(shape, device="meta")
    table = state_table(torch.nn.Identity())
    return [entry["kernel"] for entry in trace(parse(program.text), program.knobs, table, [x])["launches"]]


def test_the_first_whose_guards_hold_runs() -> None:
    small = member("x.ndim == 2 and x.shape[1] <= 8", 64)
    large = member("n >= 1000", 256, when="x.ndim == 1 or x.shape[0] > 3")
    program = combine([small, large, SetMember(program=Program(text=LIBRARY))])
    for shape, kernels, number in [
        ((5, 7), ["double_it_s0"], 0),
        ((40, 8), ["double_it_s0"], 0),  # both support it
        ((1001,), ["double_it_s1"], 1),
        ((3, 999), [], None),  # large enough, but not of the second's shape class
        ((4, 9), [], None),
    ]:
        assert launched(program, shape) == kernels
        assert owner(kernels) == number
        x = torch.randn(shape)
        got, _ = run(program, torch.nn.Identity(), [x])
        torch.testing.assert_close(got, 2 * x)


def test_names_do_not_meet() -> None:
    """Helpers, macros, knobs and locals belong to one member each; the next member gets its inputs unchanged."""
    program = combine([member("x.stride(-1) == 5", 64, "3.f"), member("x.is_contiguous()", 256), member("True", 128)])
    parsed = parse(program.text)
    assert {name: knob.default for name, knob in parsed.knobs.items()} == {
        "BLOCK_s0": 64,
        "BLOCK_s1": 256,
        "BLOCK_s2": 128,
    }
    x = torch.randn(6, 5)
    assert torch.equal(run(program, torch.nn.Identity(), [x.t()])[0], 3 * x.t())  # the first: its helper triples
    assert torch.equal(run(program, torch.nn.Identity(), [x])[0], 2 * x)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "gfx1100"])
def test_the_set_builds_for_amd(target: str) -> None:
    parsed = parse(combine([member("x.ndim == 2", 64), member("x.ndim == 1", 256)]).text)
    build = amdgpu.build(parsed.hip, target, parsed.defines({}), cache=CACHE, unsafe=True)
    assert build.ok, build.log
    assert {k.name: k.scratch_bytes for k in build.kernels} == {"double_it_s0": 0, "double_it_s1": 0}


def test_the_set_builds_for_nvidia(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvrtc, "INCLUDE", clang.INCLUDE)
    monkeypatch.setenv("HIPWRIGHT_OPS_CACHE", str(tmp_path))
    try:
        nvrtc.nvrtc()
    except nvrtc.BuildError:
        pytest.skip("no NVRTC")
    parsed = parse(combine([member("x.ndim == 2", 64), member("x.ndim == 1", 256)]).text)
    assert b"double_it_s1" in nvrtc.build(parsed.hip, parsed.defines({}), "sm_90")


def test_the_last_keeps_its_guards() -> None:
    program = combine([member("x.ndim == 2", 64), member("x.ndim == 1", 64)])
    with pytest.raises(GuardFailed):
        run(program, torch.nn.Identity(), [torch.randn(2, 2, 2)])


def test_chosen_knobs_become_defaults() -> None:
    chosen = Program(text=member("x.ndim == 2", 64).program.text, knobs={"BLOCK": 256})
    parsed = parse(combine([SetMember(program=chosen), SetMember(program=Program(text=LIBRARY))]).text)
    assert parsed.knobs["BLOCK_s0"].default == 256 and parsed.values({})["TILE_s0"] == 1024


PACKED = """HIP = r''''''

def prepare(self):
    return {"w": self.weight.t() %s}

def forward(self, x):
    %s
    return x @ self.prepared.w + self.bias
"""


def test_each_member_has_its_own_packed_weights() -> None:
    model = torch.nn.Linear(4, 3)
    first = SetMember(program=Program(text=PACKED % ("* 1.0", "assert x.ndim == 2")))
    second = SetMember(program=Program(text=PACKED % ("* -1.0", "pass")))
    program = combine([first, second])
    x = torch.randn(5, 4)
    torch.testing.assert_close(run(program, model, [x])[0], model(x).detach())
    torch.testing.assert_close(run(program, model, [x[None]])[0], (2 * model.bias - model(x[None])).detach())


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([member("True", 64)], "at least two"),
        ([SetMember(program=Program(text=LIBRARY))] * 2, "claims every call"),
        (
            [member("x.ndim == 2", 64), SetMember(program=Program(text=LIBRARY.replace("x", "z")))],
            "takes z, the first x",
        ),
        (
            [
                SetMember(
                    program=Program(
                        text=(HIP % ("2.f", 64)) + (PLAN % "True").replace("return y", "assert n > 4\n    return y")
                    )
                ),
                SetMember(program=Program(text=LIBRARY)),
            ],
            "before its first launch",
        ),
    ],
)
def test_what_cannot_be_a_set(members: list[SetMember], said: str) -> None:
    with pytest.raises(ProgramError, match=said):
        combine(members)
