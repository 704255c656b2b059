"""The arguments and results of a program's functions, found by running its plan on meta tensors. Imports torch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from hipwright.errors import BadInput, ProgramError
from hipwright.program.lower.arguments import Argument, Dim3
from hipwright.program.lower.closures import lower
from hipwright.program.lower.table import StateTable, to_device
from hipwright.program.lower.trace import NoopLauncher
from hipwright.program.parsed import Parsed
from hipwright.tensors import Tree, refilled

_SCHEMA = {bool: "bool", int: "SymInt", float: "float", str: "str"}


@dataclass
class Interface:
    """The arguments and results of forward and backward, flat, with the text that nests them again.

    arguments: (name, schema type, path in the inputs) of each leaf of the inputs that is no constant. inputs: the
    nesting of each input as text over those names. outputs: the expression over `out` that reads each output leaf;
    nest: the outputs' nesting as text over `out0`, `out1`, ... written: paths of the buffers that the plan writes.

    saved: None without backward, else ("argument" | "output" | "tensor" | "host", index or schema type) of each leaf;
    saved_reads: expressions over `saved`; saved_nest: the nesting over `saved0`, ... grads: what each gradient is of
    (an input's path or self.<parameter>); grad_reads: expressions over `grads`; grad_nest: the outputs' nesting over
    `grad0`, ...
    """

    arguments: list[tuple[str, str, str]] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    nest: str = ""
    written: list[str] = field(default_factory=list)
    saved: list[tuple[str, Any]] | None = None
    saved_reads: list[str] = field(default_factory=list)
    saved_nest: str = ""
    grads: list[str] = field(default_factory=list)
    grad_reads: list[str] = field(default_factory=list)
    grad_nest: str = ""


class _Recorder(NoopLauncher):
    """Records the storages that kernels may write."""

    def __init__(self, parsed: Parsed) -> None:
        super().__init__(device="meta")
        self._parsed, self.written = parsed, set[int]()

    def launch(self, kernel: str, grid: Dim3, block: Dim3, lds_bytes: int, args: Sequence[Argument]) -> None:
        """Records the tensors behind pointers that are not const."""
        for param, arg in zip(self._parsed.signatures[kernel].params, args, strict=True):
            if param.pointer and not param.const and isinstance(arg, torch.Tensor):
                self.written.add(arg.untyped_storage()._cdata)


def interface(parsed: Parsed, knobs: Mapping[str, int], tree: Tree, inputs: Sequence[Any]) -> Interface:
    """The interface of a program, from a run on meta tensors. inputs, tree: with specs for tensors."""
    found = Interface()
    table = StateTable(tree, device="meta")
    recorder = _Recorder(parsed)
    plan = lower(parsed, knobs, table, recorder, allow_random=True, device="meta")
    given = [to_device(item, "meta") for item in inputs]
    names = [a.arg for a in parsed.functions["forward"].args.args][1 : len(given) + 1]
    leaves = _inputs(found, names, given)
    state = table.tensors()
    versions = {path: t._version for path, t in state.items()}
    with torch.no_grad():
        outputs, saved = plan.forward_saved(*given)
        outs = [leaf for _, leaf in accesses(outputs, "out")]
        found.outputs = [text for text, _ in accesses(outputs, "out")]
        if any(not isinstance(leaf, torch.Tensor) for leaf in outs):
            raise BadInput("an output is not a tensor, and an operator returns tensors only")
        found.nest = nested(outputs, (f"out{i}" for i in range(len(outs))))
        found.written = [
            p
            for p in table.buffers
            if state[p]._version != versions[p] or state[p].untyped_storage()._cdata in recorder.written
        ]
        if parsed.has_backward:
            _backward(found, plan, leaves, state, (outputs, outs), saved)
    return found


def _inputs(found: Interface, names: Sequence[str], given: Sequence[Any]) -> list[tuple[str, Any]]:
    """Fills `arguments` and `inputs` of the interface; returns the (path, tensor) of each tensor argument."""
    leaves = []
    for name, value in zip(names, given, strict=True):
        texts = []
        for path, leaf in accesses(value, name):
            schema = "Tensor" if isinstance(leaf, torch.Tensor) else _SCHEMA.get(type(leaf), "")
            if schema:
                own = name if path == name else re.sub(r"\W+", "_", path).strip("_")
                found.arguments.append((own, schema, path))
                texts.append(own)
                leaves.append((path, leaf))
        found.inputs.append(nested(value, iter(texts)))
    return leaves


def _backward(found: Interface, plan: Any, leaves: Any, state: Any, out: Any, saved: Any) -> None:
    outputs, outs = out
    items = list(accesses(saved, "saved"))
    kept = [(text, leaf) for text, leaf in items if isinstance(leaf, torch.Tensor) or type(leaf) in _SCHEMA]
    found.saved, found.saved_reads = [], [text for text, _ in kept]
    for _, leaf in kept:
        found.saved.append(_kind(leaf, leaves, state, outs))
    found.saved_nest = nested(saved, (f"saved{i}" for i in range(len(kept))))
    found.grad_nest = nested(outputs, (f"grad{i}" for i in range(len(outs))))
    result = plan.backward(_like(outputs), saved)
    for of, text, leaf in _gradients(result, [p for p, leaf in leaves if isinstance(leaf, torch.Tensor)]):
        if leaf is not None:
            found.grads.append(of)
            found.grad_reads.append(text)
    unknown = [g for g in found.grads if g not in {p for p, _ in leaves} | {f"self.{p}" for p in state}]
    if unknown:
        raise ProgramError(f"backward returns a gradient of {unknown[0]}, which is neither an input nor a parameter")


def _kind(leaf: Any, leaves: Any, state: Any, outs: Sequence[Any]) -> tuple[str, Any]:
    """The kind and index of a saved leaf, as in `Interface.saved`."""
    if not isinstance(leaf, torch.Tensor):
        return "host", _SCHEMA[type(leaf)]
    for place, tensor in enumerate(outs):
        if tensor is leaf:
            return "output", place
    for path, tensor in leaves:
        if tensor is leaf:
            return "argument", path
    for path, tensor in state.items():
        if tensor is leaf:
            return "argument", f"self.{path}"
    return "tensor", None


def _gradients(result: Any, inputs: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
    """(what it is of, expression over `grads`, the gradient): by name from a dict, else in the order of the tensor
    inputs.
    """
    if isinstance(result, dict):
        yield from ((key, f"grads[{key!r}]", leaf) for key, leaf in result.items())
        return
    listed = list(result) if isinstance(result, (tuple, list)) else [result]
    if len(listed) != len(inputs):
        raise ProgramError(
            f"backward returns {len(listed)} gradients for {len(inputs)} tensor inputs; a dict by name "
            'says which: {"x": gx, "self.weight": gw}'
        )
    single = not isinstance(result, (tuple, list))
    for place, (path, leaf) in enumerate(zip(inputs, listed, strict=True)):
        yield path, "grads" if single else f"grads[{place}]", leaf


def _like(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty(value.shape, dtype=value.dtype, device="meta")
    if isinstance(value, dict):
        return {key: _like(item) for key, item in value.items()}
    return refilled(value, map(_like, value)) if isinstance(value, (tuple, list)) else value


def accesses(value: Any, text: str) -> Iterator[tuple[str, Any]]:
    """(`text['a'][0]`, leaf) of every leaf of a nested value, in order."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from accesses(item, f"{text}[{key!r}]")
    elif isinstance(value, (tuple, list)):
        for place, item in enumerate(value):
            yield from accesses(item, f"{text}[{place}]")
    else:
        yield text, value


def nested(value: Any, names: Iterator[str]) -> str:
    """The nested value as text, with the next name for each leaf but None."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {nested(item, names)}" for key, item in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        inner = [nested(item, names) for item in value]
        if isinstance(value, list):
            return f"[{', '.join(inner)}]"
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
    return "None" if value is None else next(names)
