"""Blocks of diffusers' networks with random weights: residual, attention, transformer, U-Net and autoencoder blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.corpora.corpus import CorpusTask
from benchmarks.corpora.networks import TORCHVISION, network_task


@dataclass(frozen=True)
class Sizes:
    """w: channels or the width of tokens; half: its half; s: height and width; t: tokens; heads: of 16 or 64 values."""

    w: int
    s: int
    t: int
    head: int
    batch: int = 2

    @property
    def words(self) -> dict[str, int]:
        """The values of the names in `BLOCKS`."""
        names = {"w": self.w, "half": self.w // 2, "s": self.s, "s2": 2 * self.s, "t": self.t, "b": self.batch}
        return {**names, "head": self.head, "heads": self.w // self.head, "wide": 2 * self.w}


SMALL = Sizes(w=64, s=8, t=32, head=16)
REAL = Sizes(w=640, s=32, t=1024, head=64)

RESNET = "diffusers.models.resnet."
ATTENTION = "diffusers.models.attention."
PROCESSOR = "diffusers.models.attention_processor."
UNET = "diffusers.models.unets.unet_2d_blocks."
TRANSFORMERS = "diffusers.models.transformers."
EMBEDDINGS = "diffusers.models.embeddings."
NORMS = "diffusers.models.normalization."
VAE = "diffusers.models.autoencoders.vae."
HEADS = "num_attention_heads={heads}, attention_head_dim={head}"
IN_OUT = "in_channels={half}, out_channels={w}, temb_channels={wide}, resnet_groups=8"
TOKENS, TEXT, TIME = "{b}, {t}, {w}", "{b}, 11, {w}", "{b}, {wide}"
IMAGE, LARGE, TEXT_48 = "{b}, {w}, {s}, {s}", "{b}, {half}, {s2}, {s2}", "{b}, 11, 48"

BLOCKS: dict[str, tuple[str, ...]] = {
    "residual": (
        RESNET + "ResnetBlock2D(in_channels={half}, out_channels={w}, temb_channels={wide}, groups=8)",
        LARGE,
        TIME,
    ),
    "residual_conditional": (
        RESNET + "ResnetBlockCondNorm2D(in_channels={half}, out_channels={w}, temb_channels={wide}, groups=8, "
        "time_embedding_norm='ada_group')",
        LARGE,
        TIME,
    ),
    "downsample": (RESNET + "Downsample2D({half}, use_conv=True)", LARGE),
    "upsample": (RESNET + "Upsample2D({half}, use_conv=True)", LARGE),
    "temporal_convolution": (RESNET + "TemporalConvLayer({half}, {half}, norm_num_groups=8)", "4, {half}, {s}, {s}"),
    "temporal_residual": (
        RESNET + "TemporalResnetBlock(in_channels={half}, out_channels={half}, temb_channels={w})",
        "{b}, {half}, 4, {s}, {s}",
        "{b}, 4, {w}",
    ),
    "blurred_downsample": (RESNET + "KDownsample2D()", IMAGE),
    "blurred_upsample": (RESNET + "KUpsample2D()", IMAGE),
    "attention": (PROCESSOR + "Attention(query_dim={w}, heads={heads}, dim_head={head})", TOKENS),
    "cross_attention": (
        PROCESSOR + "Attention(query_dim={w}, cross_attention_dim=48, heads={heads}, dim_head={head})",
        TOKENS,
        TEXT_48,
    ),
    "transformer_block": (ATTENTION + "BasicTransformerBlock(dim={w}, " + HEADS + ")", TOKENS),
    "joint_block": (ATTENTION + "JointTransformerBlock(dim={w}, " + HEADS + ")", TOKENS, TEXT, "{b}, {w}"),
    "feed_forward_geglu": (ATTENTION + "FeedForward({w}, activation_fn='geglu')", TOKENS),
    "feed_forward_gelu": (ATTENTION + "FeedForward({w}, activation_fn='gelu-approximate')", TOKENS),
    "feed_forward_swiglu": (ATTENTION + "FeedForward({w}, activation_fn='swiglu')", TOKENS),
    "flux_block": (
        TRANSFORMERS + "transformer_flux.FluxTransformerBlock(dim={w}, " + HEADS + ")",
        TOKENS,
        TEXT,
        "{b}, {w}",
    ),
    "flux_single_block": (
        TRANSFORMERS + "transformer_flux.FluxSingleTransformerBlock(dim={w}, " + HEADS + ")",
        TOKENS,
        TEXT,
        "{b}, {w}",
    ),
    "transformer_2d": ("diffusers.Transformer2DModel(in_channels={w}, norm_num_groups=8, " + HEADS + ")", IMAGE),
    "temporal_transformer": (
        TRANSFORMERS
        + "transformer_temporal.TransformerTemporalModel(in_channels={w}, norm_num_groups=8, "
        + HEADS
        + ")",
        "4, {w}, {s}, {s}",
    ),
    "middle": (
        UNET + "UNetMidBlock2D(in_channels={w}, temb_channels={wide}, resnet_groups=8, attention_head_dim={head})",
        IMAGE,
        TIME,
    ),
    "middle_cross": (
        UNET + "UNetMidBlock2DCrossAttn(in_channels={w}, temb_channels={wide}, resnet_groups=8, "
        "num_attention_heads={heads}, cross_attention_dim=48)",
        IMAGE,
        TIME,
        TEXT_48,
    ),
    "down": (UNET + "DownBlock2D(" + IN_OUT + ", num_layers=2)", LARGE, TIME),
    "down_attention": (UNET + "AttnDownBlock2D(" + IN_OUT + ", attention_head_dim={head})", LARGE, TIME),
    "down_cross": (
        UNET + "CrossAttnDownBlock2D(" + IN_OUT + ", num_attention_heads={heads}, cross_attention_dim=48)",
        LARGE,
        TIME,
        TEXT_48,
    ),
    "down_residual": (UNET + "ResnetDownsampleBlock2D(" + IN_OUT + ")", LARGE, TIME),
    "down_encoder": (
        UNET + "DownEncoderBlock2D(in_channels={half}, out_channels={w}, num_layers=2, resnet_groups=8)",
        LARGE,
    ),
    "up_decoder": (
        UNET + "UpDecoderBlock2D(in_channels={w}, out_channels={half}, num_layers=2, resnet_groups=8)",
        IMAGE,
    ),
    "down_1d": (
        "diffusers.models.unets.unet_1d_blocks.DownResnetBlock1D(in_channels={half}, out_channels={half}, "
        "temb_channels={half}, add_downsample=True)",
        "{b}, {half}, {t}",
        "{b}, {half}",
    ),
    "timesteps": (EMBEDDINGS + "Timesteps({w}, flip_sin_to_cos=True, downscale_freq_shift=0)", "7"),
    "timestep_embedding": (EMBEDDINGS + "TimestepEmbedding({w}, {wide})", "7, {w}"),
    "patches": (
        EMBEDDINGS + "PatchEmbed(height={s2}, width={s2}, patch_size=2, in_channels=4, embed_dim={w})",
        "{b}, 4, {s2}, {s2}",
    ),
    "text_projection": (EMBEDDINGS + "PixArtAlphaTextProjection(48, {w})", TEXT_48),
    "fourier_projection": (EMBEDDINGS + "GaussianFourierProjection({w})", "7"),
    "ada_layer_norm": (NORMS + "AdaLayerNormContinuous({w}, 48)", TOKENS, "{b}, 48"),
    "ada_layer_norm_zero": (NORMS + "AdaLayerNormZeroSingle({w})", TOKENS, "{b}, {w}"),
    "ada_group_norm": (NORMS + "AdaGroupNorm(48, {w}, 8)", IMAGE, "{b}, 48"),
    "rms_norm": (NORMS + "RMSNorm({w}, eps=1e-6)", TOKENS),
    "response_norm": (NORMS + "GlobalResponseNorm({w})", "{b}, {s}, {s}, {w}"),
    "geglu": ("diffusers.models.activations.GEGLU({w}, {wide})", TOKENS),
    "encoder": (
        VAE + "Encoder(in_channels=3, out_channels=4, block_out_channels=({half}, {w}), "
        "down_block_types=('DownEncoderBlock2D',) * 2, norm_num_groups=8)",
        "1, 3, {s2}, {s2}",
    ),
    "decoder": (
        VAE + "Decoder(in_channels=4, out_channels=3, block_out_channels=({half}, {w}), "
        "up_block_types=('UpDecoderBlock2D',) * 2, norm_num_groups=8)",
        "1, 4, {s}, {s}",
    ),
    "tiny_encoder": (
        VAE + "EncoderTiny(in_channels=3, out_channels=4, num_blocks=(1, 2), block_out_channels=({half}, {half}), "
        "act_fn='relu')",
        "1, 3, {s2}, {s2}",
    ),
    "vector_quantizer": (VAE + "VectorQuantizer({w}, 16, beta=0.25, legacy=False)", "1, 16, {s}, {s}"),
}
"""A block's expression and the shapes of its inputs; the names in braces are those of `Sizes.words`."""


class DiffusersBlocks:
    """One task for each block, in evaluation mode."""

    packages = ("torch", "diffusers")
    imported: tuple[str, ...] = ()

    def tasks(self, real: bool = False) -> Iterator[CorpusTask]:
        """All tasks. real: 640 channels, 32 x 32 or 1,024 tokens; else 64, 8 x 8 and 32."""
        words = (REAL if real else SMALL).words
        for name, (build, *shapes) in BLOCKS.items():
            made = build.format(**words)
            module = made.partition("(")[0].rpartition(".")[0]
            imports = f"{TORCHVISION}\nimport {module}"
            sizes = [[int(size) for size in shape.format(**words).split(",")] for shape in shapes]
            yield CorpusTask(name, name, network_task(f"diffusers' {name}", imports, made, sizes, "eval"))
