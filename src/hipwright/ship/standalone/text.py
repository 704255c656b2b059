"""A recording as the C++ of main.cpp."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

from hipwright.program.kernel_types import SIZES
from hipwright.program.signature import Param, Signature
from hipwright.ship.standalone.steps import Address, Buffer, Copy, Fill, Launch, Recording, Result, Step

_TYPES = {"float64": "double", "float32": "float", "bool": "bool"}


def data_file(buffer: Buffer) -> str:
    """Where a buffer's first contents are, below the folder; "" where it has none, or zeros."""
    return f"data/{buffer.name}.bin" if buffer.data is not None and any(buffer.data) else ""


def used(recording: Recording) -> list[Buffer]:
    """The buffers that a step or a result names, in order."""
    places = [address for step in recording.steps for address in _addresses(step)]
    named = {id(one.buffer) for one in [*places, *(result.address for result in recording.results)]}
    return [buffer for buffer in recording.buffers if id(buffer) in named]


def _addresses(step: Step) -> list[Address]:
    if isinstance(step, Launch):
        return [one for one in step.arguments if isinstance(one, Address)]
    return [step.to, step.source] if isinstance(step, Copy) else [step.to]


def buffers_text(recording: Recording) -> str:
    """The definitions of the buffers."""
    lines = []
    for buffer in used(recording):
        file = data_file(buffer)
        lines.append(f"    Buffer {buffer.name}({buffer.size}, {_quoted(file) if file else 'nullptr'});")
        if buffer.data is not None and not file and buffer.size:
            lines.append(f'    check(hipMemset({buffer.name}.address, 0, {buffer.size}), "hipMemset");')
    return "".join(f"{line}\n" for line in lines)


def steps_text(recording: Recording, signatures: Mapping[str, Signature]) -> str:
    """The steps, in order."""
    return "".join(_step(step, signatures) for step in recording.steps)


def _step(step: Step, signatures: Mapping[str, Signature]) -> str:
    if isinstance(step, Copy):
        moved = f"{_at(step.to)}, {_at(step.source)}, {step.size}, hipMemcpyDeviceToDevice"
        return f'    check(hipMemcpy({moved}), "hipMemcpy");\n'
    if isinstance(step, Fill):
        element = "".join(f"\\x{byte:02x}" for byte in step.element)
        return f'    fill({_at(step.to)}, "{element}", {len(step.element)}, {step.count});\n'
    params = signatures[step.kernel].params
    lines = [f"    {{  // {step.kernel}"]
    for number, (param, argument) in enumerate(zip(params, step.arguments, strict=True)):
        lines.append(f"        {_argument(param, number, argument)}  // {param.name}")
    listed = ", ".join(f"&a{number}" for number in range(len(params))) or "nullptr"
    grid, block = (", ".join(f"{size}u" for size in dims) for dims in (step.grid, step.block))
    lines += [
        f"        void* arguments[] = {{{listed}}};",
        f"        const unsigned grid[3] = {{{grid}}}, block[3] = {{{block}}};",
        f'        launch("{step.kernel}", grid, block, {step.lds}u, arguments);',
        "    }",
    ]
    return "".join(f"{line}\n" for line in lines)


def _at(address: Address) -> str:
    return f"{address.buffer.name}.at({address.offset})"


def _argument(param: Param, number: int, argument: Address | int | float | bool | None) -> str:
    """The statement that makes one argument of the kernel's own type."""
    if param.pointer:
        return f"void* a{number} = {_at(argument) if isinstance(argument, Address) else 'nullptr'};"
    assert argument is not None and not isinstance(argument, Address)
    if param.kind in ("float16", "bfloat16"):
        return f"uint16_t a{number} = {_half_bits(param.kind, float(argument))};"
    if param.kind in _TYPES:
        kind = _TYPES[param.kind]
        return f"{kind} a{number} = static_cast<{kind}>({_number(argument)});"
    unsigned = param.kind.startswith("u")
    kind = f"{'u' if unsigned else ''}int{8 * SIZES[param.kind]}_t"
    literal = f"{int(argument)}{'ull' if unsigned else 'll'}" if int(argument) > -(2**63) else "INT64_MIN"
    return f"{kind} a{number} = static_cast<{kind}>({literal});"


def _number(value: int | float | bool) -> str:
    """A number of double precision, exactly."""
    if isinstance(value, bool):
        return "true" if value else "false"
    wide = float(value)
    if math.isnan(wide):
        return "NAN"
    if math.isinf(wide):
        return "-INFINITY" if wide < 0 else "INFINITY"
    return repr(wide) if wide.is_integer() and abs(wide) < 1e15 else f"{wide.hex()} /* {wide!r} */"


def _half_bits(kind: str, value: float) -> str:
    import torch

    dtype = torch.float16 if kind == "float16" else torch.bfloat16
    bits = torch.tensor([value], dtype=torch.float64).to(dtype).view(torch.int16).item()
    return f"{struct.unpack('H', struct.pack('h', bits))[0]:#06x}  /* {value!r} */"


def result_text(number: int, result: Result, limit: float) -> str:
    """The comparison of one output."""
    shape, stride = (", ".join(map(str, dims)) for dims in (result.shape, result.stride))
    width = SIZES[result.dtype]
    where = f"{number}, {result.address.buffer.name}, {result.address.offset}"
    how = f'"{result.dtype}", {width}, {{{shape}}}, {{{stride}}}, {limit.hex()} /* {limit:.3g} */'
    return f"    good = right({where}, {how}) && good;\n"


def _quoted(text: str) -> str:
    return f'"{text}"'
