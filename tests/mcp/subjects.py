"""A task and programs for it, for tests of the MCP server."""

from __future__ import annotations

TASK = '''"""Twice the input, plus one."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2 + 1


def get_inputs():
    return [torch.randn(4, 100)]


def get_init_inputs():
    return []
'''
PROGRAM = """HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void twice(const float* x, float* y, long n) {
    long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2.0f + 1.0f;
}
'''
BLOCK = knob(256, choices=[64, 256])

def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    twice[cdiv(x.numel(), BLOCK), BLOCK](x, y, x.numel())
    return y
"""
WRONG = PROGRAM.replace("+ 1.0f", "+ 1.5f")
UNGUARDED = PROGRAM.replace("if (i < n) ", "")
MODEL_NEW = """import torch
print("a line on stdout that is no protocol", flush=True)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        print("and another")
        return x * 2 + 1
"""
SLOW = PROGRAM.replace("if (i < n) y", "long k = 0; while (n > 0 && k >= 0) k = (k + 1) & 1023; if (i < n) y")
