"""Import what device hosts need late, once, in their zygote: Zygote(("torch", "hipwright.task.device_warm")).

Imports torch, and touches no device: a process that has started CUDA cannot be forked.
"""

import importlib

import torch

from hipwright.task.double import float64

importlib.import_module("hipwright.task.device_host")
for _name in ("torch._dynamo", "torch._inductor.compile_fx"):
    importlib.import_module(_name)
with float64():  # the first dispatch of a widened operator imports three seconds' worth of torch
    torch.nn.functional.layer_norm(torch.ones(2, 2), (2,)).sum()
torch.nn.functional.gelu(torch.empty(2, 2, device="meta"))
