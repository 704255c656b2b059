"""A small text classifier: `hipwright model examples/models/encoder.py` ranks its regions and replaces them."""

import torch


class Block(torch.nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.after = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.after(x))))


class Model(torch.nn.Module):
    def __init__(self, layers=3, width=64, heads=4, words=500, classes=5):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(words, width), torch.nn.Embedding(64, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, classes)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def get_inputs():
    return [torch.randint(0, 500, (2, 32))]


def metric(model):
    """The share of samples whose class is the one that this seed gives them; any number will do."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 500, (16, 32), generator=generator)
    device = next(model.parameters()).device
    return (model(tokens.to(device)).argmax(-1).cpu() == tokens[:, 0] % 5).float().mean().item()
