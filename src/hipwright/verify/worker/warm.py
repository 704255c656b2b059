"""Imports, in a zygote, what candidate workers would import on first use. Imports torch."""

import torch

# the first meta tensor imports further parts of torch, which takes a second
torch.nn.functional.gelu(torch.empty(2, 2, device="meta"))
