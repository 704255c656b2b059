"""NeuMF on MovieLens-1M at batch 4096: 6040 users, 3706 items, factors of 16, MLP of 64, 32 and 16."""

from itertools import pairwise

import torch
from torch import nn

BATCH, USERS, ITEMS, FACTORS, SIZES = 4096, 6040, 3706, 16, (64, 32, 16)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.user_factors, self.item_factors = nn.Embedding(USERS, FACTORS), nn.Embedding(ITEMS, FACTORS)
        self.users, self.items = nn.Embedding(USERS, SIZES[0] // 2), nn.Embedding(ITEMS, SIZES[0] // 2)
        self.layers = nn.ModuleList([nn.Linear(i, o) for i, o in pairwise(SIZES)])
        self.out = nn.Linear(FACTORS + SIZES[-1], 1)

    def forward(self, user, item):
        product = self.user_factors(user) * self.item_factors(item)
        x = torch.cat((self.users(user), self.items(item)), dim=-1)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return torch.sigmoid(self.out(torch.cat((product, x), dim=-1)))[:, 0]


def get_inputs():
    return [torch.randint(0, USERS, (BATCH,)), torch.randint(0, ITEMS, (BATCH,))]
