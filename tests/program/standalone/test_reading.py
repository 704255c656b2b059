"""Plans by comments and by host functions, assumptions, lines of errors; no text makes the reader raise otherwise."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.errors import ProgramError
from hipwright.program import parse
from hipwright.program.standalone import dialect_of, read_source
from hipwright.program.standalone.reading import source_line
from tests.starts import REFUSED, TASKS, VERIFIED, task_of

KERNEL = """__global__ void scale(const float* x, float* y, float f, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * f;
}
"""
TASK = TASKS["gelu_scale"].read_text()


def commented(*lines: str) -> str:
    return "".join(f"// hipwright: {line}\n" for line in lines)


def plan_of(host: str, task: str = TASK) -> str:
    program = read_source("k.cu", KERNEL + host, task).program
    return parse(program.text).text.split("def forward", 1)[1]


def refusal(text: str, task: str = TASK) -> str:
    with pytest.raises(ProgramError) as refused:
        read_source("k.cu", text, task)
    return refused.value.message


def test_a_launch_function_with_pointers_is_called_for_the_task() -> None:
    launch = "scale<<<(count + 63) / 64, 64>>>(x, y, Scale, count);"
    plan = plan_of(f"void f(const float* x, float* y, float Scale, int count) {{ {launch} }}")
    assert "self.scale" in plan and "torch.empty(x.shape, dtype=x.dtype)" in plan and "x.numel()" in plan


def test_a_template_of_the_kernel_is_launched_from_a_comment_by_its_defaults() -> None:
    text = KERNEL.replace("__global__", "template <int STEP = 2>\n__global__")
    text += commented(
        "y = torch.empty_like(x)", "scale[cdiv(x.numel(), 64), 64](x, y, self.scale, x.numel())", "return y"
    )
    program = read_source("k.cu", text, TASK).program
    assert list(parse(program.text).signatures) == ["scale_2"]


def test_a_knob_of_the_comments_replaces_the_files_own_definition() -> None:
    text = "#define T 64\n" + KERNEL.replace("blockDim.x", "T")
    lines = [
        "T = knob(64, choices=[64, 128])",
        "y = torch.empty_like(x)",
        "go(x, y, self.scale, x.numel())",
        "return y",
    ]
    host = "void go(const float* x, float* y, float f, int n) { scale<<<(n + T - 1) / T, T>>>(x, y, f, n); }\n"
    text += host + commented(*lines)
    parsed = parse(read_source("k.cu", text, TASK).program.text)
    assert parsed.knobs["T"].choices == (64, 128) and "#define T" not in parsed.hip
    assert "T - 1) // T, T]" in parsed.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (KERNEL, "line 1: cannot be converted: no function launches scale"),
        ("int f(int n) { return n; }\n", "cannot be converted: the file has no kernel"),
        (KERNEL + "void f(const float* x, float* y) {\n  float* t;\n  cudaMalloc(&t, 4);\n}\n", "no function launches"),
        (
            KERNEL
            + "void f(const float* x, float* y, int n) {\n  while (n) n--;\n  scale<<<1, 1>>>(x, y, 1.f, n);\n}\n",
            "line 6: cannot be converted: `while` in host code",
        ),
        (
            KERNEL + "void f(const float* x, float* y, int n) {\n  scale<<<1,\n    unknown>>>(x, y, 1.f, n);\n}\n",
            "line 6: cannot be converted: unknown is not known",
        ),
        (KERNEL + "// hipwright: y = = x\n", "line 5: cannot be converted: the plan's line is not Python"),
        (KERNEL + "// hipwright: x = x\n// hipwright: return none(x)\n", "none"),
        (KERNEL + "// hipwright: other[1, 64](x)\n", "line 5: cannot be converted: other is launched and not defined"),
        ('#include "helper.cuh"\n' + KERNEL, 'line 1: cannot be converted: #include "helper.cuh"'),
        (
            KERNEL + "void f(const float* a, const float* b, float* y, int n) { scale<<<1, 1>>>(a, y, 1.f, n); }",
            "which of the task's tensors is `a`, `b`?",
        ),
        (
            KERNEL.replace("{\n", "{\n#ifdef __CUDA_ARCH__\n#endif\n", 1)
            + commented("y = torch.empty_like(x)", "scale[1, 64](x, y, 1.0, 1)", "return y"),
            "line 2: ",
        ),
    ],
)
def test_errors_name_the_line_of_the_file(text: str, message: str) -> None:
    assert message in refusal(text)


def test_the_hint_shows_how_a_plan_is_written() -> None:
    with pytest.raises(ProgramError) as refused:
        read_source("k.cu", KERNEL, TASK)
    assert "// hipwright: out = torch.empty_like(x)" in refused.value.hint


def test_a_line_of_a_program_is_found_in_its_source_where_it_is_the_only_one() -> None:
    assert source_line(2, "a\n  b;\n", "c\nb;\n") == 2
    assert source_line(2, "a\n  b;\n", "b;\nb;\n") == 0
    assert source_line(9, "a\n", "a\n") == 0


@pytest.mark.parametrize(
    ("name", "text", "dialect"),
    [
        ("k.cu", "#include <hip/hip_runtime.h>", "cuda"),
        ("k.hip", "", "hip"),
        ("k.cpp", "#include <hip/hip_runtime.h>", "hip"),
        ("k.cc", "__global__", "cuda"),
        ("k.py", "__global__", ""),
        ("K.CU", "", "cuda"),
    ],
)
def test_the_dialect_is_that_of_the_name_or_the_text(name: str, text: str, dialect: str) -> None:
    assert dialect_of(name, text) == dialect


@settings(max_examples=60)
@given(st.integers(0, 10**9))
def test_damaged_files_are_read_or_refused_and_never_crash(seed: int) -> None:
    rng = random.Random(seed)
    path = rng.choice([*VERIFIED, *REFUSED])
    text = path.read_text()
    for _ in range(rng.randrange(1, 4)):
        at, length = rng.randrange(len(text)), rng.randrange(1, 30)
        text = (
            text[:at]
            + rng.choice(["", "(", "}", ";", "<<<", '"', "/*", "// hipwright: ", "\n", "é"])
            + text[at + length :]
        )
    try:
        read_source(path.name, text, task_of(path).read_text())
    except ProgramError as refused:
        assert refused.message and "\n" not in refused.message
