"""BERT base embeddings of 32 x 512 tokens: words (30522), positions (512) and types (2) of width 768, LayerNorm."""

import torch
from torch import nn

BATCH, TOKENS, WIDTH, VOCABULARY = 32, 512, 768, 30522


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(TOKENS, WIDTH)
        self.types = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, ids, types):
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.norm(self.words(ids) + self.places(places) + self.types(types))


def get_inputs():
    return [torch.randint(0, VOCABULARY, (BATCH, TOKENS)), torch.randint(0, 2, (BATCH, TOKENS))]
