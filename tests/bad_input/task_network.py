import socket

import torch

socket.create_connection(("127.0.0.1", 80))


class Model(torch.nn.Module):
    def forward(self, x):
        return x
