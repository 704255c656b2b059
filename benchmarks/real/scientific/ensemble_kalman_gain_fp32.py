"""Ensemble Kalman filter analysis: 80 members of 1000000 variables corrected by a gain of 128 observations."""

import torch

MEMBERS, VARIABLES, OBSERVATIONS = 80, 1000000, 128


class Model(torch.nn.Module):
    def forward(self, state, seen, innovation):
        state_mean, seen_mean = state.mean(dim=0, keepdim=True), seen.mean(dim=0, keepdim=True)
        share = (seen - seen_mean) @ innovation.t() / (MEMBERS - 1)
        return state + share.t() @ (state - state_mean)


def get_inputs():
    return [
        torch.randn(MEMBERS, VARIABLES),
        torch.randn(MEMBERS, OBSERVATIONS),
        torch.randn(MEMBERS, OBSERVATIONS) * 0.1,
    ]
