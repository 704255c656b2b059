"""A kernel's tree: what is printed, which declarations are dropped, which variants a function has."""

from __future__ import annotations

import pytest

from hipwright.engine.emit.builder import StatementBuilder
from hipwright.engine.emit.function import KernelFunction, KernelParameter, StaticShapeVariant
from hipwright.engine.emit.tree import printed

X, Y = KernelParameter("const float* __restrict__", "x"), KernelParameter("float* __restrict__", "y")


def lines(build: StatementBuilder) -> list[str]:
    return printed(build.body, 0)


def test_blocks_and_conditionals_nest() -> None:
    build = StatementBuilder()
    build.open("if (a)")
    build.directive("#if FAST")
    build.line("x = 1;")
    build.directive("#else")
    build.line("x = 2;")
    build.directive("#endif")
    build.otherwise()
    build.open("")
    build.passage("\n#pragma unroll\nfor (;;)\n    x = 3;\n")
    build.close(";")
    build.close()
    assert lines(build) == [
        "if (a) {",
        "#if FAST",
        "    x = 1;",
        "#else",
        "    x = 2;",
        "#endif",
        "} else {",
        "    {",
        "#pragma unroll",
        "        for (;;)",
        "            x = 3;",
        "    };",
        "}",
    ]


def test_a_section_is_filled_later() -> None:
    build = StatementBuilder()
    build.open("for (;;)")
    before = build.section()
    build.line("use(part);")
    build.close()
    before.line("int part = 0;")
    assert lines(build) == ["for (;;) {", "    int part = 0;", "    use(part);", "}"]


@pytest.mark.parametrize("used", [True, False])
def test_a_declaration_is_dropped_where_nothing_behind_it_in_its_block_uses_the_name(used: bool) -> None:
    build = StatementBuilder()
    build.open("for (;;)")
    build.line_if_used("const int r = base;")
    build.line_if_used("const int j = r / 2;")
    build.open("if (live)")
    build.line("y[j] = 0;" if used else "y[0] = 0;")
    build.close()
    build.close()
    build.line("y[1] = r + j;")  # of other variables
    function = KernelFunction("f", "", "64", [], build.body)
    assert ("    const int r = base;" in lines(build)) is used
    assert ("    const int j = r / 2;" in lines(build)) is used
    assert ("base" in function.names) is used


def test_a_branch_of_the_preprocessor_ends_no_block() -> None:
    build = StatementBuilder()
    build.directive("#ifdef A")
    build.line_if_used("const int n = 1;")
    build.directive("#else")
    build.line_if_used("const int n = 2;")
    build.directive("#endif")
    build.line("y[n] = 0;")
    assert {"n"} <= KernelFunction("f", "", "64", [], build.body).names
    assert "const int n = 1;" in lines(build) and "const int n = 2;" in lines(build)


def twice() -> KernelFunction:
    build = StatementBuilder()
    build.line("const long i = blockIdx.x * (long)BLOCK + threadIdx.x;")
    build.line("if (i < n * m) y[i] = 2.f * x[i];")
    sizes = [KernelParameter("int", "n"), KernelParameter("long", "m")]
    return KernelFunction("twice", "double", "BLOCK", [X, Y, *sizes], build.body)


def test_both_entries_share_the_body() -> None:
    function = twice()
    function.variant = StaticShapeVariant("twice_exact", [None, None, 7, 1 << 33])
    text = function.text()
    assert text.count("2.f * x[i]") == 1
    assert "twice_body(x, y, n, m);" in text and "twice_body(x, y, 7, 8589934592L);" in text
    assert text.count('extern "C" __global__ void __launch_bounds__(BLOCK) ') == 2
    assert "twice_exact(\n    const float* __restrict__ x, float* __restrict__ y) {" in text


def test_every_parameter_has_a_constant_or_none() -> None:
    function = twice()
    function.variant = StaticShapeVariant("a", [None, 1, 1])
    with pytest.raises(ValueError, match="shorter"):
        function.text()


@pytest.mark.parametrize("variant", [None, StaticShapeVariant("twice_exact", [None, None, 7, 8])])
def test_reads_are_kept_once_and_writes_never(variant: StaticShapeVariant | None) -> None:
    function = twice()
    function.variant, function.keep_reads = variant, True
    text = function.text()
    assert text.count("    x = retain_in_cache(x);\n    const long i") == 1
    assert text.count("retain_in_cache(") == 1
