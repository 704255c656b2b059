"""Preloads in the zygote the modules that ModelNew workers import late. Imports torch.

A confined process cannot write files, and torch's dispatch modes look for a temporary folder at their first use.
"""

import torch

from hipwright.program.lower.trace import OpTrace
from hipwright.program.modelnew import run as modelnew_run
from hipwright.program.modelnew import torchlite_bind

__all__ = ["modelnew_run", "torchlite_bind"]

with OpTrace(), torch.no_grad():
    torch.nn.functional.linear(torch.ones(2, 2), torch.ones(2, 2))
