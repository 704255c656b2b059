"""Import what task hosts need late, once, in their zygote. Imports torch."""

import importlib
import importlib.util

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

importlib.import_module("hipwright.task.host.server")
for _name in ("torch.export", "hipwright.program.lower.trace", "hipwright.capture.forward"):
    if importlib.util.find_spec(_name) is not None:
        importlib.import_module(_name)
torch.nn.functional.gelu(torch.empty(2, 2, device="meta"))  # the first meta tensor imports a second's worth of torch
with FakeTensorMode():  # and the first fake one
    torch.nn.functional.gelu(torch.empty(2, 2))
