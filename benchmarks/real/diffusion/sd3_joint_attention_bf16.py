"""Stable Diffusion 3 medium joint attention, batch 2: 4096 image and 333 text tokens, width 1536, 24 heads of 64."""

import torch
from torch import nn

BATCH, IMAGE, TEXT, HEADS, HEAD = 2, 4096, 333, 24, 64
WIDTH = HEADS * HEAD
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.image_qkv, self.text_qkv = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.image_out, self.text_out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.to(DTYPE)

    def forward(self, image, text):
        batch, places, _ = image.shape
        parts = torch.cat((self.image_qkv(image), self.text_qkv(text)), dim=1)
        q, k, v = parts.view(batch, -1, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, -1, WIDTH)
        return image + self.image_out(mixed[:, :places]), text + self.text_out(mixed[:, places:])


def get_inputs():
    return [torch.randn(BATCH, IMAGE, WIDTH, dtype=DTYPE), torch.randn(BATCH, TEXT, WIDTH, dtype=DTYPE)]
