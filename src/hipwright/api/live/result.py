"""The result of `hipwright.optimize` for a live module or function."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from hipwright.api.live.callable import program_of
from hipwright.api.live.exported import LiveTask
from hipwright.api.live.module import OptimizedModule
from hipwright.api.result import Result
from hipwright.records import Evaluation, Program

AGREES = {torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Root mean square differences from the original at the example arguments, as shares of its own; others 1e-3."""


@dataclass(frozen=True)
class ModuleResult:
    """A search's result, and the module in whose place its program runs.

    module: the drop-in (`OptimizedModule`). search: the search's own `Result`. live: the task as it was traced.
    """

    module: OptimizedModule
    search: Result
    live: LiveTask

    @property
    def passed(self) -> bool:
        """Whether there is a verified program."""
        return self.search.passed

    @property
    def program(self) -> Program | None:
        """The best verified program; None where nothing passed."""
        return self.search.program

    @property
    def evaluation(self) -> Evaluation | None:
        """The winner's evaluation, else the last rejection."""
        return self.search.evaluation

    @property
    def source(self) -> str:
        """The program's text, as `save` writes it; "" without one."""
        return self.search.source

    @property
    def not_measured(self) -> list[str]:
        """The facts that the run did not establish, a sentence each."""
        return self.search.not_measured

    @property
    def run(self) -> str:
        """The run's id in the archive."""
        return self.search.run

    def report(self) -> str:
        """The run's page, as HTML."""
        return self.search.report()

    def save(self, folder: str | Path) -> Path:
        """Writes task.py, program.py, model_new.py, result.json, report.html, module.json and weights.pt.

        `hipwright.load` reads them. Returns the folder. Raises BadInput where the arguments hold what JSON cannot.
        """
        from hipwright.api.live.saved import save

        return save(self, Path(folder))

    def _repr_html_(self) -> str:
        return self.search._repr_html_()

    def __repr__(self) -> str:
        state = "verified" if self.passed else "no verified program"
        return f"ModuleResult({self.live.task.name}: {state}, run {self.run})"


def module_result(original: Any, live: LiveTask, result: Result, args: tuple[Any, ...], kwargs: Any) -> ModuleResult:
    """The result with its drop-in, whose program was compared with the original at the example arguments."""
    program, why = program_of(live.task, result)
    module = OptimizedModule(original, live, program, why)
    if program is not None and not (live.task.writes or live.task.draws):
        module = _compared(module, live, args, kwargs)
    return ModuleResult(module, result, live)


def _compared(module: OptimizedModule, live: LiveTask, args: tuple[Any, ...], kwargs: Any) -> OptimizedModule:
    """The module, without its program where the two differ at the example arguments."""
    with torch.no_grad():
        leaves, structure = pytree.tree_flatten((tuple(args), dict(kwargs)))
        if module.refusal(structure, leaves):
            return module
        own, found = module.original(*args, **kwargs), module(*args, **kwargs)
    pairs = zip(pytree.tree_leaves(own), pytree.tree_leaves(found), strict=True)
    if all(_agree(a, b) for a, b in pairs):
        return module
    return OptimizedModule(module.original, live, None, "the program differs from it at the example arguments")


def _agree(own: Any, found: Any) -> bool:
    if not isinstance(own, torch.Tensor):
        return bool(own == found)
    if own.shape != found.shape or own.dtype != found.dtype:
        return False
    if not (own.is_floating_point() or own.is_complex()):
        return own.numel() == 0 or float((own != found).float().mean()) <= 1e-3
    a, b = (torch.view_as_real(t) if t.is_complex() else t for t in (own, found))
    finite = torch.isfinite(a)
    if not torch.equal(finite, torch.isfinite(b)):
        return False
    a, b = a.double()[finite], b.double()[finite]
    scale = float(a.square().mean().sqrt()) if a.numel() else 0.0
    error = float((a - b).square().mean().sqrt()) if a.numel() else 0.0
    return error <= AGREES.get(own.dtype, 1e-3) * max(scale, 1e-30) or error == 0.0
