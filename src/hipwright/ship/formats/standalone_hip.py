"""`standalone-hip`: one call of a program in C++ over HIP, with its data and the reference's outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hipwright.errors import BadInput, GuardFailed
from hipwright.ship.standalone import text, texts
from hipwright.ship.standalone.record import record
from hipwright.ship.standalone.steps import Recording
from hipwright.ship.subject import Examples, Files, ShipFormat, ShippedProgram
from hipwright.targets import REPRESENTATIVE
from hipwright.tensors import HostTensor, Tree, tensor_leaves
from hipwright.toolchain import device_headers

LARGEST = 32 << 20
"""Bytes of stored data."""
_SMALLER = (1 << 20, 1 << 17, 1 << 14)  # elements of a derived workload, where the task's own are too large
_FLOORS = {"float64": 1e-13, "float32": 1e-5, "float16": 1e-3, "bfloat16": 8e-3}
_COMPARED = {*_FLOORS, "int64", "int32", "int16", "int8", "uint8", "bool"}


@dataclass(frozen=True)
class _Call:
    """One recorded call, with the float64 outputs and the largest error that each may have."""

    workload: str
    recording: Recording
    expected: list[np.ndarray[Any, np.dtype[np.float64]]]
    limits: list[float]


def _files(subject: ShippedProgram) -> Files:
    if subject.examples is None:
        raise BadInput("standalone-hip stores the task's data, and the task is not at hand")
    call = _call(subject, subject.examples)
    parsed, key = subject.parsed, subject.program.key
    names = {"name": subject.name, "key": key, "workload": call.workload, "arch": REPRESENTATIVE.name}
    knobs = "".join(f"#define {k} {v}\n" for k, v in sorted(parsed.defines(subject.program.knobs).items()))
    results = zip(call.recording.results, call.limits, strict=True)
    main = texts.MAIN.format(
        **names,
        buffers=text.buffers_text(call.recording),
        steps=text.steps_text(call.recording, parsed.signatures),
        results="".join(text.result_text(number, *one) for number, one in enumerate(results)),
    )
    return {
        "README.md": texts.README.format(**names),
        "Makefile": texts.MAKEFILE.format(**names),
        "CMakeLists.txt": texts.CMAKE.format(**names),
        "main.cpp": main,
        "kernels.hip": f"// Written by hipwright from program {key}.\n{knobs}{device_headers.inlined(parsed.hip)}",
        "reference.py": subject.source,
        **{text.data_file(one): one.data or b"" for one in text.used(call.recording) if text.data_file(one)},
        **{f"data/expected_{number}.bin": values.tobytes() for number, values in enumerate(call.expected)},
    }


def _call(subject: ShippedProgram, examples: Examples) -> _Call:
    """The first workload whose data are small enough and that the plan takes. Raises BadInput without one."""
    said = "every workload holds more"
    for workload in _workloads(examples):
        inputs, state = examples.inputs(workload), examples.state()
        exact, honest = (tensor_leaves(examples.outputs(inputs, exact=exact)) for exact in (True, False))
        if sum(map(_bytes, (inputs, state, exact))) > LARGEST:
            continue
        try:
            recording = record(subject.parsed, subject.program.knobs, state, inputs)
        except GuardFailed as error:
            said = f"the program declines what is smaller ({error.message})"
            continue
        return _compared(workload, recording, exact, honest)
    raise BadInput(f"standalone-hip stores at most {LARGEST >> 20} MiB of data: {said}", hint="use another format")


def _workloads(examples: Examples) -> Iterator[str]:
    """The task's own, then smaller ones."""
    yield from (one.name for one in examples.workloads if _size(examples, one.name) <= LARGEST)
    for elements in _SMALLER:
        derived = examples.smaller(elements)
        if derived is not None:
            yield derived.name


def _size(examples: Examples, workload: str) -> int:
    """Bytes of a workload's inputs and outputs, at least: as if all were float32."""
    inputs, outputs = examples.specs(workload)
    return 4 * sum(int(np.prod(one.shape)) for one in [*_specs(inputs), *outputs])


def _specs(tree: Tree) -> list[Any]:
    """The leaves with shapes."""
    from hipwright.tensors import leaves

    return [leaf for leaf in leaves(tree) if hasattr(leaf, "shape")]


def _bytes(tree: Tree) -> int:
    return sum(leaf.storage.nbytes for leaf in tensor_leaves(tree))


def _compared(workload: str, recording: Recording, exact: list[HostTensor], honest: list[HostTensor]) -> _Call:
    """The outputs that are expected, with limits: four times the reference's own largest error, or a floor."""
    expected, limits = [], []
    for result, right, native in zip(recording.results, exact, honest, strict=True):
        if result.dtype not in _COMPARED or result.dtype != native.dtype or result.shape != native.shape:
            raise BadInput(f"an output of {result.dtype} {result.shape} cannot be compared without torch")
        values = np.ascontiguousarray(right.to_f64())
        finite = np.abs(values[np.isfinite(values)])
        errors = np.abs(native.to_f64() - values)
        own = float(errors[np.isfinite(errors)].max(initial=0.0))
        expected.append(values)
        limits.append(max(4 * own, _FLOORS.get(result.dtype, 0.0) * float(finite.max(initial=0.0))))
    return _Call(workload, recording, expected, limits)


FORMAT = ShipFormat("standalone-hip", "a folder that hipcc builds, with a main() that checks its result", _files)
