"""Whole small models of transformers' families, and models of one layer at their own widths, with random weights."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from benchmarks.corpora.corpus import CorpusTask, file_name
from benchmarks.corpora.networks import TORCHVISION

TEXT_FAMILIES = """
    afmoe albert apertus apertus1p5_text arcee aria_text bailing_hybrid bamba bart beam bert bert-generation
    big_bird bigbird_pegasus biogpt bitnet blenderbot blenderbot-small bloom camembert canine clip_text_model
    codegen cohere cohere2 cohere2_moe convbert cpmant ctrl cwm data2vec-text deberta deberta-v2 deepseek_v4
    diffllama distilbert doge dory dpr electra ernie ernie4_5 ernie4_5_moe eurobert exaone exaone4 exaone_moe
    falcon_h1 falcon_mamba flaubert flex_olmo flint fnet fsmt gemma gemma2 gemma3_text glm glm4 glm4_moe gpt-sw3
    gpt2 gpt_bigcode gpt_neox gpt_neox_japanese gpt_oss gptj granite granite_docling_text granite_swa granitemoe
    granitemoe_swa granitemoehybrid granitemoeshared gte helium higgs_audio_v2 hrm_text hy_v3 hy_v4 hyperclovax
    ibert imagegpt inkling2_loop_text inkling2_text inkling_text internlm3 iquestcoder jais2 jamba jetmoe
    jina_embeddings_v3 kimi_linear kolibri1 laguna lara_mini layoutlm led lfm2 lfm3 llama llama4_text longformer
    longt5 m2m_100 mamba marian markuplm mbart megatron-bert mellum mimo_v2_flash minicpm3 minimax minimax_m2
    minimax_m3_vl_text ministral3 mistral mistral4 mixtral mobilebert modernbert modernbert-decoder molmo2_text
    moshi mpnet mpt mra mt5 muse_glimmer_text muse_spark_text mvp nanochat nemotron_h nllb-moe nomic_bert
    nystromformer olmo olmo2 olmo3 olmo_hybrid olmoe openai-gpt openai_privacy_filter opt pegasus pegasus_x
    persimmon phi phi3 phimoe plbart qwen2 qwen2_moe qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next
    qwen3_vl_moe_text qwen3_vl_text qwen4_exp_text recurrent_gemma rembert roberta roberta-prelayernorm roc_bert
    roformer rwkv sarvam_mla sarvam_moe seed_oss smollm3 solar_open splinter squeezebert stablelm starcoder2
    switch_transformers t5 tapas tipsv2_text_model ultrabert umt5 vaultgemma visual_bert xglm xlm xlm-roberta
    xlm-roberta-xl xlnet yoso zaya
"""
IMAGE_FAMILIES = """
    aimv2_vision_model beit bit chinese_clip_vision_model clip_vision_model conditional_detr cvt dab-detr
    data2vec-vision deformable_detr deit detr dinov2 dinov2_with_registers dinov3_convnext dinov3_vit dpt
    focalnet glpn ijepa internvl_vision levit mlcd mlcd_vision_model mobilenet_v1 mobilenet_v2 mobilevit
    mobilevitv2 pixio pixtral poolformer pp_ocrv5_server_rec pp_ocrv6_small_rec pp_ocrv6_tiny_rec pvt pvt_v2
    qianfan_ocr_vision radio regnet resnet sam2_vision_model sam3_vit_model sam_hq_vision_model sam_vision_model
    sapiens2 segformer siglip_vision_model swiftformer table-transformer textnet tipsv2_vision_model vit vit_mae
    vit_msn vitdet yolos
"""
SOUND_FAMILIES = """
    data2vec-audio hubert sew sew-d unispeech unispeech-sat wav2vec2 wav2vec2-conformer wavlm
"""

SMALL: dict[str, int] = {
    "hidden_size": 64,
    "d_model": 64,
    "n_embd": 64,
    "dim": 64,
    "embed_dim": 64,
    "embedding_size": 64,
    "emb_dim": 64,
    "num_hidden_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "num_layers": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "d_kv": 16,
    "d_head": 16,
    "intermediate_size": 128,
    "ffn_dim": 128,
    "d_ff": 128,
    "n_inner": 128,
    "d_inner": 128,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "hidden_dim": 128,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "vocab_size": 512,
    "max_position_embeddings": 128,
    "n_positions": 128,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "image_size": 64,
    "rotary_dim": 8,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "state_size": 8,
    "time_step_rank": 4,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "sliding_window": 16,
    "attention_window": 8,
    "word_embed_proj_dim": 64,
}
"""Values of a small model by the names that configurations use; larger defaults are replaced."""

SHALLOW = [
    *("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"),
    *("num_encoder_layers", "num_decoder_layers", "vocab_size", "max_position_embeddings", "n_positions"),
    *("num_experts", "num_local_experts", "n_routed_experts", "image_size"),
    *("pad_token_id", "bos_token_id", "eos_token_id"),
]
"""The names that a wide model takes from `SMALL`: one layer, few words, and the family's own widths."""

WIDEST = 1024
"""The widest hidden size of a wide model on the cpu target."""

TEXT = '''"""transformers' {family}: a {size} model."""

{imports}
import transformers

CONFIG = transformers.AutoConfig.for_model({family!r}, **{values})


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = transformers.AutoModel.from_config(CONFIG).eval()

    def forward(self, {names}):
        return self.net({call})[0]


def get_inputs():
    return [{inputs}]
'''


class TransformersModels:
    """Two tasks for each family: a small model of two layers, and one of its own width with one layer."""

    packages = ("torch", "transformers")
    imported: tuple[str, ...] = ()

    def tasks(self, real: bool = False) -> Iterator[CorpusTask]:
        """All tasks. real: wide models of every width, with 4 texts of up to 512 tokens, 16 images, 4 s of sound."""
        exec(TORCHVISION, {})
        import transformers

        transformers.logging.set_verbosity_error()
        kinds = {"input_ids": TEXT_FAMILIES, "pixel_values": IMAGE_FAMILIES, "input_values": SOUND_FAMILIES}
        known = transformers.CONFIG_MAPPING  # other versions than the pinned one have fewer families
        for kind, families in kinds.items():
            for family in (name for name in families.split() if name in known):
                config = _default_config(family)
                if config is None:
                    continue
                if not real:
                    yield _task(family, kind, config, "small", list(SMALL), real)
                if real or getattr(config, "hidden_size", WIDEST + 1) <= WIDEST:
                    yield _task(family, kind, config, "wide", SHALLOW, real)


def _default_config(family: str) -> Any:
    """A family's configuration; None where the installed version cannot make one without arguments or packages."""
    import transformers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return transformers.AutoConfig.for_model(family)
        except (ImportError, TypeError, ValueError, OSError):
            return None


def _task(family: str, kind: str, config: Any, size: str, names: list[str], real: bool) -> CorpusTask:
    kept = {"max_position_embeddings", "n_positions", "image_size"} if real else set[str]()
    values = {name: SMALL[name] for name in names if name not in kept and _shrinks(config, name)}
    if getattr(config, "num_key_value_heads", None) == getattr(config, "num_attention_heads", 0) and size == "small":
        values["num_key_value_heads"] = values.get("num_attention_heads", config.num_key_value_heads)
    if size == "wide":
        values |= {name: 1 for name in values if "layer" in name}
    call, inputs = (
        f"{kind}=x0",
        [_input(kind, values.get("image_size", getattr(config, "image_size", 64)), config, real)],
    )
    if kind == "input_ids":
        call += ", use_cache=False"
        if config.is_encoder_decoder:
            call += ", decoder_input_ids=x1"
            inputs.append(f"torch.randint(3, 200, {(4, 128) if real else (2, 8)})")
    text = TEXT.format(
        family=family,
        size=size,
        imports=TORCHVISION,
        values=values,
        names=", ".join(f"x{number}" for number in range(len(inputs))),
        call=call,
        inputs=", ".join(inputs),
    )
    return CorpusTask(file_name(family, size), family, text)


def _shrinks(config: Any, name: str) -> bool:
    own = getattr(config, name, None)
    return type(own) is int and (own > SMALL[name] or name in ("num_experts", "num_local_experts"))


def _input(kind: str, size: Any, config: Any, real: bool) -> str:
    if kind == "input_ids":
        return f"torch.randint(3, 200, {(4, _tokens(config)) if real else (2, 16)})"
    if kind == "input_values":
        return f"torch.rand(2, {64000 if real else 4000})"
    side = size if isinstance(size, int) else 224 if real else 64
    images = (16 if side <= 512 else 1) if real else 2
    return f"torch.rand({images}, {getattr(config, 'num_channels', 3)}, {side}, {side})"


def _tokens(config: Any) -> int:
    """At most half of the positions that a model has: some families number them from an offset."""
    positions = [getattr(config, name, None) for name in ("max_position_embeddings", "n_positions")]
    return min([512, *(one // 2 for one in positions if type(one) is int and one > 1)])
