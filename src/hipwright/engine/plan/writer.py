"""The launch plan as text: allocations, launches, library calls and guards of one program, and `prepare`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hipwright.capture.graph import several, short
from hipwright.engine.emit.builder import cname
from hipwright.engine.emit.tree import Statement, printed, words
from hipwright.engine.fuse.costs import ITEM_BYTES
from hipwright.engine.ir.index import Ix, nonneg, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.ir.shapes import row_major
from hipwright.engine.lower.values import LibraryCall, LoweredItem
from hipwright.engine.partition.channels_last import TO_CHANNELS_LAST
from hipwright.engine.partition.state import LoopCall, Lowered, PlanView
from hipwright.engine.plan import static_shapes
from hipwright.engine.plan.joining import Joining, Launch, PendingLaunches, joinable
from hipwright.engine.plan.memory_names import MemoryNames
from hipwright.engine.plan.preparation import Preparation, allocation
from hipwright.engine.plan.spelling import PYTHON_NAMES, has_gaps, library_name, returned, self_path, spell, trimmed
from hipwright.engine.plan.static_shapes import StaticShapes
from hipwright.engine.plan.zero_pool import ZeroPool
from hipwright.engine.templates.base import INT_LIMIT, EmittedKernel

_SIZES = "the kernels are written for these sizes"
_LAYOUT = "random numbers are drawn in the order of memory"
FLAT_RESULT = {"mm", "bmm", "addmm", "baddbmm", "dot", "mv"}


class PlanWriter:
    """Writes `def forward`, and before it `def prepare` where kernels pack parameters."""

    def __init__(
        self,
        lowered: Lowered,
        parameters: Sequence[str],
        static: StaticShapes | None = None,
        outer: PlanWriter | None = None,
        *,
        joining: Joining,
        prepares: bool = True,
    ) -> None:
        """static: makes the kernels' static-shape variants; None where there are to be none. outer: the writer of the
        plan in which this one writes a loop's body. joining: which kernels become one launch. prepares: whether
        parameters are packed in `prepare`.
        """
        self.lowered = lowered
        self._static, self._outer = static, outer
        self.graph = lowered.graph
        self.parameters = parameters
        self.statements: list[Statement] = []
        self.names: dict[str, str] = {}
        wanted = prepares and outer is None
        self._preparation = Preparation(lowered.tensors, self.names, self.name, wanted=wanted)
        self._written = set(lowered.written.values())
        self._replaced = {item.name: item.target for item in lowered.items if item.target}
        self._copied_back: list[str] = []
        self._taken: set[str] = outer._taken if outer else set(parameters)
        self.temporaries: set[str] = set()
        self.limits: list[Ix] = outer.limits if outer else []  # sizes that the kernels count in int
        self.collected: dict[str, str] = {}  # tensors that are written where a loop collects them, and where that is
        self.zeroed: set[str] = set()  # those of them that start with zeros
        self.kept: set[str] = set()  # results of library calls that must be row-major
        self._zeros = ZeroPool(self._local, lowered.context.hints)
        self._joining, self._memory = joining, MemoryNames()
        self._launches = PendingLaunches(joining, self._launch, self._line, self._local)
        self.captured: str = (
            outer.captured if outer else ""
        )  # the local that says whether the sizes are the captured ones

    def name(self, buffer: str) -> str:
        """The plan's name of a tensor: a local, an input or self.…"""
        if buffer in self.names:
            return self.names[buffer]
        tensor = self.lowered.tensors.get(buffer)
        if buffer in self._replaced:
            self.names[buffer] = self.name(self._replaced[buffer])
        elif tensor is not None and tensor.kind != "input":
            self.names[buffer] = self_path(tensor.access, self.lowered.graph.positions)
        elif tensor is not None and tensor.access.isidentifier():
            self.names[buffer] = tensor.access
        else:
            self.names[buffer] = self._local(cname(buffer))
        return self.names[buffer]

    def replaces(self, over: Mapping[str, str]) -> None:
        """Note results that overwrite other tensors: {result: tensor}."""
        self.names |= {result: self.name(tensor) for result, tensor in over.items()}

    def _line(self, text: str) -> None:
        self.statements.append(Statement(text))

    def _local(self, name: str) -> str:
        candidate = f"{name}_" if name in PYTHON_NAMES else name
        count = 1
        while candidate in self._taken:
            count += 1
            candidate = f"{name}_{count}"
        self._taken.add(candidate)
        return candidate

    # ------------------------------------------------------------ steps

    def inputs(self, read_by_kernels: set[str]) -> None:
        """Contiguous inputs for the kernels, which index them row-major."""
        if self._outer is not None:
            return  # what a loop's body is handed is contiguous where its kernels read it
        for buffer, tensor in self.lowered.tensors.items():
            if buffer in self._written and tensor.kind == "input":
                self._given_place(buffer, tensor.access)
            elif buffer in read_by_kernels and tensor.kind == "input":
                self._line(f"{self.name(buffer)} = {tensor.access}.contiguous()")
            elif tensor.kind == "input" and not tensor.access.isidentifier():
                self._line(f"{self.name(buffer)} = {tensor.access}")
            elif buffer in read_by_kernels and not row_major(tensor.meta.shape, tensor.meta.stride):
                path = self.name(buffer)
                self.names[buffer] = self._local(cname(buffer))
                self._line(f"{self.names[buffer]} = {path}.contiguous()")

    def _given_place(self, buffer: str, access: str) -> None:
        """An input that kernels write: itself where it is contiguous, else a copy, which `finish` copies back."""
        rows = self.names[buffer] = self._local(cname(buffer).rstrip("_") + "_rows")
        self._line(f"{rows} = {access}.contiguous()")
        self._copied_back += [f"if not {access}.is_contiguous():", f"    {access}.copy_({rows})"]

    def view(self, view: PlanView) -> None:
        """A view for a library call."""
        self._memory.same(self.name(view.name), self.name(view.source))
        self._line(f"{self.name(view.name)} = {self.name(view.source)}{view.operation}")

    def call(self, call: LibraryCall, read_by_kernels: set[str]) -> None:
        """A library call."""
        self._launches.flush()
        node = call.node
        kind = short(node.op)
        target = library_name(node.op)
        given = node.args if target.startswith("torch.ops.") else trimmed(node.args)  # operators have fewer defaults
        args = ", ".join(
            [self._spell(a, call.refs) for a in given]
            + [f"{k}={self._spell(v, call.refs)}" for k, v in node.kwargs.items()]
        )
        results = [self.name(o) for o in call.outputs]
        self._memory.made_by(kind, results, [self.name(buffer) for buffer in call.refs.values()])
        lone = "," if several(node) and len(results) == 1 else ""
        self._line(f"{', '.join(results)}{lone} = {target}({args})")
        for output, local in zip(call.outputs, results, strict=True):
            if call.channels_last:
                self._line(f"{local} = {local}.permute({', '.join(map(str, TO_CHANNELS_LAST))}).contiguous()")
                continue
            plain = kind in FLAT_RESULT or (kind == "linear" and self._is_flat(call))
            returned = output in self.lowered.outputs.values() and has_gaps(self.lowered.metas.get(output))
            handed = self._outer is not None and output in self.lowered.outputs.values()
            if returned or ((output in read_by_kernels or handed) and not plain):
                self._line(f"{local} = {local}.contiguous()")

    def _is_flat(self, call: LibraryCall) -> bool:
        """A linear layer of a row-major tensor gives a row-major tensor."""
        return next(iter(call.refs.values())) in {item.name for item in self.lowered.items}

    def _spell(self, argument: Any, refs: Mapping[str, str]) -> str:
        return spell(argument, lambda node: self.name(refs[node]))

    def allocate(self, buffer: str, shape: Sequence[Ix], dtype: str, maker: str = "empty") -> None:
        """A new tensor; in a loop's body, it may be the step's part of what the loop collects."""
        if buffer in self.collected:
            self._line(f"{self.name(buffer)} = {self.collected[buffer]}")
            self.zeroed |= {buffer} if maker == "zeros" else set()
            return
        self._line(f"{self.name(buffer)} = {allocation(shape, dtype, maker)}")

    def launch(self, kernel: EmittedKernel, allocate: Mapping[str, tuple[list[Ix], str]]) -> None:
        """Allocations of what a kernel writes, and its launch."""
        for text in kernel.before:
            self._line(text)
        made = {b: allocate[b] for b in kernel.writes if b in allocate} | kernel.scratch
        self.launches([kernel], made, kernel.zeroed)

    def launches(
        self, kernels: Sequence[EmittedKernel], allocate: Mapping[str, tuple[list[Ix], str]], zeroed: Collection[str]
    ) -> None:
        """The kernels of one call, and before them what they write: results and memory between them."""
        self.temporaries |= set(allocate)
        packing = [kernel for kernel in kernels if self._preparation.takes(kernel, allocate)]
        for kernel in packing:
            self._preparation.add(kernel, allocate)
        own = [kernel for kernel in kernels if kernel not in packing]
        packed = {buffer for kernel in packing for buffer in kernel.writes}
        wanted = [b for k in own for b in [*k.reads, *k.writes, *k.scratch] if b in allocate and b not in packed]
        for buffer in dict.fromkeys(wanted):
            shape, dtype = allocate[buffer]
            pooled = buffer in zeroed and self._outer is None and buffer not in self.collected
            if pooled and self._zeros.takes(shape):
                self._zeros.allocate(self.name(buffer), shape, dtype, self.statements)
            else:
                self.allocate(buffer, shape, dtype, maker="zeros" if buffer in zeroed else "empty")
        for kernel in own:
            self._launches.add(self._as_launch(kernel, zeroed))
        if self._outer is not None:
            self._launches.flush()

    def _as_launch(self, kernel: EmittedKernel, zeroed: Collection[str]) -> Launch:
        """A launch with its arguments' texts, and the memory that it reads and writes."""
        known = self.known_buffers
        arguments = [self._argument(a, kernel) if a in known else a for a in kernel.arguments]
        places = {a: self._memory.of(self.name(a)) for a in kernel.arguments if a in known}
        reads = frozenset(place for buffer, place in places.items() if buffer in kernel.reads)
        writes = frozenset(place for buffer, place in places.items() if buffer not in kernel.reads)
        writes |= frozenset(places[buffer] for buffer in kernel.writes if buffer in places)
        alone = bool(places.keys() & set(zeroed)) or self._outer is not None
        return Launch(kernel, arguments, reads, writes, joinable=not alone and joinable(kernel))

    def _launch(self, kernel: EmittedKernel, arguments: Sequence[str]) -> None:
        """The launches of the kernel, or of its static-shape variant where the sizes are the captured ones."""
        variant = self._static.add(kernel, self.known_buffers) if self._static is not None else None
        if variant is not None:
            self.captured = self.captured or self._local("captured")
        for where, given in static_shapes.launches(kernel, arguments):
            lines = [f"{kernel.name}{where}({', '.join(given)})"]
            if variant is not None:
                name, stays = variant
                left = [text for text, stay in zip(given, stays, strict=True) if stay]
                lines = list(static_shapes.launch(self.captured, f"{name}{where}({', '.join(left)})", lines[0]))
            for text in lines:
                self._line(text)

    def _captured_line(self) -> list[str]:
        """The condition under which the static-shape variants are launched."""
        conditions = self._static.conditions() if self._static is not None else []
        return [f"{self.captured} = {' and '.join(conditions)}"] if conditions else []

    def _argument(self, buffer: str, kernel: EmittedKernel) -> str:
        """A kernel's tensor; one that it reads 16 bytes at once is copied where a view begins between them."""
        name, count = self.name(buffer), kernel.aligned.get(buffer, 0)
        given = buffer in self.lowered.tensors or buffer in self.lowered.metas
        return f"{name} if {name}.storage_offset() % {count} == 0 else {name}.clone()" if count and given else name

    @property
    def known_buffers(self) -> set[str]:
        """Everything that is a tensor rather than a size."""
        made = {i.name for i in self.lowered.items} | self.temporaries
        return set(self.lowered.tensors) | set(self.lowered.metas) | made

    # ------------------------------------------------------------ loops

    def body(self, call: LoopCall) -> PlanWriter:
        """The writer of a loop's body, with the names of what the body is handed."""
        self._launches.flush()
        made = PlanWriter(call.inner, (), self._static, self, joining=self._joining)
        self._taken.add(call.body.step)
        made.names = {name: self.name(buffer) for name, buffer in call.refs.items()}
        made.names |= {name: self._local(cname(name)) for name in call.body.carried if name in call.refs}
        items = {i.name: i for i in call.inner.items if not i.target}
        for value, whole in zip(call.body.collected, call.outputs[len(call.body.last) :], strict=True):
            buffer = call.inner.outputs[value]
            if buffer in items and _whole_vectors(items[buffer]):
                made.collected[buffer] = f"{self.name(whole)}[{call.body.step} - 1]"
        return made

    def loop(self, call: LoopCall, body: PlanWriter) -> None:
        """A loop, whose body is written."""
        loop, outputs = call.body, call.inner.outputs
        steps = self.lowered.context.reader.read(loop.steps)
        handed = [(name, value) for name, value in loop.carried.items() if name in call.refs]
        for name, _ in handed:
            self._line(f"{body.name(name)} = {self.name(call.refs[name])}")
        tail = [f"{body.name(name)} = {body.name(outputs.get(value, value))}" for name, value in handed]
        behind = []
        for value, whole in zip(loop.collected, call.outputs[len(loop.last) :], strict=True):
            buffer = outputs[value]
            if buffer in body.collected:
                item = next(i for i in call.inner.items if i.name == buffer)
                self.allocate(whole, [steps, *item.shape], item.dtype, _maker(zeros=buffer in body.zeroed))
                continue
            listed = self._local(f"{cname(value)}_list")
            self._line(f"{listed} = []")
            tail.append(f"{listed} = [*{listed}, {body.name(buffer)}]")
            behind.append(f"{self.name(whole)} = torch.stack({listed})")
        self._line(f"for {loop.step} in range(1, {to_python(steps + 1)}):")
        for text in [*printed(body.statements, 0), *tail]:
            self._line(f"    {text}")
        for text in behind:
            self._line(text)
        self.names |= {o: body.name(outputs[v]) for o, v in zip(call.outputs, loop.last, strict=False)}
        self.captured = self.captured or body.captured

    # ------------------------------------------------------------ the whole

    def finish(self) -> str:
        """The function's text."""
        self._launches.flush()
        for line in self._copied_back:
            self._line(line)
        result = returned(self.graph.output, {k: self.name(v) for k, v in self.lowered.outputs.items()})
        self._line(f"return {result}")
        statements = [Statement(text) for text in self._captured_line()] + self._zeros.finish(self.statements)
        head = self._head(frozenset().union(*(s.names for s in statements)))
        body = "\n".join(printed([*(Statement(text) for text in head), *statements], 1))
        return f"{self._preparation.text()}def forward({', '.join(['self', *self.parameters])}):\n{body}\n"

    def _head(self, names: frozenset[str]) -> list[str]:
        """Sizes and shape guards of a body that uses these names."""
        derived = self.lowered.context.reader.derived
        int_guard = self._int_guard()
        own = [guard for guard in self.lowered.guards if guard not in self.graph.guards]
        used = names.union(*map(words, [*int_guard, *self.graph.guards, *own]))
        wanted = {name for name in derived if name in used}
        for name in wanted:
            used |= words(derived[name])
        out = [f"{s.name} = {s.access}" for s in self.graph.symbols if s.name in used]
        fixed: dict[tuple[str, str], list[str]] = {}
        for guard in self.graph.guards:
            why = _LAYOUT if ".stride(" in guard or guard.endswith(".is_contiguous()") else _SIZES
            fixed.setdefault((guard.split(".")[0].split("[")[0], why), []).append(guard)
        out += [f'assert {" and ".join(conditions)}, "{why}"' for (_, why), conditions in fixed.items()]
        out += [f"{name} = {text}" for name, text in derived.items() if name in wanted]
        out += _difference_guard([name for name in derived if name in wanted and "-" in derived[name]])
        out += [f'assert {" and ".join(own)}, "{_SIZES}"'] if own else []
        return out + int_guard

    def _int_guard(self) -> list[str]:
        """The guard that int is wide enough, over the largest sizes."""
        sizes = list({s.key: s for s in self.limits}.values())
        largest = [s for s in sizes if not any(s is not t and nonneg(t - s) for t in sizes)]
        if not largest:
            return []
        texts = ", ".join(to_python(s) for s in largest)
        texts = f"max({texts})" if len(largest) > 1 else texts
        return [f'assert {texts} < 2**{INT_LIMIT.bit_length() - 1}, "the kernels count in int"']


def _difference_guard(sizes: Sequence[str]) -> list[str]:
    """The guard of differences: where torch would cut a slice to nothing, a size must not come out negative."""
    if not sizes:
        return []
    least = f"min({', '.join(sizes)})" if len(sizes) > 1 else sizes[0]
    return [f'assert {least} >= 0, "the slices lie within the tensor"']


def _maker(*, zeros: bool) -> str:
    return "zeros" if zeros else "empty"


def _whole_vectors(item: LoweredItem) -> bool:
    """Whether tensors of an item's shape, one behind the other, all begin where 16 bytes do."""
    bytes_ = product(item.shape) * ITEM_BYTES.get(item.dtype, 1)
    return all(count % 16 == 0 for count in bytes_.terms.values())
