"""The candidate's own process on the `cpu` target: lowers the plan, loads the kernels, runs. Imports torch.

It holds inputs and parameters, never an expectation. Everything the plan may touch lies in guarded memory; what a run
returns is data for the parent to judge: outputs, buffers afterwards, who shares memory with whom, what was changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from hipwright.device.cpu import CpuLauncher
from hipwright.errors import CandidateError
from hipwright.program import parse
from hipwright.program.lower import lower
from hipwright.program.trace import NoopLauncher, trace
from hipwright.sandbox import lockdown
from hipwright.tensors import HostTensor, Tree, leaves
from hipwright.torchio import to_torch, tree_from_torch

Tensor = Any  # torch.Tensor, untyped here


class CpuWorker:
    """Service of a candidate session.

    init: text, knobs, and for kernels that run: so (path), wave, launch_limit_s. mode: "run"; "noop" replaces kernels
    by nothing; "trace" only traces. table: the state table.
    """

    def __init__(self, init: dict[str, Any], table: Tree) -> None:
        self.mode = init.get("mode", "run")
        self._init = init
        self._table = table
        self._parsed = parse(init["text"])
        self._knobs = {str(k): int(v) for k, v in init.get("knobs", {}).items()}
        self._setting: tuple[Any, ...] | None = None
        self._kept: dict[str, Any] = {}
        self._last_inputs: Any = None
        if self.mode != "trace":
            self._prepare_run("forward", 0, int(init.get("poison", 0xA5)))

    # ---------------------------------------------------------------- methods of the service

    def run(self, header: dict[str, Any], inputs: Tree) -> tuple[dict[str, Any], Tree]:
        """One forward call. header: order, seed, poison; reuse (new values at the addresses of the last call's inputs);
        keep (a name under which `kept` finds the outputs again)."""
        self._prepare_run(header.get("order", "forward"), int(header.get("seed", 0)), int(header.get("poison", 0xA5)))
        lockdown()
        self._reset_state()
        given = self._place_inputs(inputs, reuse=bool(header.get("reuse")))
        before = len(self._launcher.stats())
        with torch.no_grad():
            outputs = self._plan.forward(*given)
        if header.get("keep"):
            self._kept[str(header["keep"])] = outputs
        stats = self._launcher.stats()[before:]
        info = {
            "stats": stats,
            "aliases": self._aliases(outputs, given),
            "inputs_changed": _changed(given, inputs),
            "params_changed": _changed(self._params, self._table["params"]),
        }
        return info, {"outputs": _to_host(outputs), "buffers": _to_host(self._buffers)}

    def mutate(self, header: dict[str, Any], table: Tree) -> tuple[dict[str, Any], Tree]:
        """Give every parameter and buffer new values at its old address."""
        self._table = table
        _copy_into(self._params, table["params"])
        _copy_into(self._buffers, table["buffers"])
        return {}, None

    def kept(self, header: dict[str, Any], _: Tree) -> tuple[dict[str, Any], Tree]:
        """The outputs of an earlier call as they are now."""
        return {}, _to_host(self._kept[str(header["keep"])])

    def trace(self, header: dict[str, Any], inputs: Tree) -> tuple[dict[str, Any], Tree]:
        """Library operators and launches of the plan on these inputs (program.trace)."""
        found = trace(self._parsed, self._knobs, self._table, inputs, meta=bool(header.get("meta", True)))
        return found, None

    # ---------------------------------------------------------------- inside

    def _prepare_run(self, order: str, seed: int, poison: int) -> None:
        """Launcher, guarded state and plan for these settings; kept while they stay the same."""
        if self._setting == (order, seed, poison):
            return
        self._setting = (order, seed, poison)
        self._launcher = self._new_launcher(order, seed, poison)
        self._params = self._guarded(self._table["params"])
        self._buffers = self._guarded(self._table["buffers"])
        table = {**self._table, "params": self._params, "buffers": self._buffers}
        self._plan = lower(self._parsed, self._knobs, table, self._launcher)
        self._last_inputs = None

    def _new_launcher(self, order: str, seed: int, poison: int) -> Recorder:
        if self.mode == "noop":
            return Recorder(NoopLauncher(poison=poison))
        inner = CpuLauncher(
            self._init["so"],
            self._parsed.signatures,
            wave=int(self._init["wave"]),
            order=order,  # type: ignore[arg-type]
            seed=seed,
            poison=poison,
            launch_limit_s=float(self._init.get("launch_limit_s", 10.0)),
        )
        return Recorder(inner)

    def _guarded(self, tree: Tree) -> Any:
        """The tree's tensors in guarded memory; those that shared a storage share it again."""
        homes: dict[int, Tensor] = {}

        def one(tensor: HostTensor) -> Tensor:
            plain = to_torch(tensor)
            if not tensor.numel:
                return plain
            home = homes.get(id(tensor.storage))
            if home is None:
                homes[id(tensor.storage)] = out = self._launcher.guard(plain)
                return out
            return torch.empty(0, dtype=plain.dtype).set_(
                home.untyped_storage(), plain.storage_offset(), plain.shape, plain.stride()
            )

        return _map(tree, one)

    def _place_inputs(self, inputs: Tree, *, reuse: bool) -> Any:
        if reuse and self._last_inputs is not None:
            _copy_into(self._last_inputs, inputs)
            return self._last_inputs
        self._last_inputs = self._guarded(list(inputs))
        return self._last_inputs

    def _reset_state(self) -> None:
        """Buffers as the table has them: an earlier call may have written them."""
        _copy_into(self._buffers, self._table["buffers"])

    def _aliases(self, outputs: Any, inputs: Any) -> list[list[str]]:
        """[output leaf, what it shares memory with], named as the task host names them."""
        holders: dict[int, list[str]] = {}
        groups = list(named_tensors(inputs, "inputs"))
        groups += [(f"params.{path}", tensor) for path, tensor in self._params.items()]
        groups += [(f"buffers.{path}", tensor) for path, tensor in self._buffers.items()]
        for name, tensor in groups:
            holders.setdefault(_address(tensor), []).append(name)
        found = []
        for path, tensor in named_tensors(outputs, "output"):
            if tensor.numel():
                found += [[path, holder] for holder in holders.get(_address(tensor), [])]
                holders.setdefault(_address(tensor), []).append(path)
        return found


class Recorder:
    """A launcher that also notes, for each launch, how many bytes its tensor arguments hold."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._bytes: list[int] = []

    def launch(self, kernel: str, grid: Any, block: Any, lds_bytes: int, args: Sequence[Any]) -> None:
        """As the inner launcher's."""
        self._inner.launch(kernel, grid, block, lds_bytes, args)
        tensors = {(_address(a), a.storage_offset()): a for a in args if isinstance(a, torch.Tensor)}
        self._bytes.append(sum(t.numel() * t.element_size() for t in tensors.values()))

    def empty(self, shape: Any, dtype: Any) -> Tensor:
        """As the inner launcher's."""
        return self._inner.empty(shape, dtype)

    def guard(self, tensor: Tensor) -> Tensor:
        """A copy that the inner launcher watches, where it watches at all."""
        return self._inner.guard(tensor) if isinstance(self._inner, CpuLauncher) else tensor.clone()

    def stats(self) -> list[dict[str, Any]]:
        """One entry per launch, with argument_bytes."""
        inner = self._inner.stats() if isinstance(self._inner, CpuLauncher) else self._inner.launches
        return [{**entry, "argument_bytes": size} for entry, size in zip(inner, self._bytes, strict=True)]


def named_tensors(value: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    """(path, tensor) of a nesting in order: output, output[0], output['x']."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from named_tensors(item, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from named_tensors(item, f"{path}[{index}]")


def _address(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _map(tree: Tree, fn: Any) -> Any:
    if isinstance(tree, (tuple, list)):
        return type(tree)(_map(item, fn) for item in tree)
    if isinstance(tree, dict):
        return {key: _map(item, fn) for key, item in tree.items()}
    return fn(tree) if isinstance(tree, HostTensor) else tree


def _pairs(live: Any, originals: Tree) -> Iterator[tuple[Tensor, HostTensor]]:
    hosts = [leaf for leaf in leaves(originals) if isinstance(leaf, HostTensor)]
    return zip((t for _, t in named_tensors(live, "")), hosts, strict=True)


def _same(live: Tensor, original: HostTensor) -> bool:
    """Whether the bits agree (NaN equals itself)."""
    if not original.numel:
        return True
    return bool(torch.equal(_bytes(live), _bytes(to_torch(original))))


def _bytes(tensor: Tensor) -> Tensor:
    """The values in order as 1-D uint8; a copy of its own, because "contiguous" leaves the strides of size 1 open."""
    return torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1)).view(torch.uint8)


def _changed(live: Any, originals: Tree) -> list[int]:
    """Which tensor leaves differ from what was given."""
    return [index for index, (t, host) in enumerate(_pairs(live, originals)) if not _same(t, host)]


def _copy_into(live: Any, originals: Tree) -> None:
    for tensor, host in _pairs(live, originals):
        if tensor.shape != host.shape:
            raise CandidateError("the shapes changed between two calls at the same address", stage="verify")
        if not _same(tensor, host):
            tensor.copy_(to_torch(host))


def _to_host(value: Any) -> Tree:
    """Outputs as HostTensors. A CandidateError for a value that no output can be."""
    try:
        return tree_from_torch(value)
    except TypeError as error:
        raise CandidateError(
            f"the program returns what cannot be compared: {error}", status="bad_output_spec"
        ) from error
