"""Writes the native code of an exported ModelNew file: the binding source and the kernel source (see `export`)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hipwright.program.kernel_types import SIZES
from hipwright.program.signature import Param, Signature
from hipwright.toolchain import device_headers

_TORCH_TYPES = {
    "float64": ("at::kDouble",),
    "float32": ("at::kFloat",),
    "float16": ("at::kHalf",),
    "bfloat16": ("at::kBFloat16",),
    "float8_e5m2": ("at::kFloat8_e5m2",),
    "float8_e4m3fn": ("at::kFloat8_e4m3fn",),
    "float8_e5m2fnuz": ("at::kFloat8_e5m2fnuz",),
    "float8_e4m3fnuz": ("at::kFloat8_e4m3fnuz",),
    "int64": ("at::kLong",),
    "int32": ("at::kInt",),
    "int16": ("at::kShort",),
    "int8": ("at::kChar",),
    "uint8": ("at::kByte", "at::kBool"),
    "bool": ("at::kBool",),
    "uint64": ("at::kLong",),
    "uint32": ("at::kInt",),
    "uint16": ("at::kShort",),
    "void": (),
}
_VALUES = {"float64": "double", "float32": "float", "float16": "at::Half", "bfloat16": "at::BFloat16", "bool": "bool"}
_LAUNCH_PARAMS = "void** args, const unsigned int* dims, unsigned int lds, void* stream"
_UNDO = (
    "// torch's build switches these operators off\n#undef __HIP_NO_FRAME_OPERATORS__\n"
    "#undef __HIP_NO_FRAME_CONVERSIONS__\n#undef __HIP_NO_FRAME2_OPERATORS__\n"
)
_FRAME = ("#include <hip/hip_runtime.h>\n", "\n\n#if !defined(__HIP_DEVICE_COMPILE__)\n", "\n#endif\n")
KERNEL_SOURCE = re.compile(
    rf"\n?{re.escape(_UNDO + _FRAME[0])}(?P<hip>.*){re.escape(_FRAME[1])}(?P<launchers>.*){re.escape(_FRAME[2])}",
    re.DOTALL,
)
"""Matches a text of `kernel_source`; `program.convert.exported` reads it."""


def own_text(source: str) -> str:
    """A native source without the frame of an export and the device headers that it holds; line numbers stay.

    Only headers that equal the shipped text byte for byte are left out.
    """
    if (found := KERNEL_SOURCE.match(source)) is None:
        return source
    own = device_headers.without_inlined(found["hip"])
    before, between = (source.count("\n", 0, found.start(group)) for group in ("hip", "launchers"))
    gap = "\n" * (between - before - found["hip"].count("\n"))
    return "\n" * before + own + gap + found["launchers"]


def kernel_source(hip: str, kernels: Iterable[Signature]) -> str:
    """The program's HIP source and a C launcher for each kernel, without torch's headers.

    The launchers are host code, so the device pass (`__HIP_DEVICE_COMPILE__`) does not see them.
    """
    launchers = "\n".join(map(_launcher, kernels))
    return f"{_UNDO}{_FRAME[0]}{hip.strip(chr(10))}{_FRAME[1]}{launchers}{_FRAME[2]}"


def _launcher(kernel: Signature) -> str:
    return f"""extern "C" int hipwright_launch_{kernel.name}({_LAUNCH_PARAMS}) {{
    return (int)hipLaunchKernel((const void*){kernel.name}, dim3(dims[0], dims[1], dims[2]),
                                dim3(dims[3], dims[4], dims[5]), args, lds, (hipStream_t)stream);
}}"""


def binding_source(kernels: Iterable[Signature]) -> str:
    """C++ that checks tensors and scalars and calls the kernel source's launchers, without HIP's headers."""
    return "\n".join([_TORCH_COMMON.strip("\n"), *map(_binding, kernels)]) + "\n"


_TORCH_COMMON = """
#include <torch/extension.h>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <vector>

static void* hw_pointer(const char* name, const std::optional<at::Tensor>& t,
                        std::initializer_list<at::ScalarType> types, uintptr_t align) {
    if (!t.has_value()) return nullptr;
    bool known = types.size() == 0;
    for (at::ScalarType type : types) known = known || t->scalar_type() == type;
    TORCH_CHECK(known, name, ": a tensor of ", t->scalar_type(), " has the wrong dtype");
    TORCH_CHECK(t->is_cuda(), name, ": the tensor is not on the GPU");
    void* p = t->data_ptr();
    TORCH_CHECK(reinterpret_cast<uintptr_t>(p) % align == 0, name, ": not aligned to ", align, " bytes");
    return p;
}

template <typename T>
static T hw_integer(const char* name, int64_t value) {
    bool fits = std::numeric_limits<T>::is_signed
                    ? value >= (int64_t)std::numeric_limits<T>::min() && value <= (int64_t)std::numeric_limits<T>::max()
                    : value >= 0 && (uint64_t)value <= (uint64_t)std::numeric_limits<T>::max();
    TORCH_CHECK(fits, name, ": ", value, " does not fit");
    return (T)value;
}

static void hw_dims(unsigned int* dims, const std::vector<int64_t>& grid, const std::vector<int64_t>& block) {
    TORCH_CHECK(grid.size() >= 1 && grid.size() <= 3 && block.size() >= 1 && block.size() <= 3, "1 to 3 dimensions");
    for (size_t i = 0; i < 3; ++i) {
        dims[i] = i < grid.size() ? hw_integer<uint32_t>("grid", grid[i]) : 1;
        dims[3 + i] = i < block.size() ? hw_integer<uint32_t>("block", block[i]) : 1;
    }
}
"""


def _binding(kernel: Signature) -> str:
    takes, makes = [], []
    for index, param in enumerate(kernel.params):
        label = f'"{kernel.name}: {param.name}"'
        takes.append(f"{_taken(param)} a{index}")
        makes.append(f"    {_made(param, index, label)}")
    body = "\n".join(makes)
    listed = ", ".join(f"&v{i}" for i in range(len(kernel.params))) or "nullptr"
    arguments = ", ".join(
        ["std::vector<int64_t> grid", "std::vector<int64_t> block", "int64_t lds", "int64_t stream", *takes]
    )
    return f"""
extern "C" int hipwright_launch_{kernel.name}({_LAUNCH_PARAMS});

void launch_{kernel.name}({arguments}) {{
    unsigned int dims[6];
    hw_dims(dims, grid, block);
    if (dims[0] == 0 || dims[1] == 0 || dims[2] == 0) return;
{body}
    void* args[] = {{{listed}}};
    auto bytes = hw_integer<uint32_t>("lds", lds);
    int error = hipwright_launch_{kernel.name}(args, dims, bytes, reinterpret_cast<void*>(stream));
    TORCH_CHECK(error == 0, "{kernel.name}: the launch failed with HIP error ", error);
}}"""


def _taken(param: Param) -> str:
    if param.pointer:
        return "std::optional<at::Tensor>"
    return "double" if param.kind in ("float64", "float32", "float16", "bfloat16") else "int64_t"


def _made(param: Param, index: int, label: str) -> str:
    """The statement that turns argument a<index> into v<index> of the kernel's own type."""
    if param.pointer:
        types = ("at::kChar", "at::kByte", "at::kBool") if param.ctype == "char" else _TORCH_TYPES[param.kind]
        return f"void* v{index} = hw_pointer({label}, a{index}, {{{', '.join(types)}}}, {param.align});"
    if param.kind in _VALUES:
        kind = _VALUES[param.kind]
        value = (
            f"a{index} != 0" if kind == "bool" else f"static_cast<float>(a{index})" if kind[:2] == "at" else f"a{index}"
        )
        return f"{kind} v{index} = static_cast<{kind}>({value});"
    kind = f"{'u' if param.kind.startswith('u') else ''}int{8 * SIZES[param.kind]}_t"
    return f"{kind} v{index} = hw_integer<{kind}>({label}, a{index});"
