"""Checks kernel arguments against their parameters, and allocates through the launcher. Imports torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from hipwright.errors import CandidateError
from hipwright.float8 import FLOAT8
from hipwright.program.kernel_types import SIZES
from hipwright.program.lower.fast_launch import fast_launch, has_fast_launch
from hipwright.program.signature import Param, Signature

Argument = Any  # torch.Tensor | int | float | bool | None
Dim3 = tuple[int, int, int]


class KernelLauncher(Protocol):
    """Runs kernels and allocates the tensors that they write (implemented in hipwright.device)."""

    def launch(self, kernel: str, grid: Dim3, block: Dim3, lds_bytes: int, args: Sequence[Argument]) -> None:
        """Runs one kernel. Raises CandidateError when it misbehaves."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A contiguous tensor with undefined contents."""
        ...


# a pointer's element kind -> the torch dtypes that it may point to
POINTS_TO: dict[str, tuple[Any, ...]] = {
    "float64": (torch.float64,),
    "float32": (torch.float32,),
    "float16": (torch.float16,),
    "bfloat16": (torch.bfloat16,),
    "int64": (torch.int64,),
    "int32": (torch.int32,),
    "int16": (torch.int16,),
    "int8": (torch.int8,),
    "uint8": (torch.uint8, torch.bool),
    "bool": (torch.bool,),
    "uint16": (torch.int16,),
    "uint32": (torch.int32,),
    "uint64": (torch.int64,),
} | {dtype: (getattr(torch, dtype),) for dtype in FLOAT8}
_CHAR = (torch.int8, torch.uint8, torch.bool)  # char* stands for bytes


def refuse(message: str) -> CandidateError:
    """The error of a launch with wrong arguments."""
    return CandidateError(message, status="launch_error", stage="launch")


def make_launch(signature: Signature, launcher: KernelLauncher) -> Callable[..., None]:
    """Returns f(grid, block, lds_bytes, *args), which checks every argument and launches; an empty grid launches
    nothing."""
    checked = _checked_launch(signature, launcher)
    if not has_fast_launch(launcher):
        return checked
    return fast_launch(signature, launcher, [_dtypes(param) for param in signature.params], checked)


def _checked_launch(signature: Signature, launcher: KernelLauncher) -> Callable[..., None]:
    name, run = signature.name, launcher.launch
    casts = tuple(_pointer(name, p) if p.pointer else _scalar(name, p) for p in signature.params)

    def launch(grid: Any, block: Any, lds_bytes: Any, *args: Argument) -> None:
        if type(lds_bytes) is not int or lds_bytes < 0:
            raise refuse(f"{name}: lds_bytes is {lds_bytes!r}, not a non-negative integer")
        values = [cast(value) for cast, value in zip(casts, args, strict=True)]
        blocks, threads = _dim3(name, "grid", grid), _dim3(name, "block", block)
        if 0 not in blocks:
            run(name, blocks, threads, lds_bytes, values)

    return launch


def _dim3(kernel: str, what: str, value: Any) -> Dim3:
    if type(value) is int:
        return (value, 1, 1)
    if isinstance(value, (tuple, list)) and 1 <= len(value) <= 3 and all(type(v) is int for v in value):
        return (*value, 1, 1)[:3]
    raise refuse(f"{kernel}: the {what} is one to three integers, not {_shown(value)}")


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)}"
    return f"{type(value).__name__} {value!r}" if value is not None else "None"


def _dtypes(param: Param) -> tuple[Any, ...]:
    """The dtypes that a pointer may point to; () for any, and for numbers."""
    if not param.pointer:
        return ()
    return _CHAR if param.ctype == "char" else POINTS_TO.get(param.kind, ())


def _pointer(kernel: str, param: Param) -> Callable[[Argument], Argument]:
    dtypes = _dtypes(param)
    align, any_type = param.align, param.kind == "void"
    check_align = align > SIZES.get(param.kind, 1)

    def cast(value: Argument) -> Argument:
        if value is None:
            return None
        if not isinstance(value, torch.Tensor):
            raise refuse(f"{kernel}: {param.name} is {param.ctype}*, so it takes a tensor, not {_shown(value)}")
        if not any_type and value.dtype not in dtypes:
            expected = " or ".join(str(d).removeprefix("torch.") for d in dtypes)
            raise refuse(
                f"{kernel}: {param.name} is {param.ctype}*, so it takes a {expected} tensor, not {_shown(value)}"
            )
        if check_align and value.data_ptr() % align:
            raise refuse(
                f"{kernel}: {param.name} is {param.ctype}*, but the tensor does not start at a multiple of "
                f"{align} bytes; guard it with an assert or read narrower"
            )
        return value

    return cast


def _scalar(kernel: str, param: Param) -> Callable[[Argument], Argument]:
    kind = param.kind
    if kind in ("float64", "float32", "float16", "bfloat16"):
        return _float(kernel, param)
    bits, signed = 8 * SIZES[kind], not kind.startswith("u")
    low, high = (
        (0, 1) if kind == "bool" else (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    )

    def cast(value: Argument) -> Argument:
        if not isinstance(value, int):
            hint = "; write int(...)" if isinstance(value, float) else ""
            raise refuse(f"{kernel}: {param.name} is {param.ctype}, so it takes an integer, not {_shown(value)}{hint}")
        if not low <= value <= high:
            raise refuse(f"{kernel}: {param.name} = {value} does not fit in {param.ctype}")
        return bool(value) if kind == "bool" else int(value)

    return cast


_LARGEST = {
    "float32": 3.4028235677973366e38,
    "float16": 65519.99,
    "bfloat16": 3.3961775292304957e38,
    "float64": math.inf,
}


def _float(kernel: str, param: Param) -> Callable[[Argument], Argument]:
    largest = _LARGEST[param.kind]

    def cast(value: Argument) -> Argument:
        if not isinstance(value, (int, float)):
            raise refuse(f"{kernel}: {param.name} is {param.ctype}, so it takes a number, not {_shown(value)}")
        number = float(value)
        if abs(number) > largest and not math.isinf(number):
            raise refuse(f"{kernel}: {param.name} = {number} does not fit in {param.ctype}")
        return number

    return cast


class Allocator:
    """torch.empty and its variants, with torch's meaning of sizes and strides, allocated by the launcher."""

    def __init__(self, launcher: KernelLauncher) -> None:
        self._new = launcher.empty
        self._quick = launcher.fast_empty if has_fast_launch(launcher) else None

    def empty(self, *size: Any, dtype: Any = None, device: Any = None, memory_format: Any = None) -> Any:
        """torch.empty."""
        if self._quick is not None and memory_format is None:
            try:
                sizes = tuple(size[0]) if len(size) == 1 and type(size[0]) is not int else size
                return self._quick(sizes, dtype or torch.float32)
            except (TypeError, RuntimeError):
                pass  # the checked path below reports what is wrong
        shape = _shape(size)
        out = self._new(shape, dtype or torch.float32)
        if memory_format in (None, torch.contiguous_format):
            return out
        like = torch.empty(shape, device="meta", memory_format=memory_format)
        return out.view(-1).as_strided(shape, like.stride())

    def empty_like(self, like: Any, *, dtype: Any = None, device: Any = None, memory_format: Any = None) -> Any:
        """torch.empty_like: a dense tensor's strides are kept unless memory_format says otherwise."""
        dtype = dtype or like.dtype
        keep = memory_format in (None, torch.preserve_format)
        if like.is_contiguous() and (keep or memory_format is torch.contiguous_format):
            return self._new(tuple(like.shape), dtype)
        meta = torch.empty_strided(tuple(like.shape), like.stride(), device="meta")
        strides = torch.empty_like(meta, memory_format=torch.preserve_format if keep else memory_format).stride()
        return self._new((like.numel(),), dtype).as_strided(tuple(like.shape), strides)

    def empty_strided(self, size: Any, stride: Any, *, dtype: Any = None, device: Any = None) -> Any:
        """torch.empty_strided."""
        shape, strides = tuple(size), tuple(stride)
        if any(s < 0 for s in strides) or len(shape) != len(strides):
            raise refuse(f"torch.empty_strided: strides {strides} do not fit the shape {shape}")
        extent = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        return self._new((extent,), dtype or torch.float32).as_strided(shape, strides)

    def new_empty(self, like: Any, *size: Any, dtype: Any = None, device: Any = None) -> Any:
        """Tensor.new_empty."""
        return self._new(_shape(size), dtype or like.dtype)

    def new_empty_strided(self, like: Any, size: Any, stride: Any, *, dtype: Any = None, device: Any = None) -> Any:
        """Tensor.new_empty_strided."""
        return self.empty_strided(size, stride, dtype=dtype or like.dtype)


def _shape(size: tuple[Any, ...]) -> tuple[int, ...]:
    shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    for n in shape:
        if not isinstance(n, int) or n < 0:
            raise refuse(f"torch.empty: a size is a tuple of non-negative integers, not {shape!r}")
    return shape
