"""Independent small kernels become one launch: right for every graph, and kernels that depend on each other do not."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn

from hipwright.engine import author
from hipwright.engine.emit.function import KernelFunction, KernelParameter
from hipwright.engine.emit.shared import shared_names, shared_parts
from hipwright.engine.emit.tree import Statement
from hipwright.engine.plan import joining
from hipwright.engine.plan.joining import Joining, Launch, PendingLaunches, joinable
from hipwright.engine.plan.memory_names import MemoryNames
from hipwright.engine.plan.naming import KernelNames
from hipwright.engine.templates.base import EmittedKernel
from hipwright.program import parse
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.nvidia import nvrtc
from tests import warm
from tests.engine.harness import CACHE, Op, captured, compare, kernels_in, reference, run
from tests.engine.template_builds import TARGETS

ROWS, OTHER, SLOTS = 5, 3, 16
WIDTHS = (12, 40, 7)
OPS = ("tanh", "softmax", "centred", "cumsum", "over_mean", "wide", "add_in_place", "write_slots")


class Steps(nn.Module):
    """Operators on tensors of three widths, of which each may read what the others made or wrote."""

    def __init__(self, steps: Sequence[tuple[str, int, int]]) -> None:
        super().__init__()
        self.steps = tuple(steps)

    def forward(self, slots, a, b, c, state_a, state_b, state_c):  # type: ignore[no-untyped-def]
        values, states = [a, b, c], [state_a, state_b, state_c]
        for op, one, other in self.steps:
            x = values[one]
            if op == "add_in_place":
                states[one][: x.shape[0]] += x
                continue
            if op == "write_slots":
                states[one][slots] = x
                continue
            values[one] = self.made(op, x, values[other])
        return tuple(values)

    @staticmethod
    def made(op: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if op == "tanh":
            return torch.tanh(x) + 0.5
        if op == "softmax":
            return torch.softmax(x, -1)
        if op == "centred":
            return x - x.mean(-1, keepdim=True)
        if op == "cumsum":
            return torch.cumsum(x, -1)
        if op == "wide":
            return torch.sqrt(x.double().square() + 1).to(x.dtype)
        return x / (1 + y.abs().mean())


def inputs_of(rows: int) -> list[torch.Tensor]:
    tensors = [torch.randn(rows, width) for width in WIDTHS] + [torch.randn(SLOTS, width) for width in WIDTHS]
    return [torch.randperm(SLOTS)[:rows], *tensors]


def joined_writes(text: str) -> list[tuple[list[str], list[str]]]:
    """For each joined launch of a plan: (what its parts write, all that they are given)."""
    parsed = parse(text)
    found = []
    for name, given_texts in re.findall(r"(\w+_joined(?:_\d+)?)\[.*?\]\((.*)\)$", text, re.MULTILINE):
        arguments = given_texts.split(", ")
        given_to = zip(arguments, parsed.signatures[name].params, strict=True)
        found.append(([a for a, parameter in given_to if parameter.pointer and not parameter.const], arguments))
    return found


def right(model: nn.Module, how: str, wave: int) -> str:
    """The values and the state that a program leaves, at the sizes of the capture and at others."""
    captured_inputs = inputs_of(ROWS)
    program = author(captured(model, captured_inputs), {"join": how, "exact": True}).program
    for case in (captured_inputs, inputs_of(OTHER)):
        wide, native, own = copy.deepcopy(case), copy.deepcopy(case), copy.deepcopy(case)
        wide = [x.double() if x.is_floating_point() else x for x in wide]
        with torch.no_grad():
            exact, plain = model(*wide), model(*native)
        got, _ = run(program, model, own, wave=wave)
        compare([*got, *own], [*exact, *wide], [*plain, *native])
    for written, all_given in joined_writes(program.text):
        assert all(all_given.count(name) == 1 for name in written), program.text
    return program.text


steps = st.lists(st.tuples(st.sampled_from(OPS), st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=6)
EXAMPLE = (("softmax", 0, 0), ("centred", 1, 1), ("write_slots", 0, 0), ("write_slots", 1, 1), ("cumsum", 2, 2))


@pytest.mark.parametrize("how", ["small", "all"])
def test_joined_kernels_are_right(how: str) -> None:
    text = right(Steps(EXAMPLE), how, 64)
    assert joined_writes(text)
    assert text.count("extern") < text.count("const unsigned part_block") + 4


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(steps, st.sampled_from(["small", "all", "no"]), st.sampled_from([32, 64]))
def test_generated_graphs_are_right(given_steps: list[tuple[str, int, int]], how: str, wave: int) -> None:
    right(Steps(given_steps), how, wave)


# ---------------------------------------------------------------- what is never joined


class Plan:
    """Takes what PendingLaunches writes: for each launch the kernels in it, in their order."""

    def __init__(self) -> None:
        self.joining = Joining("small", KernelNames())
        self.written: list[list[str]] = []
        self.pending = PendingLaunches(self.joining, self.write, lambda text: None, lambda name: name)

    def write(self, kernel: EmittedKernel, arguments: Sequence[str]) -> None:
        assert kernel.function is not None
        assert len(arguments) == len(kernel.function.parameters)
        self.written.append([f.name for f in kernel.function.parts] or [kernel.name])


def launch(name: str, reads: set[str], writes: set[str], block: str = "B", line: str = "x", moves: int = 8) -> Launch:
    names = sorted(reads | writes)
    parameters = [KernelParameter("float* __restrict__", n) for n in names]
    function = KernelFunction(name, name, block, parameters, [Statement(line)])
    kernel = EmittedKernel(name, function, "7", block, names, moves=moves)
    return Launch(kernel, names, frozenset(reads), frozenset(writes), joinable(kernel))


tensors = st.sets(st.sampled_from("abcdef"), max_size=2)


@given(st.lists(st.tuples(tensors, tensors), min_size=1, max_size=14))
def test_dependent_launches_keep_their_order(accesses: list[tuple[set[str], set[str]]]) -> None:
    plan, launches = Plan(), [launch(f"k{n}", *each) for n, each in enumerate(accesses)]
    for each in launches:
        plan.pending.add(each)
    plan.pending.flush()
    place = {name: number for number, names in enumerate(plan.written) for name in names}
    assert len(place) == len(launches)
    for number, later in enumerate(launches):
        for earlier in launches[:number]:
            first, second = place[earlier.kernel.name], place[later.kernel.name]
            assert first < second or (first == second and earlier.independent(later)), plan.written


@given(tensors, tensors, tensors, tensors)
def test_independent_is_what_bernstein_says(r1: set[str], w1: set[str], r2: set[str], w2: set[str]) -> None:
    apart = not (w1 & r2 or r1 & w2 or w1 & w2)
    assert launch("a", r1, w1).independent(launch("b", r2, w2)) == apart


def written(*launches: Launch) -> list[list[str]]:
    plan = Plan()
    for each in launches:
        plan.pending.add(each)
    plan.pending.flush()
    return plan.written


def test_what_joins_and_what_does_not() -> None:
    small = launch("s", {"a"}, {"b"})
    assert written(small, launch("t", {"a"}, {"c"})) == [["s", "t"]]
    large = launch("t", {"a"}, {"c"}, moves=joining.SMALL_BYTES + 1)
    assert written(small, large) == [["s"], ["t"]]
    for line in ("int i = blockIdx.y;", "int i = threadIdx.y;", "int i = gridDim.x;", "int i = blockDim.x;"):
        assert written(small, launch("t", {"a"}, {"c"}, line=line)) == [["s"], ["t"]]
    assert written(small, launch("t", {"a"}, {"c"}, block="C")) == [["s", "t"]]
    waits = launch("t", {"a"}, {"c"}, block="C", line="__syncthreads();")
    assert written(small, waits) == [["s"], ["t"]]
    lds = [launch(n, {"a"}, {n}, line=f"__shared__ float {n}[4];") for n in ("t", "u")]
    assert written(*lds) == [["t"], ["u"]]
    many = [launch(f"k{n}", {"a"}, {f"o{n}"}) for n in range(joining.MOST + 2)]
    assert [len(names) for names in written(*many)] == [joining.MOST, 2]


def test_tuples_of_sizes_are_no_range_of_blocks() -> None:
    for grid, good in (("(n, 2)", False), ("n, 2", False), ("cdiv(n, B)", True), ("(n) * cdiv(n, B)", True)):
        kernel = launch("k", {"a"}, {"b"}).kernel
        kernel.grid = grid
        assert joinable(kernel) == good, grid


def test_views_and_their_sources_are_one_memory() -> None:
    memory = MemoryNames()
    memory.same("view", "x")
    memory.made_by("split", ["p", "q"], ["view"])
    memory.made_by("mm", ["y"], ["x"])
    assert memory.of("q") == memory.of("x")
    assert memory.of("y") != memory.of("x")


# ---------------------------------------------------------------- programs


def two_norms(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.softmax(q, -1), torch.softmax(k, -1) * 2


def test_a_chain_is_not_joined_and_offers_nothing() -> None:
    made = author(captured(Op(lambda x: torch.softmax(torch.cumsum(x, -1), -1).mean(0)), [torch.randn(6, 300)]))
    assert "join" not in made.space
    assert "part_block" not in made.program.text


def test_the_choice_keeps_kernels_apart() -> None:
    graph = captured(Op(two_norms), [torch.randn(6, 40), torch.randn(3, 200)])
    made, apart = author(graph), author(graph, {"join": "no"})
    assert made.space["join"].default == "small" == apart.space["join"].default
    assert made.program.text.count("__global__") < apart.program.text.count("__global__")
    assert kernels_in(made.program.text) == kernels_in(apart.program.text) == 2
    (told,) = made.explanation["kernels"]
    assert len(told["nodes"]) == sum(len(kernel["nodes"]) for kernel in apart.explanation["kernels"])


def test_kernels_that_move_much_are_joined_by_choice_only() -> None:
    graph = captured(Op(two_norms), [torch.empty(4096, 1024), torch.empty(2048, 1024)])
    assert "part_block" not in author(graph).program.text
    assert "part_block" in author(graph, {"join": "all"}).program.text


def test_joined_kernels_that_differ_in_names_only_are_one() -> None:
    def whole(name: str, first: str, second: str, line: str = "x") -> KernelFunction:
        parts = [launch(f"{name}_{n}", {"a"}, {n}, line=f"{n}[0] = {line};") for n in (first, second)]
        function = joining.joined(name, parts, [f"blocks_{name}"])[0].function
        assert function is not None
        return function

    one, other, third = whole("one", "p", "q"), whole("two", "r", "s"), whole("three", "r", "s", line="y")
    assert shared_names([one, other, third]) == {"two": "one"}


def test_parts_that_differ_in_names_only_are_written_once() -> None:
    def whole(name: str, *lines: str) -> KernelFunction:
        parts = [
            launch(f"{name}_{n}", {"a"}, {f"{name}{n}"}, line=f"const float {name}_t = 1.0f; {name}{n}[0] = {line};")
            for n, line in enumerate(lines)
        ]
        function = joining.joined(name, parts, [f"blocks_{name}"])[0].function
        assert function is not None
        return function

    one, other = whole("one", "one_t", "2.0f"), whole("two", "3.0f", "two_t")
    found = shared_parts([one, other])
    assert found == {"two_part2": "one_part1"} and shared_names([one, other]) == {}
    text = other.text(found)
    assert "two_part1(" in text and "two_part2" not in text and text.count("one_part1(") == 1
    assert one.text(found) == one.text() and other.text() == other.text({})


class TwoPairs(nn.Module):
    """Two pairs of kernels that are joined: of both pairs one kernel is the same but for its tensors."""

    def forward(self, q, k, v):  # type: ignore[no-untyped-def]
        q, k = torch.softmax(q, -1), torch.softmax(k, -1) * 2
        x = q @ k
        return torch.softmax(x, -1), torch.softmax(x.T.contiguous(), -1) * 3, torch.tanh(v)


def test_programs_with_shared_parts_are_right() -> None:
    model, inputs = TwoPairs(), [torch.randn(6, 40), torch.randn(40, 40), torch.randn(6, 40)]
    program = author(captured(model, inputs)).program
    exact, native, _ = reference(model, inputs)
    compare(run(program, model, inputs)[0], exact, native)
    defined = re.findall(r"^static __device__ __forceinline__ void (\w+_part\d+)\(", program.text, re.MULTILINE)
    called = re.findall(r"^ +(\w+_part\d+)\(", program.text, re.MULTILINE)
    assert set(called) == set(defined) and len(called) > len(defined) == len(set(defined))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_joined_kernels_build_for_amd_with_no_scratch(target: str) -> None:
    program = author(captured(Steps(EXAMPLE), inputs_of(ROWS)), {"exact": True}).program
    parsed = parse(program.text)
    build = amdgpu.build(parsed.hip, target, parsed.defines(program.knobs), cache=CACHE, unsafe=True)
    assert build.ok, build.log
    assert all(kernel.scratch_bytes == 0 for kernel in build.kernels)


def test_joined_kernels_build_by_nvrtc() -> None:
    program = author(captured(Steps(EXAMPLE), inputs_of(ROWS)), {"exact": True}).program
    parsed = parse(program.text)
    build = nvrtc.build(parsed.hip, parsed.defines(program.knobs), arch="sm_90", pool=warm.compilers(), cache=CACHE)
    assert build.ok, build.log


def test_a_library_result_and_its_parts_are_right() -> None:
    model = Op(lambda x, y: (*(torch.tanh(p) for p in torch.fft.rfft(x).abs().split(2)), torch.softmax(y, -1)))
    given_inputs = [torch.randn(4, 30), torch.randn(7, 11)]
    program = author(captured(model, given_inputs)).program
    exact, native, _ = reference(model, given_inputs)
    compare(run(program, model, given_inputs)[0], exact, native)
