# E1: through a function's globals
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return x.sum(dim=-1) if self.forward.__globals__ else x
