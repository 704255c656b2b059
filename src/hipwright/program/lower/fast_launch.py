"""Generates the fast launch path of a kernel: one function that checks, packs and launches.

Networks of many small kernels are bound by the host, and most launches have tensors of the expected dtype on the
expected device, plain numbers, and a geometry that was launched before. The generated function handles these without
loops over arguments. Every other launch takes the checked path (`make_launch`), which reports what is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeGuard

from hipwright.device.gpu.kernels import Geometries, Geometry
from hipwright.device.gpu.pack import LARGEST_FLOAT32, ArgumentLayout
from hipwright.program.kernel_types import SIZES
from hipwright.program.signature import Param, Signature


class FastLauncher(Protocol):
    """What the fast path needs of a launcher (device/gpu/launcher.py)."""

    index: int
    """The launcher's device, as `Tensor.get_device` numbers it."""
    record: bool
    """Whether launches are recorded, which only the checked path does."""
    fast_empty: Callable[[tuple[int, ...], Any], Any] | None
    """(shape, dtype) -> an unguarded tensor, with torch's errors; None where memory is guarded."""

    def geometries(self, kernel: str) -> Geometries:
        """The geometries that were checked before, by (grid, block, lds_bytes)."""
        ...

    def launch_checked(self, geometry: Geometry, params: Any) -> None:
        """Enqueues the kernel. Raises CandidateError when the driver refuses it."""
        ...


def has_fast_launch(launcher: object) -> TypeGuard[FastLauncher]:
    """Whether a launcher supports the fast path; one that wraps another does not, because it must see every launch."""
    return hasattr(launcher, "geometries")


def fast_launch(
    signature: Signature, launcher: FastLauncher, dtypes: Sequence[tuple[Any, ...]], checked: Callable[..., None]
) -> Callable[..., None]:
    """Returns f(grid, block, lds_bytes, *args), which is not thread-safe.

    dtypes: the dtypes that each parameter may point to, () for any. checked: the checked path, with the same arguments.
    """
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
        "start": launcher.launch_checked,
        "checked": checked,
        "pack": layout.struct.pack_into,
        "block_of": layout.block,
        "params": layout.pointers,
        "Error": struct.error,
        "INDEX": launcher.index,
        "MOST": LARGEST_FLOAT32,
    }
    scope |= {f"{name}_type": allowed[0] for name, allowed in zip(names, dtypes, strict=True) if allowed}
    text = _TEXT.format(
        args=", ".join(["grid", "block", "lds_bytes", *names]),
        checks=" and ".join(checks),
        values=", ".join(["block_of", "0", *values]),
    )
    exec(compile(text, f"<launch of {signature.name}>", "exec"), scope)
    launch: Callable[..., None] = scope["launch"]
    return launch


# unknown geometries, arguments without a dtype and numbers that do not fit take the checked path
_TEXT = """\
def launch({args}):
    try:
        fast = {checks}
        if fast:
            geometry = geometries[grid, block, lds_bytes]
            pack({values})
    except (KeyError, AttributeError, TypeError, OverflowError, Error):
        fast = False
    if fast:
        start(geometry, params)
    else:
        checked({args})
"""


def _pointer(name: str, param: Param, allowed: tuple[Any, ...]) -> tuple[list[str], str]:
    """(conditions, value) of a tensor that has the first allowed dtype, lies on the device and is aligned."""
    tests = [f"{name}.get_device() == INDEX"]
    if allowed:
        tests.append(f"{name}.dtype is {name}_type")
    if param.align <= SIZES.get(param.kind, 1):
        return tests, f"{name}.data_ptr()"
    return [*tests, f"({name}_at := {name}.data_ptr()) % {param.align} == 0"], f"{name}_at"


def _scalar(name: str, param: Param) -> tuple[list[str], str]:
    """(conditions, value) of a number. Packing refuses integers that do not fit."""
    if param.kind == "float32":
        return [f"type({name}) is float", f"-MOST <= {name} <= MOST"], name
    if param.kind == "float64":
        return [f"type({name}) is float"], name
    if param.kind in ("float16", "bfloat16"):  # the checked path rounds
        return ["False"], "0"
    return [f"type({name}) is {'bool' if param.kind == 'bool' else 'int'}"], name
