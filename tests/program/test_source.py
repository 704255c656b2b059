"""HIP source may not keep state or detect the verifier; ordinary declarations are accepted."""

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


@pytest.mark.parametrize("define", ["#define operator", "%:define operator", "#define \\\n operator"])
def test_a_keyword_may_not_name_what_is_stored(define: str) -> None:
    with pytest.raises(ProgramError, match="between calls"):
        check_source(f"{define} kept\n__device__ int operator = 3;", 1)


@pytest.mark.parametrize(
    "source",
    [
        "static __device__ float f(int a) { return a; }",
        "static const int T = 4; __device__ constexpr float z[2] = {1, 2}; __constant__ float t[2];",
        "template <int N> static __device__ inline float f(const float* x) { float y = 1; return y; }",
        "struct A { static __device__ float f(float v) { int q = 3; return q; } int b; };",
        "static inline __device__ float2 h(float a) { float b[2]; return {a, b[0]}; }",
        "// __x86_64__ and static int calls;\n/* __device__ int total; */",
        "struct Row { float v[4]; __device__ float operator[](int k) const { return v[k]; } };",
        "struct One { float v; __device__ One& operator=(const One& o) { v = o.v; return *this; } };",
        "#if FAST\n#endif\nint hw_size = 3;",
    ],
)
def test_ordinary_source_is_left_alone(source: str) -> None:
    check_source(source, 1)


WORDS = [
    "__x86_64__",
    "__x86_64",
    "__amd64__",
    "__amd64",
    "__i386__",
    "__aarch64__",
    "__arm__",
    "__SSE__",
    "__SSE4_2__",
    "__AVX__",
    "__AVX512F__",
    "__FMA__",
    "__F16C__",
    "__linux__",
    "__linux",
    "__unix__",
    "_WIN32",
    "__APPLE__",
    "__CUDACC_RTC__",
    "__HIPCC_RTC__",
    "HW_AMD",
    "HW_OCML",
    "HW_CPU",
    "HW_HOST",
    "HW_FN",
    "HW_DEV",
    "HW_NVIDIA",
    "__hw_x",
    "__has_include",
    "__has_include_next",
    "__has_embed",
    "__FILE__",
    "__FILE_NAME__",
    "__BASE_FILE__",
    "__DATE__",
    "__TIME__",
    "__TIMESTAMP__",
    "__INCLUDE_LEVEL__",
    "constructor",
    "__destructor__",
    "init_priority",
    "ifunc",
    "weakref",
]
TEXTS = [
    '__attribute__((section("x"))) void f();',
    '__attribute__ /* */ ((alias("x"))) void f();',
    '[[gnu::section("x")]] void f();',
    'asm(".incbin \\"x\\"");',
    'asm(".include" \\"x\\"");',
]


@pytest.mark.parametrize("text", [*WORDS, *TEXTS])
def test_every_refused_word_is_found(text: str) -> None:
    """A source is first searched for parts of the names, none of which may be missing."""
    with pytest.raises(ProgramError):
        check_source(f"int a = {text};" if text in WORDS else text, 1)
    check_source(f"// {text}\n/* {text} */", 1)


def test_a_comment_that_never_ends_hides_nothing() -> None:
    with pytest.raises(ProgramError, match="__FILE__") as raised:
        check_source("/* a */ int b; // c\n/* open\n // __DATE__\n '/*' __FILE__", 1)
    assert raised.value.line == 4


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("int a; static static int kept;", "kept"),
        ("xstatic int a; __device__ T<4> kept = 1;", "kept"),
        ("__device__ float f(int a); __managed__ int kept[2];", "kept"),
        ("static const int a = 1, b; static int *kept;", "kept"),
    ],
)
def test_what_is_kept_is_named(source: str, name: str) -> None:
    with pytest.raises(ProgramError, match=f"variable {name} between"):
        check_source(source, 1)
