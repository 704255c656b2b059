"""`flashinfer-trace`: a definition, a solution in Python and workloads, in the layout of FlashInfer-Bench's data sets.

Facts: flashinfer-ai/flashinfer-bench, its package's data modules (definition, solution, workload, trace set). A
definition's `run` is a function of all that it reads, so parameters and buffers are inputs. The schema has no HIP
language: the solution is Python that builds the kernels by hipRTC or NVRTC, as a package in the format torch-op does.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from hipwright.errors import BadInput
from hipwright.ship.constructor import constructor_arguments
from hipwright.ship.flashinfer import texts
from hipwright.ship.flashinfer.safetensors import safetensors
from hipwright.ship.flashinfer.workloads import (
    AxisNames,
    FunctionWorkload,
    arguments,
    function_workloads,
    state_names,
)
from hipwright.ship.operands import TENSOR, listed, passed
from hipwright.ship.subject import Examples, Files, ShipFormat, ShippedProgram
from hipwright.ship.torch_op import Generated, checked, generated, runtime_files
from hipwright.tensors import HostTensor

LARGEST = 32 << 20
"""Bytes of a workload's stored tensors; above, floating ones are random, as the benchmark draws them."""
_DTYPES = ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8", "bool"]
_SCALARS = {bool: "bool", int: "int64", float: "float32"}
_KIND = "module"  # op_type
_HARDWARE = ["AMD_MI300X", "NVIDIA_H100"]


def _files(subject: ShippedProgram) -> Files:
    if subject.examples is None:
        raise BadInput("flashinfer-trace needs the task's workloads, and the task is not at hand")
    made = generated(subject)
    if made.found.written:
        raise BadInput(f"the program writes {made.found.written[0]}, and a definition's run only returns outputs")
    workloads = function_workloads(subject, subject.examples, made.found)
    axes, name = AxisNames(workloads), subject.name
    solution = f"{name}_hipwright_{subject.program.key}"
    files: dict[str, str | bytes] = {
        f"definitions/{_KIND}/{name}.json": _json(_definition(subject, made, workloads[0], axes)),
        f"solutions/hipwright/{_KIND}/{name}/{solution}.json": _json(_solution(subject, made, solution)),
    }
    lines = []
    for number, one in enumerate(workloads):
        record, blob = _workload(subject, subject.examples, made, one, axes.sizes(number))
        lines.append(json.dumps({"definition": name, "workload": record, "solution": None, "evaluation": None}) + "\n")
        files |= blob
    return {**files, f"workloads/{_KIND}/{name}.jsonl": "".join(lines)}


def _json(record: dict[str, Any]) -> str:
    return json.dumps(record, indent=2) + "\n"


def _definition(subject: ShippedProgram, made: Generated, first: FunctionWorkload, axes: AxisNames) -> dict[str, Any]:
    constants = {name: {"type": "const", "value": size} for name, size in axes.constants.items()}
    return {
        "name": subject.name,
        "op_type": _KIND,
        "description": f"The PyTorch module {subject.name} as a function (hipwright's program {subject.program.key}).",
        "axes": constants | {name: {"type": "var"} for name in axes.free},
        "inputs": {name: _spec(name, leaf, axes) for name, leaf in first.inputs.items()},
        "outputs": {name: _spec(name, leaf, axes) for name, leaf in first.outputs.items()},
        "reference": _reference(subject, made),
    }


def _spec(name: str, leaf: Any, axes: AxisNames) -> dict[str, Any]:
    """The spec of an input or output. Raises BadInput for a dtype that the schema has not."""
    if not hasattr(leaf, "shape"):
        if type(leaf) not in _SCALARS:
            raise BadInput(f"the argument {name} is a {type(leaf).__name__}, which flashinfer-trace has not")
        return {"shape": None, "dtype": _SCALARS[type(leaf)]}
    if leaf.dtype not in _DTYPES:
        raise BadInput(f"{name} is {leaf.dtype}, which flashinfer-trace has not")
    return {"shape": axes.shape(name, len(leaf.shape)), "dtype": leaf.dtype}


def _parameters(subject: ShippedProgram, made: Generated) -> str:
    return ", ".join([*(name for name, _, _ in made.found.arguments), *state_names(subject, made.found).values()])


def _reference(subject: ShippedProgram, made: Generated) -> str:
    found, several = made.found, len(made.found.outputs) != 1
    own = texts.REFERENCE.format(
        arguments=_parameters(subject, made),
        init=constructor_arguments(subject.init),
        state=", ".join(f"{path!r}: {name}" for path, name in state_names(subject, found).items()),
        inputs="".join(f"{text}, " for text in found.inputs),
        outputs=f"({', '.join(found.outputs)})" if several else found.outputs[0],
    )
    return checked(subject.source.rstrip("\n") + "\n" + own)


def _solution(subject: ShippedProgram, made: Generated, name: str) -> dict[str, Any]:
    names, found = state_names(subject, made.found), made.found
    state = made.plain.state
    types = [*(kind for _, kind, _ in found.arguments), *[TENSOR] * len(state)]
    total = len(found.outputs) + sum(kind == "tensor" for kind, _ in found.saved or ())
    first = "[0]" if len(found.outputs) == 1 else f"[:{len(found.outputs)}]"
    main = texts.MAIN.format(
        name=subject.name,
        key=subject.program.key,
        arguments=_parameters(subject, made),
        read=passed([*(name for name, _, _ in found.arguments), *(names[path] for path in state)], listed(types)),
        chosen="" if total == 1 else first,
    )
    sources = {"main.py": checked(main), **runtime_files(subject, made)}
    return {
        "name": name,
        "definition": subject.name,
        "author": "hipwright",
        "description": f"hipwright's program {subject.program.key}: HIP kernels, built when first called.",
        "spec": {
            "language": "python",
            "target_hardware": _HARDWARE,
            "entry_point": "main.py::run",
            "dependencies": ["torch"],
            "destination_passing_style": False,
        },
        "sources": [{"path": path, "content": text} for path, text in sorted(sources.items()) if text],
    }


def _workload(
    subject: ShippedProgram, examples: Examples, made: Generated, one: FunctionWorkload, sizes: dict[str, int]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The record, and the file of its stored tensors by path."""
    given = arguments(subject, made.found, examples.inputs(one.name), examples.state())
    tensors = {name: leaf for name, leaf in given.items() if isinstance(leaf, HostTensor)}
    if sum(tensor.storage.nbytes for tensor in tensors.values()) > LARGEST:
        tensors = {name: tensor for name, tensor in tensors.items() if not tensor.is_float}
    identity = str(uuid.uuid5(uuid.NAMESPACE_URL, f"hipwright:{subject.program.key}:{one.name}"))
    path = f"blob/workloads/{_KIND}/{subject.name}/{subject.name}_{identity}.safetensors"
    inputs: dict[str, Any] = {}
    for name, leaf in given.items():
        if name in tensors:
            inputs[name] = {"type": "safetensors", "path": path, "tensor_key": name}
        elif isinstance(leaf, HostTensor):
            inputs[name] = {"type": "random"}
        else:
            inputs[name] = {"type": "scalar", "value": leaf}
    blob = {path: safetensors(tensors)} if tensors else {}
    return {"uuid": identity, "axes": sizes, "inputs": inputs}, blob


FORMAT = ShipFormat("flashinfer-trace", "a definition, a solution and workloads for FlashInfer-Bench", _files)
