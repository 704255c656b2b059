# ruff: noqa: E501 - small kernels read best in one line
"""Atomics order what their order and scope, or fences around them, say, and nothing else; threads are preempted."""

from __future__ import annotations

import pytest
import torch

from hipwright.errors import CandidateError

ORDERS = ["forward", "reverse", "shuffle"]
DEVICE, BLOCK = "__HIP_MEMORY_SCOPE_AGENT", "__HIP_MEMORY_SCOPE_WORKGROUP"


def message(release: str, publish: str, look: str, acquire: str) -> str:
    """Block 0 publishes y[0]; block 1 waits for it and reads it. The four parts are statements and expressions."""
    return f"""
extern "C" __global__ void k(int* y, int* flag) {{
    if (blockIdx.x == 0) {{
        if (threadIdx.x == 0) {{ y[0] = 7; {release} {publish}; }}
    }} else {{
        if (threadIdx.x == 0) {{ while ({look} == 0) {{}} {acquire} y[1] = y[0] + 1; }}
    }}
}}
"""


def store(order: str, scope: str = DEVICE) -> str:
    return f"__hip_atomic_store(flag, 1, __ATOMIC_{order}, {scope})"


def load(order: str, scope: str = DEVICE) -> str:
    return f"__hip_atomic_load(flag, __ATOMIC_{order}, {scope})"


ORDERED = {
    "release_acquire": message("", store("RELEASE"), load("ACQUIRE"), ""),
    "fences": message("__threadfence();", store("RELAXED"), load("RELAXED"), "__threadfence();"),
    "release_fence": message("", store("RELEASE"), load("RELAXED"), "__threadfence();"),
    "fence_acquire": message("__threadfence();", store("RELAXED"), load("ACQUIRE"), ""),
    "read_modify_write": message("__threadfence();", "atomicExch(flag, 1)", "atomicAdd(flag, 0)", "__threadfence();"),
    "seq_cst": message("", store("SEQ_CST"), load("SEQ_CST"), ""),
    "system": message("__threadfence_system();", store("RELAXED"), load("RELAXED"), "__threadfence_system();"),
    "c11": message("", "__atomic_store_n(flag, 1, __ATOMIC_RELEASE)", "__atomic_load_n(flag, __ATOMIC_ACQUIRE)", ""),
    "c11_fences": message(
        "__atomic_thread_fence(__ATOMIC_RELEASE);",
        "__atomic_store_n(flag, 1, __ATOMIC_RELAXED)",
        "__atomic_load_n(flag, __ATOMIC_RELAXED)",
        "__atomic_thread_fence(__ATOMIC_ACQUIRE);",
    ),
    "builtin_fences": message(
        '__builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");',
        store("RELAXED"),
        load("RELAXED"),
        '__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");',
    ),
    "plain_reset": message("", store("RELEASE"), load("ACQUIRE"), "*flag = 0;"),
}
UNORDERED = {
    "relaxed": message("", store("RELAXED"), load("RELAXED"), ""),
    "hip_atomics": message("", "atomicExch(flag, 1)", "atomicAdd(flag, 0)", ""),
    "no_release": message("", store("RELAXED"), load("ACQUIRE"), ""),
    "no_acquire": message("", store("RELEASE"), load("RELAXED"), ""),
    "fence_after_the_flag": message("", store("RELAXED") + "; __threadfence()", load("ACQUIRE"), ""),
    "block_fence": message("__threadfence_block();", store("RELAXED"), load("ACQUIRE"), ""),
    "block_fence_on_the_other_side": message("", store("RELEASE"), load("RELAXED"), "__threadfence_block();"),
    "acquire_fence_for_release": message(
        '__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");', store("RELAXED"), load("ACQUIRE"), ""
    ),
    "workgroup_fence": message(
        '__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");', store("RELAXED"), load("ACQUIRE"), ""
    ),
    "block_scope": message("", store("RELEASE", BLOCK), load("ACQUIRE", BLOCK), ""),
    "block_scope_on_one_side": message("", store("RELEASE"), load("ACQUIRE", BLOCK), ""),
    "volatile": message("__threadfence();", "*(volatile int*)flag = 1", "*(volatile int*)flag", "__threadfence();"),
    "c11_relaxed": message(
        "", "__atomic_store_n(flag, 1, __ATOMIC_RELAXED)", "__atomic_load_n(flag, __ATOMIC_ACQUIRE)", ""
    ),
}


def publish(gpu, source: str, order: str) -> torch.Tensor:
    y, flag = torch.zeros(2, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    gpu.run(source, "k", 2, 32, [y, flag], checked=True, order=order, seed=3)
    return y


@pytest.mark.parametrize("name", ORDERED)
def test_what_is_ordered_passes(gpu, name: str) -> None:
    for order in ORDERS:
        assert publish(gpu, ORDERED[name], order).tolist() == [7, 8]


@pytest.mark.parametrize("name", UNORDERED)
def test_what_is_not_ordered_is_a_race(gpu, name: str) -> None:
    for order in ORDERS:
        with pytest.raises(CandidateError) as caught:
            publish(gpu, UNORDERED[name], order)
        assert caught.value.status == "nondeterministic"
        assert "data race" in caught.value.message


LAST_BLOCK = """
extern "C" __global__ void k(const int* x, int* part, int* count, int* y) {
    __shared__ bool last;
    int b = blockIdx.x, t = threadIdx.x;
    part[b * 64 + t] = x[b * 64 + t];
    BEFORE
    if (t == 0) { INSIDE last = atomicAdd(count, 1) == (int)gridDim.x - 1; }
    __syncthreads();
    AFTER
    if (last) {
        int sum = 0;
        for (int i = t; i < (int)gridDim.x * 64; i += 64) sum += part[(i + 64) % ((int)gridDim.x * 64)];
        for (int o = 32; o; o >>= 1) sum += __shfl_xor(sum, o);
        if (t == 0) { y[0] = sum; *count = 0; }
    }
}
"""


@pytest.mark.parametrize(
    ("before", "inside", "after", "ordered"),
    [
        ("__syncthreads();", "__threadfence();", "__threadfence();", True),
        ("__threadfence(); __syncthreads();", "", "", True),
        ("__threadfence(); __syncwarp();", "", "", True),
        ("__threadfence();", "__threadfence();", "", False),  # nothing between the others' fences and the count
        ("__syncthreads();", "", "__threadfence();", False),
        ("__syncthreads();", "__threadfence_block();", "__threadfence();", False),
        ("__syncthreads(); __threadfence_block();", "", "", False),
        ("", "__threadfence();", "__threadfence();", False),
    ],
)
def test_a_last_block_needs_a_fence_between_all_writes_and_the_count(
    gpu, before: str, inside: str, after: str, ordered: bool
) -> None:
    source = LAST_BLOCK.replace("BEFORE", before).replace("INSIDE", inside).replace("AFTER", after)
    x = torch.arange(5 * 64, dtype=torch.int32)
    for order in ORDERS:
        y = torch.zeros(1, dtype=torch.int32)
        args = [x, torch.zeros(5 * 64, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), y]
        if ordered:
            gpu.run(source, "k", 5, 64, args, checked=True, order=order, seed=5)
            assert y.item() == x.sum().item()
        else:
            with pytest.raises(CandidateError, match="data race"):
                gpu.run(source, "k", 5, 64, args, checked=True, order=order, seed=5)


def test_order_is_transitive_over_blocks(gpu) -> None:
    source = """
extern "C" __global__ void k(int* y, int* flag) {
    int b = blockIdx.x;
    if (b) while (__hip_atomic_load(flag + b - 1, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) {}
    int sum = 1;
    for (int i = 0; i < b; i++) sum += y[i];
    y[b] = sum;
    __hip_atomic_store(flag + b, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
}
"""
    for order in ORDERS:
        y, flag = torch.zeros(9, dtype=torch.int32), torch.zeros(9, dtype=torch.int32)
        gpu.run(source, "k", 9, 1, [y, flag], checked=True, order=order, seed=2)
        assert y.tolist() == [2**i for i in range(9)]


LOST = {
    "load_and_store": "int v = LOAD; STORE(v + 1);",
    "load_and_store_of_other_lanes": "if (threadIdx.x % 2) { int v = LOAD; STORE(v + 1); } else { int v = LOAD; STORE(v + 1); }",
    "compare_and_swap_without_a_loop": "int v = LOAD; atomicCAS(count, v, v + 1);",
    "exchange": "int v = LOAD; atomicExch(count, v + 1);",
}


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize(("grid", "block"), [(1, 64), (8, 1)])
@pytest.mark.parametrize("name", LOST)
def test_updates_are_lost_where_they_can_be(gpu, name: str, grid: int, block: int, checked: bool) -> None:
    body = LOST[name].replace("LOAD", f"__hip_atomic_load(count, __ATOMIC_RELAXED, {DEVICE})")
    body = body.replace("STORE(v + 1)", f"__hip_atomic_store(count, v + 1, __ATOMIC_RELAXED, {DEVICE})")
    source = f'extern "C" __global__ void k(int* count) {{ {body} }}'
    for seed in range(3):
        count = torch.zeros(1, dtype=torch.int32)
        gpu.run(source, "k", grid, block, [count], checked=checked, order="shuffle", seed=seed)
        assert 0 < count.item() < grid * block
    loop = f'extern "C" __global__ void k(int* count) {{ int v = __hip_atomic_load(count, __ATOMIC_RELAXED, {DEVICE}), u; do {{ u = v; v = atomicCAS(count, u, u + 1); }} while (u != v); }}'
    count = torch.zeros(1, dtype=torch.int32)
    gpu.run(loop, "k", grid, block, [count], checked=checked, order="shuffle", seed=1)
    assert count.item() == grid * block


def test_volatile_is_no_excuse(gpu) -> None:
    source = """
extern "C" __global__ void k(const int* x, int* y) {
    __shared__ volatile int m;
    if (threadIdx.x == 0) m = 0;
    __syncthreads();
    if (x[threadIdx.x] > m) m = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = m;
}
extern "C" __global__ void with_barriers(const int* x, int* y) {
    __shared__ volatile int m[64];
    m[threadIdx.x] = x[threadIdx.x];
    for (int o = 32; o; o >>= 1) { __syncthreads(); if (threadIdx.x < o) m[threadIdx.x] = max(m[threadIdx.x], m[threadIdx.x + o]); }
    __syncthreads();
    y[threadIdx.x] = m[0];
}
"""
    x, y = torch.arange(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    for order in ORDERS:
        with pytest.raises(CandidateError, match="data race"):
            gpu.run(source, "k", 1, 64, [x, y], checked=True, order=order)
        gpu.run(source, "with_barriers", 1, 64, [x, y], checked=True, order=order)
        assert y.tolist() == [63] * 64
