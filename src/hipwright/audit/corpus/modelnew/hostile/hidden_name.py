# E6: torch.compile by getattr with a computed name
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return getattr(torch, 'com' + 'pile')(torch.sum)(x, dim=-1)
