"""Kinds of generated networks of tokens: linear layers and attention."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.corpora.generated.networks import Network

GATES = ("nn.GELU", "nn.ReLU", "nn.SiLU", "SwiGLU")
NORMS = ("nn.LayerNorm", "nn.LayerNorm", "nn.RMSNorm", "RootNorm")


def feed(net: Network, width: int, kind: str, ratio: int) -> str:
    """The call of an MLP of tokens. kind: its activation, or a gate."""
    return f"SwiGLU({width}, {ratio * width})" if kind == "SwiGLU" else f"MLP({width}, {ratio * width}, {kind})"


def blocks(net: Network, depth: int, mixers: list[str], width: int, places: int, first: bool) -> None:
    """A sequence `blocks`: the mixer of each block and an MLP, with norms before or behind them. places: tokens."""
    norm, kind, ratio = net.pick(NORMS), net.pick(GATES), net.pick((2, 4))
    calls = []
    for number in range(depth):
        calls.append(f"Residual({mixers[number % len(mixers)]}, {norm}({width}), {first})")
        calls.append(f"Residual({feed(net, width, kind, ratio)}, {norm}({width}), {first})")
        net.takes((4 + 3 * ratio) * width**2, places, (places, ratio * width))
    net.sequence("blocks", calls)


def attends(net: Network, batch: int, length: int, keys: int, width: int, heads: int, depth: int) -> None:
    """Notes the scores of attention."""
    net.holds((batch, heads, length, keys))
    net.costs(2 * batch * length * keys * width * depth)


def mlp(net: Network) -> None:
    """Many narrow linear layers, or few wide ones."""
    deep, batch = net.pick((True, False)), net.pick((3, 8, 16), (64, 128, 1024, 4096))
    depth = net.pick((6, 8)) if deep else net.pick((2, 3))
    inputs, outputs = net.pick((12, 20), (512, 784, 1024, 4096)), net.pick((5, 10), (10, 100, 1000, 2048))
    width = net.pick((8, 16), (256, 512, 1024)) if deep else net.pick((24, 32), (4096, 8192, 16384))
    norm = net.pick(("", "", "nn.LayerNorm({})", "nn.BatchNorm1d({})"))
    activation = net.pick(("nn.ReLU()", "nn.GELU()", "nn.Tanh()", "nn.SiLU()", "nn.LeakyReLU(0.1)", "nn.Mish()"))
    net.given((batch, inputs))
    calls, before = [], inputs
    for _ in range(depth):
        calls += [f"nn.Linear({before}, {width})", *([norm.format(width)] if norm else []), activation]
        net.takes(before * width, batch, (batch, width))
        before = width
    net.sequence("layers", [*calls, f"nn.Linear({width}, {outputs})"])
    net.gives(net.pick(("self.layers(x)", "self.layers(x)", "F.log_softmax(self.layers(x), dim=-1)")))


def _image_tokens(net: Network, token: bool) -> tuple[int, int, int, int]:
    """Images as tokens; batch, tokens, width and heads."""
    pixels, batch = net.pick((16, 32), (224, 256)), net.pick((2, 3), (8, 16, 32, 64))
    patch, (width, heads) = net.pick((8,), (16, 32)), net.width()
    length = (pixels // patch) ** 2 + token
    net.given((batch, 3, pixels, pixels))
    net.make("patches", f"Patches({pixels}, {patch}, {width}, {token})", 3 * patch**2 * width, batch * length)
    net.say("x = self.patches(x)")
    return batch, length, width, heads


def mixer(net: Network) -> None:
    """MLPs over the tokens and over the features in turn."""
    batch, length, width, _ = _image_tokens(net, False)
    hidden, ratio, depth = net.pick((6, 8), (128, 256, 512)), net.pick((2, 4)), net.pick((2, 4, 6))
    net.sequence("blocks", [f"MixerBlock({length}, {width}, {hidden}, {ratio})"] * depth)
    net.takes((2 * ratio * width**2 + 2 * hidden * length) * depth, batch * length, (batch, length, ratio * width))
    net.make("norm", f"nn.LayerNorm({width})")
    net.make("head", f"nn.Linear({width}, {net.classes()})")
    net.gives("self.head(self.norm(self.blocks(x)).mean(dim=1))")


def vit(net: Network) -> None:
    """A transformer of the patches of an image."""
    token = net.pick((True, True, False))
    batch, length, width, heads = _image_tokens(net, token)
    depth = net.pick((2, 4, 6))
    blocks(net, depth, [f"Attention({width}, {heads}, {net.pick((True, False))})"], width, batch * length, True)
    attends(net, batch, length, length, width, heads, depth)
    net.make("norm", f"nn.LayerNorm({width})")
    net.make("head", f"nn.Linear({width}, {net.classes()})")
    net.say("x = self.norm(self.blocks(x))")
    net.gives("self.head(x[:, 0])" if token else "self.head(x.mean(dim=1))")


def window(net: Network) -> None:
    """Attention in windows of an image, every other one shifted; neighbours merge between the stages."""
    pixels, batch, size = 32, net.pick((2, 3), (8, 16, 32)), 2
    if net.real:
        pixels, size = 224, 7
    width, heads, ratio = net.pick((8,), (64, 96, 128)), net.pick((2,), (2, 4)), net.pick((2, 4))
    net.given((batch, 3, pixels, pixels))
    net.make("embed", f"nn.Conv2d(3, {width}, 4, 4)")
    calls, side = [], pixels // 4
    for stage in range(net.pick((2, 3))):
        if stage:
            calls.append(f"MergePatches({width})")
            net.takes(8 * width**2, batch * side**2 // 4)
            width, heads, side = 2 * width, 2 * heads, side // 2
        for shift in (0, size // 2):
            attention = f"WindowAttention({width}, {heads}, {size}, {shift})"
            calls.append(f"Residual({attention}, nn.LayerNorm({width}), True)")
            calls.append(f"Residual(MLP({width}, {ratio * width}, nn.GELU), nn.LayerNorm({width}), True)")
            net.takes((4 + 2 * ratio) * width**2, batch * side**2, (batch, side, side, ratio * width))
    net.sequence("blocks", calls)
    net.make("head", f"nn.Linear({width}, {net.classes()})")
    net.say("x = self.blocks(self.embed(x).permute(0, 2, 3, 1))")
    net.gives("self.head(x.mean(dim=(1, 2)))")


def _words(net: Network, batch: int, length: int, width: int) -> int:
    """Numbers of words, embedded; how many words there are."""
    words = net.pick((20, 31), (8000, 16384, 32000, 50257))
    net.numbers(words, (batch, length), "ids")
    net.make("words", f"nn.Embedding({words}, {width})", words * width, 0, (batch, length, width))
    return words


def encoder(net: Network) -> None:
    """A transformer of words or of given features, with norms before or behind its layers."""
    (width, heads), (batch, length), depth = net.width(), net.tokens(), net.pick((2, 3, 4, 6))
    if net.pick((True, False)):
        _words(net, batch, length, width)
        net.made.append(f"self.places = nn.Parameter(torch.randn({length}, {width}) * 0.02)")
        net.say("x = self.words(ids) + self.places")
    else:
        net.given((batch, length, width))
    first = net.pick((True, False))
    blocks(net, depth, [f"Attention({width}, {heads}, {net.pick((True, False))})"], width, batch * length, first)
    attends(net, batch, length, length, width, heads, depth)
    if net.pick((True, False)):
        net.gives("self.blocks(x)")
    else:
        net.make("head", f"nn.Linear({width}, {net.classes()})")
        net.gives("self.head(torch.tanh(self.blocks(x).mean(dim=1)))")


def decoder(net: Network) -> None:
    """A causal transformer with rotated queries and keys, of which several heads share one; logits of all words."""
    (width, heads), (batch, length), depth = net.width(), net.tokens(), net.pick((2, 3, 4))
    words, shared = _words(net, batch, length, width), heads // net.pick((1, 2), (1, 4))
    blocks(net, depth, [f"CausalAttention({width}, {heads}, {shared}, {length})"], width, batch * length, True)
    attends(net, batch, length, length, width, heads, depth)
    net.make("norm", f"{net.pick(NORMS)}({width})")
    net.make("head", f"nn.Linear({width}, {words}, bias=False)", width * words, batch * length, (batch, length, words))
    net.say("x = self.norm(self.blocks(self.words(ids)))")
    net.gives(net.pick(("self.head(x)", "self.head(x)", "F.log_softmax(self.head(x), dim=-1)")))


def cross(net: Network) -> None:
    """Tokens, given or learned, that attend to others and then to one another."""
    (width, heads), (batch, length), depth = net.width(), net.tokens(), net.pick((1, 2, 3))
    other, count = net.pick((6, 12), (256, 512, 1024)), net.pick((4, 6), (32, 64, 128, 256))
    if net.pick((True, False)):
        net.made.append(f"self.latents = nn.Parameter(torch.randn({count}, {width}))")
        net.say("x = self.latents.expand(other.shape[0], -1, -1)")
    else:
        net.given((batch, count, width))
    net.given((batch, length, other), "other")
    norm, first, kind = net.pick(NORMS), net.pick((True, False)), net.pick(GATES)
    kinds = {
        "cross": f"CrossAttention({width}, {other}, {heads})",
        "mixed": f"Attention({width}, {heads}, True)",
        "feeds": feed(net, width, kind, net.pick((2, 4))),
    }
    for name, call in kinds.items():
        net.sequence(name, [f"Residual({call}, {norm}({width}), {first})"] * depth, "ModuleList")
    net.takes(depth * 14 * width**2, batch * count, (batch, count, 4 * width))
    net.takes(depth * 2 * width * other, batch * length, (batch, length, 2 * width))
    attends(net, batch, count, length + count, width, heads, depth)
    net.say("for cross, mixed, feed in zip(self.cross, self.mixed, self.feeds):", "    x = cross(x, other)")
    net.say("    x = feed(mixed(x))")
    net.gives("x" if net.pick((True, False)) else "x.mean(dim=1)")


def linear_attention(net: Network) -> None:
    """A transformer whose attention has no softmax."""
    (width, heads), (batch, length), depth = net.width(), net.tokens(), net.pick((2, 3, 4))
    net.given((batch, length, width))
    kinds = (f"LinearAttention({width}, {heads}, 'elu')", f"LinearAttention({width}, {heads}, 'relu')")
    mixer = net.pick((*kinds, f"ReluAttention({width}, {heads})"))
    blocks(net, depth, [mixer], width, batch * length, net.pick((True, True, False)))
    if "Linear" not in mixer:
        attends(net, batch, length, length, width, heads, depth)
    net.gives("self.blocks(x)")


def experts(net: Network) -> None:
    """Attention, and MLPs of several experts weighted by a softmax."""
    (width, heads), (batch, length), depth = net.width(), net.tokens(), net.pick((1, 2))
    count, hidden = net.pick((2, 4), (4, 8)), net.pick((12, 16), (256, 512, 1024))
    net.given((batch, length, width))
    norm, calls = net.pick(NORMS), []
    for _ in range(depth):
        calls.append(f"Residual(Attention({width}, {heads}, True), {norm}({width}), True)")
        calls.append(f"Residual(Experts({width}, {hidden}, {count}), {norm}({width}), True)")
    net.takes(depth * (4 * width**2 + 2 * count * width * hidden), batch * length, (batch, length, count, hidden))
    net.holds((batch, length, count, width))
    attends(net, batch, length, length, width, heads, depth)
    net.sequence("blocks", calls)
    net.gives("self.blocks(x)")


KINDS: tuple[Callable[[Network], None], ...] = (
    *(mlp, mixer, vit, window, encoder, decoder, cross, linear_attention, experts),
)
"""Kinds of tokens."""
