"""Device headers: each compiles by itself and with all others, and a program includes those whose names it uses."""

from __future__ import annotations

import re

import pytest

from hipwright.engine import version
from hipwright.engine.emit.device_code import defined, header_of, headers_for, moves_vectors, reserved
from hipwright.engine.emit.header_names import needed_headers, with_headers
from hipwright.targets import OFFLINE
from hipwright.toolchain import device_headers
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cpu import build as cpu
from hipwright.toolchain.nvidia import nvrtc
from tests import warm
from tests.engine.harness import CACHE
from tests.engine.template_builds import TARGETS

ENTRY = 'extern "C" __global__ void entry(float* out) {\n    out[0] = 1.0f;\n}\n'


def sources() -> dict[str, str]:
    """Each header alone; all in one source, with streaming accesses and without; and all inlined."""
    plain = [name for name in device_headers.names() if name not in device_headers.STREAMING]
    groups = {name: [name] for name in device_headers.names()}
    groups |= {"all": plain, "streaming": list(device_headers.names())}
    out = {key: "\n".join([*device_headers.include_lines(names), "", ENTRY]) for key, names in groups.items()}
    return out | {"inlined": device_headers.inlined(out["streaming"])}


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("target", TARGETS)
def test_headers_compile_for_amd(target: str) -> None:
    for name, source in sources().items():
        build = amdgpu.build(source, target, {}, cache=CACHE, unsafe=True)
        assert build.ok, (name, build.log)


def test_headers_compile_for_the_cpu_target() -> None:
    for name, source in sources().items():
        build = cpu.build(source, {}, wave=64, checked=True, cache=CACHE, unsafe=True)
        assert build.ok, (name, build.log)


def test_headers_compile_by_nvrtc() -> None:
    for name, source in sources().items():
        build = nvrtc.build(source, {}, arch="sm_90", pool=warm.compilers(), cache=CACHE)
        assert build.ok, (name, build.log)


def test_names_are_reserved() -> None:
    assert {"load_tile", "Tile", "nan_max", "expf", "while", "threadIdx", "ROW_CACHE", "GEMM_MFMA"} <= reserved()


def test_a_use_is_the_header_that_defines_it() -> None:
    assert headers_for(["load_tile", "block_reduce", "math.h"]) == {"tile", "block_reduce", "math"}
    assert header_of()["load_vector"] == "vector_access"
    assert moves_vectors(["Tile"]) and not moves_vectors(["WideVector", "block_reduce"])
    with pytest.raises(KeyError):
        headers_for(["no_such_function"])


def test_every_definition_has_one_header_but_overloads() -> None:
    homes: dict[str, list[str]] = {}
    for header in device_headers.names():
        for name in defined(header):
            homes.setdefault(name, []).append(header)
    shared = {name for name, headers in homes.items() if len(headers) > 1}
    assert shared == {
        *("block_reduce", "lane_reduce", "shuffle_xor", "add_tile", "load_vector", "store_vector"),
        *("combine_strided", "floor_div", "floor_mod", "truncated_mod"),
    }


def test_the_architectures_with_matrix_units_are_those_of_the_targets() -> None:
    named = set(re.findall(r"__(gfx\w+?)__", device_headers.text("matrix_cores")))
    assert named == {one.isa for one in OFFLINE.values() if one.mfma}


def test_pasted_definitions_become_includes() -> None:
    pasted = re.sub(r"^(?://|#pragma once|#include)[^\n]*\n", "", device_headers.text("arithmetic"), flags=re.MULTILINE)
    kernel = 'extern "C" __global__ void run(float* x) {\n    x[0] = sigmoid(relu(x[1]));\n}\n'
    found = with_headers(f"#include <hip/hip_runtime.h>\n\n{pasted.replace(' inline', '')}\n{kernel}")
    assert found == (
        "#include <hip/hip_runtime.h>\n#include <hipwright/arithmetic.h>\n#include <hipwright/math.h>\n\n" + kernel
    )


def test_a_changed_definition_keeps_its_text_under_a_name_of_its_own() -> None:
    own = "template <typename T>\n__device__ T relu(T x) {\n    return x < T(1) ? T(1) : x;\n}\n"
    kernel = 'extern "C" __global__ void run(float* x) {\n    x[0] = relu(relu6(x[1]));\n}\n'
    found = with_headers(f"{own}\n{kernel}")
    assert "T own_relu(T x)" in found and "own_relu(relu6(x[1]))" in found and "arithmetic.h" in found
    assert needed_headers(own) == set()


def test_the_engine_s_version_names_the_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    for known in ("one", "two"):
        version.source_key.cache_clear()
        monkeypatch.setattr(device_headers, "device_headers_id", lambda known=known: known)
        keys.append(version.source_key())
    version.source_key.cache_clear()
    assert len(set(keys)) == 2
