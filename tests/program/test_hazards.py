"""Every hazard on a program that has it, on one that does not, and none of severity "error" on honest programs."""

from __future__ import annotations

import runpy
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hipwright.audit
from hipwright.engine import write
from hipwright.program.hazards.report import FIXES, Hazard, hazards
from tests.engine.harness import captured

CORPUS = Path(hipwright.audit.__file__).parent / "corpus" / "program"
HONEST = sorted((CORPUS / "honest").glob("*.py"))
EXAMPLES = Path(__file__).parents[2] / "examples"
PLAN = """
def forward(self, x):
    y = torch.empty_like(x)
    k[{launch}](x, y, x.numel())
    return y
"""


def program(
    body: str, *, launch: str = "cdiv(x.numel(), 256), 256", head: str = "", bounds: str = "", before: str = ""
) -> str:
    """A kernel k with `body` from line 5 on, and a plan that launches it."""
    signature = f'extern "C" __global__ void {bounds}k(const float* x, float* y, int n) {{'
    hip = f"#include <hip/hip_runtime.h>\n{head}\n{signature}\n{body}\n}}"
    return f"{before}HIP = r'''\n{hip}\n'''\n{PLAN.format(launch=launch)}"


I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741
GOOD = f"{I}\nif (i < n) y[i] = x[i];"
TREE = "__shared__ float s[256];\ns[threadIdx.x] = 0;\n"

CASES: list[tuple[str, str, str, list[str]]] = [  # (name, severity, program, targets)
    ("wave_size", "error", program("unsigned m = __ballot(x[0] > 0);\nif (threadIdx.x < n) y[0] = m;"), ["gfx942"]),
    ("wave_size", "error", program("int c = __popc(__ballot(x[0] > 0));\nif (threadIdx.x < n) y[0] = c;"), []),
    (
        "wave_size",
        "error",
        program(
            "float v = x[threadIdx.x % 64];\nfor (int o = 16; o > 0; o >>= 1) v += "
            "__shfl_xor(v, o);\nif (threadIdx.x < n) y[0] = v;"
        ),
        ["gfx90a"],
    ),
    (
        "wave_size",
        "warning",
        program(
            "float v = x[threadIdx.x & 31];\nfor (int o = 16; o > 0; o /= 2) v += "
            "__shfl_down(v, o);\nif (threadIdx.x < n) y[0] = v;"
        ),
        ["gfx90a"],
    ),
    (
        "wave_size",
        "error",
        program(
            "float v = x[threadIdx.x];\nfor (int o = 32; o > 0; o >>= 1) v += "
            "__shfl_xor(v, o);\nif (threadIdx.x < n) y[0] = v;"
        ),
        ["gfx1100"],
    ),
    (
        "wave_size",
        "error",
        program("float v = x[threadIdx.x];\nv += __shfl_xor(v, 32);\nif (threadIdx.x < n) y[0] = v;"),
        ["gfx1100"],
    ),
    ("wave_size", "warning", program(GOOD, head="#define WARP_SIZE 32"), ["gfx942"]),
    (
        "sync_mask",
        "error",
        program("float v = __shfl_xor_sync(0xffffffff, x[0], 1);\nif (threadIdx.x < n) y[0] = v;"),
        ["gfx942"],
    ),
    ("sync_mask", "error", program("__syncwarp(0xff);\nif (threadIdx.x < n) y[0] = 1;"), []),
    ("cuda_only", "error", program(f"{I}\nif (i < n) y[i] = __ldcg(x + i);"), []),
    ("cuda_only", "error", program(f"auto b = cooperative_groups::this_thread_block();\n{GOOD}"), []),
    ("cuda_only", "warning", program(f'asm volatile("s_nop 0");\n{GOOD}'), []),
    ("lds_limit", "error", program("__shared__ float t[20000];\nif (threadIdx.x < n) y[0] = t[0];"), ["gfx942"]),
    ("lds_limit", "error", program(GOOD, launch="1, 256, 70000"), ["gfx1100"]),
    (
        "lds_limit",
        "warning",
        program(
            "__shared__ float t[TILE][TILE];\nif (threadIdx.x < n) y[0] = t[0][0];",
            before="TILE = knob(16, choices=[16, 256])\n",
        ),
        ["gfx942"],
    ),
    ("missing_tail_guard", "warning", program(f"{I}\ny[i] = x[i];"), []),
    ("missing_tail_guard", "warning", program("y[blockIdx.x * 256 + threadIdx.x] = 1;"), []),
    (
        "barrier_in_branch",
        "error",
        program(f"{TREE}if (threadIdx.x < 32) {{\n__syncthreads();\n}}\nif (threadIdx.x < n) y[0] = s[0];"),
        [],
    ),
    (
        "barrier_in_branch",
        "error",
        program(f"{TREE}int t = threadIdx.x, h = t / 2;\nif (h < 9) y[0] = 1; else __syncthreads();"),
        [],
    ),
    (
        "barrier_in_branch",
        "error",
        program(
            f"{TREE}if (threadIdx.x == 0) y[0] = total(s);",
            head="__device__ float total(float* s) { __syncthreads(); return s[0]; }",
        ),
        [],
    ),
    (
        "barrier_in_branch",
        "warning",
        program(f"{TREE}for (int j = threadIdx.x; j < n; j += 256) {{ __syncthreads(); y[j] = s[0]; }}"),
        [],
    ),
    ("barrier_in_branch", "warning", program(f"{TREE}{I}\nif (i >= n) return;\n__syncthreads();\ny[i] = s[0];"), []),
    ("launch_bounds", "error", program(GOOD, bounds="__launch_bounds__(128) "), []),
    ("launch_bounds", "error", program(GOOD, launch="1, (64, 32)"), []),
    (
        "launch_bounds",
        "warning",
        program(
            GOOD, bounds="__launch_bounds__(256) ", launch="1, BLOCK", before="BLOCK = knob(256, choices=[256, 512])\n"
        ),
        [],
    ),
    ("parameter_reinit", "error", program(GOOD) + "\ndef prepare(self):\n    return {'w': torch.randn(4)}\n", []),
    (
        "parameter_reinit",
        "warning",
        program(GOOD).replace("    y = torch.empty_like(x)", "    w = torch.rand(3)\n    y = torch.empty_like(x)"),
        [],
    ),
    ("double_literals", "warning", program(f"{I}\nif (i < n) y[i] = x[i] * 0.5 + 1e-5;"), []),
]


@pytest.mark.parametrize(
    ("name", "severity", "text", "targets"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)]
)
def test_the_hazard_is_found(name: str, severity: str, text: str, targets: list[str]) -> None:
    found = [h for h in hazards(text, targets) if h.name == name]
    assert [h.severity for h in found] == [severity], hazards(text, targets)
    assert found[0].fix == FIXES[found[0].name]
    assert Hazard.from_json(found[0].to_json()) == found[0]


def test_every_name_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(FIXES)


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        (program(GOOD), []),
        (
            program(
                "float v = x[threadIdx.x];\nfor (int o = 32; o > 0; o >>= 1) v += __shfl_xor(v, o);\nif "
                "(threadIdx.x < n) y[0] = v;"
            ),
            ["gfx942"],
        ),
        (
            program(
                "float v = x[threadIdx.x % 64];\nfor (int o = 16; o > 0; o >>= 1) v += __shfl_xor(v, o);\nif "
                "(threadIdx.x < n) y[0] = v;"
            ),
            ["gfx1100"],
        ),
        (
            program(
                "float v = x[threadIdx.x];\nfor (int o = 16; o > 0; o >>= 1) v += __shfl_xor(v, o, 32);\nif "
                "(threadIdx.x < n) y[0] = v;"
            ),
            [],
        ),
        (
            program(
                "float v = x[threadIdx.x];\nfor (int o = warpSize / 2; o > 0; o >>= 1) v += __shfl_xor(v, "
                "o);\nif (threadIdx.x < n) y[0] = v;"
            ),
            [],
        ),
        (program(GOOD, head="// __shfl_xor_sync(0xffffffff, v, 1), asm, __ldcg"), []),
        (program(GOOD, head="#define __shfl_xor_sync(mask, v, o) __shfl_xor(v, o)"), []),
        (program("__shared__ float t[20000];\nif (threadIdx.x < n) y[0] = t[0];"), ["gfx950"]),
        (program("__shared__ float t[16000];\nif (threadIdx.x < n) y[0] = t[0];"), ["gfx942"]),
        (program(f"{TREE}if (blockIdx.x < n) {{ __syncthreads(); }}\nif (threadIdx.x < n) y[0] = s[0];"), []),
        (
            program(
                f"{TREE}for (int d = 128; d > 0; d >>= 1) "
                f"{{ if (threadIdx.x < d) s[0] += 1.0f; __syncthreads(); }}\nif (threadIdx.x < n) y[0] = s[0];"
            ),
            [],
        ),
        (
            program(
                f"{TREE}__syncthreads();\nfloat all = s[0];\nif (all > 0) __syncthreads();\nif (threadIdx.x < "
                f"n) y[0] = all;"
            ),
            [],
        ),
        (program("for (int j = threadIdx.x; j < n; j += 256) y[blockIdx.x * n + j] = 1;"), []),
        (program(f"{I}\ny[i < n ? i : n - 1] = 2;"), []),
        (program(GOOD, bounds="__launch_bounds__(256, 2) "), []),
        (program(f"double d = 0.5;\n{I}\nif (i < n) y[i] = x[i] * 0.5;"), []),
        (program(f"float h = 0.5;\n{I}\nif (i < n) y[i] = x[i] * h;"), []),
        ("this is no program", []),
    ],
)
def test_no_hazard(text: str, targets: list[str]) -> None:
    assert hazards(text, targets) == []


def test_lines_are_the_program_s() -> None:
    text = program(f"{I}\nif (i < n) y[i] = __ldcg(x + i) * 0.5;")
    line = next(n for n, said in enumerate(text.split("\n"), 1) if "__ldcg" in said)
    assert {h.line for h in hazards(text)} == {line}
    reinit = CASES[-3][2]
    found = next(h for h in hazards(reinit) if h.name == "parameter_reinit")
    assert "torch.randn" in reinit.split("\n")[found.line - 1]


@pytest.mark.parametrize("path", HONEST, ids=[p.stem for p in HONEST])
def test_no_false_alarm_on_an_honest_program(path: Path) -> None:
    """Not even a warning: measured over the 40 honest programs of the corpus."""
    assert hazards(path.read_text()) == []


@pytest.mark.parametrize(
    "name", ["wave32", "lds_limit", "too_many_threads", "barrier_in_a_branch", "divergent_barrier"]
)
def test_broken_programs_of_the_corpus(name: str) -> None:
    found = hazards((CORPUS / "broken" / f"{name}.py").read_text())
    assert any(h.severity == "error" for h in found)


@pytest.mark.parametrize(
    "name",
    ["bias_gelu", "layernorm_residual", "huber_loss", "softmax_temperature_mask", "cumsum_gate", "transposed_add"],
)
def test_no_false_alarm_on_the_engine_s_programs(name: str) -> None:
    task = runpy.run_path(str(EXAMPLES / f"{name}.py"))
    text = write(captured(task["Model"](*task["get_init_inputs"]()), task["get_inputs"]())).text
    assert [h for h in hazards(text) if h.severity == "error"] == []


@pytest.mark.parametrize(
    "piece", ["x[", "a = min(", "warp", "if (x) ", "for (int o = 16; o > 0; o >>= 1) ", "{", "__shfl_xor(", "a ? "]
)
def test_hostile_text_takes_no_minutes(piece: str) -> None:
    start = time.thread_time()
    hazards(program(piece * (20_000 // len(piece))))
    assert time.thread_time() - start < 3.0


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_text_is_survived(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(CASES))[2]
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 30))
    hazards(text[:at] + data.draw(st.text("{}()[];,=<>?:&|\n'\"\\/*ax0.", max_size=12)) + text[at + cut :])
