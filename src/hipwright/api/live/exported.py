"""A live module or function as a task: traced by torch.export at example arguments."""

from __future__ import annotations

import builtins
import contextlib
import inspect
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from hipwright.api.live.traced import Placeholder, TracedTask, traced_task
from hipwright.capture.forward import exported
from hipwright.capture.graph import Graph
from hipwright.errors import BadInput, TaskError

ELSEWHERE = 'torch.compile(module, backend="hipwright") takes it in parts'
_STATE = {"PARAMETER": "parameter", "BUFFER": "buffer", "CONSTANT_TENSOR": "constant"}


@dataclass(frozen=True)
class LiveTask:
    """A live callable as a task.

    arguments: the structure of (args, kwargs). leaves: of each leaf the task's input, or the constant that it was.
    result: the structure of what the callable returns. constants: tensors that are no state, by path. shapes: those of
    the task's inputs when it was traced; types: their dtypes and ranks, by name. state_types: (shape, dtype) of the
    state, by path.
    """

    task: TracedTask
    arguments: Any
    leaves: tuple[Any, ...]
    result: Any
    constants: Mapping[str, torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]
    types: Mapping[str, tuple[torch.dtype, int]]
    state_types: Mapping[str, tuple[tuple[int, ...], torch.dtype]]


@dataclass(frozen=True)
class InputName:
    """A leaf of the arguments that is a tensor: the name of the task's input."""

    name: str


def live_task(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], title: str) -> LiveTask:
    """The task of `fn(*args, **kwargs)`. fn: a module or a function; it is left as it was.

    Raises BadInput and TaskError, with a hint, for what cannot be a task: Python that depends on values, results that
    are no tensors or share memory with an argument, tensors of several devices.
    """
    leaves, structure = pytree.tree_flatten((tuple(args), dict(kwargs)))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not tensors:
        raise BadInput("no example input is a tensor", hint="give the arguments of one call: example_inputs=(x, ...)")
    _one_device(tensors)
    names = _names(fn, structure, leaves)
    flat = _Flat(fn, leaves, structure, names)
    with _quiet(fn), torch.no_grad():
        try:
            program, graph = exported(flat, tensors)
        except TaskError as error:
            raise TaskError(error.message, hint=error.hint or ELSEWHERE, evidence=error.evidence) from error
    return _task(program, graph, flat, tensors, structure, leaves, title)


def title_of(original: Any) -> str:
    """A name for the task, from the class or the function."""
    name = getattr(original, "__name__", None) or type(original).__name__
    return re.sub(r"\W+", "_", str(name)).strip("_") or "module"


class _Flat(torch.nn.Module):  # type: ignore[misc]
    """A callable of tensors alone, in their order among its arguments. Its forward's parameters have their names."""

    def __init__(self, fn: Any, leaves: Sequence[Any], structure: Any, names: Sequence[str]) -> None:
        super().__init__()
        self.__dict__["given"] = list(leaves), structure, fn
        self.__dict__["found"] = _Found()  # tracing puts attributes, lists and dicts back as they were
        if isinstance(fn, torch.nn.Module):
            self.live = fn
        self.names = tuple(names)
        self.training = bool(getattr(fn, "training", False))
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        self.__dict__["forward"] = _signed(self._forward, inspect.Signature(parameters))

    def _forward(self, *tensors: torch.Tensor) -> Any:
        leaves, structure, fn = self.__dict__["given"]
        given = iter(tensors)
        filled = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(filled, structure)
        flat, self.__dict__["found"].result = pytree.tree_flatten(fn(*args, **kwargs))
        return tuple(flat)


class _Found:
    """The structure of what the callable returned when it was traced."""

    result: Any = None


def _signed(method: Any, signature: inspect.Signature) -> Any:
    def forward(*tensors: torch.Tensor) -> Any:
        return method(*tensors)

    forward.__signature__ = signature  # type: ignore[attr-defined]
    return forward


def _names(fn: Any, structure: Any, leaves: Sequence[Any]) -> list[str]:
    """Names of the tensors among the arguments, from the callable's own where it has some."""
    paths = [path for path, _ in pytree.tree_flatten_with_path(pytree.tree_unflatten(list(leaves), structure))[0]]
    own: list[str] = []
    with contextlib.suppress(TypeError, ValueError):
        own = list(inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn).parameters)
    found: list[str] = []
    for path, leaf in zip(paths, leaves, strict=True):
        if not isinstance(leaf, torch.Tensor):
            continue
        first, *rest = path[1:]
        place = getattr(first, "idx", None)
        name = str(first.key) if place is None else own[place] if place < len(own) else f"x{place}"
        text = "_".join([name, *(str(getattr(key, "idx", getattr(key, "key", "x"))) for key in rest)])
        text = re.sub(r"\W", "_", text)
        free = text.isidentifier() and text not in _TAKEN and not hasattr(builtins, text)
        text = text if free else f"x_{text}"
        while text in found:
            text += "_"
        found.append(text)
    return found


_TAKEN = {"self", "torch", "table", "base64", "zlib", "inf", "nan", "device"}


def _one_device(tensors: Sequence[torch.Tensor]) -> None:
    devices = sorted({str(tensor.device) for tensor in tensors})
    if len(devices) > 1:
        raise BadInput(f"example inputs are on {' and '.join(devices)}", hint="move them to one device")


@contextlib.contextmanager
def _quiet(fn: Any) -> Iterator[None]:
    """A context in which tracing prints no warnings and leaves the module's modes as they were."""
    modes = {m: m.training for m in fn.modules()} if isinstance(fn, torch.nn.Module) else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode


# ---------------------------------------------------------------- the program of torch.export


def _task(
    program: ExportedProgram,
    graph: Graph,
    flat: _Flat,
    tensors: Sequence[torch.Tensor],
    structure: Any,
    leaves: Sequence[Any],
    title: str,
) -> LiveTask:
    roles, constants = _roles(program, flat, tensors)
    results: list[Any] = []
    writes = []
    output = next(node for node in program.graph.nodes if node.op == "output").args[0]
    for spec, value in zip(program.graph_signature.output_specs, output, strict=True):
        kind = spec.kind.name
        if kind == "USER_OUTPUT":
            results.append(value)
        elif kind == "BUFFER_MUTATION":
            writes.append((_path(str(spec.target)), value))
        else:
            raise TaskError("the forward writes into its input", hint="return the new value")
    _check_own_memory(program, results)
    task = traced_task(
        title,
        program.graph,
        roles,
        results,
        writes=writes,
        conditions=_conditions(graph),
        training=flat.training,
    )
    given = iter(task.inputs)
    return LiveTask(
        task=task,
        arguments=structure,
        leaves=tuple(InputName(next(given)) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves),
        result=flat.__dict__["found"].result,
        constants=constants,
        shapes=tuple(tuple(tensor.shape) for tensor in tensors),
        types={name: (t.dtype, t.ndim) for name, t in zip(task.inputs, tensors, strict=True)},
        state_types={
            r.path: (tuple(r.value.shape), r.value.dtype)
            for r in roles.values()
            if r.value is not None and r.path in task.state
        },
    )


def _roles(
    program: ExportedProgram, flat: _Flat, tensors: Sequence[torch.Tensor]
) -> tuple[dict[str, Placeholder], dict[str, torch.Tensor]]:
    """The roles of all placeholders, and the tensors that are neither arguments nor state of the module."""
    user, known = iter(tensors), {**program.state_dict, **program.constants}
    roles, constants = {}, {}
    held = dict([*flat.named_parameters(remove_duplicate=False), *flat.named_buffers(remove_duplicate=False)])
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
        kind = spec.kind.name
        if kind == "USER_INPUT":
            roles[node.name] = Placeholder("input", next(user))
        elif kind in _STATE:
            target = str(spec.target)
            tensor, path = held.get(target, known.get(target)), _path(target)
            if tensor is None:
                raise TaskError(f"the graph reads {target}, which the module does not hold")
            roles[node.name] = Placeholder(_STATE[kind], tensor, path=path)  # type: ignore[arg-type]
            if target not in held:
                constants[path] = tensor
        else:
            raise TaskError(f"the graph takes an object ({kind.lower()})", hint="pass tensors")
    return roles, constants


def _check_own_memory(program: ExportedProgram, results: Sequence[Any]) -> None:
    """Raises TaskError for a result that is a part or a view of an argument or of the state, which a program's is not.

    One that is an argument itself is handed on.
    """
    given = [node for node in program.graph.nodes if node.op == "placeholder"]
    held = {_storage(node) for node in given} - {None}
    for node in results:
        if isinstance(node, torch.fx.Node) and node not in given and _storage(node) in held:
            raise TaskError("a result is a view of an argument or of the module's state", hint="return a copy of it")


def _storage(node: torch.fx.Node) -> Any:
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def _path(target: str) -> str:
    return target.removeprefix("live.")


def _conditions(graph: Graph) -> list[str]:
    """The graph's guards, with the inputs' shapes in place of its symbols."""
    access = {symbol.name: symbol.access for symbol in graph.symbols}
    names = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, sorted(access, key=len, reverse=True))) + r")(?!\w)")
    return [names.sub(lambda found: access[found[0]], guard) if access else guard for guard in graph.guards]
