"""Imports, in a zygote, what task hosts would import on first use. Imports torch."""

import torch
import torch._dynamo
import torch.export
from torch._subclasses.fake_tensor import FakeTensorMode

import hipwright.capture.forward
import hipwright.program.lower.trace
import hipwright.task.host.server

# the first meta tensor imports further parts of torch, which takes a second
torch.nn.functional.gelu(torch.empty(2, 2, device="meta"))
with FakeTensorMode():  # so does the first fake one
    torch.nn.functional.gelu(torch.empty(2, 2))
# the first export imports the tracer and fills torch's tables of operators, which every host would do again
hipwright.capture.forward.capture(torch.nn.GELU(), [torch.empty(4, 6)])
