"""Nestings of tensors keep their classes; float32 means float32 beside torch's own test modules too."""

from typing import Any, NamedTuple

import pytest
import torch

from hipwright.program.lower.table import to_device
from hipwright.task.host.draw import resize_all
from hipwright.tensors import map_tensors, refilled
from hipwright.torchio import from_torch, full_precision, map_torch, tree_to_torch, with_copies


class Pair(NamedTuple):
    first: Any
    second: Any


class Some(list[Any]):
    pass


@pytest.mark.parametrize("value", [Pair(torch.ones(2), [torch.zeros(3)]), Some([torch.ones(2)]), (torch.ones(1),), []])
def test_a_nesting_keeps_its_classes(value: Any) -> None:
    """Outputs may be named tuples, as torchvision's Inception returns."""
    on_host = map_torch(value, from_torch)
    copies = [
        map_torch(value, torch.clone),
        with_copies(value, ["inputs[0]"]),
        tree_to_torch(on_host),
        map_tensors(on_host, lambda leaf: leaf),
        to_device(on_host, "cpu"),
        refilled(value, value),
    ]
    assert all(type(one) is type(value) and len(one) == len(value) for one in [on_host, *copies])
    shapes = [tuple(leaf.shape) for leaf in torch.utils._pytree.tree_leaves(list(value))]
    assert type(resize_all([value], [value], shapes)[0]) is type(value)


def test_full_precision_where_torchs_settings_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    known = torch.backends.disable_global_flags.__globals__
    monkeypatch.setitem(known, "__allow_nonbracketed_mutation_flag", True)
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.disable_global_flags()
    with pytest.raises(RuntimeError, match="not allowed to set"):
        torch.backends.cudnn.allow_tf32 = True
    full_precision()
    assert not torch.backends.cudnn.allow_tf32 and torch.backends.flags_frozen()
