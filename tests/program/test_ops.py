"""The library calls a plan may make, against all of torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from hipwright.program.lower import ops

COMMON = {
    "torch": [
        "add",
        "addmm",
        "bmm",
        "matmul",
        "einsum",
        "softmax",
        "cat",
        "stack",
        "where",
        "cumsum",
        "topk",
        "sort",
        "argmax",
        "gather",
        "scatter",
        "index_select",
        "conv2d",
        "layer_norm",
        "logsumexp",
        "clamp",
        "zeros_like",
        "ones",
        "full",
        "arange",
        "tril",
        "split",
        "chunk",
        "norm",
        "var_mean",
        "bucketize",
        "lstm",
        "gru",
        "masked_fill",
        "roll",
        "outer",
        "cdist",
        "tensor",
        "rsqrt",
        "repeat_interleave",
        "meshgrid",
    ],
    "functional": [
        "linear",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose2d",
        "gelu",
        "silu",
        "relu",
        "leaky_relu",
        "softmax",
        "log_softmax",
        "layer_norm",
        "group_norm",
        "instance_norm",
        "batch_norm",
        "max_pool2d",
        "avg_pool2d",
        "adaptive_avg_pool2d",
        "adaptive_max_pool2d",
        "interpolate",
        "pad",
        "embedding",
        "one_hot",
        "cross_entropy",
        "mse_loss",
        "kl_div",
        "nll_loss",
        "cosine_similarity",
        "pairwise_distance",
        "unfold",
        "fold",
        "pixel_shuffle",
        "scaled_dot_product_attention",
        "normalize",
        "grid_sample",
        "softplus",
        "hardtanh",
        "mish",
        "selu",
        "elu",
        "logsigmoid",
        "glu",
        "triplet_margin_loss",
        "smooth_l1_loss",
        "huber_loss",
        "binary_cross_entropy_with_logits",
        "hinge_embedding_loss",
        "rms_norm",
        "multi_head_attention_forward",
        "max_pool2d_with_indices",
        "local_response_norm",
    ],
    "method": [
        "view",
        "reshape",
        "permute",
        "transpose",
        "contiguous",
        "sum",
        "mean",
        "amax",
        "softmax",
        "float",
        "half",
        "to",
        "size",
        "numel",
        "expand",
        "flatten",
        "unsqueeze",
        "masked_fill",
        "index_select",
        "t",
        "clone",
        "pow",
        "rsqrt",
        "type_as",
        "unflatten",
        "unbind",
        "narrow",
    ],
    "linalg": ["vector_norm", "norm", "inv"],
    "fft": ["rfft", "irfft"],
    "special": ["erf", "expit"],
    "aten": ["gelu", "native_layer_norm", "convolution", "_softmax"],
}


@pytest.mark.parametrize(("space", "name"), [(s, n) for s, names in COMMON.items() for n in names])
def test_common_operators_are_allowed(space: str, name: str) -> None:
    assert callable(ops.resolve(space, (name,)))


REFUSED = {
    "torch": [
        "save",
        "load",
        "compile",
        "manual_seed",
        "seed",
        "set_default_dtype",
        "set_num_threads",
        "use_deterministic_algorithms",
        "rand",
        "randn",
        "bernoulli",
        "multinomial",
        "from_file",
        "from_numpy",
        "frombuffer",
        "vmap",
        "cond",
        "equal",
        "is_nonzero",
        "get_rng_state",
        "fork",
        "import_ir_module",
        "autocast_increment_nesting",
        "relu_",
        "no_grad",
        "classproperty",
        "_assert_async",
    ],
    "functional": [
        "boolean_dispatch",
        "handle_torch_function",
        "triplet_margin_with_distance_loss",
        "relu_",
        "threshold_",
        "assert_int_or_pair",
        "gumbel_softmax",
        "fractional_max_pool2d",
    ],
    "method": [
        "item",
        "tolist",
        "numpy",
        "cpu",
        "cuda",
        "data_ptr",
        "backward",
        "register_hook",
        "storage",
        "untyped_storage",
        "share_memory_",
        "apply_",
        "map_",
        "requires_grad_",
        "set_",
        "resize_",
        "new",
        "type",
        "pin_memory_",
        "random_",
        "__class__",
        "record_stream",
        "bernoulli",
    ],
    "aten": [
        "set_",
        "copy_",
        "relu_",
        "from_file",
        "_cufft_clear_plan_cache",
        "record_stream",
        "equal",
        "item",
        "_local_scalar_dense",
        "rand",
    ],
}


@pytest.mark.parametrize(("space", "name"), [(s, n) for s, names in REFUSED.items() for n in names])
def test_these_are_refused(space: str, name: str) -> None:
    with pytest.raises(ops.OperatorRefused):
        ops.resolve(space, (name,))


def test_an_operator_that_is_given_what_was_drawn_for_it_draws_nothing() -> None:
    """torch tags it as random; only the function of that name draws."""
    x, samples = torch.randn(2, 3, 9, 8), torch.rand(2, 3, 2)
    pool = ops.resolve("aten", ("fractional_max_pool2d", "default"))
    assert torch.equal(pool(x, [2, 2], [4, 4], samples)[0], pool(x, [2, 2], [4, 4], samples)[0])
    ops.resolve("aten", ("fractional_max_pool3d", "default"))
    with pytest.raises(ops.OperatorRefused, match="draws random numbers"):
        ops.resolve("functional", ("fractional_max_pool2d",))


def test_no_operator_of_torch_that_writes_is_reachable() -> None:
    """Every allowed name has a schema that writes nothing, or is a listed composite."""
    for space, owner in (("torch", torch), ("functional", F)):
        for name in dir(owner):
            try:
                ops.resolve(space, (name,), allow_random=True)
            except ops.OperatorRefused:
                continue
            assert not name.startswith("_") and not name.endswith("_")
            packet = ops._packet(name)
            if packet is None:
                assert space == "functional" or name in ("tensor", "unique", "unravel_index", "finfo", "iinfo", "lu")
                continue
            schemas = [getattr(packet, o)._schema for o in packet.overloads()]
            assert any(not any(a.alias_info and a.alias_info.is_write for a in s.arguments) for s in schemas)
