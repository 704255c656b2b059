"""HIP sources that must compile with AMD's headers: the suite's first programs, those of tasks bound by arithmetic in
split precision, honest candidates, knowledge pages, device headers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, first_graph, task_host
from benchmarks.suite.tasks import find as find_tasks
from hipwright import audit
from hipwright.engine import write
from hipwright.engine.knobs import SPLIT
from hipwright.llm.knowledge_base import pages
from hipwright.program import parse
from hipwright.targets import OFFLINE
from hipwright.toolchain.amd.rocm_source import rocm_source
from hipwright.toolchain.device_headers import names

FILE = "kernel.hip"
KINDS = ("suite", "arithmetic", "corpus", "knowledge", "headers")
USED = {
    "float8": "".join(
        f"""
extern "C" __global__ void convert{number}(const float* x, unsigned char* y, float* z) {{
    y[threadIdx.x] = float_to_float8<{number}, {saturates}>(x[threadIdx.x]);
    z[threadIdx.x] = float8_to_float<{number}>(y[threadIdx.x]);
}}
"""
        for number, saturates in enumerate(("true", "false", "true", "false"))
    ),
    "float8_product": "".join(
        f"""
extern "C" __global__ void multiply{number}_{k}(const unsigned char* x, float* z) {{
#if GEMM_MFMA
    Float8Fragment<{k}> a;
    __builtin_memcpy(&a, x + threadIdx.x * {k} / 4, {k} / 4);
    const Accumulator sums = float8_product<{number}, {number}>(a, a, Accumulator{{}});
    z[threadIdx.x] = sums[0] * float8_scale<{number}, {number}, {k}>();
#endif
}}
"""
        for number in range(4)
        for k in (32, 128)
    ),
}
"""Kernels that use templates of a device header which no program of the other kinds uses."""


@dataclass(frozen=True)
class Source:
    """One source. text: as AMD's compilers get it, with hipwright's device headers in it. archs: empty for all."""

    kind: str
    name: str
    text: str
    defines: tuple[str, ...]
    archs: tuple[str, ...] = ()


def sources(kinds: Sequence[str] = KINDS, every: int = 1, offset: int = 0) -> Iterator[Source]:
    """The sources of the kinds, in a fixed order; each `every`-th of a kind from `offset` on."""
    makers = {
        "suite": _suite,
        "arithmetic": _arithmetic,
        "corpus": _corpus,
        "knowledge": _knowledge,
        "headers": _headers,
    }
    for kind in kinds:
        yield from makers[kind](every, offset)


def _suite(every: int, offset: int) -> Iterator[Source]:
    yield from _written("suite", [(task.name, task.path) for task in find_tasks()[offset::every]], {})


def _arithmetic(every: int, offset: int) -> Iterator[Source]:
    """Products and convolutions of float32 in two parts (split_product.h)."""
    files = sorted((ROOT / "benchmarks/arithmetic").rglob("*.py"))[offset::every]
    yield from _written("arithmetic", [(path.stem, path) for path in files], {SPLIT: True})


def _written(kind: str, tasks: Sequence[tuple[str, Path]], choices: Mapping[str, Any]) -> Iterator[Source]:
    with task_host() as host:
        for name, path in tasks:
            yield from _made(kind, name, write(first_graph(path, host), choices).text)


def _corpus(every: int, offset: int) -> Iterator[Source]:
    folder = Path(str(audit.__file__)).parent / "corpus/program/honest"
    for path in sorted(folder.glob("*.py"))[offset::every]:
        yield from _made("corpus", path.stem, path.read_text(encoding="utf-8"))


def _knowledge(every: int, offset: int) -> Iterator[Source]:
    for page in sorted(pages(), key=lambda page: page.name)[offset::every]:
        archs = tuple(target for target in page.targets if target in OFFLINE)
        for text in page.programs:
            yield from _made("knowledge", page.name, text, archs)


def _headers(every: int, offset: int) -> Iterator[Source]:
    for name in names()[offset::every]:
        text = f"#include <hip/hip_runtime.h>\n#include <hipwright/{name}.h>\n{USED.get(name, '')}"
        yield Source("headers", name, rocm_source(text, FILE), ())


def _made(kind: str, name: str, text: str, archs: tuple[str, ...] = ()) -> Iterator[Source]:
    """The source of a program; none for one without HIP text."""
    parsed = parse(text)
    if parsed.hip.strip():
        defines = tuple(f"-D{knob}={value}" for knob, value in sorted(parsed.defines().items()))
        yield Source(kind, name, rocm_source(parsed.hip, FILE), defines, archs)
