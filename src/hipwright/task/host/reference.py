"""One run of the reference on given inputs and state, with all its effects. Runs in the task host."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

import numpy as np
import torch

from hipwright.errors import TaskError
from hipwright.task.host import state as states
from hipwright.task.host.copied import copied
from hipwright.task.host.double_precision import LARGEST, float64, widen
from hipwright.task.host.load import SUPPORTED, TaskModule, seed_everything
from hipwright.task.host.modes.operator_watch import OperatorWatch
from hipwright.task.host.modes.rounded_sums import RoundedSums
from hipwright.task.host.modes.special import SpecialValues
from hipwright.task.host.modes.ties import TieMarker
from hipwright.task.host.modes.undefined import FILLS, MAKING, FilledMemory, check_defined, first_difference
from hipwright.task.host.modes.value_checks import values_checked
from hipwright.task.host.prepared import MODEL_BYTES, PreparedModels, Token
from hipwright.task.host.random_draws import DrawForm, DrawRecorder, NotedDraws
from hipwright.task.host.rebuilt import rebuilt
from hipwright.task.host.together import on_host
from hipwright.tensors import HostTensor, Tree, map_tensors, tensor_leaves
from hipwright.torchio import from_torch, map_torch, to_torch, tree_from_torch, tree_to_torch

Dtype = Literal["float64", "native"]
RUN_SEED = 20_117  # of the generators that a reference may use while it runs
Shapes = tuple[tuple[int, ...], ...]


class ReferenceModel:
    """The model of a task file; every run starts from a copy of the constructed model.

    The device host runs it on a device (`task.device.held_runs`): what differs there are the short methods at the end.
    """

    kept_bytes = MODEL_BYTES

    def __init__(self, file: TaskModule) -> None:
        self.file = file
        self._template: torch.nn.Module | None = None
        self._draw_forms: dict[Shapes, list[DrawForm]] = {}
        self._written: set[str] = set()  # inputs that a run has written to
        self.caches: set[str] = set()  # buffers that forward builds for the inputs' sizes
        self.prepared = PreparedModels(self.model, self.kept_bytes)

    def model(self, state: Tree | None = None) -> torch.nn.Module:
        """A new model, set to a state table."""
        if self._template is None:
            self._template = self.file.model(0)
        try:
            model = copied(self._template)
        except Exception:
            model = self.file.model(0)  # not every module can be copied
        if state is not None:
            states.apply(model, state)
        return model

    def run(
        self,
        inputs: Tree,
        state: Tree,
        dtype: Dtype = "native",
        close: str = "",
        *,
        special: bool = False,
        seed: int = RUN_SEED,
        token: Token | None = None,
        rounding: Sequence[float] = (),
    ) -> tuple[Tree, dict[str, HostTensor], dict[str, Any]]:
        """(outputs, state after, info) as `TaskHandle.reference` documents them.

        special: info["special"] is what the run's own calls say about values (`SpecialValues.told`). token: the number
        of the state, by which a model that is set to it is found again.
        """
        start = _Start(self, inputs, state, token)
        if special:
            recorder = SpecialValues(self.file.source)
            run = _Run(start, exact=False, mode=recorder)
            if recorder.names & MAKING:
                filled = [_Run(start, exact=False, mode=FilledMemory(number)) for number in FILLS]
                check_defined(self.file.name, *(one.outputs() for one in filled))
            return run.outputs(), run.state(self._written), {"special": recorder.told()}
        if dtype == "native":
            return self._run(start, seed, exact=False)
        try:
            return self._run(start, seed, exact=True, close=close, rounding=rounding)
        except TaskError:
            # an operator without a float64 kernel: return the native result, marked as such
            outputs, buffers, info = self._run(start, seed, exact=False)
            return outputs, buffers, {**info, "reference_dtype": "native"}

    def _run(
        self, start: _Start, seed: int, *, exact: bool, close: str = "", rounding: Sequence[float] = ()
    ) -> tuple[Tree, dict[str, HostTensor], dict[str, Any]]:
        shapes = tuple(leaf.shape for leaf in tensor_leaves(start.inputs))
        forms = self._draw_forms.get(shapes, [])
        run = _Run(start, exact=exact, close=close, seed=seed, forms=forms, rounding=rounding)
        if not forms and run.drew == "torch":
            recorder = DrawRecorder()
            _Run(start, exact=False, seed=seed, mode=recorder)
            forms = self._draw_forms[shapes] = recorder.forms
            if exact:
                run = _Run(start, exact=True, close=close, seed=seed, forms=forms, rounding=rounding)
        if not exact:  # there a cast that the module makes may be none, and then what it writes is no copy
            self._written |= set(run.mutated(start.inputs))
        outputs, buffers = run.outputs(), run.state(self._written)
        # under another seed
        other = _Run(start, exact=run.exact, seed=run.seed + 1, forms=run.forms) if run.drew else None
        # dropout with p = 0 draws for nothing, and a draw may change other shapes' outputs only
        now = (outputs, buffers)
        depends = other is not None and first_difference(now, (other.outputs(), other.state(self._written))) is not None
        return (
            outputs,
            buffers,
            {
                "seconds": run.seconds,
                "aliases": run.aliases(),
                "random": depends or run.drew == "torch",
                "host_random": depends and run.drew == "host",
                "seeds_itself": other is not None and run.drew == "torch" and run.generator == other.generator,
                "generator": run.generator if depends else "",
                "mutated_inputs": [path for path, _ in named_leaves("inputs", run.args) if path in self._written],
                "decomposes": run.watched.decomposes,
                "reference_dtype": "float64" if exact else "native",
            },
        )

    # ---------------------------------------------------------------- where it runs

    def begin(self, token: Token | None, state: Tree, exact: bool) -> torch.nn.Module:
        """The model of one run."""
        return self.prepared.begin(token, state, exact)

    def placed(self, args: Any) -> Any:
        """The arguments where the model is."""
        return args

    def around(self) -> AbstractContextManager[Any]:
        """A context for the call."""
        return nullcontext()

    def generators(self) -> tuple[bytes, tuple[Any, ...]]:
        """The states of torch's generators, and of Python's and NumPy's."""
        numpy_state: Any = np.random.get_state(legacy=True)
        own = torch.get_rng_state().numpy().tobytes()
        return own, (random.getstate(), numpy_state[1].tobytes(), numpy_state[2:])


@dataclass(frozen=True)
class _Start:
    """What every run of one request begins with. token: the number of the state, None where it has none."""

    reference: ReferenceModel
    inputs: Tree
    state: Tree
    token: Token | None


class _Run:
    """One call of the model, and its observable effects.

    seed: of the generators, set just before the call. forms: how the module's own run draws. drew: "torch" where
    torch's generator was drawn from, "host" where Python's or NumPy's was, "" where none. generator: digest of
    torch's generator after the call.
    """

    def __init__(
        self,
        begun: _Start,
        *,
        exact: bool,
        close: str = "",
        seed: int = RUN_SEED,
        mode: AbstractContextManager[Any] | None = None,
        forms: Sequence[DrawForm] = (),
        rounding: Sequence[float] = (),
    ) -> None:
        self.file = begun.reference.file
        self.exact, self.seed, self.forms = exact, seed, forms
        where = begun.reference
        self.model = where.begin(begun.token, begun.state, exact)
        self._before = begun.state["buffers"]
        self.args: list[Any] = where.placed(tree_to_torch(_own(begun.inputs)))
        largest = torch.finfo(getattr(torch, close)).max if close else largest_number(self.args)
        if exact:
            cache: dict[int, torch.Tensor] = {}
            self.args = map_torch(self.args, lambda tensor: widen(tensor, cache))
        own = [tensor for _, tensor in named_leaves("inputs", self.args)]
        choices = TieMarker(close, own) if close else None
        self._versions = [tensor._version for tensor in own]
        seed_everything(seed)
        before = where.generators()
        noted = NotedDraws(forms) if forms else None
        sums = RoundedSums(close, int(rounding[0]), rounding[1]) if rounding else None
        mode = mode or (float64(choices, largest, noted, sums) if exact else nullcontext())
        start = time.perf_counter()
        self.watched = OperatorWatch()
        watch = nullcontext() if exact else self.watched  # of the module's own dtypes
        with torch.no_grad(), where.around(), values_checked(self.file.source), watch, mode:
            self.result = self.file.guarded(lambda: self.model(*self.args), "forward")
        if choices is not None:
            self.result = map_torch(self.result, choices.settled)
        self.seconds = time.perf_counter() - start
        after = where.generators()
        self.drew = "" if before == after else "torch" if before[1] == after[1] else "host"
        self.generator = sha256(after[0]).hexdigest()
        if not exact:
            where.caches |= rebuilt(self.file, self.model, self._before, lambda: self._again(begun))
        self._caches = where.caches
        where.prepared.end(begun.token, exact)

    def _again(self, begun: _Start) -> None:
        args: list[Any] = begun.reference.placed(tree_to_torch(_own(begun.inputs)))
        with torch.no_grad(), begun.reference.around():
            self.model(*args)

    def outputs(self) -> Tree:
        """The result as a tree; raises TaskError for a leaf that cannot be compared."""
        try:
            return tree_from_torch(self.result)
        except TypeError as error:
            raise TaskError(
                f"{self.file.name}: an output is not supported: {error}", hint=f"supported: {SUPPORTED}"
            ) from None

    def state(self, written: Collection[str]) -> dict[str, HostTensor]:
        """The buffers that the state table has, after the call, caches as before (`rebuilt`), not what forward itself
        keeps on the module; and by their paths the inputs `written`.
        """
        seen: dict[int, Any] = {}
        found = [(path, tensor) for path, tensor in states.buffers(self.model) if path in self._before]
        held = [(path, self._given(path) if path in self._caches else tensor) for path, tensor in found]
        held += [(path, leaf) for path, leaf in named_leaves("inputs", self.args) if path in written]
        copies = on_host([tensor for _, tensor in held])
        return {path: from_torch(tensor, seen) for (path, _), tensor in zip(held, copies, strict=True)}

    def _given(self, path: str) -> torch.Tensor:
        """A buffer before the call, from a table of host or of torch tensors."""
        held = self._before[path]
        return held if isinstance(held, torch.Tensor) else to_torch(held)

    def mutated(self, given: Tree) -> list[str]:
        """Paths of the inputs that a run in the module's own dtypes wrote to, of which `given` is a copy.

        Operators that count no version (native_batch_norm) are watched; what one writes to a view shows in the bits.
        """
        now = list(named_leaves("inputs", self.args))
        found = [
            path
            for (path, leaf), version in zip(now, self._versions, strict=True)
            if leaf._version != version or self.watched.wrote(leaf)
        ]
        pairs = zip(now, tensor_leaves(given), strict=True)
        return found + [path for (path, leaf), one in pairs if path not in found and not _same(leaf, one)]

    def aliases(self) -> list[list[str]]:
        """[output leaf, what it shares memory with], for inputs, parameters, buffers and earlier outputs."""
        holders: dict[int, list[str]] = {}
        groups: list[tuple[str, torch.Tensor]] = list(named_leaves("inputs", self.args))
        groups += [(f"params.{path}", tensor) for path, tensor in states.parameters(self.model)]
        groups += [(f"buffers.{path}", tensor) for path, tensor in states.buffers(self.model)]
        for name, tensor in groups:
            holders.setdefault(_memory(tensor), []).append(name)
        pairs = []
        for name, tensor in named_leaves("output", self.result):
            if address := _memory(tensor):
                pairs += [[name, holder] for holder in holders.get(address, [])]
                holders.setdefault(address, []).append(name)
        return pairs


def named_leaves(path: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """(path, tensor) in order, paths like "output[0]['k']"."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from named_leaves(f"{path}[{index}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from named_leaves(f"{path}[{str(key)!r}]", item)


def largest_number(args: Any) -> float:
    """The largest number that every float argument can hold; float32's without one."""
    floats = [torch.finfo(tensor.dtype).max for _, tensor in named_leaves("", args) if tensor.is_floating_point()]
    return float(min(floats, default=LARGEST))


def _own(inputs: Tree) -> Tree:
    """Copies of the storages, shared where they were shared."""
    copies: dict[int, Any] = {}

    def one(leaf: HostTensor) -> HostTensor:
        storage = copies.setdefault(id(leaf.storage), leaf.storage.copy())
        return HostTensor(leaf.dtype, leaf.shape, leaf.stride, leaf.offset, storage)

    return map_tensors(inputs, one)


def _same(tensor: torch.Tensor, given: HostTensor) -> bool:
    """Whether a tensor holds the bits of a host tensor of its form."""
    return bool(np.array_equal(from_torch(tensor, {}).bits(), given.bits(), equal_nan=given.is_float))


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())
