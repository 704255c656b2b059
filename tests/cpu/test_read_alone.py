# ruff: noqa: E501 - small kernels read best in one line
"""What a launch only reads is not watched for races; the rest is, and a write there from elsewhere is refused."""

from __future__ import annotations

import pytest
import torch

from hipwright.errors import CandidateError

DEVICE = "__HIP_MEMORY_SCOPE_AGENT"
READERS = r"""
extern "C" __global__ void plain(const float* x, float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x]; }
extern "C" __global__ void not_const(float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
extern "C" __global__ void aligned(const float* x, float* y) {
    if ((size_t)x % 16 == 0) { float4 v = *(const float4*)(x + threadIdx.x * 4); y[threadIdx.x] = v.x + v.w; } else y[threadIdx.x] = x[threadIdx.x * 4];
}
extern "C" __global__ void chosen(const float* x, const float* z, float* y) { const float* p = threadIdx.x % 2 ? x : z; y[threadIdx.x] = p[threadIdx.x]; }
extern "C" __global__ void walked(const int* next, const float* x, float* y, int n) {
    const float* p = x; float s = 0;
    for (int i = 0; i < n; i++) { s += *p; p += next[i]; }
    y[threadIdx.x] = s;
}
extern "C" __global__ void copied(const float* x, float* y) { __builtin_memcpy(y + threadIdx.x * 64, x + threadIdx.x * 64, 256); }
"""
WRITERS = r"""
extern "C" __global__ void chosen_to_write(float* x, float* y) { float* p = threadIdx.x % 2 ? x : y; p[threadIdx.x] = 1; }
extern "C" __global__ void cast_away(const float* x, float* y) { ((float*)x)[threadIdx.x] = y[threadIdx.x]; }
extern "C" __global__ void added(const float* x, float* y) { atomicAdd(y, x[threadIdx.x]); }
extern "C" __global__ void read_by_an_atomic(float* x, float* y) { y[threadIdx.x] = __hip_atomic_load(x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
"""
CALLED = r"""
__device__ __noinline__ void put(float* p, float v) { p[threadIdx.x] = v; }
extern "C" __global__ void by_a_function(const float* x, float* y) { put(y, x[threadIdx.x]); }
"""
FROM_MEMORY = r"""
extern "C" __global__ void from_memory(float* x, float* y, int n) {
    float* p[2] = {x, y}; float** q = p;
    for (int i = 0; i < n; i++) q[i % 2][threadIdx.x] = i;
}
extern "C" __global__ void beside_it(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
"""
FROM_INTEGERS = r"""
extern "C" __global__ void from_integers(float* x, float* y, size_t m) { ((float*)(((size_t)x & m) | ((size_t)y & ~m)))[threadIdx.x] = 1; }
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (READERS, {"plain": [0], "not_const": [0], "aligned": [0], "chosen": [0, 1], "walked": [0, 1], "copied": [0]}),
        (WRITERS, {"chosen_to_write": [], "cast_away": [1], "added": [0], "read_by_an_atomic": []}),
        (CALLED, {"by_a_function": [0]}),
        (FROM_MEMORY, {"from_memory": [], "beside_it": []}),
        (FROM_INTEGERS, {"from_integers": []}),
    ],
    ids=["readers", "writers", "called", "from_memory", "from_integers"],
)
def test_parameters_that_are_only_read(gpu, source: str, expected: dict[str, list[int]]) -> None:
    kernels = gpu.load(source, checked=True)._built.meta["kernels"]
    assert {name: kernels[name].get("read_alone", []) for name in expected} == expected


def test_one_memory_under_two_parameters_is_watched(gpu) -> None:
    source = 'extern "C" __global__ void k(const float* x, float* y) { int i = threadIdx.x; y[i] = x[(i + 1) % 64]; }'
    gpu.run(source, "k", 1, 64, [torch.randn(64), torch.zeros(64)], checked=True)
    launcher = gpu.load(source, checked=True)
    x = launcher.guard(torch.randn(64))
    with pytest.raises(CandidateError, match="data race"):
        launcher.launch("k", (1, 1, 1), (64, 1, 1), 0, [x, x])


def test_a_write_through_the_pointer_of_another_argument(gpu) -> None:
    source = 'extern "C" __global__ void k(const float* x, float* y, long d) { y[d + threadIdx.x] = x[threadIdx.x]; }'
    launcher = gpu.load(source, checked=True)
    x, y = launcher.guard(torch.randn(64)), launcher.guard(torch.zeros(64))
    distance = (x.data_ptr() - y.data_ptr()) // 4
    with pytest.raises(CandidateError, match="through the pointer of another argument") as caught:
        launcher.launch("k", (1, 1, 1), (64, 1, 1), 0, [x, y, distance])
    assert caught.value.status == "out_of_bounds"
    assert (caught.value.evidence["argument"], caught.value.evidence["kind"]) == ("x", "write")


def test_reads_of_what_all_read_cost_no_preemptions(gpu) -> None:
    body = "float s = 0; for (int i = 0; i < 256; i++) s += x[i]; y[blockIdx.x * 64 + threadIdx.x] = s;"
    load = f"int v = __hip_atomic_load(count, __ATOMIC_RELAXED, {DEVICE});"
    store = f"__hip_atomic_store(count, v + 1, __ATOMIC_RELAXED, {DEVICE});"
    head = "const float* x, float* y, int* count"
    source = f'extern "C" __global__ void k({head}) {{ {body} if (blockIdx.x == gridDim.x - 1) {{ {load} {store} }} }}'
    left = []
    for seed in range(6):
        count = torch.zeros(1, dtype=torch.int32)
        gpu.run(
            source, "k", 4, 64, [torch.randn(256), torch.zeros(256), count], checked=True, order="shuffle", seed=seed
        )
        left.append(count.item())
    assert max(left) < 64, f"in every run some update is lost: {left}"
