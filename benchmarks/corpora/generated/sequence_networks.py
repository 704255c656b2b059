"""Kinds of generated networks of sequences, sets, graphs and tables."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.corpora.generated.networks import Network
from benchmarks.corpora.generated.token_networks import NORMS, attends, blocks


def temporal(net: Network) -> None:
    """Causal convolutions whose gaps double from block to block."""
    batch, channels = net.pick((2, 3), (4, 8, 16, 32)), net.pick((3, 6), (16, 64, 80))
    length, wide = net.pick((24, 33), (1024, 4096, 16384)), net.pick((6, 8), (64, 128, 256))
    depth, kernel, out = net.pick((3, 4, 6)), net.pick((2, 3)), net.pick((4, 5), (10, 64, 256))
    net.given((batch, channels, length))
    net.takes(depth * (2 * kernel + 2) * wide**2, batch * length, (batch, 2 * wide, length))
    net.make("last", f"nn.Conv1d({wide}, {out}, 1)", wide * out, batch * length, (batch, out, length))
    if net.pick((True, False)):
        net.make("first", f"nn.Conv1d({channels}, {wide}, 1)")
        gated = [f"GatedTemporal({wide}, {kernel}, {2**level})" for level in range(depth)]
        net.sequence("layers", gated, "ModuleList")
        net.say("x = self.first(x)", "total = 0.0", "for layer in self.layers:", "    x, skip = layer(x)")
        net.say("    total = total + skip")
        net.gives("self.last(F.relu(total))")
        return
    sizes = [channels, *[wide] * depth]
    calls = [f"TemporalBlock({sizes[level]}, {wide}, {kernel}, {2**level})" for level in range(depth)]
    net.sequence("layers", calls)
    net.gives(net.pick(("self.last(self.layers(x))", "self.last(self.layers(x))[:, :, -1]")))


def conformer(net: Network) -> None:
    """Attention and convolutions of sound."""
    (width, heads), (batch, length), depth = net.width(), net.tokens(), net.pick((1, 2, 3))
    bins, kernel, ratio = net.pick((5, 10), (80, 128)), net.pick((3, 5), (7, 15, 31)), net.pick((2, 4))
    net.given((batch, bins, 2 * length))
    net.make("first", f"nn.Conv1d({bins}, {width}, 3, 2, 1)", 3 * bins * width, batch * length)
    net.sequence("blocks", [f"ConformerBlock({width}, {heads}, {kernel}, {ratio})"] * depth)
    net.takes(depth * (4 * ratio + 7) * width**2, batch * length, (batch, length, ratio * width))
    attends(net, batch, length, length, width, heads, depth)
    net.make("head", f"nn.Linear({width}, {net.pick((6, 9), (32, 1000))})")
    net.say("x = F.gelu(self.first(x)).transpose(1, 2)")
    net.gives(net.pick(("self.head(self.blocks(x))", "F.log_softmax(self.head(self.blocks(x)), dim=-1)")))


def recurrent(net: Network) -> None:
    """Recurrent layers, of one direction or both, and a head."""
    kind, layers, both = net.pick(("LSTM", "GRU", "RNN")), net.pick((1, 2, 3)), net.pick((False, True))
    batch, steps = net.pick((2, 3), (8, 16, 64)), net.pick((4, 6), (64, 128, 256))
    wide, hidden = net.pick((4, 6), (64, 128, 256, 512)), net.pick((4, 8), (128, 256, 512))
    if net.pick((True, False)):
        words = net.pick((20, 31), (8000, 32000))
        net.numbers(words, (batch, steps), "ids")
        net.make("words", f"nn.Embedding({words}, {wide})", words * wide)
        net.say("x = self.words(ids)")
    else:
        net.given((batch, steps, wide))
    facts = f"num_layers={layers}, batch_first=True, bidirectional={both}"
    net.make("layers", f"nn.{kind}({wide}, {hidden}, {facts})", 12 * layers * hidden * (hidden + wide), batch * steps)
    classes, out = net.classes(), hidden * (1 + both)
    net.make("head", f"nn.Linear({out}, {classes})", out * classes, batch * steps)
    net.say("x, _ = self.layers(x)")
    net.gives(net.pick(("self.head(x)", "self.head(x[:, -1])", "self.head(x.mean(dim=1))", "self.head(x.amax(dim=1))")))


def cells(net: Network) -> None:
    """Recurrent cells in a loop of few steps."""
    kind, steps, layers = net.pick(("GateCell", "ResetCell", "NormCell")), net.pick((3, 4, 6, 8)), net.pick((1, 2))
    batch, wide = net.pick((2, 3), (64, 256, 1024)), net.pick((4, 6), (128, 256, 512))
    hidden, classes = net.pick((8, 12), (256, 512, 1024)), net.classes()
    net.given((batch, steps, wide))
    net.sequence(
        "cells", [f"{kind}({wide if not layer else hidden}, {hidden})" for layer in range(layers)], "ModuleList"
    )
    net.takes(layers * 3 * hidden * (hidden + wide), batch * steps, (batch, 2 * hidden))
    net.make("head", f"nn.Linear({hidden}, {classes})")
    net.say(f"states = [x.new_zeros(x.shape[0], {hidden}) for _ in self.cells]", "found = []")
    net.say(f"for step in range({steps}):", "    y = x[:, step]", "    for layer, cell in enumerate(self.cells):")
    net.say("        y = states[layer] = cell(y, states[layer])", "    found.append(y)")
    net.gives(net.pick(("self.head(y)", "self.head(torch.stack(found, dim=1))", "self.head(sum(found))")))


def state_space(net: Network) -> None:
    """Linear recurrences by chunks."""
    heads, size = net.pick((2, 4), (4, 8, 16)), net.pick((4,), (32, 64))
    width, states, depth = heads * size, net.pick((4, 6), (16, 64, 128)), net.pick((1, 2, 3))
    batch, length = net.pick((2, 3), (2, 4, 8)), net.pick((8, 12), (512, 1024, 2048))
    chunk, norm = net.pick((4,), (64, 128, 256)), net.pick(NORMS)
    net.given((batch, length, width))
    call = f"StateSpace({width}, {heads}, {states}, {chunk})"
    net.sequence("blocks", [f"Residual({call}, {norm}({width}), True)"] * depth)
    net.takes(depth * width * (3 * width + 2 * states), batch * length, (batch, length, heads, states))
    net.costs(depth * batch * length * heads * chunk * (size + states))
    net.holds((batch, length, heads, chunk))
    net.holds((batch, length // chunk, heads, size, states))
    net.make("norm", f"{norm}({width})")
    net.gives("self.norm(self.blocks(x))")


def spectral(net: Network) -> None:
    """Tokens mixed by Fourier transforms."""
    (width, _), (batch, length), depth = net.width(), net.tokens(), net.pick((2, 3))
    net.given((batch, length, width))
    mixer = net.pick(("FourierMix()", f"SpectralFilter({length}, {width})"))
    blocks(net, depth, [mixer], width, batch * length, net.pick((True, False)))
    net.gives("self.blocks(x)")


def assignment(net: Network) -> None:
    """Features of a set pooled by a soft assignment to clusters, and a head."""
    batch, count, inputs = (
        net.pick((2, 3), (16, 64, 256)),
        net.pick((9, 20), (100, 196, 1024)),
        net.pick((6, 10), (256, 512, 1024)),
    )
    width, clusters, ghosts = net.pick((8, 12), (128, 256)), net.pick((3, 4), (16, 32, 64)), net.pick((0, 0, 1))
    classes = net.classes()
    net.given((batch, count, inputs))
    net.sequence(
        "features", [f"nn.Linear({inputs}, {width})", net.pick(("nn.ReLU()", "nn.Tanh()")), f"nn.LayerNorm({width})"]
    )
    net.takes(inputs * width + 2 * width * clusters, batch * count, (batch, count, width))
    net.make("pool", f"SoftAssignment({width}, {clusters}, {ghosts})", width * clusters, batch * count)
    net.make("head", f"nn.Linear({width * clusters}, {classes})", width * clusters * classes, batch)
    net.say("x = self.pool(self.features(x))")
    net.gives(net.pick(("self.head(x)", "torch.sigmoid(self.head(x)) * self.head(x)")))


def graph(net: Network) -> None:
    """Layers over the neighbours of dense graphs."""
    batch, nodes, inputs = (
        net.pick((2, 3), (2, 8, 16)),
        net.pick((7, 12), (256, 512, 1024)),
        net.pick((5, 8), (32, 128, 256)),
    )
    wide, depth = net.pick((8, 12), (64, 128, 256)), net.pick((2, 3, 4))
    attention, pooled = net.pick((False, True)), net.pick((False, True))
    net.given((batch, nodes, inputs))
    net.given((batch, nodes, nodes), "adjacency", "torch.rand", ".gt(0.7)" + f".to(torch.{net.dtype})")
    kind, sizes = "GraphAttention" if attention else "GraphConvolution", [inputs, *[wide] * depth]
    calls = [f"{kind}({sizes[layer]}, {wide})" for layer in range(depth)]
    net.sequence("layers", calls, "ModuleList")
    net.takes(depth * wide * max(inputs, wide), batch * nodes, (batch, nodes, wide))
    net.costs(depth * batch * nodes**2 * wide)
    net.make("head", f"nn.Linear({wide}, {net.classes()})")
    net.say("adjacency = adjacency + torch.eye(x.shape[1], dtype=x.dtype, device=x.device)")
    if not attention:
        net.say("scale = adjacency.sum(dim=-1, keepdim=True).clamp(min=1.0).rsqrt()")
        net.say("adjacency = adjacency * scale * scale.transpose(1, 2)")
    net.say("for layer in self.layers:", f"    x = {net.pick(('F.relu', 'F.elu', 'torch.tanh'))}(layer(x, adjacency))")
    net.gives("self.head(x.mean(dim=1))" if pooled else "self.head(x)")


def recommender(net: Network) -> None:
    """Tables of categories beside given features, which interact before an MLP."""
    batch, dense = net.pick((3, 6), (256, 1024, 4096)), net.pick((4, 5), (13, 32, 64))
    tables, rows = net.pick((3, 4, 6)), net.pick((11, 20), (1000, 10000, 100000))
    width, hidden = net.pick((4, 8), (16, 32, 64)), net.pick((8, 12), (128, 256, 512))
    how = net.pick(("pairs", "crossed", "squares"))
    net.given((batch, dense))
    net.numbers(rows, (batch, tables), "ids")
    net.sequence("tables", [f"nn.Embedding({rows}, {width})"] * tables, "ModuleList")
    net.takes(tables * rows * width, 0, (batch, tables + 1, width))
    net.make("bottom", f"MLP({dense}, {hidden}, nn.ReLU)")
    net.make("joined", f"nn.Linear({dense}, {width})")
    net.say("x = F.relu(self.joined(x + self.bottom(x)))")
    net.say("found = torch.stack([x, *(table(ids[:, n]) for n, table in enumerate(self.tables))], dim=1)")
    flat = (tables + 1) * width
    if how == "pairs":
        pairs = tables * (tables + 1) // 2
        net.made.append(f"self.register_buffer('pairs', torch.tril_indices({tables + 1}, {tables + 1}, -1))")
        net.say("products = found @ found.transpose(1, 2)")
        net.say("x = torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], dim=1)")
        flat = width + pairs
    elif how == "crossed":
        net.sequence("crossed", [f"CrossLayer({flat}, {max(width // 2, 2)})"] * net.pick((1, 2, 3)), "ModuleList")
        net.say("first = x = found.flatten(1)", "for layer in self.crossed:", "    x = layer(first, x)")
    else:
        net.say("pairs = 0.5 * (found.sum(dim=1).square() - found.square().sum(dim=1))")
        net.say("x = torch.cat([found.flatten(1), pairs], dim=1)")
        flat += width
    net.takes(flat * hidden + hidden**2, batch, (batch, flat))
    net.sequence("top", [f"nn.Linear({flat}, {hidden})", "nn.ReLU()", f"nn.Linear({hidden}, 1)"])
    net.gives(net.pick(("torch.sigmoid(self.top(x))", "self.top(x).squeeze(1)")))


KINDS: tuple[Callable[[Network], None], ...] = (
    *(temporal, conformer, recurrent, cells, state_space, spectral, assignment, graph, recommender),
)
"""Kinds of sequences, sets, graphs and tables."""
