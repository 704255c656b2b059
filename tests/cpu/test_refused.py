# ruff: noqa: E501 - small kernels read best in one line
"""A source that would do something outside its kernels is never loaded."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from hipwright.toolchain.cpu import audit as cpu_audit
from hipwright.toolchain.cpu import compiler
from hipwright.toolchain.cpu.ir import IrModule

KERNEL = 'extern "C" __global__ void k(float* y) { y[threadIdx.x] = 1.0f; }\n'

REFUSED = {
    "constructor attribute": "__attribute__((constructor)) void go() { *(volatile int*)64 = 1; }",
    "destructor attribute": "__attribute__((destructor)) void go() { *(volatile int*)64 = 1; }",
    "dynamic initialiser": "extern volatile int* where(); struct S { S() { *(volatile int*)64 = 1; } }; S s;",
    "local static initialiser": "struct S { int v; S(int n) : v(n) {} ~S() { v = 0; } };\n"
    'extern "C" __global__ void l(int* y) { static S s(y[0]); y[1] = s.v; }',
    "inline assembly": 'extern "C" __global__ void a(int* y) { int r; asm volatile("mov $1, %0" : "=r"(r)); y[0] = r; }',
    "assembly at file scope": 'asm(".section .init_array\\n.quad 0\\n");',
    "external function": 'extern "C" int system(const char*);\nextern "C" __global__ void a(int* y) { y[0] = system("id"); }',
    "external variable": 'extern "C" char** environ;\nextern "C" __global__ void a(char** y) { y[0] = environ[0]; }',
    "runtime internals": 'extern "C" unsigned hw_run(void*);\nextern "C" __global__ void a(int* y) { y[0] = hw_run(y); }',
    "init section": "typedef void (*F)();\nvoid go() { *(volatile int*)64 = 1; }\n"
    '__attribute__((section(".init_array"), used)) F entry = go;',
    "code section": '__attribute__((section(".init"), used)) void go() { *(volatile int*)64 = 1; }',
    "_init": 'extern "C" void _init() { *(volatile int*)64 = 1; }',
    "indirect function": 'extern "C" { static int (*pick())() { return 0; } int f() __attribute__((ifunc("pick"))); }\n'
    'extern "C" __global__ void a(int* y) { y[0] = f(); }',
    "thread local": 'thread_local int t;\nextern "C" __global__ void a(int* y) { y[0] = ++t; }',
    "call to a number": 'extern "C" __global__ void a(long n) { ((void (*)())n)(); }',
    "host segment": 'extern "C" __global__ void a(long* y) { y[0] = *(__attribute__((address_space(257))) long*)0; }',
    "own memcpy": 'extern "C" void* memcpy(void* d, const void*, unsigned long) { return d; }',
    "struct parameter": 'struct P { float a[9]; };\nextern "C" __global__ void a(P p, float* y) { y[0] = p.a[0]; }',
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(gpu, what: str) -> None:
    built = gpu.build(KERNEL + REFUSED[what])
    assert not built.ok
    assert built.log.startswith("refused: ") or what == "indirect function", built.log
    assert built.blob == ""


def test_a_constructor_would_have_run(tmp_path: Path) -> None:
    """The control: the same source, built without the audit, writes its mark when the library is loaded."""
    library, mark = tmp_path / "k.so", tmp_path / "mark"
    body = f'extern "C" {{ int creat(const char*, unsigned); }}\n__attribute__((constructor)) void go() {{ creat("{mark}", 0600); }}\n'
    script = '"$zig" clang "$@" -c -o k.o k.hip && "$zig" ld.lld -shared -o k.so k.o'
    linked = compiler._run(script, [*compiler._FLAGS, *compiler._march()], {"k.hip": body.encode()}, "k.so", False)
    library.write_bytes(linked.files["k.so"])
    assert cpu_audit.check_library(linked.files["k.so"]) is not None  # the second gate sees it too
    ctypes.CDLL(str(library))
    assert mark.exists()


def test_the_second_gate_alone_sees_initialisers(gpu) -> None:
    built = gpu.build(KERNEL)
    assert cpu_audit.check_library(gpu.cache.get(built.blob)) is None


@pytest.mark.parametrize(
    "line",
    [
        "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] zeroinitializer",
        'module asm ".init"',
        "@f = ifunc void (), ptr @g",
        "@f = alias void (), ptr @g",
        "declare i32 @getenv(ptr)",
        '@x = global i32 0, section ".fini_array"',
        "@environ = external global ptr",
    ],
)
def test_one_line_is_enough(line: str) -> None:
    assert cpu_audit.refusal(IrModule.parse(line + "\n")) is not None


def test_ordinary_things_are_not_refused(gpu) -> None:
    source = r"""
    __constant__ float table[4] = {1, 2, 3, 4};
    __device__ int counter = 3;
    __device__ float tuned[2] = {1.0f, 2.0f};
    struct Helper { float scale; __device__ float operator()(float v) const { return v * scale; } };
    template <int N> __device__ float power(float v) { return v * power<N - 1>(v); }
    template <> __device__ float power<0>(float) { return 1.0f; }
    extern "C" __device__ float helper(float v) { return v + table[(int)v & 3]; }
    extern "C" __global__ __launch_bounds__(256) void k(const float* __restrict__ x, float* __restrict__ y, int n, bool flip) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        auto scaled = [&](float v) { return Helper{2.0f}(v); };
        if (i < n) { y[i] = scaled(power<3>(x[i])) + helper(x[i]) + (flip ? sqrtf(fabsf(x[i])) : floorf(x[i])); }
        if (i == 0) { y[0] += counter * tuned[n & 1]; printf("%d", i); assert(n > 0); }
    }
    """
    built = gpu.build(source)
    assert built.ok, built.log
    assert [k.name for k in built.kernels] == ["k"]


@pytest.mark.parametrize(
    "write",
    [
        "kept[i] = x[i];",
        "atomicAdd(&kept[i], 1.0f);",
        "float* p = flip ? kept : y; p[i] = x[i];",
        "*where = y;",
        "HIDDEN[i] = x[i];",
        "static float last; y[i] = last; last = x[i];",
        "fill(kept, i);",
        "((volatile float*)kept)[i] = 1.0f;",
    ],
)
def test_nothing_is_kept_between_calls(gpu, write: str) -> None:
    source = r"""
    #define HIDDEN kept
    __device__ float kept[64];
    __device__ float* where[1];
    __attribute__((noinline)) __device__ void fill(float* p, int i) { if (i > 3) fill(p, i - 1); p[i] = 1.0f; }
    extern "C" __global__ void k(const float* x, float* y, bool flip) {
        int i = threadIdx.x;
        %s
        y[i] = kept[i] + (where[0] == y ? 1.0f : 0.0f);
    }
    """
    built = gpu.build(source % write)
    assert not built.ok
    assert built.log.startswith("refused: k writes the device variable"), built.log


def test_a_wrong_source_is_a_compile_error_not_a_refusal(gpu) -> None:
    built = gpu.build('extern "C" __global__ void k(float* y) { y[0] = undefined_name; }')
    assert not built.ok
    assert "undefined_name" in built.log
    assert not built.log.startswith("refused")
