"""Write, build and run a module in this process, and compare with its float64 reference."""

from __future__ import annotations

import copy
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from hipwright import config
from hipwright.device.cpu.launcher import LDS_LIMIT, CpuLauncher
from hipwright.device.sim.launcher import SimLauncher
from hipwright.engine import author
from hipwright.program import parse
from hipwright.program.lower.closures import lower
from hipwright.task.host.state import build as state_table
from hipwright.toolchain.amd import offline
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.toolchain.cpu.sides import Side
from hipwright.toolchain.sim import build as sim
from hipwright.toolchain.sim import runtime
from tests.engine.capturing import captured

CACHE = BuildCache(Path(tempfile.gettempdir()) / "hipwright-engine-tests")
FLOOR = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


class Op(torch.nn.Module):
    """One function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *x: torch.Tensor) -> Any:
        return self.function(*x)


def run(
    program: Any,
    model: torch.nn.Module,
    inputs: Sequence[Any],
    *,
    wave: int = 64,
    checked: bool = True,
    side: Side = "",
    draws: bool = False,
    lds_limit: int = LDS_LIMIT,
    simulated: str = "",
) -> tuple[Any, dict[str, Any]]:
    """(outputs, buffers after) of a program on the cpu target, or where its machine code is executed for an AMD
    architecture (`simulated`). draws: it may call random operators; lds_limit: bytes that a block may have.
    """
    parsed = parse(program.text)
    if simulated:
        machine = _simulated(parsed, program, simulated)
        return _forward(lower(parsed, program.knobs, state_table(model), machine, draws), inputs)
    how = {"wave": wave, "checked": checked, "side": side}
    build = cpu.build(parsed.hip, parsed.defines(program.knobs), **how, cache=CACHE, unsafe=True)
    assert build.ok, build.log[:3000] + program.text
    launcher = CpuLauncher(str(CACHE.path(build.blob)), parsed.signatures, wave=wave, lds_limit=lds_limit)
    return _forward(lower(parsed, program.knobs, state_table(model), launcher, draws), inputs)


def _forward(plan: Any, inputs: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    with torch.no_grad():
        outputs = plan.forward(*inputs)
    return outputs, plan.tensors


def _simulated(parsed: Any, program: Any, target: str) -> SimLauncher:
    """A launcher of a program's machine code."""
    made = offline.build(parsed.hip, target, parsed.defines(program.knobs), cache=CACHE, unsafe=True)
    assert made.ok, made.log[:3000] + program.text
    built = sim.from_assembly(CACHE.get(made.isa_blob).decode(), f"{target}@sim", made, CACHE)
    executor = runtime.library(BuildCache(config.cache_dir()), unsafe=True)
    return SimLauncher(str(executor), str(CACHE.path(built.blob)), parsed.signatures)


def reference(model: torch.nn.Module, inputs: Sequence[Any]) -> tuple[Any, Any, dict[str, Any]]:
    """(float64 outputs, native outputs, float64 buffers after)."""
    exact, native = copy.deepcopy(model).double(), copy.deepcopy(model)
    wide = [i.double() if isinstance(i, torch.Tensor) and i.is_floating_point() else i for i in inputs]
    with torch.no_grad():
        return exact(*wide), native(*inputs), dict(exact.named_buffers())


def kernels_in(text: str) -> int:
    """Kernels of a program; one and its twin for the captured sizes count once, each part of a joined one as well."""
    parts = set(re.findall(r"void (\w+)_part\d+\(\n +const unsigned part_block", text))
    more = text.count("const unsigned part_block") - len(parts)
    return text.count("__global__") - text.count("// the sizes of the task as constants") + more


def leaves(value: Any) -> list[torch.Tensor]:
    """The tensors of a nest, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [t for v in value.values() for t in leaves(v)]
    return [t for v in value for t in leaves(v)] if isinstance(value, (list, tuple)) else []


def compare(got: Any, expected: Any, native: Any) -> None:
    """As the verifier does: same dtypes and shapes, NaN where NaN, error within the honest error or a floor.

    NaN and infinity may be where either reference has them: PyTorch's float32 GELU of infinity is NaN on some CPUs.
    """
    for k, (g, e, n) in enumerate(zip(leaves(got), leaves(expected), leaves(native), strict=True)):
        assert g.dtype == n.dtype, (g.dtype, n.dtype)
        assert g.shape == n.shape, (g.shape, n.shape)
        if not g.is_floating_point():
            assert torch.equal(g, n), (k, g, n)
            continue
        g64 = g.double()
        e = e.double()
        nan, infinite = (g64.isnan() == e.isnan()), (g64.isinf() == e.isinf())
        assert (nan | (g64.isnan() == n.isnan())).all(), f"output {k}: NaN masks differ"
        assert (infinite | (g64.isinf() == n.isinf())).all(), f"output {k}: Inf masks differ"
        good = e.isfinite() & g64.isfinite()
        scale = e[good].square().mean().sqrt().clamp_min(1e-30) if good.any() else torch.tensor(1.0)
        error = ((g64 - e)[good].abs().max() / scale).item() if good.any() else 0.0
        honest = ((n.double() - e)[good].abs().max() / scale).item() if good.any() else 0.0
        assert error <= max(3 * honest, FLOOR[g.dtype] * 4), f"output {k}: error {error:.3g}, honest {honest:.3g}"


def check(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    *,
    choices: Mapping[str, Any] | None = None,
    wave: int = 64,
    library: Sequence[str] = (),
    other: Sequence[Any] | None = None,
) -> str:
    """Verify the engine's program for a module; `library` lists the operators that may stay library calls.

    other: inputs of another shape for the same program. Returns the program's text.
    """
    graph = captured(model, inputs)
    made = author(graph, choices or {})
    program = made.program
    for case in [inputs, *([other] if other is not None else [])]:
        expected, native, _ = reference(model, case)
        got, _ = run(program, model, case, wave=wave)
        try:
            compare(got, expected, native)
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{program.text}") from problem
    kept = {entry["op"] for entry in made.explanation["library"].values()}
    assert kept <= set(library), kept
    return program.text
