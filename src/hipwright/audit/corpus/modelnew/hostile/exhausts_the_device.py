# E8: allocates device memory until none is left
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        kept = []
        while True:
            kept.append(torch.ones(1 << 30, device=x.device))
