"""Computes the expectation for one set of inputs within a limit of device memory. Runs in the device host.

An expectation needs several runs: native (the honest baseline), float64, and float64 on inputs nudged in several ways,
one at a time. Where float64 does not fit at once, the batch is cut into parts, if native runs on parts show that rows
are independent; else the baseline is its own expectation ("native"), with inputs nudged in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Any

import torch

from hipwright.errors import TaskError
from hipwright.task.device.leaf import DeviceLeaf, dtype_of, find_gather, states_of, ties
from hipwright.task.device.model import (
    DeviceFile,
    ModelCall,
    allocated_bytes,
    computed,
    give_back,
    is_memory,
    memory,
    nudge,
    peak_bytes,
    widened,
)
from hipwright.task.device.parts import Cut, LeafSink, WantsMemory, cut, kept, leaf_of, put_all, same_bits, same_rows
from hipwright.task.host import state as states
from hipwright.task.host.copied import copied
from hipwright.task.host.modes.rounded_sums import RoundedSums
from hipwright.task.host.rebuilt import rebuilt
from hipwright.task.host.reference import RUN_SEED, named_leaves
from hipwright.task.nudges import NUDGES, Nudge
from hipwright.tensors import Tree

_MAX_PARTS = 1024


@dataclass
class DeviceExpectation:
    """An expectation: its leaves, and how it was computed (see `verify.gpu.reference_handles.ExpectationInfo`).

    complex: a result is of a complex dtype, which is not judged here. short: want of memory alone kept it from float64.
    """

    leaves: list[DeviceLeaf]
    tree: Any
    aliases: list[list[str]]
    random: bool
    mutated: list[str]
    complex: bool = False
    reference: str = "float64"
    moved: bool = True
    short: bool = False
    seconds: float = 0.0
    bytes_out: int = 0
    notes: list[str] = field(default_factory=list)


class Expecting:
    """The computation of one expectation.

    room(): bytes of device memory that are available. spoil(): called before the inputs are written to. written: paths
    of inputs that the module is known to write to, which not every operator reports (`native_batch_norm`).
    """

    def __init__(
        self,
        file: DeviceFile,
        args: list[Any],
        state: Tree,
        *,
        seed: int,
        room: Callable[[], int],
        spoil: Callable[[], None],
        written: Sequence[str] = (),
    ) -> None:
        self._written = written
        self.file, self.args, self.state = file, args, state
        self._room, self._spoil = room, spoil
        self._seed = seed
        self._generator = torch.Generator(file.device).manual_seed(seed)
        self._caches: dict[str, torch.Tensor] = {}  # as they were: buffers that forward builds for the inputs' sizes
        self.notes: list[str] = []

    def make(self, *, strict: bool, may_ask: bool = False) -> DeviceExpectation:
        """The expectation. Raises TaskError where native fails; may_ask: or WantsMemory, where float64 fits nowhere."""
        self._may_ask = may_ask
        self._model = self.file.model(self.state)
        model = self._new_model()
        before = dict(self._buffers(self._model))
        held = allocated_bytes(self.file.device)
        self.native = ModelCall(self.file, model, self.args)
        self._peak = peak_bytes(self.file.device) - held
        built = rebuilt(self.file.file, model, before, lambda: ModelCall(self.file, model, self.args))
        self._caches = {path: before[path] for path in built}
        random = self.native.drew and self._differs()
        mutated = list(dict.fromkeys([*self.native.mutated, *self._written]))
        case = DeviceExpectation([], self.native.result, self.native.aliases(), random, mutated)
        case.seconds = self.native.seconds
        outputs = self.native.leaves()
        case.bytes_out = sum(tensor.numel() * tensor.element_size() for _, tensor in outputs)
        after = self._buffers(model)
        self._same = frozenset(path for path, tensor in after if same_bits(tensor, before[path]))
        shared = [memory(tensor) for _, tensor in outputs]
        self._held = frozenset(self.native.holders()) | {place for place in shared if shared.count(place) > 1}
        case.tree = (self.native.result, dict(after))
        if random or case.mutated:
            return case  # neither has an expectation
        case.complex = any(tensor.is_complex() for _, tensor in (*outputs, *after))
        if case.complex:
            return case
        named = [*outputs, *((f"buffer {path}", tensor) for path, tensor in after)]
        if strict:
            case.reference, case.moved = self._strict(case, named)
        else:
            case.leaves = [leaf_of(path, tensor, tensor.reshape(-1)) for path, tensor in named]
            case.reference, case.moved = "native", False
        case.notes = self.notes
        return case

    def _new_model(self) -> torch.nn.Module:
        """A model for one run: a copy of one that is set to the state, which is never run."""
        try:
            return copied(self._model)
        except Exception:
            return self.file.model(self.state)  # not every module can be copied

    def _buffers(self, model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
        found = [(path, tensor) for path, tensor in states.buffers(model) if path in self.state["buffers"]]
        return [(path, self._caches.get(path, tensor.detach())) for path, tensor in found]

    def _differs(self) -> bool:
        """Whether another seed gives other outputs."""
        again = ModelCall(self.file, self._new_model(), self.args, seed=RUN_SEED + 1)
        return again.digests() != self.native.digests()

    # ---------------------------------------------------------------- ways to a reference, best first

    def _strict(self, case: DeviceExpectation, named: list[tuple[str, torch.Tensor]]) -> tuple[str, bool]:
        ways: list[tuple[str, Any]] = [("float64", self._whole), ("parts", self._parts), ("native", self._native)]
        unable = False  # for want of a float64 kernel, which is none on parts either
        for how, attempt in ways:
            if how == "parts" and unable:
                continue
            if how == "native" and self._may_ask and not unable:
                raise WantsMemory(self._need() - self._room())
            try:
                found = attempt(named)
            except (TaskError, torch.OutOfMemoryError) as error:
                if how == "native":
                    raise
                self._note(how, error)
                found, unable = None, not is_memory(error)
            give_back(self.file.device)
            if found is not None:
                case.leaves, label, moved = found
                self._gathers(case.leaves)
                case.short = how == "native" and not unable
                return label, moved
        raise AssertionError("the native way raises or finds")

    def _note(self, how: str, error: Exception) -> None:
        kind = "not enough device memory" if is_memory(error) else str(error)[:200]
        self.notes.append(f"the reference does not run in {'parts' if how == 'parts' else 'float64'}: {kind}")

    def _whole(self, named: list[tuple[str, torch.Tensor]]) -> tuple[list[DeviceLeaf], str, bool] | None:
        """float64 on all inputs at once; None where memory does not allow it."""
        need, room = self._need(), self._room()
        if need > room:
            self.notes.append(f"float64 at once needs {need >> 20} MiB of device memory, {room >> 20} MiB may be used")
            return None
        sinks = self._sinks(named)
        exact = self._exact(self.args)
        for sink, true in zip(sinks, exact, strict=True):
            sink.put(0, sink.native, true)
        moved = self._put_moved(self.args, sinks, exact, [0] * len(sinks))
        return [sink.leaf() for sink in sinks], "float64", moved

    def _parts(self, named: list[tuple[str, torch.Tensor]]) -> tuple[list[DeviceLeaf], str, bool] | None:
        """float64 on parts of the batch; None where its result would differ."""
        if any(not path.startswith("output") and path.removeprefix("buffer ") not in self._same for path, _ in named):
            return None
        room = self._room() - sum(kept(tensor) for _, tensor in named)
        count = max(2, -(-self._need() // room)) if room > 0 else _MAX_PARTS + 1
        batch = cut(self.args, self.native.leaves())
        if batch is None or count > min(_MAX_PARTS, batch.size):
            return None
        spans = list(pairwise(batch.size * i // count for i in range(count + 1)))
        if not all(self._holds(batch, start, stop) for start, stop in spans):
            self.notes.append("rows of the batch depend on each other, so the reference has no parts")
            return None
        sinks = self._sinks(named)
        all_moved = True
        for start, stop in spans:
            args, own = batch.args(self.args, start, stop), sinks[: len(self.native.leaves())]
            exact = self._exact(args)
            places = [start * (sink.native.numel() // batch.size) for sink in own]
            for sink, place, true in zip(own, places, exact, strict=False):
                sink.put(place, sink.native[start:stop], true)
            all_moved &= self._put_moved(args, own, exact, places)
            del exact
        for sink in sinks[len(self.native.leaves()) :]:
            sink.put(0, sink.native, sink.native)
        return [sink.leaf() for sink in sinks], f"float64 in {count} parts", all_moved

    def _native(self, named: list[tuple[str, torch.Tensor]]) -> tuple[list[DeviceLeaf], str, bool]:
        """The baseline as its own expectation, and on inputs nudged in place, each nudge on top of the last."""
        sinks = self._sinks(named)
        for sink in sinks:
            sink.put(0, sink.native, sink.native)
        moved = False
        try:
            self._spoil()
            for way in NUDGES[:2]:  # the third would take the second back
                found = self._values(self._moved_model(way), self._nudged(self.args, way), exact=False)
                put_all(sinks, [0] * len(sinks), [sink.native for sink in sinks], found, way)
                moved = True
                del found
        except (TaskError, torch.OutOfMemoryError) as error:
            self._note("moved", error)
        return [sink.leaf() for sink in sinks], "native", moved

    def _sinks(self, named: list[tuple[str, torch.Tensor]]) -> list[LeafSink]:
        same = {f"buffer {path}" for path in self._same}
        return [LeafSink(path, tensor, unchanged=path in same, held=self._held) for path, tensor in named]

    # ---------------------------------------------------------------- runs

    def _exact(self, args: list[Any]) -> list[torch.Tensor]:
        """float64 outputs and buffers on these arguments."""
        with self.file.device:
            wide = widened(args)
        model = self._new_model()
        states.to_double(model)
        exact = self._values(model, wide, exact=True, close=self._narrowest(), equals=False)
        taken = {memory(tensor) for _, tensor in named_leaves("", wide)}
        return [tensor.clone() if memory(tensor) in taken else tensor for tensor in exact]

    def _put_moved(self, args: list[Any], sinks: list[LeafSink], exact: list[torch.Tensor], places: list[int]) -> bool:
        """Adds the float64 runs on nudged arguments to the sinks; False where a nudge leaves a domain."""
        all_moved = True
        before = self._generator.get_state()
        for way in NUDGES:
            if way.size < 0:  # the draw of the one before, the other way
                self._generator.set_state(before)
            before = self._generator.get_state()
            moved = self._moved(args, way)
            if moved is None or [tensor.shape for tensor in moved] != [tensor.shape for tensor in exact]:
                all_moved = False
                continue
            put_all(sinks, places, exact, moved, way)
            del moved
        return all_moved

    def _moved(self, args: list[Any], way: Nudge) -> list[torch.Tensor] | None:
        """float64 outputs and buffers on nudged arguments; None where the reference refuses them."""
        try:
            with self.file.device:
                wide = widened(args)
            model = self._moved_model(way)
            states.to_double(model)
            narrow = self._narrowest()
            sums = RoundedSums(narrow, self._seed, way.size) if way.sums else None
            return self._values(model, self._nudged(wide, way), exact=True, close=narrow, sums=sums)
        except TaskError as error:
            if is_memory(error):
                raise
            return None

    def _narrowest(self) -> str:
        """The narrowest float dtype among inputs, parameters and buffers, of those that kernels compute in."""
        held = [dtype_of(tensor) for tensor in states_of(self.state)]
        given = (*held, *(tensor.dtype for _, tensor in named_leaves("", self.args)))
        floats = [computed(dtype) for dtype in given if dtype.is_floating_point]
        return str(max(floats, key=lambda d: torch.finfo(d).eps, default=torch.float32)).removeprefix("torch.")

    def _values(
        self,
        model: torch.nn.Module,
        args: list[Any],
        *,
        exact: bool,
        close: str = "",
        equals: bool = True,
        sums: RoundedSums | None = None,
    ) -> list[torch.Tensor]:
        """Outputs and buffers afterwards, in the order of the leaves. close: as in `TaskHandle.reference`."""
        call = ModelCall(self.file, model, args, exact=exact, close=close, equals=equals, sums=sums)
        return [tensor for _, tensor in (*call.leaves(), *self._buffers(model))]

    def _moved_model(self, way: Nudge) -> torch.nn.Module:
        model = self._new_model()
        held = [*states.parameters(model), *states.buffers(model)]
        with torch.no_grad():
            nudge(((tensor.detach(), tensor) for _, tensor in held), self._generator, way)
        return model

    def _nudged(self, args: list[Any], way: Nudge) -> list[Any]:
        """`args`, which are the task's own or a part of them in float64, nudged in place."""
        pairs = zip(named_leaves("", args), named_leaves("", self.args), strict=True)
        nudge(((tensor, own) for (_, tensor), (_, own) in pairs), self._generator, way, categories=True)
        return args

    def _need(self) -> int:
        """Bytes that float64 at once needs in addition: inputs, two outputs, and the run's own memory."""
        wide = sum(8 * t.numel() for _, t in named_leaves("", self.args) if t.is_floating_point())
        outputs = [tensor for _, tensor in self.native.leaves()]
        size = min((t.element_size() for t in outputs if t.is_floating_point()), default=4)
        own = max(self._peak - sum(t.numel() * t.element_size() for t in outputs), 0)
        held = sum(8 * prod(t.shape) for t in states_of(self.state))
        stays = sum(kept(t) for t in outputs)
        return int(wide + 16 * sum(t.numel() for t in outputs) + own * 8 // size + 2 * held + stays)

    def _holds(self, batch: Cut, start: int, stop: int) -> bool:
        """Whether the native reference on a part gives that part of the whole."""
        try:
            call = ModelCall(self.file, self._new_model(), batch.args(self.args, start, stop))
        except TaskError:
            return False
        pairs = list(zip(self.native.leaves(), call.leaves(), strict=False))
        if len(pairs) != len(self.native.leaves()):
            return False
        return all(same_rows(part, whole[start:stop]) for (_, whole), (_, part) in pairs)

    def _gathers(self, leaves: list[DeviceLeaf]) -> None:
        """Sets the index rules of index leaves, from the inputs and the float outputs."""
        if all(not leaf.exact or not leaf.evidence or leaf.dtype == torch.bool for leaf in leaves):
            return
        sources = [t for _, t in named_leaves("", self.args) if t.is_floating_point() and t.dim()]
        outputs = [leaf.want.view(leaf.shape) for leaf in leaves if not leaf.exact and leaf.shape]
        for leaf in leaves:
            if leaf.exact and leaf.evidence:
                want = leaf.want.view(leaf.shape)
                leaf.gather = find_gather(want, sources, outputs) or find_gather(want, outputs, outputs)
                if leaf.gather is not None and leaf.judged is not None:
                    several = ties(leaf.gather)
                    leaf.judged |= several if leaf.near is None else several & ~leaf.near
