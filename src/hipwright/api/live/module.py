"""A module in whose place a verified program runs, where a call is one that it was verified for."""

from __future__ import annotations

import contextlib
import copy
import functools
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

from hipwright.api.live.exported import InputName, LiveTask
from hipwright.api.live.forward.modes import unwatched, watching
from hipwright.api.live.graphed import GraphedProgram
from hipwright.api.live.guards import DropIn, SourceGuards, refusal, surroundings
from hipwright.errors import GuardFailed, HipwrightError

REPLICATED = "torch.nn.DataParallel gives each GPU a copy of the parameters in each call; run one process for each GPU"


class FallbackWarning(UserWarning):
    """A call was the original's and not the program's; the message says why. Given once for each module."""


class ProgramCall(Protocol):
    """A verified program that can be called."""

    @property
    def device(self) -> str:
        """The type of its tensors' device, "cpu" or "cuda"."""
        ...

    def __call__(
        self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]
    ) -> tuple[Sequence[torch.Tensor], dict[str, torch.Tensor]]:
        """(outputs, new values of buffers). Raises GuardFailed for shapes that the program declines."""


class OptimizedModule(DropIn):
    """A drop-in for a module or function: its parameters, buffers and parts are the original's own.

    A call runs the program where its arguments, modes and sizes are what the program was verified for, no gradient is
    asked for, and the tensors are where the program runs. Any other call is the original's: the first says so by a
    FallbackWarning, and `fallbacks` counts them by reason.
    """

    def __init__(self, original: Any, live: LiveTask, program: ProgramCall | None, why: str = "") -> None:
        super().__init__()
        own = self.__dict__
        own["original"], own["_live"], own["_program"], own["_why"] = original, live, program, why
        own["_guards"] = SourceGuards(original)
        own["_holders"] = {name: _holder(original, path, live.constants) for path, name in live.task.state.items()}
        types = {live.task.state[path]: known for path, known in live.state_types.items()}
        own["_state_types"] = [types.get(name) for name in own["_holders"]]
        own["_default_dtype"] = torch.get_default_dtype()
        own["fallbacks"] = Counter[str]()
        own["program_calls"] = 0
        if isinstance(original, torch.nn.Module):
            own |= {name: vars(original)[name] for name in ("_parameters", "_buffers", "_modules")}
            own["_non_persistent_buffers_set"] = original._non_persistent_buffers_set
            own["training"] = original.training
            functools.update_wrapper(self, original.forward, assigned=("__doc__",), updated=())
        else:
            functools.update_wrapper(self, original, updated=())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["original"], name)

    @property
    def device_graphs(self) -> dict[str, Any]:
        """{"replays", "captures", "launched": plain calls of the program by reason}; {} where none is captured."""
        program = self.__dict__["_program"]
        if not isinstance(program, GraphedProgram):
            return {}
        return {"replays": program.replays, "captures": program.captures, "launched": dict(program.launched)}

    @property
    def launches_on(self) -> str:
        """The type of the device of which its program launches kernels, which a graph can hold; "" without."""
        program = self.__dict__["_program"]
        if program is None or not (isinstance(program, GraphedProgram) or program.device == "cuda"):
            return ""
        return str(program.device)

    @property
    def prepares(self) -> bool:
        """Whether its program packs parameters, beside which a graph must not get old."""
        return bool(getattr(self.__dict__["_program"], "prepares", False))

    @property
    def draws(self) -> bool:
        """Whether its program draws random numbers."""
        return bool(self.__dict__["_live"].task.draws)

    @property
    def state_tables(self) -> Mapping[str, tuple[Mapping[str, Any], str]]:
        """By the task's names (the table, its key) from which each call reads its state."""
        return self.__dict__["_holders"]  # type: ignore[no-any-return]

    def train(self, mode: bool = True) -> OptimizedModule:
        """Sets the mode of the original, whose parts these are."""
        if isinstance(self.original, torch.nn.Module):
            self.original.train(mode)
        self.training = mode
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The program's outputs, or the original's."""
        if torch.compiler.is_compiling():
            return self.original(*args, **kwargs)
        leaves, structure = pytree.tree_flatten((args, kwargs))
        why, state = self._checked(structure, leaves)
        if not why:
            try:
                return self._run(leaves, state)
            except GuardFailed as error:
                why = f"the program declines these sizes: {error.message}"
            except HipwrightError as error:
                why = f"the program failed: {error.message}"
                self.__dict__["_program"], self.__dict__["_why"] = None, why
        self._fall_back(why)
        return self.original(*args, **kwargs)

    def refusal(self, structure: Any, leaves: list[Any]) -> str:
        """Why a call is the original's, as far as it is known before the program looks at sizes; "" where it is not."""
        return self._checked(structure, leaves)[0]

    def _checked(self, structure: Any, leaves: list[Any]) -> tuple[str, dict[str, torch.Tensor]]:
        """(`refusal`, the live state where there is none)."""
        program = self.__dict__["_program"]
        if program is None:
            return str(self.__dict__["_why"]), {}
        why = surroundings(self.__dict__["_default_dtype"]) or refusal(self._live, structure, leaves, program.device)
        why = why or self._guards.changed()
        if why:
            return why, {}
        state = self._state()
        why = self._state_refusal(state)
        return why or wants_gradients((*leaves, *state.values())), state

    def _state(self) -> dict[str, torch.Tensor]:
        """The live state by the task's names. Parts stay where they are: `SourceGuards` has compared them."""
        return {name: held.get(key) for name, (held, key) in self._holders.items()}

    def _state_refusal(self, state: Mapping[str, torch.Tensor]) -> str:
        here = attrgetter("is_cpu" if self.__dict__["_program"].device == "cpu" else "is_cuda")
        for (name, tensor), known in zip(state.items(), self._state_types, strict=True):
            if isinstance(tensor, torch.Tensor):
                if known is None or (tensor.shape == known[0] and tensor.dtype is known[1] and here(tensor)):
                    continue
                found = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
            else:
                found = "no tensor"
            path = next(path for path, named in self._live.task.state.items() if named == name)
            return f"{path} is {found}"
        return ""

    def _run(self, leaves: Sequence[Any], state: Mapping[str, torch.Tensor]) -> Any:
        live, program = self._live, self.__dict__["_program"]
        pairs = zip(live.leaves, leaves, strict=True)
        given = {known.name: leaf for known, leaf in pairs if isinstance(known, InputName)}
        with torch.no_grad():
            inputs = [given[name] for name in live.task.inputs]
            outputs, buffers = unwatched(lambda: program(inputs, state)) if watching() else program(inputs, state)
            for path in live.task.writes:
                name = live.task.state[path]
                state[name].copy_(buffers[name])
        found = [outputs[one] if isinstance(one, int) else given.get(str(one)) for one in live.task.outputs]
        self.__dict__["program_calls"] += 1
        return pytree.tree_unflatten(found, live.result)

    def _fall_back(self, why: str) -> None:
        if not self.fallbacks:
            name = getattr(self.original, "__name__", type(self.original).__name__)
            warnings.warn(f"{name} runs as it was: {why}", FallbackWarning, stacklevel=5)
        self.fallbacks[why] += 1

    def _replicate_for_data_parallel(self) -> torch.nn.Module:
        """What torch.nn.DataParallel calls on another GPU: the original with that GPU's parameters."""
        if isinstance(self.original, torch.nn.Module):
            self._fall_back(REPLICATED)
            replica: torch.nn.Module = self.original._replicate_for_data_parallel()
            return replica
        made = OptimizedModule(self.original, self._live, None, REPLICATED)
        made.__dict__["fallbacks"] = self.fallbacks  # its call counts, and says why once
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> OptimizedModule:
        own, program = self.__dict__, self.__dict__["_program"]
        program = program.apart() if isinstance(program, GraphedProgram) else program
        return OptimizedModule(copy.deepcopy(own["original"], memo), own["_live"], program, own["_why"])

    def __repr__(self) -> str:
        return f"OptimizedModule({self.original!r})"


def wants_gradients(values: Iterable[Any]) -> str:
    """Why a call with these tensors, among other values, is one for autograd; "" where it is none."""
    if not torch.is_grad_enabled():
        return ""
    wanted = any(value.requires_grad for value in values if isinstance(value, torch.Tensor))
    hint = 'call it under torch.no_grad(), or train with torch.compile(module, backend="hipwright")'
    return f"gradients are wanted: {hint}" if wanted else ""


def _holder(original: Any, path: str, constants: Mapping[str, torch.Tensor]) -> tuple[Mapping[str, Any], str]:
    """(the table, its key) from which each call reads the tensor of that path: found once, as a walk costs 10 µs."""
    *outer, name = path.split(".")
    with contextlib.suppress(AttributeError):
        owner = functools.reduce(getattr, outer, original)
        tables = (owner._parameters, owner._buffers) if isinstance(owner, torch.nn.Module) else ()
        for held in (*tables, vars(owner)):
            if isinstance(held.get(name), torch.Tensor):
                return held, name
    return constants, path


def tensor_at(original: Any, path: str, constants: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The tensor of that path: the module's, as it is now, or a constant of the trace."""
    try:
        found = functools.reduce(getattr, path.split("."), original)
    except AttributeError:
        return constants[path]
    return found if isinstance(found, torch.Tensor) else constants[path]
