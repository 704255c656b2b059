"""A model of random weights from a configuration of transformers. Runs in the model host; transformers is an extra."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from hipwright.errors import TaskError

_MEL_FRAMES = 2
"""Frames of a log-mel spectrogram for each place of a speech encoder (Whisper's convolution has stride 2)."""
_SAMPLES = 16000
"""Of a second of speech."""


def from_config(path: Path, sizes: Mapping[str, int]) -> tuple[torch.nn.Module, dict[str, Any]]:
    """(model, keywords of one call) of a config.json. sizes: "batch" and "length", tokens of a text.

    The class is the first of "architectures", else the base model of "model_type"; no cache is kept; the dtype is the
    configuration's. Raises TaskError without transformers, for an unknown type, and for inputs of another kind than
    text, images and speech.
    """
    try:
        import transformers
    except ImportError as error:
        raise TaskError("a configuration needs transformers", hint="pip install transformers") from error
    plain = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(plain, dict) or "model_type" not in plain:
        raise TaskError(f"{path.name}: no model_type", hint="a config.json of transformers has one")
    config = transformers.AutoConfig.for_model(plain.pop("model_type"), **plain)
    config.use_cache = False
    named = getattr(transformers, str((plain.get("architectures") or [""])[0]) or "-", None)
    model = named(config) if named is not None else transformers.AutoModel.from_config(config)
    dtype = getattr(config, "dtype", None)
    if isinstance(dtype, torch.dtype):
        model = model.to(dtype)
    return model, _inputs(model, config, sizes["batch"], sizes["length"])


def _inputs(model: Any, config: Any, batch: int, length: int) -> dict[str, Any]:
    name, dtype = model.main_input_name, next(model.parameters()).dtype
    text = getattr(config, "text_config", config)
    places = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None) or length
    tokens = torch.randint(0, getattr(text, "vocab_size", 2), (batch, min(length, int(places))))
    found: dict[str, Any]
    if name == "input_ids":
        found = {name: tokens}
    elif name == "pixel_values":
        size = getattr(config, "image_size", 224)
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        found = {name: torch.randn(batch, getattr(config, "num_channels", 3), height, width, dtype=dtype)}
    elif name == "input_features":
        frames = _MEL_FRAMES * config.max_source_positions
        found = {name: torch.randn(batch, config.num_mel_bins, frames, dtype=dtype)}
    elif name == "input_values":
        found = {name: torch.randn(batch, _SAMPLES, dtype=dtype)}
    else:
        raise TaskError(f"inputs of {type(model).__name__} are {name}", hint="give a script with a factory")
    if getattr(config, "is_encoder_decoder", False):
        found["decoder_input_ids"] = tokens
    return found
