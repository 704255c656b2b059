"""The short form of programs and references."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.capture.graph import Graph
from hipwright.engine import write
from hipwright.llm.compact import expand, prompt, shorten, shortened
from hipwright.program import parse
from hipwright.program.knobs import text_with_knobs
from hipwright.records import Program
from hipwright.toolchain import device_headers
from hipwright.toolchain.cache import BuildCache
from hipwright.train.mini.corpus import at_shape, capture_composition, draw_choices
from hipwright.train.mini.tasks import Composition
from tests.train.mini.builds import kernels


def test_expanding_and_shortening_is_a_fixed_point(programs: list[Program]) -> None:
    for program in programs:
        short = shortened(program)
        assert len(short) < 0.9 * len(program.text)
        assert parse(expand(short)).launched
        assert shorten(expand(short)) == short
        assert shorten(short) == short


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_overloads_are_shortened_and_restored(dtype: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Helpers that share a name: moments by lanes and blocks, vectors of half types stored from floats."""
    cache = BuildCache(tmp_path_factory.mktemp("builds"))
    graph, rng = at_shape(capture_composition(Composition(("layernorm", "softmax"), dtype)), (24, 64)), random.Random(1)
    for number in range(6):
        program = write(graph, draw_choices(graph, rng))
        short = shortened(program)
        assert "__device__" not in short and shorten(expand(short)) == short
        if number == 0:
            assert kernels(Program(text=expand(short)), cache) == kernels(program, cache)


def test_an_overload_in_the_short_form_is_not_defined_twice() -> None:
    """Older short forms, which models were trained on, held these helpers."""
    own = device_headers.text("store_float16")
    own = own[own.index("template <int N>\n__device__ void store_vector(__half* p") :]
    kernel = (
        'extern "C" __global__ void run(const __half* __restrict__ x, __half* __restrict__ out, int n) {\n'
        "    const auto x_tile = load_tile<1, 4>(x, 0, 4, n, true);\n"
        "    Tile<float, 4> s;\n"
        "    for (int k = 0; k < 4; ++k) s.v[k] = (float)x_tile.v[k];\n"
        "    store_tile<1, 4>(out, 0, 4, n, s, true);\n}"
    )
    plan = (
        "def forward(self, x):\n    out = torch.empty((4,), dtype=torch.float16)\n"
        "    run[1, 1](x, out, 4)\n    return out\n"
    )
    for hip in (kernel, own.strip() + "\n" + kernel):
        whole = expand(f"HIP = r'''\n{hip}\n'''\n{plan}")
        assert "store_vector(__half* p" not in whole and "hipwright/store_float16.h" in whole
        assert parse(whole).launched


@pytest.mark.slow
def test_expanded_programs_compile_to_the_same_kernels(
    programs: list[Program], tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache = BuildCache(tmp_path_factory.mktemp("builds"))
    for program in programs[::5]:
        assert kernels(Program(text=expand(shortened(program))), cache) == kernels(program, cache)


def test_kernels_without_renaming_keep_their_text() -> None:
    hip = 'extern "C" __global__ void run(const float* x, float* out, int n) {\n    out[0] = gelu(x[n]);\n}'
    text = f"HIP = r'''\n#include <hipwright/math.h>\n{hip}\n'''\n\n\ndef forward(self, x):\n    return x\n"
    assert "math.h" not in shorten(text)
    assert hip in expand(shorten(text))
    assert "#include <hipwright/math.h>\n" in expand(shorten(text))


def test_a_changed_helper_is_kept() -> None:
    helper = "template <typename T>\n__device__ T relu(T x) {\n    return x < T(0) ? T(1) : x;\n}\n"
    kernel = 'extern "C" __global__ void run(float* out) {\n    out[0] = relu(out[1]);\n}'
    text = f"HIP = r'''\n{helper}\n{kernel}\n'''\ndef forward(self, x):\n    return x\n"
    assert "T(1) : x" in shorten(text)
    assert expand(shorten(text)).count("T relu(T x)") == 1 and "hipwright/" not in expand(shorten(text))


def test_knobs_become_the_chosen_numbers(programs: list[Program]) -> None:
    program = next(one for one in programs if one.knobs)
    short = shortened(program)
    assert "knob(" not in short
    chosen = parse(text_with_knobs(program)).choose()
    for name, value in re.findall(r"^([A-Z]\w*) = (\d+)$", short, re.MULTILINE):
        assert chosen[name] == int(value)


def test_names_do_not_depend_on_the_task(graphs: dict[Composition, Graph]) -> None:
    for graph in graphs.values():
        short = shortened(write(graph))
        assert re.findall(r"void __launch_bounds__\([^)]*\) (\w+)\(", short)[0] == "run"
        assert "    return out\n" in short


@given(st.text(max_size=200))
def test_the_short_form_never_raises(text: str) -> None:
    for one in (text, f"HIP = r'''\n{text}\n'''\n{text}"):
        expand(one)
        shorten(one)
        prompt(one)


# ---------------------------------------------------------------- prompts

SOURCE = '''
import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16

class Model(nn.Module):
    """Says what it does."""
    def __init__(self, width, slope=0.1):
        super(Model, self).__init__()
        self.linear = nn.Linear(width, 2 * width)
        self.slope = slope

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """A comment."""
        x = F.leaky_relu(self.linear(x), self.slope)
        return torch.nn.functional.gelu(x) + y

def get_inputs():
    x = torch.randn(BATCH, 64)
    return [x, torch.rand((BATCH, 128), dtype=torch.float16)]

def get_init_inputs():
    return [64]
'''


def test_a_prompt_holds_forward_shapes_dtypes_and_init() -> None:
    assert prompt(SOURCE).splitlines() == [
        "x f32 16 64",
        "y f16 16 128 rand",
        "x = leaky_relu(self.linear(x), self.slope)",
        "return gelu(x) + y",
        "init 64",
        "init self.linear = Linear(width, 2 * width)",
        "init self.slope = slope",
    ]


def test_a_prompt_never_runs_the_source(tmp_path: Path) -> None:
    made = tmp_path / "made"
    harmful = f"import os\nos.mkdir({str(made)!r})\nclass Model:\n    def forward(self, x): return x\n"
    prompt(harmful)
    assert not made.exists()


@pytest.mark.parametrize("text", ["def broken(", "x = 1", "class Model:\n    pass\n", ""])
def test_other_texts_are_only_stripped(text: str) -> None:
    assert prompt(text) == text.strip() + "\n"
