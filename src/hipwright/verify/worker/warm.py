"""Import what candidate workers need late, once, in their zygote. Imports torch."""

import torch

torch.nn.functional.gelu(torch.empty(2, 2, device="meta"))  # the first meta tensor imports a second's worth of torch
