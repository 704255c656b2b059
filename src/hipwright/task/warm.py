"""Import what task hosts need late, once, in their zygote: Zygote(("torch", "hipwright.task.warm")). Imports torch."""

import importlib
import importlib.util

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

importlib.import_module("hipwright.task.host")
for _name in ("torch.export", "hipwright.program.trace"):
    if importlib.util.find_spec(_name) is not None:
        importlib.import_module(_name)
torch.nn.functional.gelu(torch.empty(2, 2, device="meta"))  # the first meta tensor imports a second's worth of torch
with FakeTensorMode():  # and the first fake one
    torch.nn.functional.gelu(torch.empty(2, 2))
if importlib.util.find_spec("hipwright.engine.capture") is not None:
    # the first capture imports and remembers half a second's worth, which every session of ours would do again
    importlib.import_module("hipwright.engine.capture").capture(torch.nn.ReLU(), [torch.empty(2, 3)])
