"""Blocks of attention and of linear layers."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class MLP(nn.Sequential):
    """Two linear layers."""

    def __init__(self, width, hidden, activation):
        super().__init__(nn.Linear(width, hidden), activation(), nn.Linear(hidden, width))


class SwiGLU(nn.Module):
    """Two linear layers with a gate."""

    def __init__(self, width, hidden):
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class RootNorm(nn.Module):
    """Rows divided by the root of their mean square."""

    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return y.to(x.dtype) * self.weight


class Attention(nn.Module):
    """Attention of tokens to one another, by torch's function or written out."""

    def __init__(self, width, heads, fused):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.fused:
            x = F.scaled_dot_product_attention(q, k, v)
        else:
            scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5)
            x = scores.softmax(dim=-1) @ v
        return self.out(x.transpose(1, 2).reshape(batch, length, width))


class CrossAttention(nn.Module):
    """Attention of tokens to others."""

    def __init__(self, width, other, heads):
        super().__init__()
        self.heads = heads
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(other, 2 * width), nn.Linear(width, width)

    def forward(self, x, other):
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, -1).transpose(1, 2)
        k, v = self.kv(other).view(batch, other.shape[1], 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.out(x.transpose(1, 2).reshape(batch, length, width))


class LinearAttention(nn.Module):
    """Attention without a softmax: keys and values are summed first."""

    def __init__(self, width, heads, kind):
        super().__init__()
        self.heads, self.kind = heads, kind
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)

    def feature(self, x):
        return F.relu(x) + 0.01 if self.kind == "relu" else F.elu(x) + 1.0

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (one.view(batch, length, self.heads, -1).transpose(1, 2) for one in self.qkv(x).chunk(3, dim=-1))
        q, k = self.feature(q), self.feature(k)
        sums = k.transpose(-2, -1) @ (v / length)
        norm = (q * k.mean(dim=-2, keepdim=True)).sum(-1, keepdim=True)
        x = (q @ sums) / norm
        return self.out(x.transpose(1, 2).reshape(batch, length, width))


class ReluAttention(nn.Module):
    """Attention by squared positive scores in place of a softmax."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (one(x).view(batch, length, self.heads, -1).transpose(1, 2) for one in (self.q, self.k, self.v))
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
        x = torch.einsum("bhqk,bhkd->bhqd", F.relu(scores).square() / length, v)
        return self.out(x.transpose(1, 2).reshape(batch, length, width))


class Residual(nn.Module):
    """A layer with a norm before it or after it, and a skip."""

    def __init__(self, layer, norm, first):
        super().__init__()
        self.layer, self.norm, self.first = layer, norm, first

    def forward(self, x, *others):
        if self.first:
            return x + self.layer(self.norm(x), *others)
        return self.norm(x + self.layer(x, *others))


class Rotary(nn.Module):
    """Halves of the features turned by angles that grow with the position."""

    def __init__(self, length, width):
        super().__init__()
        angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
        self.register_buffer("cos", torch.cat([angles.cos(), angles.cos()], -1))
        self.register_buffer("sin", torch.cat([angles.sin(), angles.sin()], -1))

    def forward(self, x):
        first, second = x.chunk(2, dim=-1)
        length = x.shape[-2]
        return x * self.cos[:length] + torch.cat([-second, first], dim=-1) * self.sin[:length]


class CausalAttention(nn.Module):
    """Attention to earlier tokens, with rotated queries and keys; several heads share one of keys and values."""

    def __init__(self, width, heads, shared, length):
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, width // heads * shared, bias=False) for _ in range(2))
        self.out, self.rotary = nn.Linear(width, width, bias=False), Rotary(length, width // heads)

    def forward(self, x):
        batch, length, width = x.shape
        q = self.rotary(self.q(x).view(batch, length, self.heads, self.size).transpose(1, 2))
        k = self.rotary(self.k(x).view(batch, length, self.shared, self.size).transpose(1, 2))
        v = self.v(x).view(batch, length, self.shared, self.size).transpose(1, 2)
        k, v = (one.repeat_interleave(self.heads // self.shared, dim=1) for one in (k, v))
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(x.transpose(1, 2).reshape(batch, length, width))


class Patches(nn.Module):
    """An image as tokens with places, and a class token or none."""

    def __init__(self, pixels, patch, width, token):
        super().__init__()
        count = (pixels // patch) ** 2
        self.embed = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02) if token else None
        self.places = nn.Parameter(torch.randn(1, count + token, width) * 0.02)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        if self.token is not None:
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1)
        return x + self.places


class WindowAttention(nn.Module):
    """Attention inside of square windows, which may be shifted by half a window."""

    def __init__(self, width, heads, window, shift):
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.randn(heads, window**2, window**2) * 0.1)

    def forward(self, x):
        batch, height, width, channels = x.shape
        size = self.window
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        x = x.view(batch, height // size, size, width // size, size, channels).transpose(2, 3)
        x = x.reshape(-1, size * size, channels)
        q, k, v = self.qkv(x).view(-1, size * size, 3, self.heads, channels // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q * (channels // self.heads) ** -0.5) @ k.transpose(-2, -1) + self.bias
        x = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, size * size, channels))
        x = x.view(batch, height // size, width // size, size, size, channels).transpose(2, 3)
        x = x.reshape(batch, height, width, channels)
        return torch.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x


class MergePatches(nn.Module):
    """Four neighbours become one token of twice the width."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x):
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], dim=-1)
        return self.reduce(self.norm(x))


class MixerBlock(nn.Module):
    """An MLP over the tokens, and one over the features."""

    def __init__(self, tokens, width, hidden, ratio):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens, self.features = MLP(tokens, hidden, nn.GELU), MLP(width, ratio * width, nn.GELU)

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.features(self.norm2(x))
