"""Writes the translation units of an extension as torch.utils.cpp_extension.load_inline would.

`lean`: for the small headers of include/torchlite, which call torch through a table of functions. `real`: for torch's.
Imports no torch.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path

INCLUDE = Path(__file__).parents[1] / "include" / "torchlite"
MAIN, DEVICE = "main.cpp", "cuda.cu"
_HALF = re.compile(r"half|Half|HALF|bfloat|BFloat|_AND2?\(")
_PAIRS = re.compile(r"\b(?:tuple|tie|make_tuple|get<)|\b(?:torch|at)::(?:max|min|median)\b")
# standard names that torch's headers also declare, by their header
_STANDARD = {
    "algorithm": {"sort", "fill", "copy", "transform", "clamp", "all_of", "any_of", "none_of", "reverse", "find"},
    "array": {"array"},
    "functional": {"function", "bind", "plus"},
    "iostream": {"cout", "cerr", "endl"},
    "map": {"map"},
    "memory": {"unique_ptr", "shared_ptr", "make_unique", "make_shared"},
    "mutex": {"mutex", "lock_guard", "once_flag", "call_once"},
    "numeric": {"accumulate", "iota"},
    "optional": {"optional", "nullopt"},
    "set": {"set"},
    "sstream": {"stringstream", "ostringstream"},
    "stdexcept": {"runtime_error", "invalid_argument", "logic_error", "out_of_range", "domain_error"},
    "string": {"string", "to_string"},
    "unordered_map": {"unordered_map"},
}
_LAUNCH_ERROR = """
extern "C" __attribute__((visibility("default"))) const char *hw_launch_error() {
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
"""


def lean_units(cpp: Sequence[str], cuda: Sequence[str], functions: Sequence[str]) -> dict[str, str]:
    """{file: text}: main.cpp with the host sources and the bindings, cuda.cu with the device sources if any."""
    main = ["#define HW_EXPORTS", "#include <torch/extension.h>", *cpp]
    units = {}
    if functions:
        main.append(_bindings(functions, "&{name}"))
    if cuda:
        text = "\n".join(cuda)
        lead = [*slim(text), "#include <hw_cuda.h>", *(["#include <hw_hip.h>"] if _is_hip(text) else [])]
        units[DEVICE] = "\n".join([*lead, *cuda, _LAUNCH_ERROR])
    units[MAIN] = "\n".join(main) + "\n"
    return units


def slim(text: str) -> list[str]:
    """The lines before the lean headers in a device unit: macros that select the parts of them, and the standard
    headers, that its text uses.

    nvcc reads a unit three times, so <string> alone takes as long as the kernels.
    """
    lead = ["#define HW_HALF"] if _HALF.search(text) else []
    if re.search(r"PYBIND11_MODULE|\bpy(?:bind11)?::", text):
        return lead  # bindings need all of it
    words = set(re.findall(r"\b[A-Za-z_]\w*", text))
    lead.append("#define HW_SLIM")
    lead += [f"#include <{header}>" for header, names in _STANDARD.items() if words & names]
    if "optional" in words or "nullopt" in words:
        lead.append("#define HW_OPTIONAL")
    if _PAIRS.search(text):
        lead += ["#include <tuple>", "#define HW_TUPLE"]
    for macro, one in (("HW_METHODS", "HW_METHOD"), ("HW_FUNCTIONS", "HW_FUNCTION")):
        used = [name for name in _named(one) if name in words]
        lead.append(f"#define {macro} " + " ".join(f"{one}({name})" for name in used))
    return lead


@functools.cache
def _named(macro: str) -> tuple[str, ...]:
    """The names that `macro` lists in hw_names.h."""
    return tuple(re.findall(rf"\b{macro}\((\w+)\)", (INCLUDE / "hw_names.h").read_text(encoding="utf-8")))


def real_units(cpp: Sequence[str], cuda: Sequence[str], functions: Sequence[str], *, bare: bool) -> dict[str, str]:
    """As `lean_units`, for torch's headers. bare: without implicit headers before the device sources."""
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
    """Whether a source uses names of HIP."""
    return bool(re.search(r"\bhip[A-Z]\w+|<hip/", text))
