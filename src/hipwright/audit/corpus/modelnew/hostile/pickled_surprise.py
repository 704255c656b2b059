# D6: an output that runs code when it is unpickled
import torch
import torch.nn as nn
import os

class ModelNew(nn.Module):
    def forward(self, x):
        class Surprise:
            def __reduce__(self):
                return (os.system, ('true',))
        return Surprise()
