"""Blocks of convolutions."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvNorm(nn.Sequential):
    """A convolution, a batch norm and an activation."""

    def __init__(self, inputs, outputs, kernel, stride=1, groups=1, activation=nn.ReLU):
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outputs),
            activation(),
        )


class BasicBlock(nn.Module):
    """Two convolutions and a skip."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = ConvNorm(inputs, outputs, 3, stride)
        self.second = ConvNorm(outputs, outputs, 3, activation=nn.Identity)
        self.skip = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.skip = ConvNorm(inputs, outputs, 1, stride, activation=nn.Identity)

    def forward(self, x):
        return F.relu(self.second(self.first(x)) + self.skip(x))


class PreNormBlock(nn.Module):
    """Two convolutions, each behind its norm and activation, and a skip."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(x))
        return self.conv2(F.relu(self.norm2(self.conv1(y)))) + self.skip(y)


class Bottleneck(nn.Module):
    """A narrow convolution, of groups or not, between two of one pixel, and a skip."""

    def __init__(self, inputs, outputs, narrow, stride, groups, activation):
        super().__init__()
        self.body = nn.Sequential(
            ConvNorm(inputs, narrow, 1, activation=activation),
            ConvNorm(narrow, narrow, 3, stride, groups, activation),
            ConvNorm(narrow, outputs, 1, activation=nn.Identity),
        )
        self.skip = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.skip = ConvNorm(inputs, outputs, 1, stride, activation=nn.Identity)
        self.activation = activation()

    def forward(self, x):
        return self.activation(self.body(x) + self.skip(x))


class DenseLayer(nn.Module):
    """New channels beside those that are there."""

    def __init__(self, inputs, growth, wide):
        super().__init__()
        self.new = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
            nn.Conv2d(inputs, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU(),
            nn.Conv2d(wide, growth, 3, padding=1, bias=False),
        )

    def forward(self, x):
        return torch.cat([x, self.new(x)], 1)


class Inception(nn.Module):
    """Four branches side by side."""

    def __init__(self, inputs, outputs):
        super().__init__()
        part = outputs // 4
        self.point = ConvNorm(inputs, part, 1)
        self.three = nn.Sequential(ConvNorm(inputs, part // 2, 1), ConvNorm(part // 2, part, 3))
        self.five = nn.Sequential(ConvNorm(inputs, part // 2, 1), ConvNorm(part // 2, part, 5))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), ConvNorm(inputs, part, 1))

    def forward(self, x):
        return torch.cat([self.point(x), self.three(x), self.five(x), self.pool(x)], dim=1)


class SqueezeExcite(nn.Module):
    """Channels scaled by what their means say."""

    def __init__(self, channels, hidden, gate):
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, hidden, 1), nn.Conv2d(hidden, channels, 1)
        self.gate = gate()

    def forward(self, x):
        return x * self.gate(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class InvertedResidual(nn.Module):
    """A depthwise convolution of many channels between two of one pixel."""

    def __init__(self, inputs, outputs, expand, kernel, stride, activation, gate):
        super().__init__()
        wide = inputs * expand
        self.body = nn.Sequential(
            ConvNorm(inputs, wide, 1, activation=activation),
            ConvNorm(wide, wide, kernel, stride, wide, activation),
            SqueezeExcite(wide, max(wide // 4, 4), gate) if gate else nn.Identity(),
            ConvNorm(wide, outputs, 1, activation=nn.Identity),
        )
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.adds else self.body(x)


class ShuffleUnit(nn.Module):
    """Convolutions of groups, with the channels shuffled between them."""

    def __init__(self, inputs, outputs, stride, groups):
        super().__init__()
        narrow, self.groups, self.stride = outputs // 4, groups, stride
        new = outputs if stride == 1 else outputs - inputs
        self.first = ConvNorm(inputs, narrow, 1, groups=groups)
        self.depthwise = ConvNorm(narrow, narrow, 3, stride, narrow, nn.Identity)
        self.last = ConvNorm(narrow, new, 1, groups=groups, activation=nn.Identity)

    def forward(self, x):
        y = self.first(x)
        batch, channels, height, width = y.shape
        y = y.view(batch, self.groups, channels // self.groups, height, width).transpose(1, 2).reshape(y.shape)
        y = self.last(self.depthwise(y))
        if self.stride == 1:
            return F.relu(x + y)
        return F.relu(torch.cat([F.avg_pool2d(x, 3, self.stride, 1), y], 1))


class Fire(nn.Module):
    """Few channels, then many by two kinds of convolutions."""

    def __init__(self, inputs, outputs, squeeze):
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeeze, 1)
        self.point = nn.Conv2d(squeeze, outputs // 2, 1)
        self.three = nn.Conv2d(squeeze, outputs // 2, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.point(x)), F.relu(self.three(x))], 1)


class ChannelNorm(nn.Module):
    """A layer norm over the channels of each pixel."""

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    """A wide depthwise convolution, and an MLP of each pixel."""

    def __init__(self, channels, kernel, ratio):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up, self.down = nn.Linear(channels, ratio * channels), nn.Linear(ratio * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.5))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class Normalized(nn.Sequential):
    """Convolutions with a norm of the sample and an activation."""

    def __init__(self, inputs, outputs, count, norm, activation):
        layers = []
        for number in range(count):
            layers += [nn.Conv2d(outputs if number else inputs, outputs, 3, padding=1), norm(outputs), activation()]
        super().__init__(*layers)


class Up(nn.Module):
    """Twice the size, joined with what the way down had."""

    def __init__(self, inputs, outputs, transposed, convolutions):
        super().__init__()
        self.up = nn.ConvTranspose2d(inputs, outputs, 2, 2) if transposed else nn.Conv2d(inputs, outputs, 1)
        self.transposed, self.convolutions = transposed, convolutions

    def forward(self, x, skip):
        x = self.up(x)
        if not self.transposed:
            x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.convolutions(torch.cat([skip, x], dim=1))


class VolumeBlock(nn.Module):
    """A convolution of volumes, whole or of the planes and then of the frames, and a skip."""

    def __init__(self, inputs, outputs, stride, split):
        super().__init__()
        if split:
            self.conv = nn.Sequential(
                nn.Conv3d(inputs, outputs, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False),
                nn.BatchNorm3d(outputs),
                nn.ReLU(),
                nn.Conv3d(outputs, outputs, (3, 1, 1), (stride, 1, 1), (1, 0, 0), bias=False),
            )
        else:
            self.conv = nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm3d(outputs)
        self.skip = nn.Conv3d(inputs, outputs, 1, stride)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)) + self.skip(x))
