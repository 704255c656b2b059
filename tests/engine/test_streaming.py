"""Packs that leave the caches first, where the choice `stream` says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hipwright.engine.streaming import OPTIONS
from hipwright.engine.write import space, write
from hipwright.program import parse
from hipwright.toolchain import amdgpu, nvrtc
from hipwright.toolchain.cache import BuildCache
from tests import warm
from tests.engine.harness import CACHE, Op, captured, compare, reference, run

SHAPES = {"pointwise": (4096, 1024), "rows": (4096, 1032), "columns": (4096, 1024)}
MODELS = {
    "pointwise": Op(lambda x: x.relu() + 1),
    "rows": Op(lambda x: x.softmax(-1)),
    "columns": Op(lambda x: x.sum(0)),
}


def program(name: str, how: str, dtype: torch.dtype = torch.float32) -> Any:
    return write(captured(MODELS[name], [torch.empty(SHAPES[name], dtype=dtype)]), {"stream": how})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("how", OPTIONS[1:])
def test_values_are_the_same(name: str, how: str, dtype: torch.dtype) -> None:
    """Of a program for large tensors, on few elements, from addresses that suit packs and from odd ones."""
    torch.manual_seed(0)
    for columns in (1032 if name == "rows" else 64, 61):
        x = torch.randn(9, columns).to(dtype)
        exact, native, _ = reference(MODELS[name], [x])
        got, _ = run(program(name, how, dtype), MODELS[name], [x])
        compare(got, exact, native)


def test_what_the_machine_code_says() -> None:
    wanted = {"no": (False, False), "stores": (False, True), "loads": (True, False), "both": (True, True)}
    for how, (loads, stores) in wanted.items():
        parsed = parse((made := program("pointwise", how)).text)
        defines = parsed.defines(made.knobs)
        build = amdgpu.build(parsed.hip, "gfx942", defines, cache=CACHE, unsafe=True)
        assert build.ok, build.log
        packs = [line for line in isa(CACHE, build).splitlines() if "_dwordx4" in line]
        for kind, streams in (("global_load", loads), ("global_store", stores)):
            assert {line.split()[-1] == "nt" for line in packs if kind in line} == {streams}
        knobs = "".join(f"#define {name} {value}\n" for name, value in sorted(defines.items()))
        done, log, ptx = nvrtc.listing(parsed.hip, knobs, "sm_90", warm.compilers())
        assert done, log
        assert ("ld.global.cs.v4" in ptx, "st.global.cs.v4" in ptx) == (loads, stores)
        assert ("ld.global.nc.v4" in ptx, "st.global.v4" in ptx) == (not loads, not stores)


def isa(cache: BuildCache, build: Any) -> str:
    return Path(cache.path(build.isa_blob)).read_text()


def test_it_is_offered_where_caches_hold_less_than_a_call_moves() -> None:
    assert space(captured(MODELS["rows"], [torch.empty(SHAPES["rows"])]))["stream"].options == OPTIONS
    assert "stream" not in space(captured(MODELS["rows"], [torch.empty(64, 1024)]))
    assert "stream" not in space(captured(Op(lambda x: torch.flip(x, (0,))[:, 0]), [torch.empty(4096, 1031)]))
    assert write(captured(MODELS["rows"], [torch.empty(SHAPES["rows"])])).text.count("nontemporal") == 0
