"""The native sources of a Hugging Face kernel: a binding by torch's dispatcher, and the kernels with C launchers.

Facts: huggingface/kernels, docs of the builder (writing-kernels, kernel-requirements): the binding uses no Python API
(abi3), TORCH_LIBRARY_EXPAND and REGISTER_EXTENSION come from the builder's registration.h.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hipwright.program.modelnew.native_source import binding_source, kernel_source
from hipwright.program.signature import Param, Signature
from hipwright.toolchain import device_headers
from hipwright.toolchain.extension import torchlite

_FLOATS = ("float64", "float32", "float16", "bfloat16")
_HEAD = """#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "registration.h"
#include "torch_binding.h"

"""
_CUDA_HEADERS = ("hip_bf16.h", "hip_bfloat16.h", "hip_fp16.h", "hip_runtime.h", "hip_runtime_api.h")


def kernels_text(hip: str, kernels: Sequence[Signature], defines: Mapping[str, int], key: str) -> str:
    """The kernels with their knobs and launchers, the same text for nvcc and hipcc."""
    knobs = "".join(f"#define {name} {value}\n" for name, value in sorted(defines.items()))
    return f"// Written by hipwright from program {key}.\n{knobs}" + kernel_source(device_headers.inlined(hip), kernels)


def binding_text(kernels: Sequence[Signature]) -> str:
    """torch_binding.cpp: a launcher's operator a kernel."""
    body = binding_source(kernels).replace("#include <torch/extension.h>\n", _HEAD)
    defined = "".join(
        f'  ops.def("{_schema(kernel)}");\n  ops.impl("launch_{kernel.name}", c10::kCUDA, &launch_{kernel.name});\n'
        for kernel in kernels
    )
    return (
        f"{body}\nTORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {{\n{defined}}}\n\n"
        "REGISTER_EXTENSION(TORCH_EXTENSION_NAME)\n"
    )


def header_text(kernels: Sequence[Signature]) -> str:
    """torch_binding.h: the launchers' declarations."""
    bodies = binding_source(kernels).splitlines()
    declared = [line.removesuffix(" {") + ";" for line in bodies if line.startswith("void launch_")]
    head = (
        "#pragma once\n\n#include <ATen/core/Tensor.h>\n\n#include <cstdint>\n#include <optional>\n#include <vector>\n"
    )
    return head + "".join(f"\n{line}\n" for line in declared)


def _schema(kernel: Signature) -> str:
    given = [f"{_kind(param, number)} a{number}" for number, param in enumerate(kernel.params)]
    return f"launch_{kernel.name}({', '.join(['int[] grid', 'int[] block', 'int lds', 'int stream', *given])}) -> ()"


def _kind(param: Param, number: int) -> str:
    if param.pointer:
        return "Tensor?" if param.const else f"Tensor(w{number}!)?"
    return "float" if param.kind in _FLOATS else "int"


def cuda_headers() -> dict[str, str]:
    """HIP's headers over CUDA's for nvcc, by path: only names, no code of AMD's or NVIDIA's."""
    folder = torchlite.INCLUDE / "hip"
    return {f"hip/{name}": (folder / name).read_text(encoding="utf-8") for name in _CUDA_HEADERS}
