"""What is right for one set of inputs, worked out within a limit of device memory. Runs in the device host.

Three runs make an expectation: native (the honest baseline), float64, and float64 on nudged inputs. Where float64 does
not fit at once, the batch is cut into parts, if the native reference proves on parts that rows do not depend on each
other; else the baseline stands for itself ("native"), and is nudged in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch

from hipwright.digest import digest
from hipwright.errors import TaskError
from hipwright.task import state as states
from hipwright.task.device_leaf import BLOCK, Leaf, find_gather, honest_errors
from hipwright.task.device_model import Call, DeviceFile, memory, nudge, widened
from hipwright.task.reference import RUN_SEED, map_torch, named_leaves
from hipwright.tensors import Tree

COMPACT = 1 << 24  # elements from which a leaf is kept in the compact form
_MAX_PARTS = 256
# relative rms by which a part may differ from the whole, in units in the last place: less than any budget
_SAME = {torch.float64: 8.0, torch.float32: 8.0, torch.float16: 2.0, torch.bfloat16: 2.0}


@dataclass
class Case:
    """An expectation: its leaves, and how it came about (`verify.reference.ExpectInfo` documents these)."""

    leaves: list[Leaf]
    tree: Any
    aliases: list[list[str]]
    random: bool
    mutated: list[str]
    reference: str = "float64"
    moved: bool = True
    seconds: float = 0.0
    bytes_out: int = 0
    notes: list[str] = field(default_factory=list)


class Expecting:
    """One expectation in the making.

    room(): bytes of device memory that may still be taken. spoil(): called before the inputs are written to.
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
    ) -> None:
        self.file, self.args, self.state = file, args, state
        self._room, self._spoil = room, spoil
        self._generator = torch.Generator(file.device).manual_seed(seed)
        self.notes: list[str] = []

    def make(self, *, strict: bool) -> Case:
        """The expectation. Raises TaskError where the native reference fails."""
        model = self.file.model(self.state)
        before = {path: digest(tensor, 0) for path, tensor in self._buffers(model)}
        held = _allocated(self.file.device)
        self.native = Call(self.file, model, self.args)
        self._peak = _peak(self.file.device) - held
        random = self.native.drew and self._differs()
        case = Case([], self.native.result, self.native.aliases(), random, self.native.mutated)
        case.seconds = self.native.seconds
        outputs = self.native.leaves()
        case.bytes_out = sum(tensor.numel() * tensor.element_size() for _, tensor in outputs)
        after = self._buffers(model)
        self._same = frozenset(path for path, tensor in after if digest(tensor, 0) == before[path])
        shared = [memory(tensor) for _, tensor in outputs]
        self._held = frozenset(self.native.holders()) | {place for place in shared if shared.count(place) > 1}
        case.tree = (self.native.result, dict(after))
        if random or case.mutated:
            return case  # nothing can be expected of either
        named = [*outputs, *((f"buffer {path}", tensor) for path, tensor in after)]
        if strict:
            case.reference, case.moved = self._strict(case, named)
        else:
            case.leaves = [_leaf(path, tensor, tensor.reshape(-1)) for path, tensor in named]
            case.reference, case.moved = "native", False
        case.notes = self.notes
        return case

    def _buffers(self, model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
        known = self.state["buffers"]
        return [(path, tensor.detach()) for path, tensor in states.buffers(model) if path in known]

    def _differs(self) -> bool:
        """Whether another seed gives other outputs."""
        again = Call(self.file, self.file.model(self.state), self.args, seed=RUN_SEED + 1)
        return again.digests() != self.native.digests()

    # ---------------------------------------------------------------- ways to a reference, best first

    def _strict(self, case: Case, named: list[tuple[str, torch.Tensor]]) -> tuple[str, bool]:
        ways: list[tuple[str, Any]] = [("float64", self._whole), ("parts", self._parts), ("native", self._native)]
        unable = False  # an operator without a float64 kernel has none on parts either
        for how, attempt in ways:
            if how == "parts" and unable:
                continue
            try:
                found = attempt(named)
            except (TaskError, torch.OutOfMemoryError) as error:
                if how == "native":
                    raise
                self._note(how, error)
                found, unable = None, not _is_memory(error)
            _give_back(self.file.device)
            if found is not None:
                case.leaves, label, moved = found
                self._gathers(case.leaves)
                return label, moved
        raise AssertionError("the native way raises or finds")

    def _note(self, how: str, error: Exception) -> None:
        kind = "not enough device memory" if _is_memory(error) else str(error)[:200]
        self.notes.append(f"the reference does not run in {'parts' if how == 'parts' else 'float64'}: {kind}")

    def _whole(self, named: list[tuple[str, torch.Tensor]]) -> tuple[list[Leaf], str, bool] | None:
        """float64 on all inputs at once; None where memory does not allow it."""
        need, room = self._need(), self._room()
        if need > room:
            self.notes.append(f"float64 at once needs {need >> 20} MiB of device memory, {room >> 20} MiB may be used")
            return None
        sinks = [_Sink(path, tensor, self) for path, tensor in named]
        exact, moved = self._exact_runs(self.args)
        for index, sink in enumerate(sinks):
            sink.put(0, sink.native, exact[index], None if moved is None else moved[index])
        return [sink.leaf() for sink in sinks], "float64", moved is not None

    def _parts(self, named: list[tuple[str, torch.Tensor]]) -> tuple[list[Leaf], str, bool] | None:
        """float64 on parts of the batch; None where that would not be the same thing."""
        if any(not path.startswith("output") and path.removeprefix("buffer ") not in self._same for path, _ in named):
            return None
        kept = sum(_kept(tensor) for _, tensor in named)
        room = self._room() - kept
        count = max(2, -(-self._need() // room)) if room > 0 else _MAX_PARTS + 1
        cut = _cut(self.args, self.native.leaves())
        if cut is None or count > min(_MAX_PARTS, cut.size):
            return None
        bounds = [cut.size * i // count for i in range(count + 1)]
        spans = list(pairwise(bounds))
        if not all(self._holds(cut, start, stop) for start, stop in spans):
            self.notes.append("rows of the batch depend on each other, so the reference has no parts")
            return None
        sinks = [_Sink(path, tensor, self) for path, tensor in named]
        all_moved = True
        for start, stop in spans:
            exact, moved = self._exact_runs(cut.args(self.args, start, stop))
            all_moved &= moved is not None
            for index, sink in enumerate(sinks[: len(self.native.leaves())]):
                tensor = sink.native
                shifted = None if moved is None else moved[index]
                sink.put(start * (tensor.numel() // cut.size), tensor[start:stop], exact[index], shifted)
        for sink in sinks[len(self.native.leaves()) :]:
            sink.put(0, sink.native, sink.native, None)
        return [sink.leaf() for sink in sinks], f"float64 in {count} parts", all_moved

    def _native(self, named: list[tuple[str, torch.Tensor]]) -> tuple[list[Leaf], str, bool]:
        """The baseline as its own expectation, and once more on nudged inputs."""
        sinks = [_Sink(path, tensor, self) for path, tensor in named]
        moved: list[torch.Tensor] | None = None
        try:
            self._spoil()
            moved = self._values(self._moved_model(), self._nudged(self.args), exact=False)
        except (TaskError, torch.OutOfMemoryError) as error:
            self._note("moved", error)
        for index, sink in enumerate(sinks):
            sink.put(0, sink.native, sink.native, None if moved is None else moved[index])
        return [sink.leaf() for sink in sinks], "native", moved is not None

    # ---------------------------------------------------------------- runs

    def _exact_runs(self, args: list[Any]) -> tuple[list[torch.Tensor], list[torch.Tensor] | None]:
        """float64 outputs and buffers on these arguments, and on nudged ones; None where the nudge leaves a domain."""
        with self.file.device:
            wide = widened(args)
        model = self.file.model(self.state)
        states.to_double(model)
        exact = self._values(model, wide, exact=True)
        taken = {memory(tensor) for _, tensor in named_leaves("", wide)}
        exact = [tensor.clone() if memory(tensor) in taken else tensor for tensor in exact]
        del model
        try:
            model = self._moved_model()
            states.to_double(model)
            moved = self._values(model, self._nudged(wide), exact=True)
        except TaskError as error:
            if _is_memory(error):
                raise
            return exact, None
        same = [tensor.shape for tensor in moved] == [tensor.shape for tensor in exact]
        return exact, moved if same else None

    def _values(self, model: torch.nn.Module, args: list[Any], *, exact: bool) -> list[torch.Tensor]:
        """Outputs and buffers after, in the order of the leaves."""
        call = Call(self.file, model, args, exact=exact)
        return [tensor for _, tensor in (*call.leaves(), *self._buffers(model))]

    def _moved_model(self) -> torch.nn.Module:
        model = self.file.model(self.state)
        held = [*states.parameters(model), *states.buffers(model)]
        with torch.no_grad():
            nudge(((tensor.detach(), tensor) for _, tensor in held), self._generator)
        return model

    def _nudged(self, args: list[Any]) -> list[Any]:
        """`args`, which are the task's own or a part of them in float64, nudged in place."""
        pairs = zip(named_leaves("", args), named_leaves("", self.args), strict=True)
        nudge(((tensor, own) for (_, tensor), (_, own) in pairs), self._generator)
        return args

    def _need(self) -> int:
        """Bytes that float64 at once takes besides what is there: inputs, two outputs, and the run's own memory."""
        wide = sum(8 * t.numel() for _, t in named_leaves("", self.args) if t.is_floating_point())
        outputs = [tensor for _, tensor in self.native.leaves()]
        size = min((t.element_size() for t in outputs if t.is_floating_point()), default=4)
        own = max(self._peak - sum(t.numel() * t.element_size() for t in outputs), 0)
        held = sum(8 * t.numel for t in states_of(self.state))
        kept = sum(_kept(t) for t in outputs)
        return int(wide + 16 * sum(t.numel() for t in outputs) + own * 8 // size + 2 * held + kept)

    def _holds(self, cut: _Cut, start: int, stop: int) -> bool:
        """Whether the native reference on a part is that part of the whole."""
        try:
            call = Call(self.file, self.file.model(self.state), cut.args(self.args, start, stop))
        except TaskError:
            return False
        pairs = list(zip(self.native.leaves(), call.leaves(), strict=False))
        if len(pairs) != len(self.native.leaves()):
            return False
        return all(
            part.shape == whole[start:stop].shape and _close(part, whole[start:stop]) for (_, whole), (_, part) in pairs
        )

    def _gathers(self, leaves: list[Leaf]) -> None:
        """Index leaves learn how they select, from the inputs and the float outputs."""
        if all(not leaf.exact or not leaf.evidence or leaf.dtype == torch.bool for leaf in leaves):
            return
        sources = [t for _, t in named_leaves("", self.args) if t.is_floating_point() and t.dim()]
        sources += [leaf.want.view(leaf.shape) for leaf in leaves if not leaf.exact and leaf.shape]
        for leaf in leaves:
            if leaf.exact and leaf.evidence:
                leaf.gather = find_gather(leaf.want.view(leaf.shape), sources)


def states_of(state: Tree) -> list[Any]:
    """The tensors of a state table."""
    return [*state["params"].values(), *state["buffers"].values()]


class _Sink:
    """Collects one leaf's expectation, part by part."""

    def __init__(self, path: str, native: torch.Tensor, making: Expecting) -> None:
        self.path, self.native = path, native
        self.unchanged = path.startswith("buffer ") and path.removeprefix("buffer ") in making._same
        self.exact = self.unchanged or not native.is_floating_point()
        self._judged: torch.Tensor | None = None
        count, device = native.numel(), native.device
        compact = count >= COMPACT and native.dtype != torch.float64
        if self.exact:
            self._want = torch.empty(count, dtype=native.dtype, device=device)
        elif (
            compact and native.dtype == torch.float32 and native.is_contiguous() and memory(native) not in making._held
        ):
            self._want = native.view(-1)  # the baseline's values are read before they are replaced
        else:
            self._want = torch.empty(count, dtype=torch.float32 if compact else torch.float64, device=device)
        kind = torch.bfloat16 if compact else torch.float64
        self._honest = None if self.exact else torch.empty(count, dtype=kind, device=device)

    def put(self, start: int, native: torch.Tensor, exact: torch.Tensor, moved: torch.Tensor | None) -> None:
        """Values from the logical element `start` on."""
        stop = start + native.numel()
        base, true = native.detach().reshape(-1), exact.detach().reshape(-1)
        shifted = None if moved is None else moved.detach().reshape(-1)
        want = self._want[start:stop]
        if self.unchanged:
            want.copy_(base)
            return
        if self.exact:
            want.copy_(true.to(want.dtype))
            fair = (want == base) if shifted is None else (want == base) & (want == shifted.to(want.dtype))
            judged = None if bool(fair.all()) else fair
        else:
            assert self._honest is not None
            judged = honest_errors(base, true, shifted, want=want, honest=self._honest[start:stop])
        if judged is not None:
            if self._judged is None:
                self._judged = torch.ones(self._want.numel(), dtype=torch.bool, device=want.device)
            self._judged[start:stop] = judged

    def leaf(self) -> Leaf:
        """The finished leaf."""
        found = _leaf(self.path, self.native, self._want)
        found.exact, found.honest, found.judged = self.exact, self._honest, self._judged
        found.evidence = not self.unchanged
        return found


@dataclass(frozen=True)
class _Cut:
    """How arguments are cut along dimension 0: which leaves, by number, and the batch's size."""

    size: int
    which: frozenset[int]

    def args(self, args: list[Any], start: int, stop: int) -> list[Any]:
        """The arguments of one part."""
        index = iter(range(1 << 30))
        return map_torch(args, lambda t: t[start:stop] if next(index) in self.which else t)  # type: ignore[no-any-return]


def _cut(args: list[Any], outputs: list[tuple[str, torch.Tensor]]) -> _Cut | None:
    """By the batch of the largest input; of square arguments that one alone, for the others are no batches."""
    tensors = [tensor for _, tensor in named_leaves("", args)]
    if not tensors or not outputs:
        return None
    main = max(range(len(tensors)), key=lambda i: tensors[i].numel())
    size = tensors[main].shape[0] if tensors[main].dim() else 0
    if size < 2 or any(not tensor.dim() or tensor.shape[0] != size for _, tensor in outputs):
        return None
    alike = [i for i, t in enumerate(tensors) if t.dim() == tensors[main].dim() and t.shape[0] == size]
    square = len(tensors[main].shape) == 2 and tensors[main].shape[1] == size
    return _Cut(size, frozenset([main] if square else alike))


def _close(part: torch.Tensor, whole: torch.Tensor) -> bool:
    a, b = part.reshape(-1), whole.reshape(-1)
    if not part.is_floating_point():
        return bool(torch.equal(a, b))
    squares = wrong = torch.zeros((), dtype=torch.float64, device=a.device)
    for start in range(0, a.numel(), BLOCK):
        x, y = a[start : start + BLOCK].double(), b[start : start + BLOCK].double()
        error = torch.where(x.isfinite() & y.isfinite(), x - y, 0.0)
        wrong = wrong + (error * error).sum() + torch.where(x.isfinite() == y.isfinite(), 0.0, torch.inf).sum()
        squares = squares + torch.where(y.isfinite(), y * y, 0.0).sum()
    allowed = (_SAME[part.dtype] * torch.finfo(part.dtype).eps / 2) ** 2
    return bool(wrong <= allowed * squares)


def _kept(tensor: torch.Tensor) -> int:
    """Bytes that stay of a leaf, besides the baseline's own output."""
    count = int(tensor.numel())
    if not tensor.is_floating_point():
        return count * int(tensor.element_size())
    if count < COMPACT or tensor.dtype == torch.float64:
        return 16 * count
    return (2 if tensor.dtype == torch.float32 else 6) * count


def _leaf(path: str, native: torch.Tensor, want: torch.Tensor) -> Leaf:
    return Leaf(path, native.dtype, tuple(native.shape), want, exact=not native.is_floating_point())


def _is_memory(error: BaseException | None) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, TaskError) and isinstance(error.__cause__, torch.OutOfMemoryError)
    )


def _allocated(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats(device)
    return int(torch.cuda.memory_allocated(device))


def _peak(device: torch.device) -> int:
    return int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else 0


def _give_back(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()
