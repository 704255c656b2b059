"""NeRF network on 262144 samples: encodings of 10 and 4 frequencies, 8 layers of 256, density and colour."""

import torch
from torch import nn

SAMPLES, WIDTH, FAR, NEAR = 262144, 256, 10, 4


def encoded(x, frequencies):
    scaled = x[:, None, :] * 2.0 ** torch.arange(frequencies, device=x.device)[:, None]
    return torch.cat((x, torch.sin(scaled).flatten(1), torch.cos(scaled).flatten(1)), dim=-1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        place, view = 3 + 6 * FAR, 3 + 6 * NEAR
        sizes = [place, *[WIDTH] * 4, WIDTH + place, *[WIDTH] * 2]
        self.layers = nn.ModuleList([nn.Linear(size, WIDTH) for size in sizes])
        self.density, self.feature = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, WIDTH)
        self.view, self.colour = nn.Linear(WIDTH + view, WIDTH // 2), nn.Linear(WIDTH // 2, 3)
        for layer in (*self.layers, self.density, self.feature, self.view, self.colour):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, points, directions):
        place = x = encoded(points, FAR)
        for number, layer in enumerate(self.layers):
            x = torch.relu(layer(torch.cat((x, place), dim=-1) if number == 5 else x))
        view = encoded(nn.functional.normalize(directions, dim=-1), NEAR)
        y = torch.relu(self.view(torch.cat((self.feature(x), view), dim=-1)))
        return torch.relu(self.density(x)), torch.sigmoid(self.colour(y))


def get_inputs():
    return [torch.rand(SAMPLES, 3) * 2.0 - 1.0, torch.randn(SAMPLES, 3)]
