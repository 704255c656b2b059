"""Copies of modules are those of deepcopy: what is shared, tied, overridden or copied by rules of its own stays so."""

import copy
import threading
import types
from collections import OrderedDict

import pytest
import torch
from torch import nn

from hipwright.task.host.copied import copied, steady


class Own(nn.Module):
    """A module of attributes of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
        self.head = nn.Linear(4, 4)
        self.head.weight = self.body[0].weight  # tied
        self.plain = torch.arange(6.0)
        self.view = self.plain[2:]  # of the same memory
        self.register_buffer("scale", torch.ones(2), persistent=False)
        self.sizes, self.names, self.table = [3, [4]], {"a", "b"}, {("k", 1): {"deep": [1]}}
        self.called = 0
        self.act = nn.functional.gelu
        self.again = self.body  # one module under two names
        self.forward = types.MethodType(Own.other, self)  # in place of the class's own

    def forward(self, x):
        raise AssertionError("the instance has another forward")

    def other(self, x):
        self.called += 1
        self.sizes[1].append(self.called)
        return self.act(self.head(self.body(x))) + self.view[:4] * self.scale[0]


class Counted(nn.Module):
    """A module with a rule of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.copies = nn.Parameter(torch.ones(2)), 0

    def __deepcopy__(self, memo):
        made = Counted()
        made.copies = self.copies + 1
        return made


@pytest.mark.parametrize("way", [copied, copy.deepcopy], ids=["copied", "deepcopy"])
def test_a_copy_is_apart_from_the_original(way):
    torch.manual_seed(0)
    model = Own().train()
    made = way(model)
    x = torch.randn(8, 4)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    out = made(x)
    assert made.called == 1 and model.called == 0 and model.sizes == [3, [4]] and made.sizes == [3, [4, 1]]
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(out, model(x))
    assert made.head.weight is made.body[0].weight and made.again is made.body
    assert made.view.untyped_storage().data_ptr() == made.plain.untyped_storage().data_ptr()
    assert made.view.untyped_storage().data_ptr() != model.view.untyped_storage().data_ptr()
    assert made.table == model.table and made.table[("k", 1)] is not model.table[("k", 1)]
    assert made.act is model.act and made._non_persistent_buffers_set == {"scale"}
    assert made.forward.__self__ is made


def test_what_is_shared_is_the_same_object():
    model = Own()
    made = copied(model, {id(tensor): tensor for tensor in model.parameters()})
    assert all(one is other for one, other in zip(made.parameters(), model.parameters(), strict=True))
    assert all(one is not other for one, other in zip(made.buffers(), model.buffers(), strict=True))


def test_rules_of_a_class_are_kept():
    made = copied(nn.Sequential(Counted(), nn.Linear(2, 2)))
    assert made[0].copies == 1
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
    assert torch.equal(copied(normed).weight, normed.weight)
    table = OrderedDict(a=1)
    table.more = [2]
    holder = nn.Module()
    holder.table = table
    assert copied(holder).table.more == [2] and copied(holder).table.more is not table.more


def test_hooks_are_copied_with_their_module():
    model, seen = nn.Linear(2, 2), []
    model.register_forward_hook(lambda module, args, out: seen.append(module))
    made = copied(model)
    made(torch.ones(1, 2))
    assert seen == [made]


def test_what_cannot_be_copied_raises_as_deepcopy_does():
    model = nn.Linear(2, 2)
    model.lock = threading.Lock()
    with pytest.raises(TypeError, match="pickle"):
        copied(model)


LAYERS = [
    (nn.Conv2d(3, 4, 3, padding=1), (2, 3, 5, 5)),
    (nn.ConvTranspose1d(3, 4, 3, stride=2), (2, 3, 5)),
    (nn.AvgPool2d(2), (2, 3, 6, 6)),
    (nn.Upsample(scale_factor=2), (2, 3, 6, 6)),
    (nn.Softmax(-1), (2, 3)),
    (nn.GRU(3, 4, bidirectional=True, batch_first=True), (2, 5, 3)),
    (nn.LSTM(3, 4, 2, batch_first=True), (2, 5, 3)),
    (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 5, 8)),
    (nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)).eval(), (2, 3)),  # in training each call changes it
]


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=[type(layer).__name__ for layer, _ in LAYERS])
def test_torchs_own_layers_are_what_deepcopy_makes_of_them(layer, shape):
    x, mine, theirs = torch.randn(shape), copied(layer), copy.deepcopy(layer)
    torch.testing.assert_close(mine(x), theirs(x), rtol=0, atol=0)
    assert mine.__dict__.keys() == theirs.__dict__.keys() and repr(mine) == repr(theirs)
    with torch.no_grad():
        for tensor in mine.parameters():
            tensor.add_(1.0)
    torch.testing.assert_close(layer(x), theirs(x), rtol=0, atol=0)
    if isinstance(layer, nn.RNNBase):  # its list of weights holds the copy's own
        assert all(
            one is getattr(mine, name) for one, name in zip(mine._flat_weights, mine._flat_weights_names, strict=True)
        )


def test_layouts_and_gradients_wanted_are_kept():
    holder = nn.Module()
    holder.weight = nn.Parameter(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), requires_grad=False)
    holder.view = torch.arange(24.0).view(4, 6).t()[1:3]
    holder.one = torch.ones(1, 1).expand(3, 4)
    holder.leaf = torch.ones(2, requires_grad=True)
    made = copied(holder)
    for name in ("weight", "view", "one", "leaf"):
        mine, own = getattr(made, name), getattr(holder, name)
        assert mine.stride() == own.stride() and mine.requires_grad is own.requires_grad and torch.equal(mine, own)
        assert mine.untyped_storage().data_ptr() != own.untyped_storage().data_ptr()


def test_a_module_that_a_call_may_change_is_not_steady():
    hooked = nn.Linear(2, 2)
    hooked.register_forward_pre_hook(lambda module, args: None)
    listed = nn.ReLU()
    listed.seen = [1]
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    changing = [
        hooked,
        listed,
        normed,
        nn.BatchNorm1d(2),
        nn.LSTM(2, 2),
        nn.Sequential(nn.ReLU()),
        Own(),
        nn.LazyLinear(2),
    ]
    assert [type(one).__name__ for one in changing if steady(one)] == []
    constant = [
        nn.Conv2d(1, 1, 1),
        nn.Linear(2, 2),
        nn.LayerNorm(2),
        nn.GELU(),
        nn.Dropout(),
        nn.Embedding(2, 2),
        nn.Identity(),
    ]
    assert all(map(steady, constant))
