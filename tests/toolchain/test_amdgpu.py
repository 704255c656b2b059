"""Real sources through the real compiler, in the sandbox."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hipwright.errors import BadInput, SandboxMissing, ToolchainError
from hipwright.program.signature import parse_signatures
from hipwright.records import Build
from hipwright.sandbox import bwrap
from hipwright.targets import OFFLINE
from hipwright.toolchain import clang, probe
from hipwright.toolchain.amd import codeobject, isa, ocml, rocm_paths
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu

from . import kernels

INCLUDE = "#include <hip/hip_runtime.h>\n"
Built = Callable[[str, str], Build]
SIZES = {"int": 4, "float": 4, "long": 8, "half": 2, "__half": 2}  # of the scalars in these kernels


@pytest.mark.matrix(keep=14)
@pytest.mark.parametrize(("name", "target"), kernels.pairs(*kernels.EVERYWHERE))
def test_builds_everywhere(built: Built, cache: BuildCache, name: str, target: str) -> None:
    build = built(name, target)
    assert build.ok, build.log
    assert build.log == ""
    assert [kernel.name for kernel in build.kernels] == [name]
    code = cache.get(build.blob)
    assert codeobject.machine(code) == OFFLINE[target].elf_machine
    assert isa.kernel_args(code) == isa.kernel_args(cache.get(build.isa_blob).decode())


@pytest.mark.parametrize("target", OFFLINE)
def test_mfma_is_for_cdna_only(built: Built, target: str) -> None:
    build = built("mfma", target)
    assert build.ok == OFFLINE[target].mfma
    if build.ok:
        assert build.kernels[0].instructions["mfma"] >= 1
    else:
        assert "mfma" in build.log and "kernel.hip:10:" in build.log


@pytest.mark.parametrize("name", ["saxpy", "softmax", "half2_gelu", "bf16_norm", "atomics", "shuffles"])
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_arguments_lie_where_the_signature_says(built: Built, cache: BuildCache, name: str, target: str) -> None:
    signature = parse_signatures(kernels.EVERYWHERE[name]).signatures[name]
    offset, want = 0, []
    for parameter in signature.params:
        size = 8 if parameter.pointer else SIZES[parameter.ctype]
        offset = (offset + size - 1) // size * size
        want.append((size, offset, "global_buffer" if parameter.pointer else "by_value"))
        offset += size
    found = isa.kernel_args(cache.get(built(name, target).blob))[name]
    assert [arg for arg in found if not arg[2].startswith("hidden")] == want


def compile_text(cache: BuildCache, text: str, target: str = "gfx942", **defines: int) -> Build:
    return amdgpu.build(text, target, defines, cache=cache)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y[0] = undeclared;", "kernel.hip:4:12: error: use of undeclared identifier 'undeclared'"),
        ("y[0] = 1.0f", "kernel.hip:4:16: error: expected ';'"),
        ("y[0] = __shfl_xor_sync(0xff, y[0], 1);", "kernel.hip:4:12: error"),
        ("float z[LENGTH]; y[0] = z[0];", "kernel.hip:4:13: error: use of undeclared identifier 'LENGTH'"),
        ("__shared__ float s[40000]; s[threadIdx.x] = y[0]; __syncthreads(); y[1] = s[1];", "local memory"),
    ],
)
def test_wrong_sources_say_where(cache: BuildCache, body: str, message: str) -> None:
    text = f'#include <hip/hip_runtime.h>\n\nextern "C" __global__ void k(float* y) {{\n    {body}\n}}\n'
    build = compile_text(cache, text)
    assert not build.ok and build.blob == "" and build.kernels == ()
    assert message in build.log
    assert "/tmp" not in build.log and "site-packages" not in build.log and "/build" not in build.log


def test_calls_to_what_nobody_defines_fail_at_the_link(cache: BuildCache) -> None:
    text = INCLUDE + '__device__ void gone(float*);\nextern "C" __global__ void k(float* x) { gone(x); }\n'
    build = compile_text(cache, text)
    assert not build.ok and "undefined" in build.log and "gone(float*)" in build.log


@pytest.mark.parametrize(
    "line",
    ['#include "/etc/passwd"', '#include "../../secret.h"', "  #  include </etc/hosts>", '#embed "/etc/passwd"'],
)
def test_includes_outside_are_refused(cache: BuildCache, line: str) -> None:
    build = compile_text(cache, f'// a comment\n{line}\nextern "C" __attribute__((global)) void k() {{}}\n')
    assert not build.ok
    assert build.log.startswith("kernel.hip:2:1: error: refused")


@pytest.mark.parametrize(
    "text",
    [
        '#define WHERE "/etc/passwd"\n#include WHERE\n',
        '#include <hip/hip_runtime.h>\nextern "C" __global__ void k() { asm volatile(".incbin \\"/etc/passwd\\""); }\n',
    ],
)
def test_the_compiler_sees_no_file_of_this_machine(cache: BuildCache, text: str) -> None:
    build = compile_text(cache, text)
    assert not build.ok
    assert "/etc/passwd" in build.log and "root:" not in build.log


def test_an_include_in_a_comment_is_no_include(cache: BuildCache) -> None:
    text = '/* #include "/etc/passwd"\n#include "../x" */\n' + INCLUDE + 'extern "C" __global__ void k() {}\n'
    assert compile_text(cache, text).ok


def test_knobs_reach_the_source_and_name_the_build(cache: BuildCache) -> None:
    text = '#include <hip/hip_runtime.h>\nextern "C" __global__ void __launch_bounds__(B) k(int* x) { *x = B; }\n'
    small, large = (compile_text(cache, text, B=n) for n in (64, 512))
    assert [b.kernels[0].max_workgroup for b in (small, large)] == [64, 512]
    assert small.blob != large.blob


def test_knobs_may_have_one_letter(cache: BuildCache) -> None:
    letters = {chr(ord("A") + n): 7 for n in range(26)}
    body = "".join(source.replace(kernels.HEAD, "") for source in (kernels.SAXPY, kernels.HALF2, kernels.DOUBLES))
    text = kernels.HEAD + "#include <algorithm>\n#include <limits>\n" + body
    for build in (
        compile_text(cache, text, BLOCK=64, **letters),
        cpu.build(text, {"BLOCK": 64, **letters}, cache=cache),
    ):
        assert build.ok, build.log


def test_rounding_intrinsics_are_not_contracted(cache: BuildCache) -> None:
    text = INCLUDE + 'extern "C" __global__ void k(float* x) { x[0] = __fadd_rn(__fmul_rn(x[1], x[2]), x[3]); }\n'
    asm = cache.get(compile_text(cache, text).isa_blob).decode()
    assert "v_mul_f32" in asm and "v_add_f32" in asm and "v_fma" not in asm


def test_the_second_time_comes_from_the_cache(cache: BuildCache) -> None:
    first = compile_text(cache, kernels.SAXPY4)
    start = time.thread_time()
    again = compile_text(cache, kernels.SAXPY4)
    assert time.thread_time() - start < 0.02
    assert again.cached and not compile_text(cache, kernels.SAXPY4, "gfx90a").cached
    assert (again.blob, again.kernels) == (first.blob, first.kernels)


def test_the_same_source_gives_the_same_bytes(tmp_path: Path) -> None:
    blobs = {compile_text(BuildCache(tmp_path / name), kernels.SOFTMAX).blob for name in ("a", "b")}
    assert len(blobs) == 1


def test_unknown_target_is_bad_input(cache: BuildCache) -> None:
    with pytest.raises(BadInput, match="gfx803"):
        compile_text(cache, kernels.SAXPY4, "gfx803")


def test_a_missing_compiler_is_the_toolchains_fault(
    fresh: None, cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clang, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match="ziglang wheel is not installed") as caught:
        compile_text(cache, "anything")
    assert "pip install ziglang" in caught.value.hint
    checks = {check.name: check for check in probe.checks()}
    assert not checks["clang"].ok and "pip install ziglang" in checks["clang"].fix


def test_without_a_sandbox_nothing_is_compiled_unless_told_so(
    cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bwrap, "available", lambda: (False, "bubblewrap (bwrap) is not installed"))
    text = kernels.SAXPY4 + "// without a sandbox\n"
    with pytest.raises(SandboxMissing):
        compile_text(cache, text)
    assert amdgpu.build(text, "gfx942", {}, cache=cache, unsafe=True).ok


def test_own_device_math_is_named(built: Built) -> None:
    assert built("softmax", "gfx942").device_math == ("ocml" if ocml.find() else "own")


def test_doctor_builds_for_every_target() -> None:
    checks = {check.name: check for check in probe.checks()}
    assert {"clang", *OFFLINE} <= {name for name, check in checks.items() if check.ok}
    assert checks["ocml"].ok == (ocml.find() is not None)


# ---------------------------------------------------------------- ocml


@pytest.mark.parametrize("target", OFFLINE)
@pytest.mark.skipif(ocml.find() is None, reason="no ocml bitcode: ROCm, triton or rocm-device-libs gives it")
def test_ocml_is_linked_where_it_is_found(built: Built, cache: BuildCache, target: str) -> None:
    build = built("doubles", target)
    assert build.ok and build.device_math == "ocml"
    assert "__oclc_" not in cache.get(build.isa_blob).decode()


def test_an_unusable_ocml_is_left_aside(
    fresh: None, tmp_path: Path, cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "amdgcn/bitcode"
    folder.mkdir(parents=True)
    (folder / "ocml.bc").write_bytes(b"not bitcode")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    assert "ocml" in amdgpu.compiler_id()
    build = compile_text(cache, kernels.DOUBLES)
    assert build.ok and build.device_math == "own"


def test_isa_version_numbers() -> None:
    assert [ocml.isa_version(name) for name in ("gfx90a", "gfx942", "gfx950", "gfx1100")] == [9010, 9402, 9500, 11000]


@pytest.mark.parametrize(("rocm", "abi"), [(None, 3), ((5, 7), 2), ((6, 0), 3), ((7, 2), 3)])
def test_code_objects_are_of_a_version_that_the_rocm_found_loads(
    cache: BuildCache, monkeypatch: pytest.MonkeyPatch, rocm: tuple[int, int] | None, abi: int
) -> None:
    monkeypatch.setattr(rocm_paths, "version", lambda: rocm)
    amdgpu.code_object_version.cache_clear()
    try:
        source = '#include <hip/hip_runtime.h>\nextern "C" __global__ void k(int* x) { *x = 1; }\n'
        built = amdgpu.build(source, "gfx942", {}, cache=cache)
    finally:
        amdgpu.code_object_version.cache_clear()
    assert built.ok, built.log
    assert cache.get(built.blob)[8] == abi  # EI_ABIVERSION: 2 is version 4, 3 is version 5
