"""Kernel arguments as the `void **kernelParams` of cuLaunchKernel and hipModuleLaunchKernel.

Both calls copy the values before they return, so one block of memory per kernel is reused. Values lie
at the natural alignment of their types, which is also the layout of a kernel-argument buffer (HIP's `extra`).
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from hipwright.device.signature import SCALAR_FORMATS, Argument, KernelParam, KernelSignature
from hipwright.errors import CandidateError

_POINTER = "P"
LARGEST_FLOAT32 = 3.4028235677973366e38  # larger numbers round to no finite float32


class ArgumentLayout:
    """The argument block of one kernel. For one thread; each `pack` overwrites the one before.

    pointers: void *[] into `block`, one for each parameter. offsets, size: bytes, at natural alignment.
    """

    def __init__(self, signature: KernelSignature) -> None:
        self._name, self._params = signature.name, tuple(signature.params)
        formats = [_POINTER if p.pointer else SCALAR_FORMATS[p.kind] for p in self._params]
        self.struct = struct.Struct("@" + "".join(formats))
        self._converts = tuple(_convert(p) for p in self._params)
        self.offsets = tuple(
            struct.calcsize("@" + "".join(formats[: i + 1])) - struct.calcsize(f) for i, f in enumerate(formats)
        )
        self.size = self.struct.size
        self.block = (ctypes.c_char * max(self.size, 8))()
        base = ctypes.addressof(self.block)
        self.pointers = (ctypes.c_void_p * max(len(formats), 1))(*(base + offset for offset in self.offsets))

    def pack(self, args: Sequence[Argument]) -> ctypes.Array[ctypes.c_void_p]:
        """Write the values; returns `pointers`. Raises CandidateError(launch_error) naming the argument."""
        if len(args) != len(self._params):
            raise self._refuse(f"{len(args)} arguments for {len(self._params)} parameters")
        try:
            values = [convert(arg) for convert, arg in zip(self._converts, args, strict=True)]
            self.struct.pack_into(self.block, 0, *values)
        except (struct.error, OverflowError, AttributeError, TypeError, ValueError):
            raise self._misfit(args) from None
        return self.pointers

    def _misfit(self, args: Sequence[Argument]) -> CandidateError:
        """The error that names the argument which does not fit, found by packing each alone."""
        for param, convert, arg in zip(self._params, self._converts, args, strict=True):
            try:
                struct.pack("@" + (_POINTER if param.pointer else SCALAR_FORMATS[param.kind]), convert(arg))
            except (struct.error, OverflowError, AttributeError, TypeError, ValueError):
                what = "must be a tensor or None" if param.pointer else f"does not fit {param.kind}"
                return self._refuse(f"argument {param.name} = {_shown(arg)} {what}", argument=param.name)
        return self._refuse("its arguments cannot be packed")

    def _refuse(self, message: str, **evidence: Any) -> CandidateError:
        return CandidateError(
            f"kernel {self._name}: {message}",
            status="launch_error",
            stage="launch",
            evidence={"kernel": self._name, **evidence},
        )


def pack(signature: KernelSignature, args: Sequence[Argument]) -> ArgumentLayout:
    """A packed argument block of its own: `.pointers` is the void *[], valid as long as the result lives."""
    layout = ArgumentLayout(signature)
    layout.pack(args)
    return layout


def bfloat16_bits(value: float) -> int:
    """The bfloat16 nearest to a number rounded to float32 first (ties to even), as torch converts.

    Raises OverflowError above the float32 range.
    """
    number = float(value)
    if math.isnan(number):
        return 0x7FC0
    bits = int(struct.unpack("<I", struct.pack("<f", number))[0])
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _convert(param: KernelParam) -> Callable[[Argument], Any]:
    if param.pointer:
        return _address
    if param.kind == "bfloat16":
        return bfloat16_bits
    if param.kind == "float32":
        return _float32
    return {"float": float, "bool": bool}.get(param.kind.rstrip("0123456789"), int)


def _float32(arg: Argument) -> float:
    """The number; OverflowError where float32 cannot hold it (struct's native format would write an infinity)."""
    number = float(arg)
    if abs(number) > LARGEST_FLOAT32 and not math.isinf(number):
        raise OverflowError
    return number


def _address(arg: Argument) -> int:
    return 0 if arg is None else int(arg.data_ptr())


def _shown(arg: Argument) -> str:
    shape = getattr(arg, "shape", None)
    return repr(arg) if shape is None else f"a {arg.dtype} tensor of shape {tuple(shape)}"
