"""Import what task hosts need late, once, in their zygote. Imports torch."""

import torch
import torch.export
from torch._subclasses.fake_tensor import FakeTensorMode

import hipwright.capture.forward
import hipwright.program.lower.trace
import hipwright.task.host.server  # noqa: F401

torch.nn.functional.gelu(torch.empty(2, 2, device="meta"))  # the first meta tensor imports a second's worth of torch
with FakeTensorMode():  # and the first fake one
    torch.nn.functional.gelu(torch.empty(2, 2))
