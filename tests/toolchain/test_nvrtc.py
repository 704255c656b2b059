"""The cuda target's compiler: real NVRTC from pip, without a GPU."""

from __future__ import annotations

import re
import runpy
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hipwright
from hipwright.errors import ProgramError, ToolchainError
from hipwright.program import parse
from hipwright.records import Build, KernelResources
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.nvidia import nvrtc, ptx
from hipwright.toolchain.pool import CompilePool

from . import kernels, nvrtc_calls

CORPUS = Path(hipwright.__file__).parent / "audit" / "corpus"
HEAD = "#include <hip/hip_runtime.h>\n"
SIMPLE = HEAD + 'extern "C" __global__ void scale(const float* x, float* y, int n) { y[threadIdx.x] = x[n] * SCALE; }\n'


Compile = Callable[..., Build]


def architecture(cubin: bytes) -> int:
    """The number in e_flags of a cubin's ELF header (ELF ABI versions 7 and 8 keep it at different bits)."""
    flags = struct.unpack_from("<I", cubin, 48)[0]
    return flags >> 8 & 0xFF if cubin[8] >= 8 else flags & 0xFF


# ---------------------------------------------------------------- what compiles


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_every_name_of_the_headers(compile_: Compile, arch: str) -> None:
    bodies = nvrtc_calls.bodies()
    assert len(bodies) > 400
    build = compile_(nvrtc_calls.source(bodies), arch)
    first = len(nvrtc_calls.HEADS) + 1
    wrong = [bodies[int(n) - first] for n in re.findall(r"kernel.hip\((\d+)\): error", build.log) if int(n) >= first]
    assert build.ok, wrong or build.log
    assert {k.name for k in build.kernels} == {f"k{i}" for i in range(len(bodies))}


@pytest.mark.parametrize("name", sorted(kernels.EVERYWHERE))
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_the_kernels_of_the_amd_tests(compile_: Compile, name: str, arch: str) -> None:
    build = compile_(kernels.EVERYWHERE[name], arch, **kernels.DEFINES)
    assert build.ok, build.log


def corpus(folder: str) -> list[Path]:
    return sorted((CORPUS / "program" / folder).glob("*.py"))


def hip_of(path: Path) -> tuple[str, dict[str, int]]:
    try:
        parsed = parse(path.read_text())
    except ProgramError:
        pytest.skip("refused before any compiler sees it")
    return parsed.hip, parsed.defines()


@pytest.mark.parametrize("path", corpus("honest"), ids=lambda path: path.stem)
@pytest.mark.matrix(keep=16)
def test_honest_programs(compile_: Compile, path: Path) -> None:
    hip, defines = hip_of(path)
    for arch in ("sm_80", "sm_90"):
        build = compile_(hip, arch, **defines)
        assert build.ok, build.log


@pytest.mark.parametrize("path", corpus("broken"), ids=lambda path: path.stem)
def test_broken_programs_are_broken_elsewhere(compile_: Compile, cache: BuildCache, path: Path) -> None:
    """Source that compiles for AMD compiles here: the faults of such programs appear when they run."""
    from hipwright.toolchain.amd import offline as amdgpu

    hip, defines = hip_of(path)
    if "__builtin_amdgcn" in hip:
        pytest.skip("AMD only")
    build = compile_(hip, **defines)
    if not build.ok:
        assert not amdgpu.build(hip, "gfx1100", defines, cache=cache).ok, build.log


def test_the_engine_s_programs(compile_: Compile, request: pytest.FixtureRequest) -> None:
    """Programs that the engine writes for the examples: every third, or all."""
    texts = engine_texts(1 if request.config.getoption("--all") else 3)
    assert len(texts) >= 10
    for name, text in texts.items():
        parsed = parse(text)
        build = compile_(parsed.hip, **parsed.defines())
        assert build.ok, f"{name}: {build.log}"


def engine_texts(step: int) -> dict[str, str]:
    from hipwright.engine import write
    from tests.engine.harness import captured

    found = {}
    for path in sorted((Path(__file__).parents[2] / "examples").glob("*.py"))[::step]:
        task = runpy.run_path(str(path))
        model = task["Model"](*task["get_init_inputs"]()).eval()
        found[path.stem] = write(captured(model, task["get_inputs"]())).text
    return found


# ---------------------------------------------------------------- what a build says


def test_a_build_has_a_cubin_and_resources(compile_: Compile, cache: BuildCache) -> None:
    for arch, number in (("sm_80", 80), ("sm_90", 90)):
        build = compile_(SIMPLE, arch, SCALE=3)
        assert (build.ok, build.target, build.log, build.device_math) == (True, "cuda", "", "host")
        code = cache.get(build.blob)
        assert code[:4] == b"\x7fELF"
        assert architecture(code) == number
        assert b"scale" in code
        (kernel,) = build.kernels
        assert kernel.name == "scale"
        assert 4 <= kernel.vgpr <= 32
        assert (kernel.lds_bytes, kernel.scratch_bytes, kernel.spills) == (0, 0, 0)


def test_a_build_tells_its_instruction_mix_and_occupancy(compile_: Compile) -> None:
    text = HEAD + (
        'extern "C" __global__ void wide(const float4* x, float4* y) { __shared__ float s[64]; int i = threadIdx.x;'
        " float4 v = x[i]; s[i] = v.x; __syncthreads(); v.y = expf(v.y) + __shfl_xor(v.z, 1) + s[63 - i]; y[i] = v; }\n"
    )
    (kernel,) = compile_(text).kernels
    mix = kernel.instructions
    assert (mix["vmem_load"], mix["vmem_store"], mix["lds"], mix["barrier"]) == (1, 1, 2, 1)
    assert mix["wave"] >= 1 and mix["trans"] >= 1 and mix["valu"] >= 3
    assert (kernel.vmem_bytes, kernel.widest_vmem_bytes, kernel.occupancy) == (32, 16, 16)


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        {"scale": None},
        {"scale": {}},
        {"scale": {"instructions": {"valu": "3"}, "vmem_bytes": 4, "widest_vmem_bytes": 4}},
        {"scale": {"instructions": {"nonsense": 3}, "vmem_bytes": 4, "widest_vmem_bytes": 4}},
        {"scale": {"instructions": {"valu": -3}, "vmem_bytes": 4, "widest_vmem_bytes": 4}},
        {"scale": {"instructions": {}, "vmem_bytes": 10**30, "widest_vmem_bytes": 4}},
        {"scale": {"instructions": {}, "vmem_bytes": float("nan"), "widest_vmem_bytes": True}},
    ],
)
def test_what_a_session_tells_is_looked_at(
    compile_: Compile, monkeypatch: pytest.MonkeyPatch, told: object, compilers: CompilePool
) -> None:
    """A session has read hostile source: its report on instructions affects no verdict and causes no error."""
    call = compilers.call

    def answer(*asked: Any) -> Any:
        said, made = call(*asked)
        return {**said, "mixes": told}, made

    monkeypatch.setattr(compilers, "call", answer)
    with pytest.raises(ToolchainError, match="no instruction mix"):
        compile_(SIMPLE, SCALE=12345)


def test_kernels_that_a_session_made_up_are_left_out() -> None:
    mix = {"instructions": {"valu": 3}, "vmem_bytes": 0, "widest_vmem_bytes": 0}
    (found,) = ptx.with_mix([KernelResources(name="a", vgpr=8)], {"hw_a": mix, "b": mix}, None, "hw_")
    assert (found.name, found.vgpr, found.instructions) == ("a", 8, {"valu": 3})


def test_lds_stack_and_spills_are_told(compile_: Compile) -> None:
    text = HEAD + (
        'extern "C" __global__ void lds(float* y) { __shared__ float s[100]; s[threadIdx.x] = y[0]; __syncthreads();'
        " y[1] = s[99 - threadIdx.x]; }\n"
        'extern "C" __global__ void stack(float* y, int n) { float a[100]; for (int i = 0; i < n; ++i)'
        " a[i % 100] = y[i]; y[0] = a[n]; }\n"
    )
    told = {k.name: k for k in compile_(text).kernels}
    assert (told["lds"].lds_bytes, told["lds"].scratch_bytes) == (400, 0)
    assert told["stack"].scratch_bytes == 400
    spilling = compile_(kernels.EVERYWHERE["spills"], **kernels.DEFINES)
    assert max(k.scratch_bytes for k in spilling.kernels) > 0


def test_defines_reach_the_source_and_the_key(compile_: Compile) -> None:
    one, two = compile_(SIMPLE, SCALE=41), compile_(SIMPLE, SCALE=42)
    assert one.blob != two.blob
    assert compile_(SIMPLE, SCALE=41).cached
    assert not compile_(SIMPLE + "// more\n", SCALE=41).cached


def test_the_same_source_gives_the_same_bytes(compilers: CompilePool, tmp_path: Path) -> None:
    blobs = {
        nvrtc.build(SIMPLE, {"SCALE": 3}, arch="sm_90", pool=compilers, cache=BuildCache(tmp_path / name)).blob
        for name in "ab"
    }
    assert len(blobs) == 1


@pytest.mark.parametrize("head", [HEAD, "#include <cstdint>\n" + HEAD, "#define SOMETHING 1\n" + HEAD])
def test_errors_name_the_source_s_own_lines(compile_: Compile, head: str) -> None:
    build = compile_(f'{head}\nextern "C" __global__ void k(float4* y) {{\n    y->q = missing;\n}}\n', KNOB=1)
    line = head.count("\n") + 3
    assert not build.ok
    assert f'kernel.hip({line}): error: class "float4" has no member "q"' in build.log
    assert f'kernel.hip({line}): error: identifier "missing" is undefined' in build.log
    assert "hw_" not in build.log
    assert "/site-packages" not in build.log


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("x[0] = __builtin_amdgcn_readfirstlane(1);", "__builtin_amdgcn_readfirstlane"),
        ("typedef float f4 __attribute__((ext_vector_type(4))); f4 a; x[0] = a[0];", "ext_vector_type"),
        ('asm volatile("s_nop 0");', "inline assembly of another machine"),
    ],
)
def test_what_is_amd_s_alone_is_said_to_be(compile_: Compile, text: str, name: str) -> None:
    build = compile_(f'{HEAD}extern "C" __global__ void k(float* x) {{ {text} }}\n')
    assert not build.ok
    assert f"AMD only: {name}, the cuda target cannot compile it" in build.log


def test_matrix_kernels_are_amd_only(compile_: Compile) -> None:
    for name, text in kernels.WITH_MFMA.items():
        build = compile_(text, **kernels.DEFINES)
        assert build.log.startswith("AMD only: __builtin_amdgcn_mfma_"), name


@pytest.mark.parametrize("name", ["norm", "max", "exp", "tanh", "j0"])
def test_a_kernel_may_be_called_as_a_function_of_cuda_s(compile_: Compile, cache: BuildCache, name: str) -> None:
    build = compile_(f'{HEAD}extern "C" __global__ void {name}(float* x) {{ x[0] = exp(max(x[1], 2.f)); }}\n')
    assert build.ok, build.log
    assert build.kernels[0].name == name
    assert re.search(rb"\b(?:hw_)?" + name.encode() + rb"\b", cache.get(build.blob))


def test_launch_bounds_take_the_first_argument(compile_: Compile) -> None:
    """Under CUDA's meaning 16 blocks of 1024 threads are impossible; under HIP's it is a hint about waves."""
    text = f'{HEAD}extern "C" __global__ void __launch_bounds__(1024, 16) k(float* x) {{ x[threadIdx.x] *= 2; }}\n'
    build = compile_(text)
    assert build.ok
    assert build.log == ""


def test_vector_loads_are_whole(compile_: Compile, cache: BuildCache) -> None:
    """The header's float4 is a class: it must still move 16 bytes at once (LDG.128 and STG.128 as one instruction each,
    so the vector kernel is no longer than the scalar one).
    """
    text = HEAD + (
        'extern "C" __global__ void wide(const float4* x, float4* y) { y[threadIdx.x] = x[threadIdx.x]; }\n'
        'extern "C" __global__ void plain(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }\n'
    )
    code = cache.get(compile_(text).blob)
    assert section_size(code, b".text.wide") == section_size(code, b".text.plain")


def section_size(elf: bytes, name: bytes) -> int:
    """The bytes of a section of a 64-bit little-endian ELF file."""
    (start,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    strings = struct.unpack_from("<Q", elf, start + names * size + 24)[0]
    for at in range(start, start + count * size, size):
        where = strings + struct.unpack_from("<I", elf, at)[0]
        if elf[where : elf.index(b"\0", where)] == name:
            return int(struct.unpack_from("<Q", elf, at + 32)[0])
    raise AssertionError(f"no section {name!r}")
