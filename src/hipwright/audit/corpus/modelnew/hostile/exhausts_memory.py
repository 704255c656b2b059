# E8: allocates until the machine gives up
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        kept = []
        while True:
            kept.append(torch.ones(1 << 26))
