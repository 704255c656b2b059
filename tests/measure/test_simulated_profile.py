"""Profiles by a simulated GPU: counts against arithmetic on planted kernels, the models of caches and banks."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from hipwright.device.sim.launcher import FirstBlocks, SimLauncher
from hipwright.measure.profiling.cycles import product_cycles
from hipwright.measure.profiling.simulated import BASIS, launch_profile
from hipwright.program.signature import parse_signatures
from hipwright.records import Build
from hipwright.targets import OFFLINE, TARGETS
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.sim import build as sim
from hipwright.toolchain.sim import runtime
from tests import warm

CACHE = BuildCache(Path(tempfile.gettempdir()) / "hipwright-engine-tests")
TARGET = "gfx942@sim"
PROGRAMS = Path(__file__).parents[1] / "rocm"
KERNELS = """
#include <hip/hip_runtime.h>
extern "C" __global__ void copy(const float* x, float* y, int step) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[(long long)i * step];
}
extern "C" __global__ void banks(const float* x, float* y, int step) {
    __shared__ float kept[64 * 33];
    for (int k = threadIdx.x; k < 64 * 33; k += 64) kept[k] = x[k % 64];
    __syncthreads();
    y[threadIdx.x] = kept[threadIdx.x * step];
}
extern "C" __global__ void table(const float* x, float* y, int step) {
    float sum = 0.0f;
    for (int k = 0; k < 4; k++) sum += x[threadIdx.x];
    for (int k = 0; k < step; k++) for (int j = 0; j < 16; j++) sum = sum * 1.5f + 1.0f;
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
extern "C" __global__ void steps(const float* x, float* y, int step) {
    int a = step, b = 1;
    for (int k = 0; k < step; k++) { a = (a ^ b) + k; b = (b << 1) ^ a; }
    if (threadIdx.x == 0) y[blockIdx.x * blockDim.x] = a + b;
}
extern "C" __global__ void lame(const float* x, float* y, int step) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x % 64 < 16) for (int k = 0; k < 100; k++) y[i] = y[i] * 1.25f + x[i];
}
typedef float four __attribute__((ext_vector_type(4)));
extern "C" __global__ void products(const float* x, float* y, int step) {
    four sum = {0.0f, 0.0f, 0.0f, 0.0f};
    const float* z = x + threadIdx.x;
    for (int k = 0; k < 8; k++) sum = __builtin_amdgcn_mfma_f32_16x16x4f32(*z, z[k], sum, 0, 0, 0);
    y[threadIdx.x] = sum[0] + sum[1] + sum[2] + sum[3];
}
"""


@pytest.fixture(scope="module")
def build() -> Build:
    made = sim.build(KERNELS, TARGET, {}, cache=CACHE)
    assert made.ok, made.log
    return made


def profile(build: Build, kernel: str, blocks: int, threads: int, step: int, first: FirstBlocks | None = None) -> Any:
    """The Profile of one launch, and its counts."""
    launcher = SimLauncher(
        str(runtime.library(CACHE)),
        str(CACHE.path(build.blob)),
        parse_signatures(KERNELS).signatures,
        profiled=TARGETS[TARGET].architecture,
        first=first,
    )
    x, y = torch.ones(max(blocks * threads * max(step, 1), 4096)), torch.zeros(blocks * threads)
    launcher.launch(kernel, (blocks, 1, 1), (threads, 1, 1), 0, [x, y, step])
    (counted,) = launcher.counted
    known = next(one for one in build.kernels if one.name == kernel)
    return launch_profile(0, counted, known, TARGET), counted


def test_a_coalesced_copy_moves_what_it_must(build: Build) -> None:
    found, counted = profile(build, "copy", 64, 256, 1)
    size = 4 * 64 * 256
    assert (found.dram_read_bytes, found.dram_write_bytes, found.coalescing_pct) == (size, size, 100.0)
    assert found.waves == 64 * 4 and found.lanes_pct == 100.0 and found.instructions["vmem_load"] == found.waves
    assert found.waits["memory"] == found.waves and "lds" not in found.waits
    assert found.basis == BASIS == "ESTIMATE (SIMULATED)" and found.device == "gfx942 (simulated)"
    assert found.occupancy_pct == pytest.approx(100 * 256 / (304 * 4 * 8)) and found.occupancy_limit_pct == 100.0
    moved = 2 * size / OFFLINE["gfx942"].bandwidth * 1e6
    assert found.duration_us == pytest.approx(max(moved, found.duration_us)) and found.duration_us >= moved
    assert counted["l2_hit"] == 0 and counted["fetched"] == counted["written"] == size // 128


@pytest.mark.parametrize(("step", "lines", "share"), [(1, 2, 100.0), (2, 4, 50.0), (8, 16, 12.5), (32, 64, 3.125)])
def test_strides_touch_more_lines(build: Build, step: int, lines: int, share: float) -> None:
    _, counted = profile(build, "copy", 4, 64, step)
    (load,) = (row for row in counted["instructions"] if row["text"].startswith("global_load"))
    assert (load["runs"], load["lines"], load["bytes"]) == (4, 4 * lines, 4 * 256)
    assert 100 * load["ideal_lines"] / load["lines"] == share


@pytest.mark.parametrize(("step", "cycles"), [(1, 2), (2, 4), (32, 64), (33, 2), (0, 2)])
def test_bank_conflicts(build: Build, step: int, cycles: int) -> None:
    """64 lanes read words at multiples of `step`: 32 at a time, a cycle for each word of the fullest bank."""
    found, counted = profile(build, "banks", 1, 64, step)
    read = next(row for row in counted["instructions"] if row["text"].startswith("ds_read"))
    assert (read["runs"], read["lds_cycles"], read["lds_ideal"]) == (1, cycles, 2)
    assert (found.lds_bank_conflicts > 0) == (cycles > 2) and found.waits["barrier"] == 1


def test_caches_keep_what_blocks_share(build: Build) -> None:
    """32 blocks on 8 dies read 1 KiB each: from memory once a die, from L2 once a block, else from L1."""
    found, counted = profile(build, "table", 32, 256, 10)
    assert found.dram_read_bytes == 8 * 1024 and counted["fetched"] == 64
    assert counted["l2_hit"] >= 24 * 8 and counted["l1_miss"] == 32 * 8


def test_scalar_work_has_a_name(build: Build) -> None:
    found, _ = profile(build, "steps", 304 * 8, 64, 60)
    assert found.bottleneck.text == "compute bound: scalar instructions take longest by the model"


def test_the_first_blocks_stand_for_all(build: Build) -> None:
    """Counts of the second half of the first 32 blocks, times 304 / 16, are those of all 304, as is what shared lines
    bring: the first half has read them."""
    whole, _ = profile(build, "table", 304, 256, 5)
    part, counted = profile(build, "table", 304, 256, 5, FirstBlocks(threads=1, least=32, most=32))
    assert counted["blocks"] == 16 and counted["waves"] == 16 * 4
    assert part.instructions == whole.instructions and part.waves == whole.waves
    assert part.dram_write_bytes == whole.dram_write_bytes and part.dram_read_bytes == 0.0 < whole.dram_read_bytes
    assert part.duration_us == pytest.approx(whole.duration_us, rel=0.2)


def test_loads_that_wait_together_stall_once(build: Build) -> None:
    """Both loads of a turn of `lame` are in flight at once: a stall for them, and the wait for the second is none."""
    _, counted = profile(build, "lame", 1, 64, 0)
    waits, stalls = (sum(row[name] for row in counted["instructions"]) for name in ("wait_memory", "stall_memory"))
    assert 0 < stalls <= waits
    _, single = profile(build, "copy", 4, 64, 1)
    assert sum(row["stall_memory"] for row in single["instructions"]) == 4


def test_few_blocks_take_as_long_as_many(build: Build) -> None:
    """Up to as many blocks as fit at once, a launch takes one block's time; then more rounds take longer."""
    one, fit, more = (profile(build, "table", blocks, 256, 20)[0].duration_us for blocks in (1, 304, 304 * 12))
    assert one == pytest.approx(fit, rel=0.3) and more > 1.3 * fit  # a lone block finds nothing in L2


def test_idle_lanes_and_arithmetic(build: Build) -> None:
    found, _ = profile(build, "lame", 4, 256, 0)
    assert found.lanes_pct < 60.0
    few, many = (profile(build, "table", 304, 256, step)[0] for step in (10, 200))
    assert many.instructions["valu"] - few.instructions["valu"] >= 190 * 16 * many.waves
    cycles = 4 * many.instructions["valu"] / (304 * 4)  # 16 lanes of 64 a cycle, four SIMDs a CU
    least = cycles / OFFLINE["gfx942"].clock_hz * 1e6
    assert least <= many.duration_us <= 1.5 * least
    assert many.bottleneck.text.startswith("compute bound: the vector ALUs are busy ")


def test_matrix_instructions_take_what_the_datasheet_says(build: Build) -> None:
    gfx942 = OFFLINE["gfx942"]
    rate = gfx942.flops["float16"] / (gfx942.clock_hz * gfx942.cus * gfx942.simds_per_cu)
    cycles = product_cycles("v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]", gfx942)
    assert cycles == pytest.approx(2 * 32 * 32 * 8 / rate) and cycles == pytest.approx(32, rel=0.01)
    assert product_cycles("v_mfma_f32_4x4x4_16b_f16 a[0:3], v[0:1], v[2:3], a[0:3]", gfx942) > 0
    assert product_cycles("v_add_f32 v0, v1, v2", gfx942) == 0
    found, _ = profile(build, "products", 1, 64, 0)
    assert found.instructions["mfma"] == 8 and found.matrix_pct > 0
    assert found.bottleneck.text.startswith("latency: 1 blocks cannot fill 304 CUs")


def test_a_profiled_launch_computes_the_same(build: Build) -> None:
    library, code = str(runtime.library(CACHE)), str(CACHE.path(build.blob))
    out = []
    for profiled in (None, TARGETS[TARGET].architecture):
        launcher = SimLauncher(library, code, parse_signatures(KERNELS).signatures, profiled=profiled)
        x, y = torch.randn(512), torch.zeros(512)
        torch.manual_seed(1)
        x.normal_()
        launcher.launch("lame", (2, 1, 1), (256, 1, 1), 0, [x, y, 0])
        out.append(y)
        assert bool(launcher.counted) == (profiled is not None)
    assert torch.equal(*out)


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    words = ["profile", PROGRAMS / "tasks/twice.py", PROGRAMS / "programs/right.py", "--target", TARGET]
    found = json.loads(warm.hipwright(tmp_path, *words, "--json").stdout)
    (one,) = found["profiles"]
    assert (one["kernel"], one["basis"], found["tool"]) == ("twice", BASIS, BASIS) and found["contained"]
    assert one["dram_read_bytes"] == one["dram_write_bytes"] == 128 * 19  # 600 floats
    done = warm.hipwright(tmp_path, *words)
    assert "ESTIMATE (SIMULATED): gfx942 (simulated)" in done.stdout and "no GPU ran" in done.stdout
    assert "MEASURED" not in done.stdout and "instructions: valu" in done.stdout
