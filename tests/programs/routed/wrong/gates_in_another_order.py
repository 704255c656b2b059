"""Gates are those of the experts in descending order."""

HIP = r''''''


def forward(self, x, chosen, gates, weight):
    made = (weight[chosen] @ x[:, None, :, None]).squeeze(-1)
    return (made * gates.sort(1, descending=True).values[..., None]).sum(1)
