"""Rows of the last expert add nothing."""

HIP = r''''''


def forward(self, x, chosen, gates, weight):
    made = (weight[chosen] @ x[:, None, :, None]).squeeze(-1)
    return (made * gates[..., None] * (chosen != weight.shape[0] - 1)[..., None]).sum(1)
