"""Black-Scholes prices of 16777216 calls and puts with their deltas."""

import torch

OPTIONS = 16777216


def normal(x):
    return 0.5 * (1.0 + torch.erf(x * 0.7071067811865476))


class Model(torch.nn.Module):
    def forward(self, spot, strike, years, rate, volatility):
        spread = volatility * years.sqrt()
        first = (torch.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / spread
        later = strike * torch.exp(-rate * years)
        call = spot * normal(first) - later * normal(first - spread)
        return call, call - spot + later, normal(first)


def get_inputs():
    return [
        torch.rand(OPTIONS) * 90.0 + 10.0,
        torch.rand(OPTIONS) * 90.0 + 10.0,
        torch.rand(OPTIONS) * 2.0 + 0.1,
        torch.rand(OPTIONS) * 0.05,
        torch.rand(OPTIONS) * 0.4 + 0.1,
    ]
