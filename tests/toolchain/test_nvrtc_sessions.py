"""NVRTC sessions with hostile sources and on broken machines, without a GPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hipwright.errors import BadInput, ToolchainError, WorkerError
from hipwright.records import Build
from hipwright.toolchain import pool
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.nvidia import nvrtc
from hipwright.toolchain.pool import COMPILE_LIMIT_S, CompilePool

HEAD = "#include <hip/hip_runtime.h>\n"
SIMPLE = HEAD + 'extern "C" __global__ void scale(const float* x, float* y, int n) { y[threadIdx.x] = x[n] * SCALE; }\n'


Compile = Callable[..., Build]


@pytest.mark.parametrize(
    "text",
    ['#include "/etc/passwd"\n', "#include <../../../../etc/passwd>\n", "#define F </etc/passwd>\n#include F\n"],
)
def test_files_outside_are_out_of_reach(compile_: Compile, text: str) -> None:
    build = compile_(HEAD + text)
    assert not build.ok
    assert "root:" not in build.log
    assert "refused" in build.log or "cannot open source file" in build.log


def test_a_session_survives_wrong_sources_and_is_replaced_in_time(
    compilers: CompilePool, cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "RECYCLE", 2)
    for i in range(5):
        wrong = nvrtc.build(f"{HEAD}// {i}\nnonsense;\n", {}, arch="sm_90", pool=compilers, cache=cache)
        right = nvrtc.build(SIMPLE, {"SCALE": 100 + i}, arch="sm_90", pool=compilers, cache=cache)
        assert (wrong.ok, right.ok) == (False, True)


def test_compiles_run_side_by_side_and_a_closed_pool_refuses(cache: BuildCache) -> None:
    with nvrtc.zygote() as zygote:
        with CompilePool(zygote, 2) as two, ThreadPoolExecutor(4) as threads:
            jobs = [
                threads.submit(nvrtc.build, SIMPLE, {"SCALE": 1000 + i}, arch="sm_90", pool=two, cache=cache)
                for i in range(6)
            ]
            assert all(job.result().ok for job in jobs)
            assert len(two._idle) == 2
        with pytest.raises(WorkerError, match="closed"):
            nvrtc.build(SIMPLE, {"SCALE": 2000}, arch="sm_90", pool=two, cache=cache)
        with pytest.raises(ValueError, match="at least one"):
            CompilePool(zygote, 0)


@pytest.mark.parametrize("after", [0.0, 0.1, 0.4])
def test_a_pool_that_is_closed_while_it_warms_leaves_nothing_behind(after: float) -> None:
    """A session started after the close would start the zygote again, which nobody would end."""
    with nvrtc.zygote() as zygote, CompilePool(zygote, 4) as pool:
        nvrtc.warm(pool, "sm_90")
        time.sleep(after)
        pool.close()
        zygote.close()
        time.sleep(0.2)
        assert zygote._process is None and not pool._idle
        assert not [t for t in threading.enumerate() if t.name == "warm compilers" and t.is_alive()]


def test_an_endless_compile_is_stopped_and_not_remembered(
    compilers: CompilePool, cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilers, "limit_s", 2.0)
    text = HEAD + (
        "constexpr long spin(long n) { long s = 0; for (long i = 0; i < n; ++i) for (long j = 0; j < n; ++j) s += j;"
        " return s; }\ntemplate <int n> struct A { static constexpr long v = 2 * A<n - 1>::v + spin(900 + n); };"
        "\ntemplate <> struct A<0> { static constexpr long v = 1; };\n__device__ long q = A<180>::v;\n"
    )
    build = nvrtc.build(text, {}, arch="sm_90", pool=compilers, cache=cache)
    assert not build.ok
    if "stopped after" in build.log:  # a compiler that gives up in time is accepted too
        assert not nvrtc.build(text, {}, arch="sm_90", pool=compilers, cache=cache).cached
    assert nvrtc.build(SIMPLE, {"SCALE": 7}, arch="sm_90", pool=compilers, cache=cache).ok


def test_streaming_accesses_are_told_to_the_caches(compilers: CompilePool) -> None:
    hip = HEAD + (
        'struct Pair { float a, b; };\nextern "C" __global__ void f(const float4* p, float4* q, Pair* o, double* d) {\n'
        "    __builtin_nontemporal_store(__builtin_nontemporal_load(p), q);\n    __builtin_nontemporal_store(3, d);\n"
        "    o[1] = __builtin_nontemporal_load(o);\n}\n"
    )
    done, log, text = nvrtc.listing(hip, "", "sm_90", compilers)
    assert done, log
    assert "ld.global.cs.v4.u32" in text and "st.global.cs.v4.u32" in text and "st.global.cs.v2.u32" in text
    assert text.count(".cs.") == 3  # no single access holds the pair, which is aligned to 4 bytes


def test_killed_compiles_cost_the_others_their_sessions_only_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hipwright.toolchain.pool.KILLS", 2)
    with nvrtc.zygote() as zygote, CompilePool(zygote, 2) as pool:

        def build(scale: int) -> Build:
            return nvrtc.build(SIMPLE, {"SCALE": scale}, arch="sm_90", pool=pool, cache=BuildCache(tmp_path))

        def kill(scale: int) -> None:
            pool.limit_s = 1e-4
            assert "stopped after" in build(scale).log
            pool.limit_s = COMPILE_LIMIT_S

        pool.warm(nvrtc.SERVICE, nvrtc._init("sm_90")).join()
        assert len(pool._idle) == 2
        kill(8)
        assert len(pool._idle) == 1  # the other session is unchanged
        kill(9)
        assert not pool._idle  # the zygote has ended, and its /tmp with it
        assert build(8).ok


def test_no_such_architecture(compile_: Compile) -> None:
    with pytest.raises(BadInput, match="gfx942"):
        compile_(SIMPLE, "gfx942")


def test_no_nvrtc_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_libraries", lambda: iter(()))
    nvrtc.find.cache_clear()
    with pytest.raises(ToolchainError) as caught:
        nvrtc.find()
    assert "pip install nvidia-cuda-nvrtc" in caught.value.hint
    monkeypatch.undo()
    nvrtc.find.cache_clear()
    assert nvrtc.find().id.startswith("nvrtc ")


def test_a_library_without_headers_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvrtc, "_includes", lambda library: iter((tmp_path,)))
    nvrtc.find.cache_clear()
    with pytest.raises(ToolchainError, match="cuda_fp16"):
        nvrtc.find()
    monkeypatch.undo()
    nvrtc.find.cache_clear()
