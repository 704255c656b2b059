"""Kernel arguments, for random signatures: what we pack is what each code object's own metadata says, byte for byte.

The compiler decides sizes and offsets (real code objects of four architectures, read back), and the stub runtime copies
arguments into the kernel-argument segment by them, as the HIP runtime does. The expected bytes come from NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hipwright.device.amd.driver import check_signatures
from hipwright.device.gpu.pack import ArgumentLayout, pack
from hipwright.errors import CandidateError, ToolchainError
from hipwright.float8 import FLOAT8
from hipwright.program.kernel_types import SCALARS
from hipwright.program.signature import Param, parse_signatures
from hipwright.targets import OFFLINE
from hipwright.tensors import to_bf16_bits
from hipwright.toolchain.amd import isa

from .conftest import Stub

HEADERS = "#include <hip/hip_runtime.h>\n#include <hip/hip_fp16.h>\n#include <hip/hip_bf16.h>\n#include <cstdint>\n"
_OTHERS = ("__bf16", "__nv_bfloat16", "ptrdiff_t", "hip_bfloat16", "bfloat16")
BY_VALUE = [name for name, dtype in SCALARS.items() if name not in _OTHERS and dtype not in FLOAT8]
"""Spellings of scalars that are types of HIP's headers."""
POINTERS = ["const float*", "float*", "half*", "const __hip_bfloat16*", "void*", "int8_t*", "const bool*", "double*"]
types = st.sampled_from(BY_VALUE + POINTERS)
shapes = st.lists(types, min_size=0, max_size=14)


def source(kernels: Sequence[Sequence[str]]) -> str:
    text = HEADERS
    for number, params in enumerate(kernels):
        listed = ", ".join(f"{ctype} p{i}" for i, ctype in enumerate(params))
        text += f'extern "C" __global__ void k{number}({listed}) {{}}\n'
    return text


@pytest.mark.parametrize("target", OFFLINE)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kernels=st.lists(shapes, min_size=30, max_size=60))
def test_offsets_and_sizes_are_the_compilers(code: Callable[..., bytes], target: str, kernels: list[list[str]]) -> None:
    text = source(kernels)
    image, signatures = code(text, target), parse_signatures(text).signatures
    assert len(signatures) == len(kernels)
    check_signatures(image, signatures)
    built = isa.kernel_args(image)
    for name, signature in signatures.items():
        shown = [arg for arg in built[name] if not arg[2].startswith("hidden_")]
        layout = ArgumentLayout(signature)
        assert [offset for _, offset, _ in shown] == list(layout.offsets)
        assert [kind == "global_buffer" for _, _, kind in shown] == [param.pointer for param in signature.params]
        if shown:
            assert shown[-1][0] + shown[-1][1] == layout.size


def numpy_bytes(param: Param, value: Any) -> bytes:
    """The value's bytes, without struct and without hipwright's packing."""
    if param.pointer:
        return np.uint64(0 if value is None else value.data_ptr()).tobytes()
    if param.kind == "bfloat16":
        return np.uint16(to_bf16_bits(np.float32(value))).tobytes()
    return np.array(value, dtype=param.kind).tobytes()


def values_for(param: Param, draw: Callable[[Any], Any], tensors: list[torch.Tensor]) -> Any:
    if param.pointer:
        return draw(st.sampled_from([None, *tensors]))
    if param.kind == "bool":
        return draw(st.booleans())
    if "float" in param.kind:
        return draw(st.floats(-60000, 60000, width=16))
    info = np.iinfo(param.kind)
    return draw(st.integers(int(info.min), int(info.max)))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_segment_holds_every_value(code: Callable[..., bytes], stub_path: Any, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 5)))  # six sources to compile, many values for each
    kernel = [str(rng.choice(BY_VALUE + POINTERS)) for _ in range(14)]
    text = source([kernel])
    stub, image = Stub(stub_path), code(text)
    stub.knows(image)
    signature = parse_signatures(text).signatures["k0"]
    tensors = [torch.zeros(3), torch.zeros(5, dtype=torch.float16)[1:]]
    args = [values_for(param, data.draw, tensors) for param in signature.params]
    driver = stub.driver()
    function = driver.function(driver.load(image), "k0")
    packed = pack(signature, args)
    driver.launch(function, (1, 1, 1), (64, 1, 1), 0, 0, packed.pointers)
    segment = stub.segment(512)
    shown = [arg for arg in isa.kernel_args(image)["k0"] if not arg[2].startswith("hidden_")]
    for param, arg, (size, offset, _) in zip(signature.params, args, shown, strict=True):
        assert segment[offset : offset + size] == numpy_bytes(param, arg), (param, arg)
    used = {at for size, offset, _ in shown for at in range(offset, offset + size)}
    assert all(segment[at] == 0xEE for at in range(512) if at not in used)


def test_a_kernel_that_is_not_what_the_text_said(code: Callable[..., bytes]) -> None:
    text = HEADERS + 'extern "C" __global__ void k0(float* x, WIDTH n) {}\n'
    image = code(text.replace("WIDTH", "int64_t"))
    with pytest.raises(
        CandidateError, match=r"kernel k0: the compiled code has n as 8 bytes at 8 \(by_value\), the text 4"
    ):
        check_signatures(image, parse_signatures(text.replace("WIDTH", "int")).signatures)
    fewer = parse_signatures(HEADERS + 'extern "C" __global__ void k0(float* x) {}\n').signatures
    with pytest.raises(CandidateError, match="2 parameters, not 1"):
        check_signatures(image, fewer)
    pointer = parse_signatures(text.replace("WIDTH", "float*")).signatures
    with pytest.raises(CandidateError, match="global_buffer"):
        check_signatures(image, pointer)
    check_signatures(image, parse_signatures(text.replace("WIDTH", "long")).signatures)
    with pytest.raises(ToolchainError, match="cannot be read"):
        check_signatures(b"\x7fELF" + bytes(100), fewer)
