"""HIP source has no state and does not ask who is looking; ordinary declarations are left alone."""

from __future__ import annotations

import pytest

from hipwright.errors import ProgramError
from hipwright.program.source import check_source


@pytest.mark.parametrize(
    "source",
    [
        "__device__ int total;",
        "__device__ float kept[4], other;",
        "__device__ volatile unsigned count = 0;",
        "__device__ float g(float v) { static float last; return last; }",
        "#ifdef __x86_64__\n#endif",
        '#if __has_include("/etc/passwd")\n#endif',
        "int f() { return __LINE__ + sizeof(__TIME__); }",
    ],
)
def test_state_and_probes_are_refused(source: str) -> None:
    with pytest.raises(ProgramError) as raised:
        check_source("\n\n" + source, 10)
    assert raised.value.line == 12


@pytest.mark.parametrize(
    "source",
    [
        "static __device__ float f(int a) { return a; }",
        "static const int T = 4; __device__ constexpr float z[2] = {1, 2}; __constant__ float t[2];",
        "template <int N> static __device__ inline float f(const float* x) { float y = 1; return y; }",
        "struct A { static __device__ float f(float v) { int q = 3; return q; } int b; };",
        "static inline __device__ float2 h(float a) { float b[2]; return {a, b[0]}; }",
        "// __x86_64__ and static int calls;\n/* __device__ int total; */",
        "#if defined(__gfx942__) || defined(__AMDGCN__)\n#define FAST 1\n#endif\nint hw_size = 3;",
    ],
)
def test_ordinary_source_is_left_alone(source: str) -> None:
    check_source(source, 1)
