"""Import what ModelNew workers need late, once, in their zygote: nothing can be written once a process is confined, and
torch's dispatch modes look for a temporary folder when they are first used. Imports torch.
"""

import torch

from hipwright.program.lower.trace import OpTrace
from hipwright.program.modelnew import run as modelnew_run
from hipwright.program.modelnew import torchlite_bind

__all__ = ["modelnew_run", "torchlite_bind"]

with OpTrace(), torch.no_grad():
    torch.nn.functional.linear(torch.ones(2, 2), torch.ones(2, 2))
