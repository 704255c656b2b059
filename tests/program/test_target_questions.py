"""HIP source may not ask for its target, compiler or build; its own macros, knobs and run-time questions stay."""

from __future__ import annotations

import pytest

from hipwright.errors import ProgramError
from hipwright.program.target_questions import check_target_questions

CUT = "#if {}\n#define WORK 1\n#else\n#define WORK n\n#endif\n"
MACROS = [
    *("__AMDGCN__", "__AMDGPU__", "__HIP_PLATFORM_AMD__", "__HIP_DEVICE_COMPILE__", "__CUDA_ARCH__", "__CUDACC__"),
    *(
        "__CUDACC_RTC__",
        "__HIPCC__",
        "__HIPCC_RTC__",
        "__NVCC__",
        "__clang__",
        "__clang_major__",
        "__GNUC__",
        "__HIP__",
    ),
    *("__x86_64__", "__gfx942__", "__GFX9__", "HW_WAVE", "HW_AMD", "HW_AMD_SIDE", "HIPWRIGHT_AMD", "__VERSION__"),
    *("__DATE__", "__TIME__", "__FILE__", "__LINE__", "__COUNTER__", "__OPTIMIZE__", "__AMDGCN_WAVEFRONT_SIZE__"),
    *("__AMDGCN_WAVEFRONT_SIZE", "__llvm__", "__linux__", "_LP64", "linux", "HIP_VERSION", "CUDART_VERSION"),
    *(
        "__amdgcn_processor__",
        "__STDC_HOSTED__",
        "__BYTE_ORDER__",
        "__ELF__",
        "__k8__",
        "__SSE2__",
        "__FLT_EVAL_METHOD__",
    ),
]
ASKED = [
    *(
        "__has_include(<cuda.h>)",
        "__has_builtin(__builtin_amdgcn_perm)",
        "__has_feature(modules)",
        "__has_cpp_attribute(x)",
    ),
    *("warpSize == 64", "FLT_MAX > 1", "UNKNOWN", "defined(UNKNOWN)", "!defined UNKNOWN", "defined(M_PI)"),
]


def refused(source: str, *knobs: str) -> ProgramError:
    with pytest.raises(ProgramError) as raised:
        check_target_questions(source, 1, knobs)
    return raised.value


@pytest.mark.parametrize("name", MACROS)
def test_names_that_compilers_define_are_refused(name: str) -> None:
    sources = [
        CUT.format(name),
        CUT.format(f"defined({name})"),
        f"#ifndef {name}\n#endif",
        f"int a = sizeof(S({name}));",
    ]
    for source in sources:
        assert name in refused(source).message
    check_target_questions(f'// {name}\n/* {name} */ const char* a = "{name}";', 1, ())


@pytest.mark.parametrize("question", ASKED)
def test_conditionals_ask_only_for_names_of_the_program(question: str) -> None:
    assert "tells the target" in refused(CUT.format(question)).message


@pytest.mark.parametrize(
    "source",
    [
        "#define ASK defined(CUDA_OF_SOMEBODY)\n#if ASK\n#endif",
        "#define A B\n#define B UNKNOWN\n#if A\n#endif",
        "#if 0\n#define CUDART_INF 1\n#endif\n#ifdef CUDART_INF\n#endif",
        "#if 0\n#define M_PI 3\n#endif\n#ifdef M_PI\n#endif",
        "#ifndef CUDART_INF_F\n#define CUDART_INF_F 0\n#endif",
        "#ifndef M_PI\n#define M_PI 3\n#define WORK 1\n#endif",
        "#ifndef M_PI\nint a;\n#define M_PI 3\n#endif",
        "%:if UNKNOWN\n%:endif",
        "#elif UNKNOWN",
        "#elifdef UNKNOWN",
    ],
)
def test_a_question_is_found_behind_macros(source: str) -> None:
    refused(source)


@pytest.mark.parametrize(
    "source",
    [
        "#define JOIN(a, b) a##b\n#if JOIN(__gf, x942__)\n#endif",
        "#define JOIN(a, b) a##b\nint x = JOIN(_, _clang__);",
        "#define JOIN(a, b) a %:%: b\nint x = JOIN(__x86, _64__);",
        "#define JOIN(a, b) a##b\nint x = JOIN(HW_W, AVE);",
        "#define JOIN(a, b, c) a##b##c\nint x = JOIN(CUDART_, VER, SION);",
        "int x = __AMD\\\nGCN__;",
        "int x = __AMD\\  \nGCN__;",
        "#define A ??/\n",
        "#include <hw/cpu.h>\n",
        "#define WHERE <hip/hip_runtime.h>\n#include WHERE\n",
        "int n = sizeof(long  double);",
        "int n = __builtin_constant_p(m) ? 1 : m;",
    ],
)
def test_ways_around_are_refused(source: str) -> None:
    refused(source)


def test_the_line_is_the_program_s() -> None:
    assert refused('int a;\n/* \n */ #define B "\\\n"\nint c = \\\n  __LINE__;').line == 6


@pytest.mark.parametrize(
    "source",
    [
        "#define FAST 1\n#ifdef FAST\n#endif\n#if defined(FAST) && FAST > 0\n#endif",
        "#if BLOCK > 64 && defined(BLOCK)\n#elif !BLOCK\n#endif",
        "#ifndef ROWS\n#define ROWS 4\n#endif\n#if ROWS == 4\n#endif",
        "#ifndef FLT_MAX\n#define FLT_MAX 3.4e38f\n#endif\n",
        "#ifndef MINE_H\n#define MINE_H\nint a;\n#endif",
        "#define PART(n) part_##n\nint PART(0) = __float2int_rn(x) + __shfl_xor(y, 1) + __AMD;".replace("__AMD", "0"),
        "#include <hipwright/tensor_cores.h>\n#if GEMM_MMA && BLOCK == 128\n#elif GEMM_MFMA\n#endif",
        "__hip_atomic_store(p, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); float m = __FLT_MAX__;",
        "const int lane = threadIdx.x % warpSize; const int HW = 3, HW_total = HW;",
        "#define CHECK(...) f(__VA_ARGS__)\n#pragma unroll\nfor (;;) {}",
        'double x = 1.0; long y; long long z; _Float16 h; _Pragma("unroll") for (;;) {}',
    ],
)
def test_the_program_s_own_names_are_left_alone(source: str) -> None:
    check_target_questions(source, 1, {"BLOCK"})
