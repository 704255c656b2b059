"""Writes a safetensors file (its README): 8 bytes of the header's length, a JSON header, the tensors' bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from hipwright.tensors import HostTensor

DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}


def safetensors(tensors: Mapping[str, HostTensor]) -> bytes:
    """The file of these tensors, contiguous, in the mapping's order. Raises KeyError for a dtype that it has not."""
    header, parts, end = {}, [], 0
    for name, tensor in tensors.items():
        data = np.ascontiguousarray(tensor.bits()).tobytes()
        offsets = [end, end + len(data)]
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}
        parts.append(data)
        end += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(parts)
