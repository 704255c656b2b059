# B5: torch.compile does the work
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return torch.compile(torch.sum)(x, dim=-1)
