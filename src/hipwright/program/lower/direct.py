"""The short way to launch a kernel: one function that checks, packs and launches, written out for its parameters.

A network of many small kernels is bound by the host, and most launches are of the plainest kind: tensors of the one
dtype on the one device, plain numbers, a geometry that was launched before. For these the written function does what
`make_launch` and the launcher do, without their loops over arguments. Whatever else comes goes the long way, which
checks all of it and says what is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeGuard

from hipwright.device.kernels import Geometries, Geometry
from hipwright.device.pack import FLOAT32_MOST, ArgumentLayout
from hipwright.program.signature import SIZES, Param, Signature


class DirectLauncher(Protocol):
    """What a launcher offers for the short way (device/gpu.py)."""

    index: int
    """What `Tensor.get_device` says of a tensor on the launcher's device."""
    record: bool
    """Whether launches are noted, which is for the long way to do."""
    quick_empty: Callable[[tuple[int, ...], Any], Any] | None
    """(shape, dtype) -> a plain tensor, where plain memory is wanted. Raises as torch does for what is no shape."""

    def geometries(self, kernel: str) -> Geometries:
        """What `start` takes, for each launch that was checked."""
        ...

    def start(self, geometry: Geometry, params: Any) -> None:
        """Enqueue the kernel. Raises CandidateError for what cannot be launched."""
        ...


def is_direct(launcher: object) -> TypeGuard[DirectLauncher]:
    """Whether a launcher offers the short way. One that wraps another sees every launch, and does not."""
    return hasattr(launcher, "geometries")


def direct(
    signature: Signature, launcher: DirectLauncher, dtypes: Sequence[tuple[Any, ...]], slow: Callable[..., None]
) -> Callable[..., None]:
    """f(grid, block, lds_bytes, *args). dtypes: what each parameter may point to, () for anything; slow: the long way,
    with the same arguments. For one thread, as the launcher is."""
    layout = ArgumentLayout(signature)
    names = [f"a{i}" for i in range(len(signature.params))]
    checks, values = ["not launcher.record"], []
    for name, param, allowed in zip(names, signature.params, dtypes, strict=True):
        test, value = _pointer(name, param, allowed) if param.pointer else _scalar(name, param)
        checks += test
        values.append(value)
    scope: dict[str, Any] = {
        "launcher": launcher,
        "geometries": launcher.geometries(signature.name),
        "start": launcher.start,
        "slow": slow,
        "pack": layout.struct.pack_into,
        "block_of": layout.block,
        "params": layout.pointers,
        "Error": struct.error,
        "INDEX": launcher.index,
        "MOST": FLOAT32_MOST,
    }
    scope |= {f"{name}_type": allowed[0] for name, allowed in zip(names, dtypes, strict=True) if allowed}
    text = _TEXT.format(
        args=", ".join(["grid", "block", "lds_bytes", *names]),
        checks=" and ".join(checks),
        values=", ".join(["block_of", "0", *values]),
    )
    exec(compile(text, f"<launch of {signature.name}>", "exec"), scope)
    made: Callable[..., None] = scope["launch"]
    return made


# a geometry that is no key, an argument without dtype and a number that does not fit: the long way says what is wrong
_TEXT = """\
def launch({args}):
    try:
        plain = {checks}
        if plain:
            geometry = geometries[grid, block, lds_bytes]
            pack({values})
    except (KeyError, AttributeError, TypeError, OverflowError, Error):
        plain = False
    if plain:
        start(geometry, params)
    else:
        slow({args})
"""


def _pointer(name: str, param: Param, allowed: tuple[Any, ...]) -> tuple[list[str], str]:
    """(conditions, value) of a tensor: of the first dtype allowed, on the device, aligned."""
    tests = [f"{name}.get_device() == INDEX"]
    if allowed:
        tests.append(f"{name}.dtype is {name}_type")
    if param.align <= SIZES.get(param.kind, 1):
        return tests, f"{name}.data_ptr()"
    return [*tests, f"({name}_at := {name}.data_ptr()) % {param.align} == 0"], f"{name}_at"


def _scalar(name: str, param: Param) -> tuple[list[str], str]:
    """(conditions, value) of a number. Packing itself refuses integers that do not fit."""
    if param.kind == "float32":
        return [f"type({name}) is float", f"-MOST <= {name} <= MOST"], name
    if param.kind == "float64":
        return [f"type({name}) is float"], name
    if param.kind in ("float16", "bfloat16"):  # rounding is the long way's
        return ["False"], "0"
    return [f"type({name}) is {'bool' if param.kind == 'bool' else 'int'}"], name
