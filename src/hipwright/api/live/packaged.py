"""A verified program on a GPU: the package that `hipwright export` makes of it, imported into this process."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from hipwright import config
from hipwright.api.files import write_file
from hipwright.errors import CandidateError, GuardFailed, ToolchainError
from hipwright.program import parse
from hipwright.records import Program, content_key
from hipwright.ship.torch_op import ShippedProgram, package
from hipwright.tensors import Tree

_lock = threading.Lock()
_imported: dict[str, ModuleType] = {}


class PackagedProgram:
    """One program as the operator of its package. source: the task's text; inputs, state: with specs for tensors."""

    device = "cuda"

    def __init__(self, program: Program, source: str, inputs: Sequence[Any], state: Tree) -> None:
        self._module = imported(program, source, inputs, state)
        self._spec = self._module.spec
        self._paths = [path for _, path, _, _ in self._spec.STATE]
        plan, op = (importlib.import_module(f"{self._module.__name__}.{name}") for name in ("plan", "op"))
        self._operator = op.Operator(self._spec, plan, self._module.KERNELS)  # without torch's dispatch
        self.prepares = hasattr(plan, "prepare")

    def __call__(
        self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]
    ) -> tuple[Sequence[torch.Tensor], dict[str, torch.Tensor]]:
        """(outputs, new values of the buffers that it writes) of one call, as `ContainedProgram`."""
        try:
            found = self._operator.forward(*inputs, *(state[path] for path in self._paths))
        except self._module.Declined as error:
            raise GuardFailed(str(error)) from error
        except (self._module.BuildError, self._module.NoGpu) as error:
            raise ToolchainError(str(error)) from error
        except self._module.LaunchError as error:
            raise CandidateError(str(error)) from error
        results = found if isinstance(found, (tuple, list)) else (found,)
        count = self._spec.OUTPUTS
        first = len(inputs)
        written = [self._paths[index - first] for index in self._spec.WRITTEN]
        return results[:count], dict(zip(written, results[count : count + len(written)], strict=True))

    def packed(self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> Any:
        """The weights as `prepare` packed them, which the calls with this state read."""
        own = [*inputs, *(state[path] for path in self._paths)]
        device = own[0].device
        return self._operator.prepared(self._module.KERNELS.on(device), device, own)


def imported(program: Program, source: str, inputs: Sequence[Any], state: Tree) -> ModuleType:
    """The program's package, written below the build cache once and imported once in a process."""
    name = f"hipwright_{content_key('package', program.key, source)}"
    with _lock:
        if name not in _imported:
            folder = config.cache_dir() / "packages" / name
            files = package(
                ShippedProgram(
                    name=name,
                    source=source,
                    program=program,
                    parsed=parse(program.text),
                    inputs=inputs,
                    state=state,
                    init=[],
                )
            )
            for relative, text in files.items():
                (folder / relative).parent.mkdir(parents=True, exist_ok=True)
                if not _holds(folder / relative, text):
                    write_file(folder / relative, text)
            sys.path.insert(0, str(folder / "src"))
            try:
                _imported[name] = importlib.import_module(name)
            finally:
                sys.path.remove(str(folder / "src"))
        return _imported[name]


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text
