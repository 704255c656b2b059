"""Values of converted C++ host code, and the spelling of C++ types in kernel signatures.

Kinds of values: "int" "float" "bool" "tensor" "pointer" "tensors" "shape" "dtype" "options" "device" "stream" "ok" (the
error code of success) "none" "str" "dim3" "any", and "unset <kind>" for a variable without a value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hipwright.program.kernel_types import SCALARS, canonical

DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Int": "int32",
    "Long": "int64",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "Float32": "float32",
    "Float64": "float64",
    "Float16": "float16",
    "Int32": "int32",
    "Int64": "int64",
    "Int16": "int16",
    "Int8": "int8",
    "UInt8": "uint8",
}
CTYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "__half",
    "bfloat16": "__hip_bfloat16",
    "int32": "int",
    "int64": "int64_t",
    "int16": "short",
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "bool",
}
ALIASES: dict[str, str | None] = {
    "at::Half": "__half",
    "c10::Half": "__half",
    "torch::Half": "__half",
    "at::BFloat16": "__hip_bfloat16",
    "c10::BFloat16": "__hip_bfloat16",
    "torch::BFloat16": "__hip_bfloat16",
    "nv_bfloat16": "__hip_bfloat16",
    "__nv_bfloat16": "__hip_bfloat16",
    "uint": "unsigned int",
    "nv_half": "__half",
}


@dataclass(frozen=True)
class HostValue:
    """A converted expression.

    text: Python. ctype: the element type of a pointer. dtype: of tensor options. parts: of a dim3. known: the value of
    a condition that is decided at conversion.
    """

    kind: str
    text: str
    ctype: str = ""
    dtype: str = ""
    parts: tuple[str, ...] = ()
    known: bool | None = None


TRUE, FALSE = HostValue("bool", "True", known=True), HostValue("bool", "False", known=False)
OK, NONE, STREAM = HostValue("ok", "0"), HostValue("none", "None"), HostValue("stream", "0")


def of_type(text: str, types: dict[str, str]) -> str:
    """A C++ type in the spelling of kernel signatures; unchanged when it is not one of those."""
    name = text.replace("const ", "").strip()
    name = types.get(name, name)
    aliases: dict[str, str | None] = {**ALIASES, **types}
    found = canonical(name, aliases)
    if found is None and aliases.get(name):
        found = str(aliases[name])
    return found or name


def kind_of(ctype: str, types: dict[str, str]) -> str:
    """The kind of a value of a C++ type."""
    name = re.sub(r"^(?:c10|std|at|torch)::optional<(.*)>$", r"\1", ctype.replace("const ", "").strip())
    if name.endswith("*"):
        return "pointer"
    if re.fullmatch(r"(?:(?:torch|at)::)?Tensor", name):
        return "tensor"
    if re.fullmatch(r"(?:std::vector<(?:(?:torch|at)::)?Tensor>|(?:torch|at)::TensorList)", name):
        return "tensors"
    if re.search(r"IntArrayRef$|std::vector<(?:int64_t|int|long)>$|ArrayRef<int64_t>$", name):
        return "shape"
    scalar = SCALARS.get(of_type(name, types))
    if scalar is None:
        return "any"
    return "float" if "float" in scalar else "bool" if scalar == "bool" else "int"


def number(text: str) -> HostValue:
    """Converts a numeric literal, without its suffixes."""
    plain = text.replace("'", "")
    if re.match(r"0[xX]", plain):
        return HostValue("int", str(int(plain.rstrip("uUlL"), 16)))
    if re.fullmatch(r"\d+[uUlL]*", plain):
        return HostValue("int", str(int(plain.rstrip("uUlL"))))
    return HostValue("float", repr(float(plain.rstrip("fFlL"))))


def condition(text: str, known: bool | None = None) -> HostValue:
    """A boolean; its constant where the condition is decided at conversion."""
    return HostValue("bool", f"({text})" if known is None else str(known), known=known)


def tuple_text(items: Sequence[str]) -> str:
    """The text of a tuple of expressions."""
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
