"""Many programs are started at once: parsed a few at a time, compiled as soon as each is parsed."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hipwright.evaluation import program_stages
from hipwright.evaluation.score import build
from hipwright.program import parse
from hipwright.records import Build, Program

TEXT = """HIP = r'''
extern "C" __global__ void twice(const float* x, float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = 2 * x[0]; }
'''
def forward(self, x):
    y = torch.empty_like(x)
    twice[1, 64](x, y, x.numel())
    return y
"""


class Compiler:
    """A GPU whose compiles wait until all have been requested."""

    cache: Any = None

    def __init__(self, count: int) -> None:
        self.all_asked = threading.Barrier(count)

    def build(self, hip: str, defines: dict[str, int]) -> Build:
        self.all_asked.wait(timeout=60)
        return Build(target="cuda", ok=True)


def test_parsing_takes_turns_and_compiling_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, now, most = threading.Lock(), 0, 0

    def slowly(text: str) -> Any:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.002)
        with lock:
            now -= 1
        return parse(text)

    monkeypatch.setattr(program_stages, "parse", slowly)
    gpu: Any = Compiler(24)
    programs = [Program(text=f"{TEXT}# {n}\n") for n in range(24)]
    with ThreadPoolExecutor(24) as pool:
        built = list(pool.map(lambda program: build(gpu, "cuda", program), programs))
    assert all(state.end is None for state in built)
    assert most == 2


def test_a_text_that_is_no_program_makes_way_for_the_next() -> None:
    gpu: Any = Compiler(1)
    for _ in range(3):
        wrong = build(gpu, "cuda", Program(text="nonsense("))
        assert wrong.end is not None and wrong.end.verdict.status == "parse_error"
    assert build(gpu, "cuda", Program(text=TEXT)).found.builds.gpu["cuda"].ok
