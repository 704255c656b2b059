"""Attention kernels of one device, rewritten: the same values and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from hipwright.api.live.attention import attention_whole, dropped_share

F = torch.nn.functional
MASK = torch.randn(7, 9)
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "mask": {"attn_mask": MASK},
    "hidden": {"attn_mask": MASK > -1},
    "scale": {"scale": 0.3},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case: str, dtype: torch.dtype) -> None:
    options = dict(CASES[case])
    if options.get("attn_mask") is not None and options["attn_mask"].dtype != torch.bool:
        options["attn_mask"] = options["attn_mask"].to(dtype)
    seen: list[str] = []

    def rewritten(module: torch.fx.GraphModule, example_inputs: Any) -> Any:
        seen.extend(str(node.target) for node in module.graph.nodes)
        assert all(dropped_share(node) in (None, 0.0) for node in module.graph.nodes)
        attention_whole(module.graph)
        assert not any("flash" in str(node.target) for node in module.graph.nodes)
        module.recompile()
        return make_boxed_func(module.forward)

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=rewritten, bw_compiler=rewritten)
    results = []
    for way in (torch.compile(F.scaled_dot_product_attention, backend=backend), F.scaled_dot_product_attention):
        torch.manual_seed(0)
        given = [torch.randn(2, 3, n, 8, dtype=dtype, requires_grad=True) for n in (7, 9, 9)]
        out = way(*given, **options)
        (out * torch.randn(out.shape)).sum().backward()
        results.append([out, *(tensor.grad for tensor in given)])
    assert any("flash_attention_for_cpu_backward" in name for name in seen), "the kernel that is rewritten was there"
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    for found, exact in zip(*results, strict=True):
        assert torch.allclose(found.float(), exact.float(), rtol=tolerance, atol=tolerance)
