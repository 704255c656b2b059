"""Models of transformers' configurations: classes, dtypes and inputs of text, images and speech."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hipwright.api.whole.calls import seen_calls
from hipwright.api.whole.load import load
from hipwright.errors import TaskError

pytest.importorskip("transformers")

SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
DECODER = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 50, "dtype": "bfloat16", **SMALL}
IMAGES = {"model_type": "vit", "image_size": 32, "patch_size": 16, **SMALL}
SPEECH = {
    "model_type": "whisper",
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "max_source_positions": 10,
    "vocab_size": 50,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}


def source(tmp_path: Path, config: dict[str, Any]) -> dict[str, Any]:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return {
        "kind": "config",
        "path": str(path),
        "attribute": "",
        "folders": [],
        "sizes": {"batch": 2, "length": 7},
    }


@pytest.mark.slow
@pytest.mark.parametrize("config", [DECODER, IMAGES, SPEECH], ids=["decoder", "images", "speech"])
def test_a_configuration_is_a_model_with_inputs(tmp_path: Path, config: dict[str, Any]) -> None:
    loaded = load(source(tmp_path, config), "cpu")
    assert not loaded.model.training and not loaded.args
    assert all(value.shape[0] == 2 for value in loaded.kwargs.values())
    assert len(seen_calls(loaded).calls) > 10
    if config is DECODER:
        assert type(loaded.model).__name__ == "LlamaForCausalLM"
        assert next(loaded.model.parameters()).dtype == torch.bfloat16


@pytest.mark.parametrize("config", [{}, [], {"model_type": "no such model"}])
def test_what_is_no_configuration_is_refused(tmp_path: Path, config: Any) -> None:
    with pytest.raises(TaskError, match=r"config\.json"):
        load(source(tmp_path, config), "cpu")
