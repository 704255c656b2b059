# wrong: float64 comes out of a float32 task
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return x.double().sum(dim=-1)
