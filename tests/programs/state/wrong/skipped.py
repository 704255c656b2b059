"""The cache is never written."""

HIP = r''''''


def forward(self, cache, keys, slots):
    return keys.sum(-1)
