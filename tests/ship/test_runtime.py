"""The copied files of a package: builds by NVRTC and a substitute for hipRTC, the cache, launches through a stub
driver.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hipwright.program.signature import parse_signatures
from hipwright.ship.runtime import build, gpu
from hipwright.ship.torch_op import _param
from hipwright.toolchain import device_headers
from tests.rocm.conftest import compile_c
from tests.ship import subjects
from tests.ship.shipping import files, write

TESTS = Path(__file__).parents[1]


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The build module of a shipped package, with its own cache."""
    write(tmp_path, files("shipped_build", subjects.SCALE_TASK, subjects.SCALE))
    monkeypatch.setenv("HIPWRIGHT_OPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    sys.modules.pop("shipped_build", None)
    spec = importlib.util.spec_from_file_location("shipped_build_only", tmp_path / "src/shipped_build/build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_nvrtc_builds_what_was_shipped_and_the_cache_keeps_it(packed: Any, tmp_path: Path) -> None:
    try:
        packed.nvrtc()
    except packed.BuildError:
        pytest.skip("no NVRTC")
    source = (tmp_path / "src/shipped_build/kernels.hip").read_text()
    code = packed.build(source, {"BLOCK": 64}, "sm_90")
    assert code[:4] == b"\x7fELF" and b"back_w" in code
    kept = list((tmp_path / "cache").iterdir())
    assert len(kept) == 1
    packed._by_nvrtc = None  # a second build would call it
    assert packed.build(source, {"BLOCK": 64}, "sm_90") == code
    kept[0].write_bytes(kept[0].read_bytes()[:-1])  # truncated: not used
    with pytest.raises(TypeError):
        packed.build(source, {"BLOCK": 64}, "sm_90")


def test_a_kernel_named_like_a_cuda_function_is_renamed(packed: Any) -> None:
    try:
        packed.nvrtc()
    except packed.BuildError:
        pytest.skip("no NVRTC")
    source = '#include <hip/hip_runtime.h>\nextern "C" __global__ void norm(float* x) { x[0] = 1.f; }\n'
    assert b"hw_norm" in packed.build(source, {}, "sm_90")
    with pytest.raises(packed.BuildError, match=r"kernels\.hip\(2\)"):
        packed.build("#include <hip/hip_runtime.h>\nint x = nonsense;\n", {}, "sm_90")


def test_hiprtc_gets_the_source_and_only_headers_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code").write_bytes(b"object")
    flag = f'-DCODE_FILE="{tmp_path / "code"}"'
    stub = compile_c(TESTS / "rocm" / "stub_hiprtc.c", tmp_path / "libhiprtc.so", flag)
    monkeypatch.setenv("HIPWRIGHT_OPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "_hiprtc", lambda: stub)
    monkeypatch.setattr(build, "_hipcc", lambda: None)
    source = "#include <hip/hip_runtime.h>\n#include <hipwright/bfloat16_type.h>\n"
    assert build.build(device_headers.inlined(source), {"N": 1}, "gfx942") == b"object"
    with pytest.raises(build.BuildError, match="hipRTC refuses"):
        build.build("#error no", {}, "gfx942")
    with pytest.raises(build.BuildError, match="no HIP compiler"):
        build.build(source + "#include <tuple>\n", {}, "gfx942")


def test_a_launch_passes_everything_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = compile_c(TESTS / "device" / "stub_cuda.c", tmp_path / "libcuda.so.1")
    monkeypatch.setattr(gpu, "CUDA_LIBRARY", str(stub))
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0x5566778899AABBCC, raising=False)
    seen = ctypes.CDLL(str(stub))
    seen.stub_first.restype = seen.stub_stream.restype = ctypes.c_uint64
    driver = gpu.Driver(0)
    function = driver.function(driver.load(b"code"), "k")
    signature = parse_signatures('extern "C" __global__ void k(float* x, int n) {}').signatures["k"]
    kernel = gpu.Kernel("k", [_param(p) for p in signature.params], function, driver, torch.device("cpu"))
    x = torch.zeros(4)
    kernel((5, 3), 64, 100_000, x, -5)
    assert [seen.stub_geometry(i) for i in range(7)] == [5, 3, 1, 64, 1, 1, 100_000]
    assert (seen.stub_first(), seen.stub_second(), seen.stub_stream()) == (x.data_ptr(), -5, 0x5566778899AABBCC)
    assert seen.stub_attribute(1) == 100_000  # more than 48 KiB has to be requested
    kernel(0, 64, 0, x, 7)
    assert seen.stub_second() == -5  # an empty grid launches nothing
    with pytest.raises(gpu.LaunchError, match="x wants float32 on cpu"):
        kernel(1, 64, 0, x.double(), 7)
    with pytest.raises(gpu.LaunchError, match="does not fit"):
        kernel(1, 64, 0, x, 2**31)
    seen.stub_fail(0, 701)
    with pytest.raises(gpu.LaunchError, match="error 701"):
        kernel(1, 64, 0, x, 7)
    seen.stub_fail(0, 201)  # a thread without a context: entered, and launched again
    before = seen.stub_counts(0)
    kernel(1, 64, 0, x, 9)
    assert seen.stub_second() == 9 and seen.stub_counts(0) == before + 1
    assert driver.function(driver.load(b"code"), "norm")  # by the name that `build` gave it


def test_bfloat16_scalars_are_rounded() -> None:
    assert [gpu._bfloat16_bits(v) for v in (1.0, -2.0, 1.00390625)] == [0x3F80, 0xC000, 0x3F80]
