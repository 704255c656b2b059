"""Exports hold the text of device headers; read back, the shipped text is trusted and any other is the file's own."""

from __future__ import annotations

import pytest

from hipwright.errors import ProgramError
from hipwright.program import parse
from hipwright.program.convert.modelnew import from_modelnew
from hipwright.program.modelnew.export import export
from hipwright.program.modelnew.native import native_findings
from hipwright.program.modelnew.native_source import kernel_source
from hipwright.records import Program
from hipwright.toolchain import device_headers

TASK = (
    "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x.sum(dim=-1)\n\n\n"
    "def get_inputs():\n    return [torch.randn(33, 300)]\n\n\ndef get_init_inputs():\n    return []\n"
)
HIP = """#include <hip/hip_runtime.h>
#include <hipwright/block_reduce.h>
#include <hipwright/operators.h>
#include <hipwright/tile.h>
extern "C" __global__ void row_sum(const float* x, float* y, int cols) {
    float acc = 0.0f;
    for (int j = threadIdx.x; j < cols; j += 128) acc += x[(long)blockIdx.x * cols + j];
    acc = block_reduce<128>(acc, Sum());
    if (threadIdx.x == 0) y[blockIdx.x] = acc;
}"""
TEXT = f"""HIP = r'''
{HIP}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[x.shape[0], 128](x, y, x.shape[1])
    return y
"""


def exported() -> str:
    return export(Program(text=TEXT), parse(TEXT), TASK)


def test_an_export_holds_its_headers_and_is_read_back() -> None:
    text = exported()
    assert "#include <hipwright/" not in text and text.count("struct Tile {") == 1
    assert parse(from_modelnew(text, TASK).text).hip.strip() == HIP


@pytest.mark.parametrize("old, new", [("return v;", "return v + 1;"), ("struct Tile {", "struct  Tile {")])
def test_changed_headers_are_the_file_s_own_text(old: str, new: str) -> None:
    with pytest.raises(ProgramError, match="tells the target"):
        parse(from_modelnew(exported().replace(old, new), TASK).text)


def test_native_source_asks_for_no_target() -> None:
    kernels = [parse(TEXT).signatures["row_sum"]]
    shipped = kernel_source(device_headers.inlined(HIP), kernels)
    asks = "#ifdef __CUDA_ARCH__\n#endif\n"
    assert not [one for one in native_findings(shipped) if one[0] == "E4"]
    for text in (
        asks + HIP,
        shipped.replace("extern", f"{asks}extern", 1),
        shipped.replace("struct Tile", "struct  Tile"),
    ):
        (_, _, message, refused), *_ = [one for one in native_findings(text) if one[0] == "E4"]
        assert refused and "tells the target" in message
    assert "export it again" in message
