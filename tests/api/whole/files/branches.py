"""Models with parts that read values, and factories that do wrong."""

import socket
from pathlib import Path

import torch


class Odd(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x):
        y = self.linear(x)
        return y if float(y.detach().sum()) > 1e9 else y.relu() * 2


class Mixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.odd = Odd()
        self.other = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU())

    def forward(self, x):
        return self.other(self.odd(x))


def make():
    return Mixed(), torch.randn(256, 64)


def alone():
    return Mixed()


def raises():
    raise ValueError("no weights")


def reads():
    return torch.load(Path("/etc/hostname")), ()


def connects():
    return socket.create_connection(("127.0.0.1", 80)), ()
