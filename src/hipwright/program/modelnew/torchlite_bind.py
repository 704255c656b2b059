"""The Python side of the lean torch C++ API: loads a built extension, binds its functions, serves its operator calls.

Runs in the candidate's process; imports torch. A tensor is passed as a handle, its shape and its address. Operators
that host code calls (`torch::matmul(a, b)`, `x.sum()`) are torch's own and run here, so a trace records them.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hipwright.errors import CandidateError
from hipwright.targets import TORCH_GPU

NONE, INT, DOUBLE, BOOL, TENSOR, INTS, TENSORS, STRING, DTYPE, KEYWORD, DEVICE = range(11)
MAX_DIMS, MAX_RESULTS, ERROR_BYTES = 12, 32, 4096
_DTYPES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.float8_e5m2: 17,
    torch.float8_e4m3fn: 18,
    torch.float8_e5m2fnuz: 19,
    torch.float8_e4m3fnuz: 20,
}
_TYPES = {number: dtype for dtype, number in _DTYPES.items()}


class Info(ctypes.Structure):
    """HwInfo of hw_torchlite.h."""

    _fields_ = (
        ("id", ctypes.c_int64),
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("device_type", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("dims", ctypes.c_int32),
        ("numel", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("sizes", ctypes.c_int64 * MAX_DIMS),
        ("strides", ctypes.c_int64 * MAX_DIMS),
    )


class HwValue(ctypes.Structure):
    """HwValue of hw_torchlite.h."""

    _fields_ = (
        ("tag", ctypes.c_int32),
        ("extra", ctypes.c_int32),
        ("i", ctypes.c_int64),
        ("d", ctypes.c_double),
        ("p", ctypes.c_void_p),
        ("n", ctypes.c_int64),
    )


_OP = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.POINTER(HwValue),
    ctypes.c_int,
    ctypes.POINTER(HwValue),
    ctypes.POINTER(Info),
    ctypes.c_int,
)
_ID = ctypes.CFUNCTYPE(None, ctypes.c_int64)
_TEXT = ctypes.CFUNCTYPE(ctypes.c_void_p)
_STREAM = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)


class _Table(ctypes.Structure):
    _fields_ = (("op", _OP), ("retain", _ID), ("release", _ID), ("error", _TEXT), ("stream", _STREAM))


class Handles:
    """Reference-counted tensors by number, and the callbacks that serve an extension's calls."""

    def __init__(self) -> None:
        self._live: dict[int, list[Any]] = {}
        self._next = 0
        self._error = ctypes.create_string_buffer(ERROR_BYTES)
        # attributes keep the callbacks alive as long as the extension may call them
        self.table = _Table(
            _OP(self._op), _ID(self._retain), _ID(self._release), _TEXT(self._last_error), _STREAM(_stream)
        )

    def __len__(self) -> int:
        return len(self._live)

    def describe(self, tensor: Any, info: Info) -> None:
        """Fills `info` for a tensor and keeps the tensor until the extension releases it."""
        if tensor.dtype not in _DTYPES or tensor.dim() > MAX_DIMS or tensor.layout != torch.strided:
            raise TypeError(f"a tensor of {tensor.dtype}, {tensor.dim()} dimensions, {tensor.layout} cannot be passed")
        self._next += 1
        self._live[self._next] = [tensor, 1]
        info.id, info.data, info.dtype = self._next, tensor.data_ptr(), _DTYPES[tensor.dtype]
        info.device_type, info.device_index = int(tensor.device.type != "cpu"), tensor.device.index or 0
        info.dims, info.numel, info.offset = tensor.dim(), tensor.numel(), tensor.storage_offset()
        for index, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
            info.sizes[index], info.strides[index] = size, stride

    def tensor(self, number: int) -> Any:
        """The tensor of a handle."""
        return self._live[number][0]

    def _retain(self, number: int) -> None:
        self._live[number][1] += 1

    def _release(self, number: int) -> None:
        entry = self._live.get(number)
        if entry is not None:
            entry[1] -= 1
            if entry[1] <= 0:
                del self._live[number]

    def _last_error(self) -> int:
        return ctypes.addressof(self._error)

    def _op(self, name: bytes, args: Any, count: int, out: Any, infos: Any, capacity: int) -> int:
        """Runs one operator; -1, with a message, if it raises."""
        try:
            plain, keywords = self._arguments([args[i] for i in range(count)])
            with torch.no_grad():
                found = _operator(name.decode(), plain)(*plain, **keywords)
            results = list(found) if isinstance(found, (tuple, list)) else [] if found is None else [found]
            if len(results) > capacity:
                raise ValueError("too many results")
            for index, item in enumerate(results):
                if isinstance(item, torch.Tensor):
                    out[index].tag = TENSOR
                    self.describe(item, infos[index])
                else:
                    out[index].tag = DOUBLE if isinstance(item, float) else INT
                    out[index].d, out[index].i = float(item), int(item) if item == item and abs(item) < 2**62 else 0
            return len(results)
        except Exception as error:
            self._error.value = f"{name.decode()}: {error}".encode()[: ERROR_BYTES - 1]
            return -1

    def _arguments(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        plain: list[Any] = []
        keywords: dict[str, Any] = {}
        word = ""
        for value in values:
            if value.tag == KEYWORD:
                word = ctypes.string_at(value.p, value.n).decode()
                continue
            item = self._python(value)
            if word:
                keywords[word] = item
            else:
                plain.append(item)
            word = ""
        return plain, keywords

    def _python(self, value: Any) -> Any:
        match value.tag:
            case 1:
                return value.i
            case 2:
                return value.d
            case 3:
                return bool(value.i)
            case 4:
                return self.tensor(value.i)
            case 5:
                return tuple((ctypes.c_int64 * value.n).from_address(value.p)) if value.n else ()
            case 6:
                return [self.tensor(i) for i in (ctypes.c_int64 * value.n).from_address(value.p)] if value.n else []
            case 7:
                return ctypes.string_at(value.p, value.n).decode()
            case 8:
                return _TYPES[value.i]
            case 10:
                kind = TORCH_GPU if value.i else "cpu"
                return torch.device(kind, value.n) if value.i and value.n >= 0 else torch.device(kind)
        return None


def _operator(name: str, args: Sequence[Any]) -> Any:
    """Calls an operator by name: ".view" is a method, "radd" a reflected operation, others are functions of torch."""
    special = {
        "radd": lambda a, b: b + a,
        "rsub": lambda a, b: b - a,
        "rmul": lambda a, b: b * a,
        "rdiv": lambda a, b: b / a,
        "channels_last": lambda a: a.contiguous(memory_format=torch.channels_last),
        "synchronize": torch.cuda.synchronize,
    }
    if name in special:
        return special[name]
    if name.startswith("."):
        return lambda owner, *rest, **kw: getattr(owner, name[1:])(*rest, **kw)
    if name in ("linear", "gelu", "silu", "avg_pool2d", "max_pool2d", "layer_norm"):
        return getattr(torch.nn.functional, name)
    return getattr(torch, name)


def _stream(device: int) -> int:
    if not torch.cuda.is_available():
        return 0
    return int(torch.cuda.current_stream(device if device >= 0 else None).cuda_stream)


class LeanModule:
    """A built extension: its functions are attributes."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._handles = Handles()
        self._out, self._shape = (HwValue * MAX_RESULTS)(), ctypes.c_int(0)
        self._error = ctypes.create_string_buffer(ERROR_BYTES)
        self._library.hw_open.restype = ctypes.c_char_p
        self._library.hw_open.argtypes = [ctypes.POINTER(_Table)]
        listed = json.loads(self._library.hw_open(ctypes.byref(self._handles.table)))
        self._library.hw_call.argtypes = [
            ctypes.c_int,
            ctypes.POINTER(HwValue),
            ctypes.POINTER(HwValue),
            ctypes.c_int,
            ctypes.POINTER(ctypes.c_int),
            ctypes.c_char_p,
            ctypes.c_int,
        ]
        peek = getattr(self._library, "hw_launch_error", None)
        if peek is not None:
            peek.restype = ctypes.c_char_p
        self._peek = peek
        for index, entry in enumerate(listed):
            setattr(self, entry["name"], self._function(index, entry))

    def _function(self, index: int, entry: Mapping[str, Any]) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(index, _bind(entry, args, kwargs))

        call.__name__ = str(entry["name"])
        return call

    def _call(self, index: int, given: Sequence[Any]) -> Any:
        values = (HwValue * max(1, len(given)))()
        keep = [self._pass(value, item) for value, item in zip(values, given, strict=False)]
        out, shape, error = self._out, self._shape, self._error
        count = self._library.hw_call(index, values, out, MAX_RESULTS, ctypes.byref(shape), error, ERROR_BYTES)
        del keep
        if count < 0:
            raise RuntimeError(error.value.decode(errors="replace"))
        found = [self._take(out[i]) for i in range(count)]
        if self._peek is not None and (message := self._peek()):
            raise CandidateError(f"a launch failed: {message.decode()}", status="launch_error", stage="launch")
        if shape.value == 0:
            return None
        return found[0] if shape.value == 1 else found if shape.value == 2 else tuple(found)

    def _pass(self, value: HwValue, item: Any) -> Any:
        """Fills one argument; returns the object it points to, which must be kept during the call."""
        if item is None:
            value.tag = NONE
        elif isinstance(item, torch.Tensor):
            value.tag, info = TENSOR, Info()
            self._handles.describe(item, info)
            value.p = ctypes.addressof(info)
            return info
        elif isinstance(item, bool):
            value.tag, value.i = BOOL, int(item)
        elif isinstance(item, int):
            value.tag, value.i, value.d = INT, item, float(item)
        elif isinstance(item, float):
            value.tag, value.d = DOUBLE, item
        elif isinstance(item, torch.dtype):
            value.tag, value.i = DTYPE, _DTYPES[item]
        elif isinstance(item, str):
            raw = ctypes.create_string_buffer(item.encode())
            value.tag, value.p, value.n = STRING, ctypes.addressof(raw), len(raw) - 1
            return raw
        elif isinstance(item, (list, tuple)) and all(isinstance(i, torch.Tensor) for i in item) and item:
            infos = (Info * len(item))()
            for info, tensor in zip(infos, item, strict=True):
                self._handles.describe(tensor, info)
            value.tag, value.p, value.n = TENSORS, ctypes.addressof(infos), len(item)
            return infos
        elif isinstance(item, (list, tuple)) and all(isinstance(i, int) for i in item):
            ints = (ctypes.c_int64 * max(1, len(item)))(*item)
            value.tag, value.p, value.n = INTS, ctypes.addressof(ints), len(item)
            return ints
        else:
            raise TypeError(f"a {type(item).__name__} cannot be passed to the extension")
        return None

    def _take(self, value: Any) -> Any:
        """Converts one result and releases the reference that the extension added for us."""
        if value.tag == TENSOR:
            tensor = self._handles.tensor(value.i)
            self._handles._release(value.i)
            return tensor
        return {NONE: None, INT: value.i, DOUBLE: value.d, BOOL: bool(value.i)}[value.tag]


def _bind(entry: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Arguments in order with keywords and defaults. Raises TypeError as pybind11 does."""
    given = list(args)
    for name, *default in entry["args"][len(given) :]:
        if name in kwargs:
            given.append(kwargs[name])
        elif default:
            given.append(default[0])
        else:
            raise TypeError(f"{entry['name']}(): {name} is missing")
    known = {name for name, *_ in entry["args"]}
    if len(given) != entry["arity"] or not set(kwargs) <= known:
        raise TypeError(f"{entry['name']}(): {entry['arity']} arguments are expected, not {len(given)}")
    return given
