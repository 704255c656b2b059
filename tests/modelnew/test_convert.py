"""ModelNew files become programs that verify; what cannot is refused with its reason."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hipwright.audit.cases import CorpusCase, select
from hipwright.errors import ProgramError, ToolchainError
from hipwright.program import parse
from hipwright.program.convert.modelnew import from_modelnew
from hipwright.program.modelnew.export import export
from hipwright.records import Build, Program, Verdict
from hipwright.sandbox import Zygote
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.toolchain.nvidia import nvrtc
from hipwright.toolchain.pool import CompilePool
from hipwright.verify import verify_cpu
from tests.modelnew.samples import PAIRS, ROOT, candidate, task

HONEST = {case.name: case for case in select(form="program", kind="honest")}
INLINE = [case for case in select(form="modelnew", kind="honest") if "load_inline" in case.text]
QUICK = ("row_reduce", "layernorm", "half_dispatch", "out_parameter")


def verified(program: Program, path: Path, tasks: Any, candidates: Zygote, cache: BuildCache) -> Verdict:
    parsed = parse(program.text)
    kinds = [(64, True), (64, False)]

    def build(kind: tuple[int, bool]) -> Build:
        return cpu.build(parsed.hip, parsed.defines(), wave=kind[0], checked=kind[1], cache=cache)

    with ThreadPoolExecutor(2) as pool:
        builds = dict(zip(kinds, pool.map(build, kinds), strict=True))
    assert all(b.ok for b in builds.values()), [b.log for b in builds.values()]
    return verify_cpu(parsed, program, builds, tasks.oracle(path), candidates, waves=(64,), cache=cache)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in PAIRS])
@pytest.mark.matrix(keep=6)
def test_candidates_become_programs_that_verify(name: str, tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    program = from_modelnew(candidate(name), task(name))
    verdict = verified(program, ROOT / "tasks" / f"{PAIRS[name]}.py", tasks, candidates, cache)
    assert verdict.passed, f"{verdict.message}\n{program.text}"
    assert "given" in verdict.workloads
    assert verdict.checks["noop_right"] is False


@pytest.mark.parametrize("name", HONEST)
def test_exports_convert_back_to_the_program_they_came_from(name: str) -> None:
    text, source = HONEST[name].text, HONEST[name].task_path.read_text()
    parsed = parse(text)
    back = from_modelnew(export(Program(text=text), parsed, source), source)
    again = parse(back.text)
    assert again.hip.strip() == parsed.hip.strip()
    assert again.defines() == parsed.defines()
    assert set(again.launched) == set(parsed.launched) and again.prepared == parsed.prepared
    # written out once more it is the same file: nothing was lost on the way
    assert _body(export(back, again, source)) == _body(export(Program(text=text), parsed, source))


def _body(text: str) -> str:
    """A ModelNew file without the name of its program and its extension."""
    return "\n".join(line for line in text.split("\n") if "hipwright_" not in line[:40] and "Written by" not in line)


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
@pytest.mark.matrix(keep=10)
def test_exports_that_were_converted_back_verify(name: str, tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    text, path = HONEST[name].text, HONEST[name].task_path
    back = from_modelnew(export(Program(text=text), parse(text), path.read_text()), path.read_text())
    verdict = verified(back, path, tasks, candidates, cache)
    assert verdict.passed, f"{verdict.message}\n{back.text}"


@pytest.mark.matrix(keep=4)
@pytest.mark.slow
@pytest.mark.parametrize("case", INLINE, ids=lambda case: case.name)
def test_the_corpus_converts_and_verifies(case: CorpusCase, tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    """Files that somebody else wrote."""
    program = from_modelnew(case.text, case.task_path.read_text())
    verdict = verified(program, case.task_path, tasks, candidates, cache)
    assert verdict.passed, f"{verdict.message}\n{program.text}"


def test_a_conversion_that_is_wrong_is_caught(tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    wrong = candidate("row_reduce").replace("sum / cols + eps", "sum / (cols - 1) + eps")
    program = from_modelnew(wrong, task("row_reduce"))
    verdict = verified(program, ROOT / "tasks" / "row_norm.py", tasks, candidates, cache)
    assert verdict.status == "wrong_value"


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_converted_kernels_compile_for_amd(name: str, cache: BuildCache) -> None:
    parsed = parse(from_modelnew(candidate(name), task(name)).text)
    for arch in ("gfx942", "gfx1100"):
        made = amdgpu.build(parsed.hip, arch, parsed.defines(), cache=cache)
        assert made.ok, made.log


@pytest.mark.slow
def test_converted_kernels_compile_for_nvidia(cache: BuildCache) -> None:
    try:
        nvrtc.find()
    except ToolchainError as error:
        pytest.skip(error.message)
    with nvrtc.zygote() as zygote, CompilePool(zygote, 1) as pool:
        for name in PAIRS:
            parsed = parse(from_modelnew(candidate(name), task(name)).text)
            made = nvrtc.build(parsed.hip, parsed.defines(), arch="sm_90", pool=pool, cache=cache)
            assert made.ok, f"{name}: {made.log}"


REASONS = {
    "reads": ("long n = x.numel();", "long n = x.item<int64_t>();", "item() in host code"),
    "unknown kernel": ("GGL(gelu_kernel,", "GGL(other_kernel,", "other_kernel is launched and not defined"),
    "while": ("long n = x.numel();", "long n = x.numel(); while (n > 5) n -= 1;", "`while` in host code"),
    "in place": ("auto y = torch::empty_like(x);", "auto y = torch::empty_like(x); x.mul_(2);", "works in place"),
    "arithmetic on a pointer": ("x.data_ptr<float>(), y", "x.data_ptr<float>() + 1, y", "pointer + int"),
    "assembly": ("if (i < n) y", 'asm("nop;"); if (i < n) y', "inline assembly"),
    "python loop": ("return ext.gelu(x.contiguous())", "while True: pass", "While in forward"),
    "computed flags": ('extra_cuda_cflags=["-O3"]', "extra_cuda_cflags=[str(id(1))]", "not constants"),
}


@pytest.mark.parametrize("name", REASONS)
def test_what_cannot_be_converted_says_why(name: str) -> None:
    old, new, why = REASONS[name]
    text = candidate("hip_source")
    assert old in text
    with pytest.raises(ProgramError) as raised:
        from_modelnew(text.replace(old, new), task("hip_source"))
    assert why in raised.value.message, raised.value.message


def test_a_file_without_kernels_is_not_a_program() -> None:
    text = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"
    with pytest.raises(ProgramError, match="no kernels"):
        from_modelnew(text, task("elementwise"))
