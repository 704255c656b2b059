"""Argument packing: what the driver reads is what C would have put there."""

from __future__ import annotations

import ctypes
import math
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hipwright.device.gpu.pack import ArgumentLayout, bfloat16_bits, pack
from hipwright.errors import CandidateError
from hipwright.program.kernel_types import SIZES
from hipwright.program.signature import Param, Signature, parse_signatures

C_NAMES = {
    "bool": "bool",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float16": "half",
    "bfloat16": "hip_bfloat16",
    "float32": "float",
    "float64": "double",
}
C_TYPES = {
    "bool": ctypes.c_bool,
    "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8,
    "int16": ctypes.c_int16,
    "uint16": ctypes.c_uint16,
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "float16": ctypes.c_uint16,
    "bfloat16": ctypes.c_uint16,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "pointer": ctypes.c_void_p,
}


def integers(kind: str) -> st.SearchStrategy[int]:
    bits = 8 * SIZES[kind]
    return st.integers(0, 2**bits - 1) if kind[0] == "u" else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def values(kind: str) -> st.SearchStrategy[object]:
    if kind == "pointer":
        return st.sampled_from([None, torch.ones(3), torch.zeros(4, dtype=torch.int64)[1:]])
    if kind == "bool":
        return st.booleans()
    if kind == "float16":
        return st.floats(-65000, 65000) | st.sampled_from([math.inf, -math.inf, math.nan])
    if kind in ("bfloat16", "float32"):
        return st.floats(-1e38, 1e38) | st.sampled_from([math.inf, -math.inf, math.nan])
    return st.floats() if kind == "float64" else integers(kind)


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[str], list[object]]:
    kinds = draw(st.lists(st.sampled_from([*C_NAMES, "pointer"]), max_size=12))
    return kinds, [draw(values(kind)) for kind in kinds]


def signature(kinds: list[str]) -> Signature:
    params = tuple(
        Param(name=f"p{i}", ctype="float" if kind == "pointer" else C_NAMES[kind], pointer=kind == "pointer")
        for i, kind in enumerate(kinds)
    )
    return Signature(name="k", params=params, line=1)


def expected(kind: str, value: object) -> bytes:
    """The bytes by another way than `pack`: ctypes and torch."""
    if kind == "pointer":
        return bytes(ctypes.c_void_p(0 if value is None else value.data_ptr()))  # type: ignore[attr-defined]
    if kind in ("float16", "bfloat16"):
        return bytes(torch.tensor([value], dtype=getattr(torch, kind)).view(torch.uint8).tolist())
    return bytes(C_TYPES[kind](value))


@given(calls())
def test_every_value_lies_where_its_pointer_points(call: tuple[list[str], list[object]]) -> None:
    kinds, args = call
    packed = pack(signature(kinds), args)
    for i, (kind, value) in enumerate(zip(kinds, args, strict=True)):
        size = 8 if kind == "pointer" else SIZES[kind]
        got = ctypes.string_at(packed.pointers[i], size)
        if isinstance(value, float) and math.isnan(value):
            assert math.isnan(number(kind, got))
        else:
            assert got == expected(kind, value), (kind, value)


def number(kind: str, raw: bytes) -> float:
    if kind == "bfloat16":
        return float(struct.unpack("<f", b"\0\0" + raw)[0])
    return float(struct.unpack({"float16": "<e", "float32": "<f", "float64": "<d"}[kind], raw)[0])


@given(st.lists(st.sampled_from([*C_NAMES, "pointer"]), min_size=1, max_size=12))
def test_offsets_are_those_of_a_c_struct(kinds: list[str]) -> None:
    """The layout of a kernel-argument buffer."""
    fields = [(f"p{i}", C_TYPES[kind]) for i, kind in enumerate(kinds)]
    struct_type = type("Args", (ctypes.Structure,), {"_fields_": fields})
    layout = ArgumentLayout(signature(kinds))
    assert list(layout.offsets) == [getattr(struct_type, name).offset for name, _ in fields]


@given(st.floats(width=32, allow_nan=False))
def test_bfloat16_rounds_as_torch_does(value: float) -> None:
    assert bfloat16_bits(value) == torch.tensor(value, dtype=torch.bfloat16).view(torch.uint16).item()


def test_a_layout_is_filled_again_and_again() -> None:
    layout = ArgumentLayout(signature(["int32", "pointer"]))
    x = torch.ones(2)
    first = layout.pack([7, x])
    assert layout.pack([8, None]) is first
    assert ctypes.string_at(first[0], 4) == struct.pack("<i", 8)
    assert ctypes.string_at(first[1], 8) == bytes(8)


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        ("int32", 2**31, "argument p0 = 2147483648 does not fit int32"),
        ("uint8", -1, "argument p0 = -1 does not fit uint8"),
        ("float32", 1e39, "does not fit float32"),
        ("float16", 70000.0, "does not fit float16"),
        ("int64", "four", "argument p0 = 'four' does not fit int64"),
        ("int64", torch.ones(2), "a torch.float32 tensor of shape"),
        ("pointer", 5, "argument p0 = 5 must be a tensor or None"),
    ],
)
def test_what_does_not_fit_names_the_argument(kind: str, value: object, says: str) -> None:
    with pytest.raises(CandidateError, match="kernel k") as caught:
        pack(signature([kind]), [value])
    assert says in caught.value.message
    assert caught.value.status == "launch_error"
    assert caught.value.evidence["argument"] == "p0"


def test_too_few_arguments() -> None:
    with pytest.raises(CandidateError, match="1 arguments for 2 parameters"):
        pack(signature(["int32", "int32"]), [1])


def test_a_signature_from_source() -> None:
    text = 'extern "C" __global__ void k(const half2* x, size_t n, bool b, __hip_bfloat16 s, char c, double d) {}'
    known = parse_signatures(text).signatures["k"]
    layout = pack(known, [None, 2**40, True, 1.5, -3, 0.1])
    assert bytes(layout.block) == struct.pack("@PQ?HbdxQ", 0, 2**40, True, 0x3FC0, -3, 0.1, 0)[: layout.size]
