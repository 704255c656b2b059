"""Records what one call of a plan does on the device, by running it on this machine's memory without its kernels.

Views move nothing. Layouts of data that no kernel has written (`x.contiguous()`) are part of the stored data. Whatever
else torch computes is refused: a program without torch has kernels only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hipwright.errors import BadInput
from hipwright.program.lower.arguments import Argument, Dim3
from hipwright.program.lower.closures import lower
from hipwright.program.lower.table import StateTable, to_device
from hipwright.program.parsed import Parsed
from hipwright.ship.interface import accesses
from hipwright.ship.standalone.steps import Address, Buffer, Copy, Fill, Launch, Recording, Result
from hipwright.tensors import Tree
from hipwright.torchio import NAMES

_EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_CONSTANT = {
    "zeros",
    "zeros_like",
    "new_zeros",
    "ones",
    "ones_like",
    "new_ones",
    "full",
    "full_like",
    "new_full",
    "arange",
}
_LAYOUT = {"clone", "_to_copy", "contiguous"}
_FILLS = {"zero_", "fill_"}


def record(parsed: Parsed, knobs: Mapping[str, int], state: Tree, inputs: Sequence[Any]) -> Recording:
    """One call of `forward`, `prepare` before it. state, inputs: with data.

    Raises GuardFailed for inputs that the plan declines, BadInput for what has no place in a program without torch.
    """
    table = StateTable(state)
    given = [to_device(item, "cpu") for item in inputs]
    recorder = _Recorder(parsed)
    for path, tensor in table.tensors().items():
        if tensor is not None:
            recorder.known(tensor, f"state_{path}")
    names = [argument.arg for argument in parsed.functions["forward"].args.args][1:]
    for name, value in zip(names, given, strict=False):
        for path, leaf in accesses(value, name):
            if isinstance(leaf, torch.Tensor):
                recorder.known(leaf, f"input_{path}")
    plan = lower(parsed, knobs, table, recorder)
    with torch.no_grad(), _Watch(recorder):
        plan.prepare()
        outputs = plan.forward_saved(*given)[0] if parsed.has_backward else plan.forward(*given)
    for path, leaf in accesses(outputs, "out"):
        if not isinstance(leaf, torch.Tensor):
            raise BadInput(f"the output {path} is not a tensor: a program without Python has no place for it")
        recorder.result(leaf)
    return recorder.made


class _Recorder:
    """A launcher that records; and the buffers behind torch's storages, which stay alive: addresses are unique."""

    def __init__(self, parsed: Parsed) -> None:
        self.made = Recording()
        self._parsed = parsed
        self._buffers: dict[int, Buffer] = {}
        self._alive: list[Any] = []
        self.written: set[int] = set()

    def launch(self, kernel: str, grid: Dim3, block: Dim3, lds_bytes: int, args: Sequence[Argument]) -> None:
        """Records the launch, and which buffers it may write."""
        given: list[Any] = []
        for param, argument in zip(self._parsed.signatures[kernel].params, args, strict=True):
            tensor = isinstance(argument, torch.Tensor)
            given.append(self.address(argument) if tensor else argument)
            if tensor and not param.const:
                self.written.add(_storage(argument))
        self.made.steps.append(Launch(kernel, grid, block, lds_bytes, tuple(given)))

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A tensor whose contents nothing says."""
        out = torch.empty(shape, dtype=dtype)
        self._buffer(out, f"temporary_{len(self._buffers)}", data=False)
        return out

    def known(self, tensor: torch.Tensor, name: str = "") -> None:
        """The tensor's storage is a buffer with its data."""
        self._buffer(tensor, name or f"constant_{len(self._buffers)}", data=True)

    def address(self, tensor: torch.Tensor) -> Address:
        """Where the tensor begins."""
        buffer = self._buffers[_storage(tensor)]
        return Address(buffer, tensor.storage_offset() * tensor.element_size())

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether the storage has a buffer."""
        return _storage(tensor) in self._buffers

    def result(self, leaf: torch.Tensor) -> None:
        """Records an output."""
        dtype = NAMES[leaf.dtype]
        self.made.results.append(Result(self.address(leaf), dtype, tuple(leaf.shape), tuple(leaf.stride())))

    def _buffer(self, tensor: torch.Tensor, name: str, *, data: bool) -> None:
        if self.has(tensor):
            return
        storage = tensor.untyped_storage()
        self._alive.append(storage)
        content = bytes(torch.tensor([], dtype=torch.uint8).set_(storage).numpy().tobytes()) if data else None
        taken = {buffer.name for buffer in self.made.buffers}
        plain = "".join(c if c.isalnum() else "_" for c in name).strip("_")
        while plain in taken:
            plain += "_"
        buffer = Buffer(plain, storage.nbytes(), content)
        self._buffers[_storage(tensor)] = buffer
        self.made.buffers.append(buffer)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


class _Watch(TorchDispatchMode):  # type: ignore[misc,unused-ignore]  # torch is untyped here
    """Says what each operator of torch is to a program without torch."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operator, and records it or refuses it."""
        out = func(*args, **(kwargs or {}))
        name, recorder = str(func).split(".")[1], self._recorder
        handler = self._handler(name)
        if handler is not None:
            handler(out, args)
        elif not isinstance(out, torch.Tensor) or not recorder.has(out) or name.endswith("_"):
            self._views(name, out)
        return out

    def _handler(self, name: str) -> Callable[[Any, Any], None] | None:
        if name in _EMPTY:
            return lambda out, args: self._recorder._buffer(
                out, f"temporary_{len(self._recorder._buffers)}", data=False
            )
        if name in _CONSTANT:
            return lambda out, args: self._recorder.known(out)
        if name in _FILLS:
            return self._fill
        return self._layout if name in _LAYOUT else None

    def _views(self, name: str, out: Any) -> None:
        """Raises BadInput unless all results are views of what is known."""
        leaves = [leaf for _, leaf in accesses(out, "out") if isinstance(leaf, torch.Tensor)]
        if name.endswith("_") or not leaves or not all(map(self._recorder.has, leaves)):
            raise BadInput(
                f"the plan leaves {name} to torch, which a program without torch does not have",
                hint="the other formats hold it: --format torch-op",
            )

    def _fill(self, out: torch.Tensor, args: Any) -> None:
        if not out.is_contiguous():
            self._views("fill_", out)
        element = out.reshape(-1)[:1].clone().view(torch.uint8).numpy().tobytes() if out.numel() else b""
        self._recorder.made.steps.append(Fill(self._recorder.address(out), element, out.numel()))
        self._recorder.written.add(_storage(out))

    def _layout(self, out: torch.Tensor, args: Any) -> None:
        """A copy of the same values: stored data where nothing was written, a copy on the device where it is plain."""
        source, recorder = args[0], self._recorder
        if recorder.has(out):
            return None
        if source.dtype != out.dtype or not recorder.has(source):
            self._views("a conversion of types", out)
        if _storage(source) not in recorder.written and recorder.address(source).buffer.data is not None:
            return recorder.known(out)
        if source.stride() != out.stride() or not out.is_contiguous():
            self._views("a copy in another layout", out)
        recorder._buffer(out, f"copy_{len(recorder._buffers)}", data=False)
        size = out.numel() * out.element_size()
        recorder.made.steps.append(Copy(recorder.address(out), recorder.address(source), size))
        recorder.written.add(_storage(out))
        return None
