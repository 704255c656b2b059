# E2: reads memory by address
import torch
import torch.nn as nn
import ctypes

class ModelNew(nn.Module):
    def forward(self, x):
        ctypes.memset(x.data_ptr(), 0, 4)
        return x.sum(dim=-1)
