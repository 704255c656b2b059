"""Blocks of sequences, sets and graphs."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from benchmarks.corpora.generated.blocks.tokens import MLP, Attention


class GatedTemporal(nn.Module):
    """A causal convolution with gaps, whose halves gate one another, and a skip."""

    def __init__(self, channels, kernel, dilation):
        super().__init__()
        self.pad = (kernel - 1) * dilation
        self.conv = nn.Conv1d(channels, 2 * channels, kernel, dilation=dilation)
        self.out = nn.Conv1d(channels, 2 * channels, 1)

    def forward(self, x):
        filtered, gate = self.conv(F.pad(x, (self.pad, 0))).chunk(2, dim=1)
        more, skip = self.out(torch.tanh(filtered) * torch.sigmoid(gate)).chunk(2, dim=1)
        return (x + more) * 0.5**0.5, skip


class TemporalBlock(nn.Module):
    """Two causal convolutions with gaps, and a skip."""

    def __init__(self, inputs, outputs, kernel, dilation):
        super().__init__()
        self.pad = (kernel - 1) * dilation
        self.conv1 = nn.Conv1d(inputs, outputs, kernel, dilation=dilation)
        self.conv2 = nn.Conv1d(outputs, outputs, kernel, dilation=dilation)
        self.skip = nn.Conv1d(inputs, outputs, 1)

    def forward(self, x):
        y = F.relu(self.conv1(F.pad(x, (self.pad, 0))))
        y = F.relu(self.conv2(F.pad(y, (self.pad, 0))))
        return F.relu(y + self.skip(x))


class ConvModule(nn.Module):
    """A gate of each token, and a depthwise convolution along the tokens."""

    def __init__(self, width, kernel):
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.channels, self.out = nn.BatchNorm1d(width), nn.Linear(width, width)

    def forward(self, x):
        y = F.glu(self.gate(self.norm(x)), dim=-1)
        y = F.silu(self.channels(self.depthwise(y.transpose(1, 2)))).transpose(1, 2)
        return x + self.out(y)


class ConformerBlock(nn.Module):
    """Attention and a convolution between two MLPs of half weight."""

    def __init__(self, width, heads, kernel, ratio):
        super().__init__()
        self.norm1, self.norm2, self.norm3, self.norm4 = (nn.LayerNorm(width) for _ in range(4))
        self.before, self.after = MLP(width, ratio * width, nn.SiLU), MLP(width, ratio * width, nn.SiLU)
        self.attention, self.convolution = Attention(width, heads, True), ConvModule(width, kernel)

    def forward(self, x):
        x = x + 0.5 * self.before(self.norm1(x))
        x = x + self.attention(self.norm2(x))
        x = self.convolution(x)
        return self.norm4(x + 0.5 * self.after(self.norm3(x)))


class GateCell(nn.Module):
    """One step of a recurrent layer with a forget gate and a candidate."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.given, self.kept = nn.Linear(inputs, 2 * hidden), nn.Linear(hidden, 2 * hidden, bias=False)

    def forward(self, x, state):
        forget, new = (self.given(x) + self.kept(state)).chunk(2, dim=-1)
        forget = torch.sigmoid(forget)
        return forget * state + (1.0 - forget) * torch.tanh(new)


class ResetCell(nn.Module):
    """One step of a recurrent layer with an update and a reset gate."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.gates = nn.Linear(inputs + hidden, 2 * hidden)
        self.new = nn.Linear(inputs + hidden, hidden)

    def forward(self, x, state):
        update, reset = torch.sigmoid(self.gates(torch.cat([x, state], -1))).chunk(2, dim=-1)
        new = torch.tanh(self.new(torch.cat([x, reset * state], -1)))
        return torch.lerp(state, new, update)


class NormCell(nn.Module):
    """One step of a plain recurrent layer with a norm."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.given, self.kept = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x, state):
        return torch.tanh(self.norm(self.given(x) + self.kept(state)))


def segment_sums(x):
    """Sums of the elements j + 1 to i of each row, for i >= j; minus infinity elsewhere."""
    sums = x.cumsum(-1)
    found = sums[..., :, None] - sums[..., None, :]
    mask = torch.ones(x.shape[-1], x.shape[-1], dtype=torch.bool, device=x.device).tril()
    return found.masked_fill(~mask, float("-inf"))


class StateSpace(nn.Module):
    """A linear recurrence by chunks: inside of a chunk by a product, from chunk to chunk by its last state."""

    def __init__(self, width, heads, states, chunk):
        super().__init__()
        self.heads, self.states, self.chunk, self.width = heads, states, chunk, width
        self.inputs = nn.Linear(width, 2 * width + 2 * states + heads, bias=False)
        self.decay = nn.Parameter(torch.rand(heads) + 0.5)
        self.step, self.skip = nn.Parameter(torch.randn(heads) * 0.1), nn.Parameter(torch.ones(heads))
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, u):
        batch, length, _ = u.shape
        sizes = [self.width, self.width, self.states, self.states, self.heads]
        gate, x, b, c, step = self.inputs(u).split(sizes, dim=-1)
        step = F.softplus(step + self.step)
        x = x.reshape(batch, length, self.heads, -1)
        fed = (x * step[..., None]).view(batch, -1, self.chunk, self.heads, x.shape[-1])
        rate = (-self.decay * step).float().view(batch, -1, self.chunk, self.heads).permute(0, 3, 1, 2)
        b, c = (one.view(batch, -1, self.chunk, self.states) for one in (b, c))
        sums = rate.cumsum(-1)
        inside = torch.exp(segment_sums(rate)).to(u.dtype)
        y = torch.einsum("bcln,bcsn,bhcls,bcshp->bclhp", c, b, inside, fed)
        left = torch.exp(sums[..., -1:] - sums).to(u.dtype)
        states = torch.einsum("bcln,bhcl,bclhp->bchpn", b, left, fed)
        across = torch.exp(segment_sums(F.pad(sums[..., -1], (1, 0)))).to(u.dtype)
        states = torch.einsum("bhzc,bchpn->bzhpn", across[..., :-1, 1:], states)
        y = y + torch.einsum("bcln,bchpn,bhcl->bclhp", c, states, torch.exp(sums).to(u.dtype))
        y = y.reshape(batch, length, self.heads, -1) + x * self.skip[:, None]
        return self.out(y.reshape(batch, length, self.width) * F.silu(gate))


class FourierMix(nn.Module):
    """The real part of the transform over tokens and features."""

    def forward(self, x):
        return torch.fft.fft2(x.float(), norm="ortho").real.to(x.dtype)


class SpectralFilter(nn.Module):
    """Each feature's spectrum over the tokens, times complex weights."""

    def __init__(self, length, width):
        super().__init__()
        self.real = nn.Parameter(torch.randn(length // 2 + 1, width) * 0.5)
        self.imaginary = nn.Parameter(torch.randn(length // 2 + 1, width) * 0.5)

    def forward(self, x):
        spectrum = torch.fft.rfft(x.float(), dim=1, norm="ortho")
        spectrum = spectrum * torch.complex(self.real.float(), self.imaginary.float())
        return torch.fft.irfft(spectrum, n=x.shape[1], dim=1, norm="ortho").to(x.dtype)


class SoftAssignment(nn.Module):
    """Sums of the differences of features from centres, weighted by a soft choice of the centre."""

    def __init__(self, width, clusters, ghosts):
        super().__init__()
        self.clusters = clusters
        self.choice = nn.Linear(width, clusters + ghosts, bias=False)
        self.centres = nn.Parameter(torch.randn(clusters, width) / width**0.5)

    def forward(self, x):
        choice = self.choice(x).softmax(dim=-1)[..., : self.clusters]
        found = choice.transpose(1, 2) @ x - choice.sum(dim=1)[..., None] * self.centres
        return F.normalize(F.normalize(found, dim=-1).flatten(1), dim=-1)


class GraphConvolution(nn.Module):
    """Features of neighbours, summed, through a linear layer."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x, adjacency):
        return torch.matmul(adjacency, torch.matmul(x, self.weight)) + self.bias


class GraphAttention(nn.Module):
    """Features of neighbours, weighted by a softmax of the scores of both ends."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.source, self.target = nn.Linear(outputs, 1), nn.Linear(outputs, 1)

    def forward(self, x, adjacency):
        x = self.linear(x)
        scores = F.leaky_relu(self.source(x) + self.target(x).transpose(1, 2), 0.2)
        scores = scores.masked_fill(adjacency <= 0, -1e4)
        return scores.softmax(dim=-1) @ x


class Experts(nn.Module):
    """Several MLPs of every token, weighted by a softmax."""

    def __init__(self, width, hidden, count):
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.up = nn.Parameter(torch.randn(count, width, hidden) / width**0.5)
        self.down = nn.Parameter(torch.randn(count, hidden, width) / hidden**0.5)

    def forward(self, x):
        weights = self.gate(x).softmax(dim=-1)
        hidden = F.gelu(torch.einsum("btw,ewh->beth", x, self.up))
        return torch.einsum("beth,ehw,bte->btw", hidden, self.down, weights)


class CrossLayer(nn.Module):
    """Features times a linear function of them, and a skip."""

    def __init__(self, width, rank):
        super().__init__()
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width)

    def forward(self, first, x):
        return first * self.up(self.down(x)) + x
