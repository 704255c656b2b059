"""The rocm target's compilers: hipRTC (a stub library in a real sandboxed session), a stub hipcc, our own clang."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hipwright.errors import ToolchainError
from hipwright.records import Build
from hipwright.sandbox import Zygote
from hipwright.toolchain import clang
from hipwright.toolchain.amd import bundle, hiprtc, rocm_paths, rocm_source
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.pool import CompilePool

from .conftest import HERE, compile_c

SOURCE = """#include <hip/hip_runtime.h>
extern "C" __global__ void twice(float* x, int n) {
    __shared__ float t[WIDTH];
    t[threadIdx.x % WIDTH] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n) x[threadIdx.x] = 2 * t[0];
}
"""
Builder = Callable[..., Build]


@pytest.fixture(scope="module")
def rocm(tmp_path_factory: pytest.TempPathFactory, cache: BuildCache) -> Path:
    """A folder laid out like /opt/rocm, with the stub hipRTC; hipcc and headers are added by the tests."""
    root = tmp_path_factory.mktemp("rocm")
    built = amdgpu.build(SOURCE, "gfx942", {"WIDTH": 64}, cache=cache)
    assert built.ok, built.log
    (root / "made.hsaco").write_bytes(cache.get(built.blob))
    for name in ("lib", "bin", "include"):
        (root / name).mkdir()
    compile_c(HERE / "stub_hiprtc.c", root / "lib/libhiprtc.so.7", f'-DCODE_FILE="{root}/made.hsaco"')
    return root


@pytest.fixture(scope="module")
def pool(rocm: Path) -> Iterator[CompilePool]:
    with Zygote((), ro=(rocm,), name="compilers") as zygote, CompilePool(zygote, 1) as made:
        yield made


@pytest.fixture
def build(rocm: Path, pool: CompilePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("ROCM_PATH", str(rocm))
    monkeypatch.setattr(rocm_paths, "roots", lambda: [rocm])
    fresh = BuildCache(tmp_path / "cache")

    def make(source: str = SOURCE, arch: str = "gfx942", **defines: int) -> Build:
        return hiprtc.build(source, defines or {"WIDTH": 64}, arch=arch, pool=pool, cache=fresh)

    yield make
    for name in ("bin/hipcc", "include/hip/hip_runtime.h"):
        (rocm / name).unlink(missing_ok=True)


def hipcc(rocm: Path, script: str) -> None:
    path = rocm / "bin/hipcc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_hiprtc_gets_the_architecture_the_knobs_and_stand_ins_for_its_own_headers(build: Builder) -> None:
    made = build(arch="gfx942:sramecc+:xnack-", WIDTH=64, DEPTH=3)
    assert made.ok and made.target == "rocm" and made.blob
    assert [line for line in made.log.splitlines() if line.startswith("option")] == [
        "option --offload-arch=gfx942",
        "option -O3",
        "option -std=c++17",
        "option -DDEPTH=3",
        "option -DWIDTH=64",
    ]
    assert [line for line in made.log.splitlines() if line.startswith("header")] == [
        f"header {name}" for name in rocm_source.stand_ins()
    ]


def test_resources_come_from_the_code_objects_metadata(build: Builder, cache: BuildCache) -> None:
    (kernel,) = build().kernels
    (wanted,) = amdgpu.build(SOURCE, "gfx942", {"WIDTH": 64}, cache=cache).kernels
    assert kernel.name == "twice" and kernel.lds_bytes == 256
    told = ("vgpr", "agpr", "sgpr", "lds_bytes", "scratch_bytes", "spills", "occupancy", "max_workgroup")
    assert [getattr(kernel, name) for name in told] == [getattr(wanted, name) for name in told]


def test_hiprtc_never_sees_rocms_include_folder(build: Builder, rocm: Path) -> None:
    (rocm / "include/hip").mkdir(exist_ok=True)
    (rocm / "include/hip/hip_runtime.h").write_text(
        "#error hipRTC's own header comes first, so this one redefines it\n"
    )
    log = build("#include <hip/hip_bf16.h>\n" + SOURCE).log
    assert "option -I" not in log and "header hip/hip_bf16.h" in log


def test_a_build_is_remembered_by_everything_that_decides_it(build: Builder) -> None:
    first = build()
    assert not first.cached and build().cached
    assert not build(WIDTH=32).cached
    assert not build(SOURCE + "\n").cached
    assert build(arch="gfx942:xnack+").blob == first.blob  # features are the loader's business


def test_a_wrong_source_is_data(build: Builder) -> None:
    made = build("#include <hip/hip_runtime.h>\n#error no\n")
    assert not made.ok and made.target == "rocm"
    assert made.log == "kernel.hip:2:2: error: no\n1 error generated."


REFUSED = SOURCE.replace("extern", "#pragma hipRTC refuses this\nextern")
"""A source that the stub refuses and other compilers take: as hipRTC where its header lacks a name."""


def test_a_source_that_only_hiprtc_refuses_is_built_by_the_next_route(build: Builder, rocm: Path) -> None:
    made = build(REFUSED)
    assert made.ok and made.log.startswith("built by clang, offline; hipRTC refuses the source: no such name")
    hipcc(rocm, f"cp {rocm}/made.hsaco kernel.hsaco")
    made = build(REFUSED + "//\n")
    assert made.ok and made.log == "built by hipcc; hipRTC refuses the source: no such name"


def test_what_hipcc_refuses_too_is_the_sources_fault(build: Builder, rocm: Path) -> None:
    hipcc(rocm, "echo '/build/kernel.hip:3:1: error: hipcc says so' >&2; exit 1")
    made = build(REFUSED)
    assert not made.ok and made.log == "kernel.hip:3:1: error: hipcc says so"


@pytest.mark.parametrize(
    "message",
    [
        "/opt/rocm/include/hip/amd_detail/amd_hip_fp16.h:45:12: error: redefinition of '__half_raw'",
        "kernel.hip:1:10: fatal error: 'hip/hip_runtime.h' file not found",
    ],
)
def test_headers_of_hipcc_that_fail_are_not_the_sources_fault(build: Builder, rocm: Path, message: str) -> None:
    hipcc(rocm, f'echo "{message}" >&2; exit 1')
    made = build("#include <utility>\n" + SOURCE)
    assert (
        made.ok
        and made.log.startswith("built by clang, offline; hipcc: its ")
        and message.split("error: ")[1] in made.log
    )


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ("STUB_RESULT 11", "HIPRTC_ERROR_INTERNAL_ERROR"),
        ("STUB_RESULT 5", "HIPRTC_ERROR_INVALID_OPTION"),
        ("STUB_RESULT 77", "error 77"),
        ("STUB_CRASH", "session ended"),
    ],
)
def test_a_library_that_fails_leaves_it_to_our_own_clang(build: Builder, marker: str, said: str) -> None:
    made = build(SOURCE + f"// {marker}\n")
    assert made.ok and made.target == "rocm"
    assert made.log.startswith("built by clang, offline; hipRTC: ") and said in made.log
    assert build().ok  # the pool lives


def test_code_for_another_gpu_is_not_taken(build: Builder) -> None:
    made = build(arch="gfx90a")  # the stub always hands over one for gfx942
    assert made.ok and "hipRTC: its output for gfx90a cannot be used: made for another GPU" in made.log


def test_includes_that_hiprtc_does_not_hold_go_to_hipcc(build: Builder, rocm: Path) -> None:
    hipcc(rocm, f'printf "%s\\n" "$@" >&2; cp {rocm}/made.hsaco kernel.hsaco')
    made = build("#include <utility>\n" + SOURCE)
    assert made.ok and made.log.splitlines() == [
        "--genco",
        "--no-offload-compress",
        "-O3",
        "-std=c++17",
        "--offload-arch=gfx942",
        "-DWIDTH=64",
        "kernel.hip",
        "-o",
        "kernel.hsaco",
    ]


def test_hipcc_says_whose_fault_it_is(build: Builder, rocm: Path) -> None:
    source = "#include <utility>\n" + SOURCE
    hipcc(rocm, "echo '/build/kernel.hip:3:1: error: what' >&2; exit 1")
    assert build(source).log == "kernel.hip:3:1: error: what"
    hipcc(rocm, "echo 'cannot find clang' >&2; exit 127")
    made = build(source + "//\n")
    assert made.ok and "hipcc ended with 127: cannot find clang" in made.log
    hipcc(rocm, "echo nonsense > kernel.hsaco")
    assert "neither a code object nor a bundle" in build(source + "// 2\n").log


def test_hipcc_cannot_read_what_is_not_its_own(build: Builder, rocm: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password")
    hipcc(rocm, f"cat {secret} >&2 || echo error: hidden >&2; exit 1")
    log = build("#include <utility>\n" + SOURCE).log
    assert "password" not in log and "hidden" in log


def test_without_rocm_the_offline_code_object_serves(
    build: Builder, monkeypatch: pytest.MonkeyPatch, cache: BuildCache
) -> None:
    monkeypatch.setattr(rocm_paths, "library", lambda stem: None)
    made = build()
    assert made.ok and made.target == "rocm" and made.log == ""
    assert made.blob == amdgpu.build(SOURCE, "gfx942", {"WIDTH": 64}, cache=cache).blob


def test_nothing_can_build_it(build: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolchainError, match="no compiler for gfx803: hipRTC: hipRTC failed") as caught:
        build(SOURCE + "// STUB_RESULT 11\n", arch="gfx803")
    assert "ROCm" in caught.value.hint
    monkeypatch.setattr(rocm_paths, "library", lambda stem: None)

    def missing() -> clang.Clang:
        raise ToolchainError("the ziglang wheel is not installed")

    monkeypatch.setattr(clang, "find", missing)
    with pytest.raises(ToolchainError, match="no compiler for gfx942: clang, offline: the ziglang wheel"):
        build()
    with pytest.raises(ToolchainError, match="no compiler for gfx803: none is installed"):
        build(arch="gfx803")


# ---------------------------------------------------------------- bundles


def bundled(*entries: tuple[str, bytes]) -> bytes:
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries))
    size = len(head) + sum(24 + len(name) for name, _ in entries)
    table, body = b"", b""
    for name, data in entries:
        table += struct.pack("<QQQ", size + len(body), len(data), len(name)) + name.encode()
        body += data
    return head + table + body


def test_a_bundle_gives_up_the_code_object_asked_for() -> None:
    data = bundled(
        ("host-x86_64-unknown-linux--", b""),
        ("hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-", b"\x7fELFa"),
        ("hipv4-amdgcn-amd-amdhsa--gfx942", b"\x7fELFb"),
    )
    assert bundle.extract(data, "gfx942") == b"\x7fELFb"
    assert bundle.extract(data, "gfx90a") == b"\x7fELFa"
    assert bundle.extract(b"\x7fELFplain", "gfx942") == b"\x7fELFplain"
    with pytest.raises(ValueError, match="nothing for gfx1100"):
        bundle.extract(data, "gfx1100")


def test_damaged_bundles_are_refused() -> None:
    data = bundled(("hipv4-amdgcn-amd-amdhsa--gfx942", b"\x7fELFb" * 9))
    for end in range(24, len(data)):
        with pytest.raises(ValueError):
            bundle.extract(data[:end], "gfx942")
    with pytest.raises(ValueError, match="compressed"):
        bundle.extract(b"CCOB....", "gfx942")


# ---------------------------------------------------------------- where ROCm is


def test_where_rocm_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libamdhip64.so.7").touch()
    (tmp_path / "include/hip").mkdir(parents=True)
    (tmp_path / "include/hip/hip_runtime.h").touch()
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    assert rocm_paths.roots()[0] == tmp_path
    assert rocm_paths.library("amdhip64") == tmp_path / "lib/libamdhip64.so.7"
    assert rocm_paths.headers() == tmp_path / "include"
    assert rocm_paths.version() == (7, 0)  # by the runtime's name
    (tmp_path / "include/hip/hip_version.h").write_text("#define HIP_VERSION_MAJOR 6\n#define HIP_VERSION_MINOR 3\n")
    assert rocm_paths.version() == (6, 3)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "absent"))
    assert tmp_path not in rocm_paths.roots()


ACCUMULATORS = """#include <hip/hip_runtime.h>
extern "C" __global__ void __launch_bounds__(256) hold(float* x) {
    float a, b;
    asm volatile("v_accvgpr_write_b32 %0, %1" : "=a"(a) : "v"(x[threadIdx.x]));
    asm volatile("v_accvgpr_read_b32 %0, %1" : "=v"(b) : "a"(a));
    x[threadIdx.x] = b;
}
"""


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_accumulators_are_counted_apart(cache: BuildCache, target: str) -> None:
    made = amdgpu.build(ACCUMULATORS, target, {}, cache=cache)
    assert made.ok, made.log
    (found,), (wanted,) = bundle.resources(cache.get(made.blob), target), made.kernels
    assert found.agpr == wanted.agpr > 0
    assert (found.vgpr, found.occupancy, found.max_workgroup) == (wanted.vgpr, wanted.occupancy, 256)
