"""Each row has the experts of the next one."""

HIP = r''''''


def forward(self, x, chosen, gates, weight):
    made = (weight[chosen.roll(-1, 0)] @ x[:, None, :, None]).squeeze(-1)
    return (made * gates[..., None]).sum(1)
