"""What a source assumes of a warp's lanes is named by line; a source that assumes nothing has no finding."""

from __future__ import annotations

import pytest

from hipwright.program.standalone import wave_assumptions
from tests.starts import ROOT

FOUND = [
    ("v += __shfl_xor_sync(0xffffffff, v, 8);", "a mask of all 32 lanes"),
    ("v += __shfl_down_sync(FULL_MASK, v, 8);", "a mask of all 32 lanes"),
    ("unsigned m = __ballot_sync(m, p);", "an operation of one warp"),
    ("v = __shfl(v, 0);", "an operation of one warp"),
    ("unsigned m = __activemask();", "an operation of one warp"),
    ("#define WARP_SIZE 32", "a warp of 32 lanes by name"),
    ("constexpr int kWarpSize = 32;", "a warp of 32 lanes by name"),
    ("int lanes = warpSize;", "warpSize"),
    ("int lane = threadIdx.x & 31;", "a lane number below 32"),
    ("int lane = threadIdx.x & 0x1fu;", "a lane number below 32"),
    ("int lane = tid % 32;", "a lane number below 32"),
    ("int warp = threadIdx.x >> 5;", "a warp of 32 threads"),
    ("int warp = tid / 32;", "a warp of 32 threads"),
    ("for (int o = 16; o > 0; o >>= 1)", "a reduction over 32 lanes"),
]


@pytest.mark.parametrize(("line", "what"), FOUND)
@pytest.mark.parametrize("dialect", ["cuda", "hip"])
def test_an_assumption_is_named_with_its_line(line: str, what: str, dialect: str) -> None:
    found = wave_assumptions(f"int a;\n{line}\n// {line}\n", dialect)
    assert [(one.line, one.what) for one in found] == [(2, what)]
    assert found[0].describe().startswith("line 2: ") and found[0].becomes


@pytest.mark.parametrize(
    "line", ["int a = b % 320;", "x & 311", "a >> 51", "a / 321", "int s = 160;", "#define TILE 32"]
)
def test_other_numbers_are_no_assumption(line: str) -> None:
    assert wave_assumptions(line, "cuda") == ()


def test_the_dialects_differ_in_what_becomes_of_it() -> None:
    (cuda,), (hip,) = (wave_assumptions("warpSize", dialect) for dialect in ("cuda", "hip"))
    assert "32 on every target" in cuda.becomes and "32 or 64" in hip.becomes


def test_a_file_without_warps_has_none() -> None:
    assert wave_assumptions((ROOT / "hip" / "add_relu.hip").read_text(), "hip") == ()
    softmax = wave_assumptions((ROOT / "cuda" / "softmax.cu").read_text(), "cuda")
    assert [one.line for one in softmax] == [4, 7, 12]
