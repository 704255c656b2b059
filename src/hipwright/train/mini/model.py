"""The miniature's model: a tokenizer trained on the corpus, and a transformer of Qwen2's architecture.

Merges stay within a line, so that a frequent line is one token. A size of a task (three digits or more) is split in the
same way in prompts and programs, so that it can be copied; so is a line that sets a knob.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hipwright.records import Record

PAD, ANSWER, END = "<pad>", "<answer>", "<end>"
"""ANSWER follows the prompt, END the program."""
TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{{ '<end>' if message['role'] == 'assistant' else '' }}{% endfor %}"
    "{{ '<answer>' if add_generation_prompt else '' }}"
)
META = "hipwright.json"
LINE = r"[^\n]*\n"
APART = r"^[A-Z]\w* = \d+\n|(?<![\w.])\d{3,}(?![\w.])"


class ModelShape(Record, frozen=True, kw_only=True):
    """The transformer. context: tokens of prompt and program together."""

    vocabulary: int = 1024
    hidden: int = 320
    inner: int = 704
    layers: int = 6
    heads: int = 5
    context: int = 1024


LARGE = ModelShape(hidden=768, inner=2048, layers=12, heads=12)
"""86 million parameters."""
TINY = ModelShape(hidden=64, inner=128, layers=2, heads=4)
"""For tests on a processor."""


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Any:
    """A byte-level byte-pair tokenizer of transformers, trained on the texts; it encodes any text."""
    import transformers
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LINE), "isolated"),
            pre_tokenizers.Split(Regex(APART), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, ANSWER, END],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator(texts, trainer)
    wrapped: Any = transformers.PreTrainedTokenizerFast
    return wrapped(
        tokenizer_object=bpe, pad_token=PAD, eos_token=END, chat_template=TEMPLATE, clean_up_tokenization_spaces=False
    )


def random_model(tokenizer: Any, shape: ModelShape, seed: int) -> Any:
    """A model with random weights in float32."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = Qwen2ForCausalLM(config)
        model = model.float()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def save(model: Any, tokenizer: Any, folder: Path, facts: dict[str, Any]) -> None:
    """Writes a model for `--llm local:FOLDER`: weights in bfloat16, the tokenizer, and the prompt form with facts."""
    import copy

    import torch
    from transformers.utils import logging

    quiet: Any = logging
    quiet.disable_progress_bar()
    folder.mkdir(parents=True, exist_ok=True)
    copy.deepcopy(model).to("cpu", torch.bfloat16).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    (folder / META).write_text(json.dumps({"form": "compact", **facts}, indent=1) + "\n", encoding="utf-8")


def load(folder: Path) -> tuple[Any, Any]:
    """(model in float32, tokenizer) of a folder that `save` wrote."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(
        str(folder), dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
    )
    return model, load_tokenizer(folder)


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder. AutoTokenizer would replace its pre-tokenizer by Qwen2's."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)
