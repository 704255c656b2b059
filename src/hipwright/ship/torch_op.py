"""`--format torch-op`: a program as an importable package with a `torch.library` operator (docs/ship.md).

plan.py, spec.py and __init__.py are generated; the files of runtime/ are copied.
"""

from __future__ import annotations

import ast
import keyword
import pprint
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hipwright import syntax
from hipwright.device.signature import SCALAR_FORMATS
from hipwright.errors import BadInput
from hipwright.program.lower.table import StateTable
from hipwright.program.signature import Param
from hipwright.ship import texts
from hipwright.ship.constructor import constructor_arguments
from hipwright.ship.interface import Interface, interface
from hipwright.ship.operands import TENSOR, listed, passed, schema
from hipwright.ship.plan_text import PlanText
from hipwright.ship.subject import ShippedProgram
from hipwright.toolchain import clang, device_headers

RUNTIME = Path(__file__).parent / "runtime"
_COPIED = ("build.py", "gpu.py", "op.py")
_SIGNED = {"uint16": "int16", "uint32": "int32", "uint64": "int64"}
_MODES = re.compile(r"training|dropout|batch_?norm|instance_?norm|\.eval\(|lstm|gru", re.IGNORECASE)


@dataclass(frozen=True)
class Generated:
    """What is written for one program. fields: the parts of a module class's text (`texts.INIT`)."""

    plan: str
    spec: str
    fields: Mapping[str, str]
    found: Interface
    plain: PlanText


def generated(subject: ShippedProgram) -> Generated:
    """The generated texts. Raises BadInput and ProgramError for what cannot be shipped."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", subject.name) or keyword.iskeyword(subject.name):
        raise BadInput(f"{subject.name!r} is no package name", hint="use --name: small letters, digits, _")
    parsed, knobs = subject.parsed, subject.program.knobs
    found = interface(parsed, knobs, subject.state, subject.inputs)
    plain = PlanText(parsed, knobs, StateTable(subject.state, device="meta"), [name for name, _, _ in found.arguments])
    fields = _init_fields(subject, found, plain)
    return Generated(_plan(subject, found, plain), _spec(subject, found, plain), fields, found, plain)


def package(subject: ShippedProgram) -> dict[str, str]:
    """Every file of the package by its path. Raises BadInput and ProgramError for what cannot be shipped."""
    made = generated(subject)
    here = f"src/{subject.name}"
    files = {
        "pyproject.toml": texts.PYPROJECT.format(name=subject.name),
        "README.md": texts.readme(subject.name, made.found, subject.program.key),
        f"{here}/__init__.py": checked(texts.INIT.format(**made.fields)),
        f"{here}/__main__.py": texts.MAIN,
        f"{here}/reference.py": subject.source,
    }
    return files | {f"{here}/{name}": text for name, text in runtime_files(subject, made).items()}


def runtime_files(subject: ShippedProgram, made: Generated) -> dict[str, str]:
    """The plan, its tables, the kernels' source and the modules that build and launch them."""
    source = device_headers.inlined(device_headers.portable(subject.parsed.hip))
    files = {"plan.py": made.plan, "spec.py": made.spec, "kernels.hip": source}
    files |= {name: (RUNTIME / name).read_text(encoding="utf-8") for name in _COPIED}
    return files | {f"include/{name}": text for name, text in _headers().items()}


def checked(text: str) -> str:
    """Generated Python text, which must parse."""
    syntax.parse(text)
    return text


def _headers() -> dict[str, str]:
    """HIP's device headers for NVRTC, by name."""
    files = (path for path in sorted(clang.INCLUDE.rglob("*")) if path.is_file())
    named = ((path.relative_to(clang.INCLUDE).as_posix(), path) for path in files)
    wanted = (
        (name, path) for name, path in named if not name.startswith(("torchlite/", "hipwright/", "hw/cpu", "hw/amdgcn"))
    )
    return {name: path.read_text(encoding="utf-8") for name, path in wanted}


# ---------------------------------------------------------------- plan.py


def _plan(subject: ShippedProgram, found: Interface, plain: PlanText) -> str:
    order = [name for name in ("prepare", "forward", "backward") if name in plain.functions]
    parts = [
        texts.PLAN_HEAD.format(name=subject.name, key=subject.program.key),
        plain.constants(),
        texts.HOST,
        *(plain.functions[name] for name in order),
        _call_forward(found, plain),
        *([_call_backward(found, plain)] if found.saved is not None else []),
    ]
    return checked("\n\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n")


def _call_forward(found: Interface, plain: PlanText) -> str:
    state, head = plain.state.values(), plain.leading_arguments("forward")
    takes = ", ".join([*head, *(name for name, _, _ in found.arguments), *state])
    gives = ", ".join([*head, *_bound(found, plain), *(f"{name}={name}" for name in state)])
    both = "out, saved" if found.saved is not None else "out"
    return (
        f"def call_forward({takes}):\n"
        '    """forward on flat arguments: (outputs, what backward needs), flat."""\n'
        f"    {both} = forward({gives})\n"
        f"    return {_tuple(found.outputs)}, {_tuple(found.saved_reads)}"
    )


def _bound(found: Interface, plain: PlanText) -> list[str]:
    """The inputs as keyword arguments, so that parameters with defaults keep them."""
    return [f"{name}={text}" for name, text in zip(plain.inputs("forward"), found.inputs, strict=False)]


def _call_backward(found: Interface, plain: PlanText) -> str:
    assert found.saved is not None
    head, state = plain.leading_arguments("backward"), list(plain.state.values())
    grads = [f"grad{i}" for i in range(len(found.outputs))]
    saved = [f"saved{i}" for i in range(len(found.saved))]
    return (
        f"def call_backward({', '.join([*head, *grads, *saved, *state])}):\n"
        '    """backward on flat arguments: the gradients, in the order of spec.GRADS."""\n'
        f"    grads = backward({', '.join([*head, found.grad_nest, found.saved_nest, *state])})\n"
        f"    return {_tuple(found.grad_reads)}"
    )


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


# ---------------------------------------------------------------- spec.py


def _spec(subject: ShippedProgram, found: Interface, plain: PlanText) -> str:
    parsed = subject.parsed
    paths = [path for _, _, path in found.arguments] + [f"self.{path}" for path in plain.state]
    state = StateTable(subject.state, device="meta").tensors()
    first = len(found.arguments)
    values = {
        "NAME": subject.name,
        "SCHEMA": _schema(found, plain),
        "LISTED": listed([kind for kind, _ in _takes(found, plain)]),
        "BACKWARD_SCHEMA": _backward_schema(found, plain),
        "BACKWARD_LISTED": listed([kind for kind, _ in _backward_takes(found, plain)]),
        "STATE": tuple(
            (first + i, path, tuple(state[path].shape), str(state[path].dtype).removeprefix("torch."))
            for i, path in enumerate(plain.state)
        ),
        "WRITTEN": tuple(paths.index(f"self.{path}") for path in found.written),
        "OUTPUTS": len(found.outputs),
        "SAVED": found.saved and tuple((k, paths.index(p) if k == "argument" else p) for k, p in found.saved),
        "GRADS": tuple(map(paths.index, found.grads)),
        "DEFINES": parsed.defines(subject.program.knobs),
        "SIGNATURES": {name: tuple(map(_param, parsed.signatures[name].params)) for name in parsed.launched},
        "TRAINING": bool(subject.state.get("training", True)) if _MODES.search(subject.source) else None,
        "ATTRIBUTES": _attributes(subject.state),
    }
    lines = [f"{name} = {pprint.pformat(value, width=110, sort_dicts=False)}" for name, value in values.items()]
    return texts.SPEC_HEAD + "\n".join(lines) + "\n"


def _takes(found: Interface, plain: PlanText) -> list[tuple[str, str]]:
    """(type, name) of the operator's arguments."""
    return [(kind, name) for name, kind, _ in found.arguments] + [(TENSOR, name) for name in plain.state.values()]


def _schema(found: Interface, plain: PlanText) -> str:
    extra = sum(kind == "tensor" for kind, _ in found.saved or ())
    returns = _returns(len(found.outputs) + len(found.written) + extra)
    return f"({schema(_takes(found, plain))}) -> {returns}"


def _backward_takes(found: Interface, plain: PlanText) -> list[tuple[str, str]]:
    """(type, name) of the arguments of the operator that gives gradients."""
    grads = [(TENSOR, f"grad{i}") for i in range(len(found.outputs))]
    saved = [(place if kind == "host" else TENSOR, f"saved{i}") for i, (kind, place) in enumerate(found.saved or ())]
    return [*grads, *saved, *((TENSOR, name) for name in plain.state.values())]


def _backward_schema(found: Interface, plain: PlanText) -> str:
    return f"({schema(_backward_takes(found, plain))}) -> {_returns(len(found.grads))}"


def _returns(count: int) -> str:
    return "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"


def _param(param: Param) -> tuple[str, str, tuple[str, ...], int]:
    """A parameter in the form that runtime/gpu.py reads."""
    if not param.pointer:
        return param.name, SCALAR_FORMATS[param.kind], (param.kind,), 1
    if param.ctype == "char":
        dtypes: tuple[str, ...] = ("int8", "uint8", "bool")
    elif param.kind == "uint8":
        dtypes = ("uint8", "bool")
    else:
        dtypes = () if param.kind == "void" else (_SIGNED.get(param.kind, param.kind),)
    return param.name, "P", dtypes, param.align


def _attributes(state: Mapping[str, Any]) -> dict[str, Any]:
    """The model's constant attributes, whose values may be written into the kernels."""
    kept = {path: value for path, value in state.get("attrs", {}).items() if path.rpartition(".")[2] != "training"}
    return {path: value for path, value in kept.items() if _comparable(value)}


def _comparable(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_comparable, value))
    return value is None or isinstance(value, (bool, int, float, str))


# ---------------------------------------------------------------- __init__.py


def _init_fields(subject: ShippedProgram, found: Interface, plain: PlanText) -> dict[str, str]:
    signature = _forward_arguments(subject)
    names = [a.arg for a in signature.args][1:]
    tensor = next((path for _, schema, path in found.arguments if schema == "Tensor"), None)
    if tensor is None:
        raise BadInput("no input is a tensor: there is nothing to run an operator on")
    saved = sum(kind == "tensor" for kind, _ in found.saved or ())
    outs = [f"out{i}" for i in range(len(found.outputs))]
    new = [f"new{i}" for i in range(len(found.written))]
    takes = _takes(found, plain)
    together = listed([kind for kind, _ in takes])
    positions = StateTable(subject.state, device="meta").positions()
    written, held = ([self_path(path, positions) for path in paths] for paths in (found.written, plain.state))
    copied = (f"        {path}.copy_({one}.detach())\n" for path, one in zip(written, new, strict=True))
    return {
        "name": subject.name,
        "init": constructor_arguments(subject.init),
        "signature": ast.unparse(signature),
        "passed": ", ".join(names),
        "tensor": tensor,
        "results": ", ".join([*outs, *new, *["_"] * saved]),
        "flat": passed([*(path for _, _, path in found.arguments), *held], together),
        "arguments": ", ".join(name for _, name in takes),
        "operands": passed([name for _, name in takes], together),
        "updates": "".join(copied),
        "nest": found.nest,
    }


def _forward_arguments(subject: ShippedProgram) -> ast.arguments:
    """The reference's forward signature, so that keyword calls work; the plan's where the reference's is not plain."""
    plan = subject.parsed.functions["forward"].args
    for node in ast.walk(syntax.parse(subject.source)):
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "forward" and _same(item.args, plan):
                    for arg in item.args.args:
                        arg.annotation = None
                    return item.args
    return plan


def _same(given: ast.arguments, plan: ast.arguments) -> bool:
    """Whether the reference has plain parameters of the same names."""
    plain = not (given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs)
    literal = all(isinstance(default, ast.Constant) for default in given.defaults)
    return plain and literal and [a.arg for a in given.args][1:] == [a.arg for a in plan.args][1:]


def self_path(path: str, positions: Mapping[str, int]) -> str:
    """`net.0.weight` -> `self.net[0].weight`. positions: of items whose names are not their places."""
    names = path.split(".")
    places = [positions.get(".".join(names[: k + 1]), name) for k, name in enumerate(names)]
    return "self." + re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", ".".join(map(str, places)))


__all__ = ["ShippedProgram", "package"]
