"""Every page of knowledge: its programs compile for every target it names, and solve its tasks on the cpu target."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hipwright.llm.knowledge_base import Page, pages
from hipwright.program import Parsed, parse
from hipwright.records import Build, Program, TolerancePolicy
from hipwright.sandbox import Limits, Zygote
from hipwright.targets import OFFLINE, Architecture
from hipwright.task.handle import TaskHandle
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.toolchain.nvidia import nvrtc
from hipwright.toolchain.pool import CompilePool
from hipwright.verify import Oracle, verify_cpu
from tests import warm

PAGES = {page.name: page for page in pages()}
TECHNIQUES = """vector-loads wave-reduction block-reduction row-softmax layernorm-rmsnorm gemm-lds mfma-tile scan
    transpose-lds grid-stride split-reduction gather-embedding pointwise-fusion packed-half column-reduction"""


@pytest.fixture(scope="module")
def cache() -> BuildCache:
    return warm.builds()


@pytest.fixture(scope="module")
def task_host() -> Zygote:
    return warm.host()


@pytest.fixture(scope="module")
def candidates() -> Zygote:
    return warm.candidates()


@pytest.fixture(scope="module")
def compilers() -> Iterator[CompilePool]:
    with nvrtc.zygote() as zygote, CompilePool(zygote, 1) as made:
        yield made


def waves(page: Page) -> tuple[int, ...]:
    """The wave sizes of the page's targets."""
    widths = {OFFLINE[target].wave if target in OFFLINE else 32 for target in page.targets}
    return tuple(sorted(widths, reverse=True))


def build_all(
    page: Page, parsed: Parsed, cache: BuildCache, compilers: CompilePool
) -> tuple[dict[str, Build], dict[tuple[int, bool], Build]]:
    defines = parsed.defines()

    def for_gpu(target: str) -> Build:
        if target.startswith("sm_"):
            return nvrtc.build(parsed.hip, defines, arch=target, pool=compilers, cache=cache)
        return amdgpu.build(parsed.hip, target, defines, cache=cache)

    with ThreadPoolExecutor(2) as pool:
        gpus = {target: pool.submit(for_gpu, target) for target in page.targets}
        cpus = {
            (wave, True): pool.submit(cpu.build, parsed.hip, defines, wave=wave, checked=True, cache=cache)
            for wave in waves(page)
        }
        return {k: f.result() for k, f in gpus.items()}, {k: f.result() for k, f in cpus.items()}


@pytest.mark.matrix(keep=7)
@pytest.mark.parametrize("name", sorted(PAGES))
def test_programs_compile_everywhere_and_are_right(
    name: str, task_host: Zygote, candidates: Zygote, cache: BuildCache, compilers: CompilePool
) -> None:
    page = PAGES[name]
    for task, text in zip(page.tasks, page.programs, strict=True):
        parsed = parse(text)
        gpus, cpus = build_all(page, parsed, cache, compilers)
        for target, made in [*gpus.items(), *cpus.items()]:
            assert made.ok, f"{target}: {made.log}"
        with TaskHandle(f"{name}.py", task, task_host, Limits(wall_s=60.0), TolerancePolicy()) as handle:
            oracle = Oracle(handle, seed=20)
            verdict = verify_cpu(
                parsed, Program(text=text), cpus, oracle, candidates, waves=waves(page), cache=cache, gate="fast"
            )
        assert verdict.passed, verdict.message
        assert "given" in verdict.workloads and len(verdict.workloads) >= 2, verdict.skipped


def test_matrix_instructions_are_really_used(cache: BuildCache) -> None:
    for target in ("gfx90a", "gfx942", "gfx950"):
        parsed = parse(PAGES[target].programs[0])
        (kernel,) = amdgpu.build(parsed.hip, target, parsed.defines(), cache=cache).kernels
        assert kernel.instructions["mfma"] > 0 and kernel.spills == 0


def test_wide_loads_are_really_wide(cache: BuildCache) -> None:
    parsed = parse(PAGES["vector-loads"].programs[0])
    for target in OFFLINE:
        kernels = {k.name: k for k in amdgpu.build(parsed.hip, target, parsed.defines(), cache=cache).kernels}
        assert kernels["gate_packs"].widest_vmem_bytes == 16 and kernels["gate_rest"].widest_vmem_bytes == 4


def architectures() -> dict[str, Architecture]:
    """The offline architectures without products that run another one's code."""
    return {name: one for name, one in OFFLINE.items() if one.isa == name}


def test_there_is_a_page_for_each_subject() -> None:
    by_kind = {kind: {p.name for p in PAGES.values() if p.kind == kind} for kind in ("arch", "technique", "api")}
    assert by_kind["arch"] == {*architectures(), "sm_90"}
    assert by_kind["technique"] == set(TECHNIQUES.split())
    assert by_kind["api"] == {"program-form", "library-calls", "cuda-habits"}


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_form_of_a_page(name: str) -> None:
    page = PAGES[name]
    assert page.title and page.tags and page.programs
    assert set(page.targets) <= {*OFFLINE, "sm_90"}
    assert page.kind != "arch" or page.targets == (name,)
    assert not re.search(r"(?<![\w.])/(?:home|root|tmp|usr|work)/", page.text), "a path of some machine"
    assert all("def get_init_inputs" in task for task in page.tasks)


def test_figures_are_those_of_the_target_table() -> None:
    """LDS, compute units and bandwidth on the pages equal those of the estimate."""
    for name, target in architectures().items():
        text = PAGES[name].text
        assert re.search(rf"\b{target.lds_per_block >> 10} KiB", text), name
        assert re.search(rf"\| compute units \| {target.cus}\b", text), name
        speed = (
            f"{target.bandwidth / 1e12:.1f} TB/s" if target.bandwidth > 1e12 else f"{target.bandwidth / 1e9:.0f} GB/s"
        )
        assert speed in text, name
        assert re.search(rf"\| wave \| \W*{target.wave} lanes", text), name


def test_other_pages_that_a_page_names_exist() -> None:
    named = {name for page in PAGES.values() for name in re.findall(r"\bpage ([a-z][\w-]+)", page.text)}
    assert named and named <= set(PAGES)
