"""The programs of a model's regions, run in contained processes for the model's own process. Imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from hipwright.api.live.contained import ContainedProgram
from hipwright.api.whole.handle import ModelHandle
from hipwright.errors import GuardFailed, HipwrightError
from hipwright.records import Program
from hipwright.tensors import Tree
from hipwright.torchio import tree_from_torch, tree_to_torch


class RegionPrograms:
    """Programs for the processor by region, each in a process of its own. A context manager."""

    def __init__(self, *, unsafe: bool = False) -> None:
        self._unsafe = unsafe
        self._programs: dict[int, ContainedProgram] = {}
        self._states: dict[tuple[int, str], dict[str, torch.Tensor]] = {}

    def __enter__(self) -> RegionPrograms:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._programs.values():
            program.close()

    def add(self, region: int, program: Program, empty_state: Tree) -> None:
        """A region's program. empty_state: the state table of its task, drawn in the task's own process."""
        self._programs[region] = ContainedProgram(program, empty_state, unsafe=self._unsafe)

    def run(self, handle: ModelHandle, method: str, header: Mapping[str, Any]) -> tuple[dict[str, Any], Tree]:
        """A call of the model (`ModelHost.forward` or `metric`) to its end, with every program that it wants."""
        told, bundle = handle.ask(method, dict(header))
        while "region" in told:
            told, bundle = handle.ask("answer", *self._answer(told["region"], told["part"], bundle))
        return told, bundle

    def _answer(self, region: int, part: str, bundle: Any) -> tuple[dict[str, Any], Tree]:
        if bundle["state"] is not None:
            self._states[region, part] = tree_to_torch(bundle["state"])
        try:
            program, state = self._programs[region], self._states[region, part]
            outputs, buffers = program(tree_to_torch(bundle["inputs"]), state)
        except GuardFailed as error:
            return {"declined": error.message}, None
        except (HipwrightError, KeyError) as error:
            return {"failed": str(error)}, None
        return {}, {"outputs": tree_from_torch(list(outputs)), "buffers": tree_from_torch(buffers)}
