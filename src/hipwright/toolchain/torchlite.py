"""The text of an extension's translation units, as torch.utils.cpp_extension.load_inline would write them.

`lean`: against our own small headers (include/torchlite), which reach torch through a table of functions. `real`:
against torch's. Torch-free: it writes text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

INCLUDE = Path(__file__).parent / "include" / "torchlite"
MAIN, DEVICE = "main.cpp", "cuda.cu"
_HALF = re.compile(r"half|Half|HALF|bfloat|BFloat|_AND2?\(")
_LAUNCH_ERROR = """
extern "C" __attribute__((visibility("default"))) const char *hw_launch_error() {
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
"""


def lean_units(cpp: Sequence[str], cuda: Sequence[str], functions: Sequence[str]) -> dict[str, str]:
    """{file: text}: main.cpp with the host sources and the entries, cuda.cu with the device sources if any."""
    main = ["#define HW_EXPORTS", "#include <torch/extension.h>", *cpp]
    units = {}
    if functions:
        main.append(_bindings(functions, "&{name}"))
    if cuda:
        half = ["#define HW_HALF"] if _HALF.search("\n".join(cuda)) else []
        lead = [*half, "#include <hw_cuda.h>", "#include <torch/types.h>"]
        if _is_hip("\n".join(cuda)):
            lead.append("#include <hw_hip.h>")
        units[DEVICE] = "\n".join([*lead, *cuda, _LAUNCH_ERROR])
    units[MAIN] = "\n".join(main) + "\n"
    return units


def real_units(cpp: Sequence[str], cuda: Sequence[str], functions: Sequence[str], *, bare: bool) -> dict[str, str]:
    """The same against torch's own headers. bare: the device sources ask for no implicit headers."""
    units = {}
    main = ["#include <torch/extension.h>", *cpp]
    if functions:
        main.append(_bindings(functions, "torch::wrap_pybind_function({name})"))
    units[MAIN] = "\n".join(main) + "\n"
    if cuda:
        lead = [] if bare else ["#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>"]
        units[DEVICE] = "\n".join([*lead, *cuda]) + "\n"
    return units


def _bindings(functions: Sequence[str], form: str) -> str:
    lines = [f'    m.def("{name}", {form.format(name=name)}, "{name}");' for name in functions if name.isidentifier()]
    return "\n".join(["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *lines, "}"])


def _is_hip(text: str) -> bool:
    """Whether a source uses HIP's names."""
    return bool(re.search(r"\bhip[A-Z]\w+|<hip/", text))
