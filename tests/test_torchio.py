"""float32 means float32, also in a process that imported torch's own test modules."""

import pytest
import torch

from hipwright.torchio import full_precision


def test_full_precision_where_torchs_settings_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    known = torch.backends.disable_global_flags.__globals__
    monkeypatch.setitem(known, "__allow_nonbracketed_mutation_flag", True)
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.disable_global_flags()
    with pytest.raises(RuntimeError, match="not allowed to set"):
        torch.backends.cudnn.allow_tf32 = True
    full_precision()
    assert not torch.backends.cudnn.allow_tf32 and torch.backends.flags_frozen()
