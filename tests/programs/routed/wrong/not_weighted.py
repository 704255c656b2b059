"""The mean of the experts."""

HIP = r''''''


def forward(self, x, chosen, gates, weight):
    made = (weight[chosen] @ x[:, None, :, None]).squeeze(-1)
    return made.mean(1)
