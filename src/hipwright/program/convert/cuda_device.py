"""Converts the device code of an extension (kernels, helpers, types, macros) to the HIP source of a program.

Kernels keep their bodies. An entry kernel becomes extern "C"; a template becomes a device function, with one thin
extern "C" kernel for each set of template arguments that host code launches. A preamble maps CUDA's spellings: CUDA
warps have 32 lanes, so shuffles get a width of 32, and votes are cut to half of a wave of 64.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hipwright.program.convert.cpp_text import CppItem, ExtensionSource, Inconvertible, without_template
from hipwright.program.convert.host_value import HostValue, of_type
from hipwright.program.signature import parse_signatures

_HOST_ONLY = re.compile(
    r"\b(?:torch|at|c10|py|pybind11)::|\bTensor\b|\bstd::(?:vector|string|map|cout)|\bcuda(?:Stream|Error)_t\b"
)
_KEPT_HEADERS = (
    "cmath",
    "math.h",
    "cfloat",
    "float.h",
    "limits",
    "climits",
    "limits.h",
    "cstdint",
    "stdint.h",
    "hip/hip_runtime.h",
    "hip/hip_fp16.h",
    "hip/hip_bf16.h",
    "hip/hip_bfloat16.h",
    "algorithm",
    "type_traits",
    "utility",
    "cstdio",
    "stdio.h",
    "cassert",
    "assert.h",
)
_UNPORTABLE = {
    r"\bcooperative_groups\b": "cooperative groups",
    r"\bcurand": "cuRAND",
    r"\bcub::": "CUB",
    r"\bthrust::": "Thrust",
    r"\bwmma::": "WMMA",
    r"\basm\b": "inline assembly",
    r"\bcute::": "CuTe",
    r"PackedTensorAccessor": "tensor accessors",
    r"\btexture<": "textures",
    r"__constant__(?![^;{}]*=)": "constant memory that the host fills",
    r"\bmma_sync\b": "WMMA",
    r"__pipeline_|cuda::pipeline|cuda::barrier|__nv_fp8|cuda_fp8": "CUDA-only features",
}
_NAMES = {
    "at::Half": "__half",
    "c10::Half": "__half",
    "at::BFloat16": "__hip_bfloat16",
    "c10::BFloat16": "__hip_bfloat16",
    "torch::Half": "__half",
    "torch::BFloat16": "__hip_bfloat16",
    "__nv_bfloat162": "__hip_bfloat162",
    "nv_bfloat162": "__hip_bfloat162",
    "__nv_bfloat16": "__hip_bfloat16",
    "nv_bfloat16": "__hip_bfloat16",
    "CUDART_INF_F": "INFINITY",
    "CUDART_NAN_F": "NAN",
    "C10_RESTRICT": "__restrict__",
}

PREAMBLE = """// CUDA warps have 32 lanes, whatever the wave size
#undef __activemask
#undef warpSize
#define CU_SHUFFLE(op, v, a, w, ...) op(v, a, w)
#define __shfl_sync(mask, ...) CU_SHUFFLE(__shfl, __VA_ARGS__, 32, 0)
#define __shfl_up_sync(mask, ...) CU_SHUFFLE(__shfl_up, __VA_ARGS__, 32, 0)
#define __shfl_down_sync(mask, ...) CU_SHUFFLE(__shfl_down, __VA_ARGS__, 32, 0)
#define __shfl_xor_sync(mask, ...) CU_SHUFFLE(__shfl_xor, __VA_ARGS__, 32, 0)
#define __ballot_sync(mask, p) ((unsigned)(__ballot(p) >> (__lane_id() & 32u)) & (unsigned)(mask))
#define __any_sync(mask, p) (__ballot_sync(mask, p) != 0)
#define __all_sync(mask, p) (__ballot_sync(mask, !(p)) == 0)
#define __activemask() ((unsigned)(__ballot(1) >> (__lane_id() & 32u)))
#define __syncwarp(...) __syncwarp()
#define warpSize 32
#define __grid_constant__
"""


@dataclass
class DeviceSource:
    """Collects the kernels that host code launches; `text()` is then the HIP source.

    preamble: the meaning of warps, where the code has any.
    """

    source: ExtensionSource
    preamble: str = PREAMBLE
    wrappers: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)
    used: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kernels = self.source.functions("kernel")
        for item in self.source.items:
            if item.kind in ("kernel", "device", "other"):
                for pattern, what in _UNPORTABLE.items():
                    if re.search(pattern, item.text):
                        raise Inconvertible(f"the device code uses {what}", _line_of(item, pattern))

    def launched(
        self, name: str, targs: Sequence[str] | None, args: Sequence[HostValue], types: dict[str, str]
    ) -> tuple[str, Sequence[str]]:
        """(entry kernel, kinds of its parameters) for one launch. Raises Inconvertible."""
        item = self.kernels.get(name)
        if item is None:
            raise Inconvertible(f"{name} is launched and not defined in the source")
        header, _ = without_template(item.head)
        if not header:
            self.used[name] = None
            entry, text = name, self.entry(item)
        else:
            values = self.template_values(item, header, targs or (), args, types)
            entry = self.wrapper(item, header, values)
            text = self.wrappers[name, tuple(values.values())]
        signature = parse_signatures(self.aliases() + text).signatures.get(entry)
        if signature is None:
            raise Inconvertible(f"the signature of {name} cannot be read")
        params = signature.params
        if len(params) != len(args):
            raise Inconvertible(f"{name} takes {len(params)} arguments, not {len(args)}")
        return entry, ["pointer" if p.pointer else p.kind for p in params]

    def aliases(self) -> str:
        """The type aliases and macros of the source, which signatures use."""
        kinds = [i.text for i in self.source.items if i.kind == "other" and re.match(r"typedef|using", i.text)]
        return "\n".join([*map(_portable, kinds), *(i.text for i in self.source.items if i.kind == "define"), ""])

    def template_values(
        self, item: CppItem, header: str, targs: Sequence[str], args: Sequence[HostValue], types: dict[str, str]
    ) -> dict[str, str]:
        """{template parameter: argument}: given, deduced from pointers, or the default."""
        given = list(targs)
        values: dict[str, str] = {}
        kernel_params = _parameter_texts(item.head)
        for index, (kind, name, default) in enumerate(_template_parameters(header)):
            if index < len(given):
                is_type = kind in ("typename", "class")
                values[name] = of_type(given[index], types) if is_type else self.constant(given[index], types)
                continue
            deduced = next(
                (
                    a.ctype
                    for p, a in zip(kernel_params, args, strict=False)
                    if a.ctype and re.search(rf"\b{name}\b\s*(?:const\s*)?\*", p)
                ),
                "",
            )
            if not (deduced or default):
                raise Inconvertible(f"{item.name}: its template argument {name} is not known")
            values[name] = deduced or default
        return values

    def constant(self, text: str, types: dict[str, str]) -> str:
        """A non-type template argument: a number, or a name that the device code defines."""
        known = set(self.source.macros) | {"true", "false"}
        known |= set(re.findall(r"(\w+)\s*=", " ".join(i.text for i in self.source.items if i.kind == "other")))
        names = re.findall(r"[A-Za-z_]\w*", text)
        if all(n in known for n in names):
            return text
        raise Inconvertible(f"the template argument {text} is not a constant")

    def wrapper(self, item: CppItem, header: str, values: dict[str, str]) -> str:
        """The name of the extern "C" kernel for a template and its arguments."""
        key = (item.name, tuple(values.values()))
        entry = re.sub(r"\W+", "_", "_".join((item.name, *values.values()))).strip("_")
        if key not in self.wrappers:
            self.used[item.name] = None
            params = [_portable(_substituted(p, values)) for p in _parameter_texts(item.head)]
            names = [_parameter_name(item, p) for p in params]
            call = f"{item.name}<{', '.join(values.values())}>({', '.join(names)});"
            bounds = _substituted(_bounds(item.head), values)
            self.wrappers[key] = f'extern "C" __global__ void {bounds}\n{entry}({", ".join(params)}) {{ {call} }}\n'
        return entry

    def entry(self, item: CppItem) -> str:
        """The text of a non-template kernel as extern "C"."""
        head = re.sub(r'\bextern\s*"C"|\bstatic\b|\binline\b|\b__forceinline__\b', " ", item.head)
        return f'extern "C" {_portable(head).strip()} {_portable(item.body)}\n'

    def text(self) -> str:
        """The whole HIP source."""
        code = "\n".join(i.text for i in self.source.items)
        parts = ["#include <hip/hip_runtime.h>"]
        if re.search(r"half|Half|float16|scalar_t", code):
            parts.append("#include <hip/hip_fp16.h>")
        if re.search(r"bfloat16|BFloat16|scalar_t", code):
            parts.append("#include <hip/hip_bf16.h>")
        parts += [f"#include <{name}>" for name in ("cmath", "cfloat", "limits", "cstdint")]
        if re.search(r"_sync\b|__activemask|__syncwarp|warpSize|__grid_constant__", code):
            parts.append(self.preamble)
        for item in self.source.items:
            if (piece := self.piece(item)) is not None:
                parts.append(piece)
        lines = dict.fromkeys(p for p in parts if p.startswith("#include"))
        rest = [p for p in parts if not p.startswith("#include")]
        return "\n".join([*lines, *rest, *self.wrappers.values()])

    def piece(self, item: CppItem) -> str | None:
        """The text of one item in the HIP source, None for one that is left out."""
        if item.kind == "kernel" and item.body:
            if item.name not in self.used:
                return None
            return self.as_function(item) if without_template(item.head)[0] else self.entry(item)
        if item.kind == "device":
            return _portable(item.text)
        if item.kind == "include":
            match = re.search(r"[<\"]([^>\"]+)[>\"]", item.text)
            return item.text if match and match[1] in _KEPT_HEADERS and match[1][:4] != "hip/" else None
        if item.kind in ("define", "other", "directive"):
            left_out = _HOST_ONLY.search(item.text) or "TORCH_" in item.text
            return None if left_out else _portable(_constant(item.text))
        return None

    def as_function(self, item: CppItem) -> str:
        """The text of a template kernel as a device function, which wrappers call."""
        head = re.sub(r"\b__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)", " ", item.head)
        head = re.sub(r"\b__global__\b", "__device__ __forceinline__", head).replace("static ", " ")
        return _portable(f"{head} {item.body}")


def _constant(text: str) -> str:
    """A table in constant memory as const: device code cannot write it, and a program keeps no variables."""
    return text if re.search(r"\bconst(?:expr)?\b", text) else re.sub(r"\b__constant__\b", "__constant__ const", text)


def _line_of(item: CppItem, pattern: str) -> int:
    """The line of a pattern's first match in an item; 0 where it is not known."""
    found = re.search(pattern, item.text)
    return item.line + item.text.count("\n", 0, found.start()) if item.line and found else 0


def _portable(text: str) -> str:
    for name, other in _NAMES.items():
        text = re.sub(rf"(?<![\w:]){re.escape(name)}\b", other, text)
    return text


def _substituted(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = re.sub(rf"\b{name}\b", value, text)
    return text


def _parameter_name(item: CppItem, text: str) -> str:
    """The name of a kernel's parameter. Raises Inconvertible for one without."""
    words = re.sub(r"\[.*", "", text, flags=re.DOTALL).split()
    if len(words) < 2 or not (name := words[-1].lstrip("*&")).isidentifier():
        raise Inconvertible(f"the parameter `{text}` of {item.name} has no name", item.line)
    return name


def _bounds(head: str) -> str:
    match = re.search(r"\b__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)", head)
    return match.group() if match else ""


def _template_parameters(header: str) -> list[tuple[str, str, str]]:
    """(kind, name, default) of each template parameter."""
    inner = header[header.index("<") + 1 : header.rindex(">")]
    found = []
    for part in _split(inner):
        match = re.fullmatch(r"\s*(?P<kind>[\w\s:]+?)\s+(?P<name>\w+)\s*(?:=\s*(?P<default>.+?))?\s*", part)
        if match is None:
            raise Inconvertible(f"the template parameter {part.strip()}")
        found.append((match["kind"], match["name"], match["default"] or ""))
    return found


def _parameter_texts(head: str) -> list[str]:
    """The texts of a kernel's parameters."""
    _, plain = without_template(head)
    plain = re.sub(r"\b__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)", " ", plain)
    return [p.strip() for p in _split(plain[plain.index("(") + 1 : plain.rindex(")")]) if p.strip()]


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for ch in text:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(ch, 0)
        if ch == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += ch
    return parts
