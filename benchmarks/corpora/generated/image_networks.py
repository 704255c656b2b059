"""Kinds of generated networks of images and volumes."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.corpora.generated.networks import Network

ACTIVATIONS = ("nn.ReLU", "nn.SiLU", "nn.Hardswish", "nn.GELU", "nn.LeakyReLU")


class Stages:
    """A network's stages of convolutions: batch, channels and pixels as they stand, and the calls of its blocks."""

    def __init__(self, net: Network, first: tuple[int, ...] = (32, 48, 64, 96)) -> None:
        """A stem. first: its channels at real sizes."""
        self.net, self.calls = net, []
        self.large = net.pick((True, False))
        self.batch, self.pixels = net.images(self.large)
        self.wide = net.pick((8,), first)
        self.stem()

    def stem(self) -> None:
        """A quarter of the pixels, or all of them."""
        if not self.large:
            self.block(f"ConvNorm(3, {self.wide}, 3)", self.wide, 27)
        elif self.net.pick((True, False)):
            self.pixels //= 2
            self.block(f"ConvNorm(3, {self.wide}, 7, 2)", self.wide, 147)
            self.pool()
        else:
            self.pixels //= 4
            self.block(f"ConvNorm(3, {self.wide}, 4, 4)", self.wide, 48)
            self.pixels = (4 * self.pixels + 4 - 4) // 4 + 1  # the padding of half a kernel

    def pool(self) -> None:
        """Half the pixels."""
        self.calls.append("nn.MaxPool2d(3, 2, 1)")
        self.pixels = (self.pixels + 1) // 2

    def block(self, call: str, out: int, each: int, stride: int = 1) -> None:
        """A block. out: its channels; each: weights an output channel."""
        self.calls.append(call)
        self.pixels = (self.pixels - 1) // stride + 1
        self.net.takes(each * out, self.batch * self.pixels**2, (self.batch, out, self.pixels, self.pixels))
        self.wide = out

    def done(self) -> None:
        """Puts the blocks into the network."""
        self.net.sequence("features", self.calls)
        self.net.say("x = self.features(x)")

    def ends(self) -> None:
        """Puts the blocks into the network, and a head."""
        self.done()
        self.net.pooled(self.wide)


def plain_conv(net: Network) -> None:
    """Stages of convolutions and pools, and an MLP."""
    large = net.pick((True, False))
    batch, pixels = net.images(large)
    wide, calls, normed = 3, [], net.pick((True, False))
    first, hidden = net.pick((8,), (32, 64)), net.pick((16, 24), (512, 1024, 4096))
    for stage in range(3):
        for _ in range(net.pick((1, 2))):
            out = first * 2**stage
            calls.append(f"nn.Conv2d({wide}, {out}, 3, padding=1)")
            calls += [f"nn.BatchNorm2d({out})"] if normed else []
            calls.append("nn.ReLU(inplace=True)")
            net.takes(9 * wide * out, batch * pixels**2, (batch, out, pixels, pixels))
            wide = out
        calls.append("nn.MaxPool2d(2)")
        pixels //= 2
    net.sequence("features", calls)
    side, classes = net.pick((2,), (7,)) if large else pixels, net.classes()
    net.takes(wide * side**2 * hidden + hidden**2, batch)
    net.sequence(
        "head",
        (
            f"nn.Linear({wide * side**2}, {hidden})",
            "nn.ReLU()",
            f"nn.Linear({hidden}, {hidden})",
            "nn.ReLU()",
            f"nn.Linear({hidden}, {classes})",
        ),
    )
    net.say("x = self.features(x)")
    if large:
        net.say(f"x = F.adaptive_avg_pool2d(x, {side})")
    net.gives("self.head(torch.flatten(x, 1))")


def residual(net: Network) -> None:
    """Stages of residual blocks, with norms behind or before their convolutions."""
    stages, kind = Stages(net), net.pick(("BasicBlock", "PreNormBlock"))
    for stage in range(3):
        for repeat in range(net.pick((1, 2))):
            out, stride = stages.wide * (1 + (stage > 0 and repeat == 0)), 1 + (stage > 0 and repeat == 0)
            stages.block(f"{kind}({stages.wide}, {out}, {stride})", out, 9 * (stages.wide + out), stride)
    stages.ends()


def _bottlenecks(net: Network, grouped: bool) -> None:
    stages, activation = Stages(net), net.pick(ACTIVATIONS)
    ratio = net.pick((1, 1, 2)) if grouped else net.pick((2, 4))
    of_group = net.pick((4, 8), (8, 16, 24)) if grouped else 0
    for stage in range(3):
        for repeat in range(net.pick((1, 2))):
            stride = 2 if stage and not repeat else 1
            out = stages.wide * (1 if repeat else 2)
            narrow = max(out // ratio // (of_group or 1), 1) * (of_group or 1)
            groups = narrow // of_group if grouped else 1
            call = f"Bottleneck({stages.wide}, {out}, {narrow}, {stride}, {groups}, {activation})"
            stages.block(call, out, (stages.wide + out + 9 * narrow // groups) * narrow // out + stages.wide, stride)
            net.holds((stages.batch, narrow, stages.pixels * stride, stages.pixels * stride))
    stages.ends()


def bottleneck(net: Network) -> None:
    """Stages of residual blocks with narrow middles."""
    _bottlenecks(net, grouped=False)


def grouped(net: Network) -> None:
    """Stages of residual blocks with convolutions of groups."""
    _bottlenecks(net, grouped=True)


def dense(net: Network) -> None:
    """Stages of layers that add channels to those that are there."""
    stages = Stages(net)
    growth, factor = net.pick((4, 8), (12, 24, 32)), net.pick((2, 4))
    for stage in range(3):
        if stage:
            out = stages.wide // 2
            stages.block(f"ConvNorm({stages.wide}, {out}, 1)", out, stages.wide)
            stages.calls.append("nn.AvgPool2d(2)")
            stages.pixels //= 2
        for _ in range(net.pick((2, 3))):
            before, middle = stages.wide, factor * growth
            call = f"DenseLayer({before}, {growth}, {middle})"
            stages.block(call, before + growth, middle * (before + 9 * growth) // (before + growth) + 1)
    stages.ends()


def inception(net: Network) -> None:
    """Stages of four branches side by side."""
    stages = Stages(net)
    for stage in range(3):
        if stage:
            stages.pool()
        for _ in range(net.pick((1, 2))):
            out = stages.wide + net.pick((8, 16), (32, 64, 128))
            out -= out % 8
            stages.block(f"Inception({stages.wide}, {out})", out, stages.wide + 34 * out // 32)
    stages.ends()


def inverted(net: Network) -> None:
    """Stages of depthwise convolutions between wide ones, with squeeze and excitation or without."""
    stages = Stages(net, (16, 24, 32))
    activation, gate = net.pick(ACTIVATIONS[:3]), net.pick(("nn.Sigmoid", "nn.Hardsigmoid", "None"))
    expand, kernel = net.pick((3, 4, 6)), net.pick((3, 3, 5))
    for stage in range(3):
        for repeat in range(net.pick((1, 2, 3))):
            stride, out = (2 if stage and not repeat else 1), stages.wide + (0 if repeat else 8)
            facts = f"{expand}, {kernel}, {stride}, {activation}, {gate}"
            net.holds((stages.batch, stages.wide * expand, stages.pixels, stages.pixels))
            each = expand * (stages.wide * (stages.wide * stride**2 + out + kernel**2)) // out
            stages.block(f"InvertedResidual({stages.wide}, {out}, {facts})", out, each, stride)
    stages.ends()


def shuffle(net: Network) -> None:
    """Stages of convolutions of groups whose channels are shuffled."""
    stages, groups = Stages(net, (24, 48, 96)), net.pick((2, 4))
    stages.calls.append(f"ConvNorm({stages.wide}, {16 * groups}, 1)")
    net.takes(stages.wide * 16 * groups, stages.batch * stages.pixels**2)
    stages.wide = 16 * groups
    for _stage in range(3):
        out = 2 * stages.wide
        for repeat in range(net.pick((2, 3))):
            stride = 1 if repeat else 2
            call = f"ShuffleUnit({stages.wide}, {out}, {stride}, {groups})"
            stages.block(call, out, out // 2 // groups + 9, stride)
    stages.ends()


def fire(net: Network) -> None:
    """Few channels, then many by two kinds of convolutions."""
    stages, ratio = Stages(net), net.pick((2, 4, 8))
    for stage in range(3):
        if stage:
            stages.pool()
        for repeat in range(net.pick((1, 2))):
            out = stages.wide * (1 if repeat else 2)
            narrow = max(out // ratio, 4)
            stages.block(f"Fire({stages.wide}, {out}, {narrow})", out, narrow * 5 + stages.wide * narrow // out)
    stages.calls.append(f"nn.Conv2d({stages.wide}, {(classes := net.classes())}, 1)")
    stages.calls.append("nn.ReLU()")
    net.takes(stages.wide * classes, stages.batch * stages.pixels**2)
    stages.done()
    net.gives("F.adaptive_avg_pool2d(x, 1).flatten(1)")


def convnext(net: Network) -> None:
    """Depthwise convolutions, norms over channels and MLPs."""
    large = net.pick((True, False))
    batch, pixels = net.images(large)
    wide, kernel, ratio = net.pick((8,), (48, 64, 96)), net.pick((5, 7, 7)), net.pick((2, 4))
    patch = 4 if large else 1
    pixels //= patch
    calls = [f"nn.Conv2d(3, {wide}, {patch}, {patch})", f"ChannelNorm({wide})"]
    for stage in range(3):
        if stage:
            calls += [f"ChannelNorm({wide})", f"nn.Conv2d({wide}, {2 * wide}, 2, 2)"]
            wide, pixels = 2 * wide, pixels // 2
        for _ in range(net.pick((1, 2, 3))):
            calls.append(f"ConvNextBlock({wide}, {kernel}, {ratio})")
            weights = wide * (2 * ratio * wide + kernel**2)
            net.takes(weights, batch * pixels**2, (batch, ratio * wide, pixels, pixels))
    net.sequence("features", calls)
    classes = net.classes()
    net.make("norm", f"nn.LayerNorm({wide})")
    net.make("head", f"nn.Linear({wide}, {classes})")
    net.say("x = self.features(x)")
    net.gives("self.head(self.norm(x.mean(dim=(2, 3))))")


def unet(net: Network) -> None:
    """A way down and a way up with skips."""
    pixels = net.pick((16, 32), (64, 128, 256))
    batch, channels = net.pick((2, 3), (4, 8, 16)), net.pick((1, 3, 4))
    net.given((batch, channels, pixels, pixels))
    wide, depth, transposed = net.pick((4, 8), (32, 64)), net.pick((2, 3)), net.pick((True, False))
    norm = net.pick(("nn.BatchNorm2d", "nn.InstanceNorm2d", "lambda wide: nn.GroupNorm(4, wide)"))
    facts = f"{net.pick((1, 2, 2))}, {norm}, {net.pick(ACTIVATIONS)}"
    downs, ups, before = [], [], channels
    for level in range(depth + 1):
        out = wide * 2**level
        downs.append(f"Normalized({before}, {out}, {facts})")
        side = pixels // 2**level
        net.takes(9 * (before + out) * out * 2, batch * side**2, (batch, 2 * out, side, side))
        if level:
            ups.insert(0, f"Up({out}, {before}, {transposed}, Normalized({out}, {before}, {facts}))")
        before = out
    net.sequence("downs", downs[:-1], "ModuleList")
    net.make("middle", downs[-1])
    net.sequence("ups", ups, "ModuleList")
    net.make("last", f"nn.Conv2d({wide}, {net.pick((1, 2, 4))}, 1)")
    pool = net.pick(("F.max_pool2d(x, 2)", "F.avg_pool2d(x, 2)"))
    net.say("skips = []", "for down in self.downs:", "    x = down(x)", "    skips.append(x)", f"    x = {pool}")
    net.say("x = self.middle(x)", "for up, skip in zip(self.ups, reversed(skips)):", "    x = up(x, skip)")
    net.gives("self.last(x)")


def autoencoder(net: Network) -> None:
    """Strided convolutions to a code, and transposed ones back."""
    pixels, depth = net.pick((16, 32), (64, 128)), net.pick((2, 3))
    batch, wide = net.pick((2, 3), (32, 64, 128)), net.pick((4, 8), (32, 64))
    activation, code = net.pick(ACTIVATIONS), net.pick((6, 10), (64, 128, 512))
    net.given((batch, 3, pixels, pixels))
    down, up, side = [], [], pixels // 2**depth
    for level in range(depth):
        before, out = wide * 2 ** (level - 1) if level else 3, wide * 2**level
        down += [f"nn.Conv2d({before}, {out}, 3, 2, 1)", f"nn.BatchNorm2d({out})", f"{activation}()"]
        back = [f"nn.ConvTranspose2d({out}, {before}, 4, 2, 1)"]
        up = [*back, *([f"nn.BatchNorm2d({before})", f"{activation}()"] if level else []), *up]
        net.takes(25 * before * out, batch * (pixels // 2 ** (level + 1)) ** 2, (batch, out, pixels, pixels))
    flat = wide * 2 ** (depth - 1) * side**2
    net.takes(2 * flat * code, batch)
    net.sequence("encoder", [*down, "nn.Flatten()", f"nn.Linear({flat}, {code})"])
    net.make("spread", f"nn.Linear({code}, {flat})")
    net.sequence("decoder", [*up, net.pick(("nn.Sigmoid()", "nn.Tanh()"))])
    net.say("code = self.encoder(x)", f"x = F.relu(self.spread(code)).view(-1, {flat // side**2}, {side}, {side})")
    net.gives("self.decoder(x), code" if net.pick((True, False)) else "self.decoder(x)")


def generator(net: Network) -> None:
    """Images of noise by transposed convolutions or by upsampling."""
    batch, code = net.pick((2, 3), (16, 64, 128)), net.pick((8, 12), (64, 100, 128, 512))
    net.given((batch, code))
    depth, wide, upsampled = net.pick((2, 3)), net.pick((4,), (32, 64)), net.pick((False, False, True))
    top, calls, pixels = wide * 2**depth, [], 4
    for level in reversed(range(depth)):
        out, pixels = wide * 2**level, 2 * pixels
        if upsampled:
            calls += ["nn.Upsample(scale_factor=2)", f"nn.Conv2d({2 * out}, {out}, 3, padding=1)"]
        else:
            calls.append(f"nn.ConvTranspose2d({2 * out}, {out}, 4, 2, 1, bias=False)")
        calls += [f"nn.BatchNorm2d({out})", net.pick(("nn.ReLU()", "nn.LeakyReLU(0.2)"))]
        net.takes(18 * out * out, batch * pixels**2, (batch, 2 * out, pixels, pixels))
    net.make("first", f"nn.Linear({code}, {16 * top})", 16 * top * code, batch)
    net.sequence("layers", [*calls, f"nn.Conv2d({wide}, 3, 3, padding=1)", "nn.Tanh()"])
    net.gives(f"self.layers(F.relu(self.first(x)).view(-1, {top}, 4, 4))")


def volumes(net: Network) -> None:
    """Stages of convolutions of volumes."""
    batch, channels = net.pick((2, 3), (2, 4, 8, 16)), net.pick((1, 3))
    frames, pixels = net.pick((6, 8), (16, 32)), net.pick((8, 12), (56, 64, 112))
    wide, split = net.pick((4, 8), (16, 32, 64)), net.pick((False, True))
    net.given((batch, channels, frames, pixels, pixels))
    calls, before = [], channels
    for stage in range(net.pick((2, 3))):
        out, stride = wide * 2**stage, 1 if stage == 0 else 2
        frames, pixels = (frames - 1) // stride + 1, (pixels - 1) // stride + 1
        calls.append(f"VolumeBlock({before}, {out}, {stride}, {split})")
        net.takes(28 * before * out, batch * frames * pixels**2, (batch, out, frames * stride, pixels, pixels))
        before = out
    net.sequence("features", calls)
    classes = net.classes()
    net.make("head", f"nn.Linear({before}, {classes})")
    pool = net.pick(("x.mean(dim=(2, 3, 4))", "F.adaptive_avg_pool3d(x, 1).flatten(1)", "x.amax(dim=(2, 3, 4))"))
    net.gives(f"self.head({pool.replace('x', 'self.features(x)', 1)})")


KINDS: tuple[Callable[[Network], None], ...] = (
    *(plain_conv, residual, bottleneck, grouped, dense, inception, inverted, shuffle, fire),
    *(convnext, unet, autoencoder, generator, volumes),
)
"""Kinds of images and volumes."""
