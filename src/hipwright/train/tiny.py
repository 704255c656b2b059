"""A random model of an architecture, small enough for one step on any CPU, and a tokenizer trained on the data.

Dry runs train it instead of downloaded weights: they test the code path, and the model's figures mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hipwright.errors import BadInput

VOCABULARY = 2048
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
}
OPEN, CLOSE, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tiny_model(architecture: str, texts: Iterable[str], *, seed: int = 0) -> tuple[Any, Any]:
    """(a random causal language model of at most 100,000 parameters in float32, its tokenizer with a chat template).

    architecture: transformers' name of it, e.g. "qwen2". Raises BadInput for one that transformers does not know.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = train_tokenizer(texts)
    try:
        config = AutoConfig.for_model(architecture, vocab_size=len(tokenizer), tie_word_embeddings=True, **SHAPE)
    except ValueError as error:
        raise BadInput(f"transformers knows no architecture {architecture!r}") from error
    config.pad_token_id, config.eos_token_id = tokenizer.pad_token_id, tokenizer.eos_token_id
    config.bos_token_id = None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return model, tokenizer


def train_tokenizer(texts: Iterable[str]) -> Any:
    """A byte-level byte-pair tokenizer of at most 2,048 tokens that encodes any text, with Qwen2's chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, OPEN, CLOSE],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=CLOSE, pad_token=PAD, chat_template=TEMPLATE)
