"""Packs that leave the caches first, where the choice `stream` says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hipwright.engine import space, write
from hipwright.engine.plan.streaming import KEEP, PACKED
from hipwright.program import parse
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.device_headers import inlined
from hipwright.toolchain.nvidia import nvrtc
from tests import warm
from tests.engine.harness import CACHE, Op, captured, compare, reference, run

SHAPES = {"pointwise": (4096, 1024), "rows": (4096, 1032), "columns": (4096, 1024)}
MODELS = {
    "pointwise": Op(lambda x: x.relu() + 1),
    "rows": Op(lambda x: x.softmax(-1)),
    "columns": Op(lambda x: x.sum(0)),
}
OTHERS = {"odd rows": MODELS["rows"], "with columns": Op(lambda x: (x.relu() + 1, x.sum(0)))}
DTYPES = {"odd rows": torch.float16}


def program(name: str, how: str, dtype: torch.dtype = torch.float32) -> Any:
    return write(captured(MODELS[name], [torch.empty(SHAPES[name], dtype=dtype)]), {"stream": how})


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("how", PACKED[1:])
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
    assert space(captured(MODELS["rows"], [torch.empty(SHAPES["rows"])]))["stream"].options == PACKED
    assert "stream" not in space(captured(MODELS["rows"], [torch.empty(64, 1024)]))
    assert "stream" not in space(captured(Op(lambda x: torch.flip(x, (0,))[:, 0]), [torch.empty(4096, 1031)]))
    assert "nontemporal" not in inlined(write(captured(MODELS["rows"], [torch.empty(SHAPES["rows"])])).text)
    assert "nontemporal" in inlined(program("rows", "both").text)


LARGE = (8192, 4096)  # 128 MiB of float32


@pytest.mark.parametrize("name", ["pointwise", "rows"])
def test_large_inputs_stay_in_the_cache_and_what_is_written_leaves(name: str) -> None:
    graph = captured(MODELS[name], [torch.empty(LARGE)])
    choice = space(graph)["stream"]
    assert (choice.options, choice.default) == ((*PACKED, KEEP), KEEP)
    made = write(graph)
    assert made.text.count("x_0 = retain_in_cache(x_0);") == 1
    assert "retain_in_cache(" not in write(graph, {"stream": "no"}).text
    parsed = parse(made.text)
    defines = parsed.defines(made.knobs)
    knobs = "".join(f"#define {key} {value}\n" for key, value in sorted(defines.items()))
    done, log, ptx = nvrtc.listing(parsed.hip, knobs, "sm_90", warm.compilers())
    assert done, log
    loads = [line for line in ptx.splitlines() if "ld.global" in line]
    assert loads and all("L2::cache_hint" in line for line in loads)
    assert not any("L2::cache_hint" in line for line in ptx.splitlines() if "st.global" in line)
    torch.manual_seed(0)
    for columns in (64, 61):
        x = torch.randn(9, columns)
        exact, native, _ = reference(MODELS[name], [x])
        got, _ = run(write(captured(MODELS[name], [torch.empty(LARGE)])), MODELS[name], [x])
        compare(got, exact, native)


def test_amd_has_no_such_hint() -> None:
    graph = captured(MODELS["pointwise"], [torch.empty(LARGE)])
    both = []
    for how in ("no", KEEP):
        parsed = parse((made := write(graph, {"stream": how})).text)
        build = amdgpu.build(parsed.hip, "gfx942", parsed.defines(made.knobs), cache=CACHE, unsafe=True)
        assert build.ok, build.log
        both.append([x for x in isa(CACHE, build).splitlines() if x.startswith("\t") and not x.startswith("\t.")])
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("name", "shape", "usual"),
    [
        ("pointwise", (8192, 4064), "no"),
        ("columns", LARGE, "loads"),
        ("columns", (4096, 4096), "no"),
        ("odd rows", (8192, 5001), "no"),
        ("with columns", LARGE, "keep"),
    ],
    ids=["fits in part", "reads alone", "reads alone, and it fits in part", "rows off the borders of packs", "both"],
)
def test_nothing_is_kept_where_it_would_not_pay(name: str, shape: tuple[int, int], usual: str) -> None:
    """What writes next to nothing reads past the caches instead."""
    choice = space(captured({**MODELS, **OTHERS}[name], [torch.empty(shape, dtype=DTYPES.get(name, torch.float32))]))[
        "stream"
    ]
    assert choice.default == usual
    assert choice.options == ((*PACKED, KEEP) if usual == KEEP else PACKED)


def test_a_tensor_may_have_the_functions_name() -> None:
    class Named(torch.nn.Module):
        def forward(self, retain_in_cache: torch.Tensor) -> torch.Tensor:
            return retain_in_cache.relu() + 1

    made = write(captured(Named(), [torch.empty(LARGE)]))
    parsed = parse(made.text)
    build = amdgpu.build(parsed.hip, "gfx942", parsed.defines(made.knobs), cache=CACHE, unsafe=True)
    assert build.ok, build.log
