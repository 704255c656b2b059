"""Kernel signatures: properties over generated sources, and the spellings that people use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.errors import ProgramError
from hipwright.float8 import FLOAT8
from hipwright.program.blanking import blank
from hipwright.program.kernel_types import SCALARS, VECTORS, canonical
from hipwright.program.signature import Param, parse_signatures

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).map(lambda s: "v_" + s)
SPACE = st.sampled_from([" ", "  ", "\n", "\t", " /* , ( float* */ ", ' // ) { "C"\n'])
ONLY_POINTERS = [name for name, dtype in SCALARS.items() if dtype in FLOAT8]
BY_VALUE = [name for name in SCALARS if name not in ONLY_POINTERS]
SPELLINGS = st.sampled_from([*BY_VALUE, "unsigned", "long int", "long unsigned int", "short int", "std::int64_t"])


@st.composite
def parameters(draw: st.DrawFn) -> tuple[str, Param]:
    """(text, what it must be read as)."""
    pointer = draw(st.booleans())
    spelling = draw(st.sampled_from([*VECTORS, *ONLY_POINTERS, "void"]) | SPELLINGS if pointer else SPELLINGS)
    name, const = draw(NAMES), draw(st.booleans())
    gap = lambda: draw(SPACE)  # noqa: E731
    before = draw(st.booleans())
    words = ["const", spelling] if before else [spelling, "const"]
    text = gap().join(words if const else [spelling])
    if pointer:
        text += gap() + "*" + draw(st.sampled_from(["", " __restrict__", " const __restrict__", " __restrict"]))
    expected = canonical(spelling)
    assert expected is not None
    return text + gap() + name, Param(name=name, ctype=expected, pointer=pointer, const=const)


@given(st.lists(parameters(), max_size=8, unique_by=lambda p: p[1].name), SPACE, st.integers(0, 5), st.booleans())
def test_what_is_written_is_what_is_read(params: list[tuple[str, Param]], gap: str, lines: int, bounds: bool) -> None:
    attribute = "__launch_bounds__(BLOCK, 2)" if bounds else ""
    head = "\n" * lines + f'extern "C"{gap}__global__ void {attribute} kernel_name'
    source = head + "(" + ("," + gap).join(text for text, _ in params) + ") { float y = f(1, 2); }"
    found = parse_signatures(source, 10).signatures["kernel_name"]
    assert found.params == tuple(p for _, p in params)
    assert found.line == 10 + source[: source.index("__global__")].count("\n")


@given(st.text(alphabet="ab/*\"'\\\n(){}R_,;<>#", max_size=60))
def test_blanking_keeps_length_and_lines(text: str) -> None:
    out = blank(text)
    assert len(out) == len(text)
    assert [i for i, c in enumerate(out) if c == "\n"] == [i for i, c in enumerate(text) if c == "\n"]


@given(st.text(alphabet=st.sampled_from('extern "C" __global__ void k(float* x, int n) {}[]<>&=;\n/*'), max_size=120))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        parse_signatures('extern "C" __global__ void k(float* x, ' + text)
    except ProgramError as error:
        assert error.line >= 1


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('extern "C" { __global__ void k(float* x) {} }', "float*"),
        ('extern "C" void __global__ k(float* x);', "float*"),
        ('extern "C" __attribute__((used)) __global__ __launch_bounds__((1 << 8)) void k(float x[]) {}', "float*"),
        ('typedef unsigned short u16;\nextern "C" __global__ void k(const u16* x) {}', "unsigned short*"),
        ('using T = float;\nextern "C" __global__ void k(T x) {}', "float"),
        ('#define T __half\nextern "C" __global__ void k(T* x) {}', "__half*"),
        (
            '#ifdef A\nextern "C" __global__ void k(int x) {}\n#else\nextern "C" __global__ void k(int x) { }\n#endif',
            "int",
        ),
        (
            'const char* s = "__global__ void q(";\nextern "C" __global__ void k(unsigned long long int x) {}',
            "unsigned long long",
        ),
        ('#define ENTRY(n) extern "C" __global__ void n()\nextern "C" __global__ void k(long x) {}', "long"),
        ('auto r = R"x(extern "C" __global__ void q(int a))x";\nextern "C" __global__ void k(size_t x) {}', "size_t"),
        ("int a = 1'000'000;\nextern \"C\" __global__ void k(signed char x) {}", "signed char"),
    ],
)
def test_spellings(source: str, expected: str) -> None:
    signatures = parse_signatures(source).signatures
    assert list(signatures) == ["k"]
    (param,) = signatures["k"].params
    assert param.ctype + "*" * param.pointer == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('extern "C" __global__ void k(float& x) {}', "references cannot be passed"),
        ('extern "C" __global__ void k(float** x) {}', "a pointer to a pointer"),
        ('extern "C" __global__ void k(float x = 1) {}', "default values cannot be passed"),
        ('extern "C" __global__ void k(vec<float> x) {}', "templates cannot be passed"),
        ('extern "C" __global__ void k(MyStruct x) {}', "type not known"),
        ('extern "C" __global__ void k(MyStruct* x) {}', "type not known"),
        ('extern "C" __global__ void k(float4 x) {}', "passed as a pointer only"),
        ('extern "C" __global__ void k(void x) {}', "type not known"),
        ('extern "C" __global__ void k(long char x) {}', "type not known"),
        ('extern "C" __global__ void k(int) {}', "it needs a type and a name"),
        ('extern "C" __global__ int k(int a) {}', "returns int"),
        ('extern "C" __global__ void k(int a, float a) {}', "two parameters are called a"),
        ('extern "C" __global__ void k(int a) {}\nextern "C" __global__ void k(float a) {}', "declared twice"),
        ('typedef float T;\ntypedef half T;\nextern "C" __global__ void k(T* a) {}', "type not known"),
    ],
)
def test_refusals(source: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message) as caught:
        parse_signatures(source, 1)
    assert caught.value.line == source.count("\n") + 1


def test_kernels_that_cannot_be_launched_say_why() -> None:
    kernels = parse_signatures("template <int N> __global__ void a(int x) {}\nstatic __global__ void b(int x) {}")
    assert "template" in kernels.unusable["a"] and 'extern "C"' in kernels.unusable["b"]


def test_alignment_of_pointers() -> None:
    source = 'extern "C" __global__ void k(float4* a, float3* b, half2* c, double* d, void* e) {}'
    assert [p.align for p in parse_signatures(source).signatures["k"].params] == [16, 4, 4, 8, 1]
