"""Models of research packages with random weights: vision transformers, attention variants, medical networks and losses,
graph networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.corpora.corpus import CorpusTask, file_name
from benchmarks.corpora.graph_networks import GRAPHS
from benchmarks.corpora.networks import TORCHVISION, module_task

SMALL = {"i": 32, "p": 8, "w": 48, "d": 2, "h": 3, "e": 16, "m": 80, "t": 24, "v": 16, "n": 19, "g": 61, "b": 2}
REAL = {
    "i": 224,
    "p": 16,
    "w": 384,
    "d": 6,
    "h": 6,
    "e": 64,
    "m": 1536,
    "t": 1024,
    "v": 64,
    "n": 20000,
    "g": 200000,
    "b": 8,
}
"""i: height and width of images, p: of patches; w: width; d: layers; h: heads of e; m: inner width; t: tokens; v: height
and width of volumes; n: nodes; g: edges; b: batch.
"""
COMMON = "image_size={i}, patch_size={p}, num_classes=10, dim={w}, depth={d}, heads={h}, mlp_dim={m}, dim_head={e}"
"""What `{vit}` stands for."""
INPUTS = {
    "image": "torch.rand({b}, 3, {i}, {i})",
    "tokens": "torch.randn({b}, {t}, {w})",
    "volume": "torch.rand({b}, 1, {v}, {v}, {v})",
    "slice": "torch.rand({b}, 1, {i}, {i})",
    "words": "torch.randint(0, 97, ({b}, {t}))",
    "scores": "torch.randn({b}, 3, {v}, {v})",
    "labels": "torch.nn.functional.one_hot(torch.randint(0, 3, ({b}, {v}, {v})), 3).movedim(-1, 1).float()",
    "two": "torch.rand({b}, 2, {v}, {v})",
    "nodes": "torch.randn({n}, {w})",
    "edges": "torch.randint(0, {n}, (2, {g}))",
    "weights": "torch.rand({g})",
    "attributes": "torch.randn({g}, 3)",
    "kinds": "torch.randint(0, 3, ({g},))",
    "places": "torch.rand({n}, 3)",
    "groups": "torch.arange({n}) * 4 // {n}",
    "dense": "torch.rand({b}, {t}, {t}).round()",
}
"""Expressions that an input may begin with."""

VIT = """
vit.ViT({vit}) | image
simple_vit.SimpleViT({vit}) | image
deepvit.DeepViT({vit}) | image
parallel_vit.ViT({vit}) | image
normalized_vit.nViT({vit}) | image
vit_5.ViT({vit}) | image
vit_detpool.ViTDetPool({vit}) | image
vit_for_small_dataset.ViT({vit}) | image
vit_with_patch_merger.ViT({vit}, patch_merge_layer=1) | image
vit_with_keel_post_ln.ViT({vit}) | image
learnable_memory_vit.ViT({vit}) | image
jumbo_vit.JumboViT({vit}) | image
simple_uvit.SimpleUViT({vit}) | image
rvt.RvT({vit}) | image
jet_vit.JetViT({vit}, window_size=3) | image
pit.PiT(image_size={i}, patch_size={p}, num_classes=10, dim={w}, depth=(1, 1), heads={h}, mlp_dim={m}, dim_head={e}) | image
cait.CaiT({vit}, cls_depth=1) | image
xcit.XCiT({vit}, cls_depth=1) | image
simple_vit_with_qk_norm.SimpleViT({vit}) | image
simple_vit_with_register_tokens.SimpleViT({vit}) | image
simple_vit_with_value_residual.SimpleViT({vit}) | image
simple_vit_with_hyper_connections.SimpleViT({vit}, num_residual_streams=2) | image
simple_vit_with_specialized_cls.SimpleViT({vit}) | image
simple_vit_with_relative_proj_pos_bias.SimpleViT({vit}) | image
simple_vit_with_fft.SimpleViT({vit}, freq_patch_size={p}) | image
simple_vit_1d.SimpleViT(seq_len={t}, patch_size=4, num_classes=10, dim={w}, depth={d}, heads={h}, mlp_dim={m}) | torch.rand({b}, 3, {t})
simple_vit_3d.SimpleViT(image_size={i}, image_patch_size={p}, frames=4, frame_patch_size=2, num_classes=10, dim={w}, depth=1, heads={h}, mlp_dim={m}) | torch.rand({b}, 3, 4, {i}, {i})
vivit.ViViT(image_size={i}, image_patch_size={p}, frames=4, frame_patch_size=2, num_classes=10, dim={w}, spatial_depth=1, temporal_depth=1, heads={h}, mlp_dim={m}, use_flash_attn=False) | torch.rand({b}, 3, 4, {i}, {i})
vit_nd.ViTND(ndim=3, input_shape=(4, {i}, {i}), patch_size=(2, {p}, {p}), num_classes=10, dim={w}, depth=1, heads={h}, mlp_dim={m}) | torch.rand({b}, 3, 4, {i}, {i})
vit_nd_rotary.ViTND(ndim=2, input_shape=({i}, {i}), patch_size={p}, num_classes=10, dim={w}, depth=1, heads={h}, mlp_dim={m}) | image
vit_nd_pope.ViTND(ndim=2, input_shape=({i}, {i}), patch_size={p}, num_classes=10, dim={w}, depth=1, heads={h}, mlp_dim={m}) | image
cross_vit.CrossViT(image_size={i}, num_classes=10, sm_dim={w}, lg_dim={w}, sm_patch_size=4, lg_patch_size={p}, lg_enc_depth=1, sm_enc_mlp_dim={m}, lg_enc_mlp_dim={m}, cross_attn_depth=1) | image
t2t.T2TViT(image_size={i}, num_classes=10, dim={w}, depth=1, heads={h}, mlp_dim={m}, t2t_layers=((7, 4), (3, 2))) | image
cct.CCT(img_size={i}, embedding_dim={w}, n_conv_layers=1, kernel_size=3, stride=1, padding=1, pooling_kernel_size=3, pooling_stride=2, pooling_padding=1, num_layers=2, num_heads={h}, mlp_ratio=2.0, num_classes=10, positional_embedding='learnable') | image
levit.LeViT(image_size={i}, num_classes=10, stages=2, dim=(32, 48), depth=1, heads=(2, 3), mlp_mult=2) | image
cvt.CvT(num_classes=10, s1_emb_dim=16, s2_emb_dim=32, s2_heads=2, s3_emb_dim=48, s3_heads=3, s2_depth=1, s3_depth=1) | image
twins_svt.TwinsSVT(num_classes=10, s1_emb_dim=16, s1_patch_size=2, s1_local_patch_size=2, s1_global_k=2, s2_emb_dim=24, s2_local_patch_size=2, s2_global_k=2, s3_emb_dim=32, s3_local_patch_size=2, s3_global_k=2, s3_depth=1, s4_emb_dim=48, s4_patch_size=1, s4_local_patch_size=2, s4_global_k=2, s4_depth=1) | image
regionvit.RegionViT(dim=(16, 24, 32, 48), depth=(1, 1, 1, 1), window_size=1, num_classes=10) | image
crossformer.CrossFormer(num_classes=10, dim=(32, 48, 64, 96), depth=(1, 1, 1, 1), global_window_size=(2, 2, 2, 1), local_window_size=1) | image
scalable_vit.ScalableViT(num_classes=10, dim=16, heads=(1, 2), depth=(1, 1), reduction_factor=(2, 1), window_size=(4, 2)) | image
sep_vit.SepViT(num_classes=10, dim=16, dim_head=8, heads=(1, 2), depth=(1, 1), window_size=7) | torch.rand({b}, 3, 56, 56)
max_vit.MaxViT(num_classes=10, dim=16, dim_head=8, depth=(1, 1), window_size=4, mbconv_expansion_rate=2) | image
nest.NesT(image_size={i}, patch_size=4, num_classes=10, dim={w}, heads={h}, num_hierarchies=2, block_repeats=(1, 1)) | image
mobile_vit.MobileViT(image_size=(64, 64), dims=[24, 32, 40], channels=[8, 8, 16, 16, 24, 24, 32, 32, 40, 40, 48], num_classes=10) | torch.rand({b}, 3, 64, 64)
"""

TRANSFORMERS = """
x_transformers.TransformerWrapper(num_tokens=97, max_seq_len={t}, attn_layers=x_transformers.Decoder(dim={w}, depth={d}, heads={h}, attn_dim_head={e})) | words
x_transformers.TransformerWrapper(num_tokens=97, max_seq_len={t}, attn_layers=x_transformers.Encoder(dim={w}, depth={d}, heads={h}, attn_dim_head={e}, use_rmsnorm=True, ff_glu=True)) | words
x_transformers.Decoder(dim={w}, depth=1, heads={h}, attn_dim_head={e}, rotary_pos_emb=True, ff_swish=True, ff_glu=True) | tokens
x_transformers.Decoder(dim={w}, depth=1, heads={h}, attn_dim_head={e}, alibi_pos_bias=True, alibi_num_heads=2) | tokens
x_transformers.Encoder(dim={w}, depth=1, heads={h}, attn_dim_head={e}, rel_pos_bias=True) | tokens
x_transformers.Encoder(dim={w}, depth=1, heads={h}, attn_dim_head={e}, dynamic_pos_bias=True) | tokens
x_transformers.Encoder(dim={w}, depth=1, heads={h}, attn_dim_head={e}, attn_pre_talking_heads=True) | tokens
x_transformers.Encoder(dim={w}, depth=1, heads={h}, attn_dim_head={e}, attn_sparse_topk=5) | tokens
x_transformers.Encoder(dim={w}, depth=1, heads={h}, attn_dim_head={e}, attn_qk_norm=True, attn_qk_norm_groups=2) | tokens
x_transformers.Encoder(dim={w}, depth=1, heads={h}, attn_dim_head={e}, attn_num_mem_kv=4, attn_one_kv_head=True) | tokens
x_transformers.Encoder(dim={w}, depth=1, heads={h}, attn_dim_head={e}, use_scalenorm=True, ff_relu_squared=True) | tokens
x_transformers.Encoder(dim={w}, depth=1, heads={h}, attn_dim_head={e}, residual_attn=True, gate_residual=True) | tokens
x_transformers.Encoder(dim={w}, depth=1, heads={h}, attn_dim_head={e}, sandwich_norm=True, macaron=True) | tokens
x_transformers.Encoder(dim={w}, depth=1, heads={h}, attn_dim_head={e}, shift_tokens=1, attn_gate_values=True) | tokens
x_transformers.Decoder(dim={w}, depth=1, heads={h}, attn_dim_head={e}, attn_on_attn=True) | tokens
x_transformers.ContinuousTransformerWrapper(dim_in=13, dim_out=7, max_seq_len={t}, attn_layers=x_transformers.Encoder(dim={w}, depth=1, heads={h})) | torch.randn({b}, {t}, 13)
x_transformers.ViTransformerWrapper(image_size={i}, patch_size={p}, num_classes=10, attn_layers=x_transformers.Encoder(dim={w}, depth=1, heads={h})) | image
perceiver_pytorch.Perceiver(input_channels=3, input_axis=2, num_freq_bands=4, max_freq=8.0, depth=1, num_latents=16, latent_dim={w}, latent_heads={h}, latent_dim_head={e}, cross_dim_head={e}, num_classes=10) | torch.rand({b}, {i}, {i}, 3)
perceiver_pytorch.PerceiverIO(dim={w}, queries_dim=24, logits_dim=10, depth=1, num_latents=16, latent_dim=32, latent_heads=2, latent_dim_head=16, cross_dim_head=16) | tokens
performer_pytorch.SelfAttention(dim={w}, heads={h}, dim_head={e}, causal=False, nb_features=24) | tokens
performer_pytorch.Performer(dim={w}, depth=1, heads={h}, dim_head={e}, nb_features=24, auto_check_redraw=False, generalized_attention=True) | tokens
local_attention.LocalMHA(dim={w}, heads={h}, dim_head={e}, window_size=8, causal=True, prenorm=True) | tokens
conformer.ConformerBlock(dim={w}, dim_head={e}, heads={h}, conv_kernel_size=7) | tokens
conformer.Conformer(dim={w}, depth=1, dim_head={e}, heads={h}, conv_kernel_size=7, conv_causal=True) | tokens
linear_attention_transformer.LinearAttentionTransformer(dim={w}, depth=1, max_seq_len={t}, heads={h}) | tokens
linear_attention_transformer.ImageLinearAttention(chan=16, heads=2, key_dim=8) | torch.rand({b}, 16, 12, 12)
segmentation_models_pytorch.Unet('resnet18', encoder_weights=None, classes=3) | image
segmentation_models_pytorch.FPN('resnet18', encoder_weights=None, classes=3) | image
segmentation_models_pytorch.Linknet('mobilenet_v2', encoder_weights=None, classes=3) | image
segmentation_models_pytorch.MAnet('resnet18', encoder_weights=None, classes=3) | image
segmentation_models_pytorch.PSPNet('resnet18', encoder_weights=None, classes=3, psp_use_batchnorm=False) | image
segmentation_models_pytorch.DeepLabV3Plus('resnet18', encoder_weights=None, classes=3) | torch.rand({b}, 3, 64, 64)
segmentation_models_pytorch.UnetPlusPlus('resnet18', encoder_weights=None, classes=3) | image
segmentation_models_pytorch.Segformer('resnet18', encoder_weights=None, classes=3) | image
"""

MONAI = """
networks.nets.UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1) | volume
networks.nets.BasicUNet(spatial_dims=2, in_channels=1, out_channels=2, features=(8, 8, 16, 16, 16, 8)) | slice
networks.nets.AttentionUnet(spatial_dims=2, in_channels=1, out_channels=2, channels=(8, 16, 24), strides=(2, 2)) | slice
networks.nets.SegResNet(spatial_dims=3, init_filters=8, in_channels=1, out_channels=2, blocks_down=(1, 1), blocks_up=(1,)) | volume
networks.nets.VNet(spatial_dims=3, in_channels=1, out_channels=2) | volume
networks.nets.HighResNet(spatial_dims=2, in_channels=1, out_channels=2) | slice
networks.nets.DynUNet(spatial_dims=2, in_channels=1, out_channels=2, kernel_size=(3, 3, 3), strides=(1, 2, 2), upsample_kernel_size=(2, 2), filters=(8, 16, 24)) | slice
networks.nets.UNETR(in_channels=1, out_channels=2, img_size={v}, feature_size=8, hidden_size=48, mlp_dim=64, num_heads=4, spatial_dims=3) | volume
networks.nets.ViTAutoEnc(in_channels=1, img_size={i}, patch_size=16, hidden_size=48, mlp_dim=64, num_layers=1, num_heads=4, spatial_dims=2, out_channels=1) | slice
networks.nets.DiffusionModelUNet(spatial_dims=2, in_channels=1, out_channels=1, channels=(8, 16), attention_levels=(False, True), num_res_blocks=1, norm_num_groups=4, num_head_channels=8) | slice, torch.rand({b}) * 100
networks.nets.AutoencoderKL(spatial_dims=2, in_channels=1, out_channels=1, channels=(8, 16), latent_channels=3, num_res_blocks=1, norm_num_groups=4, attention_levels=(False, True)).encoder | slice
networks.nets.VoxelMorphUNet(spatial_dims=2, in_channels=2, unet_out_channels=8, channels=(8, 8, 8, 8, 8, 8), final_conv_channels=(8, 8)) | torch.rand({b}, 2, 16, 16)
networks.nets.MedNeXtSmall(spatial_dims=2, in_channels=1, out_channels=2) | slice
networks.nets.DenseNet(spatial_dims=3, in_channels=1, out_channels=2, init_features=8, growth_rate=4, block_config=(2, 2)) | volume
networks.nets.PatchDiscriminator(spatial_dims=2, channels=8, in_channels=1, num_layers_d=2) | slice
networks.nets.FlexibleUNet(in_channels=1, out_channels=2, backbone='resnet18', spatial_dims=2, decoder_channels=(32, 16, 8, 8, 4)) | torch.rand({b}, 1, 32, 32)
networks.blocks.SimpleASPP(spatial_dims=2, in_channels=1, conv_out_channels=4) | slice
networks.blocks.ResidualSELayer(spatial_dims=3, in_channels=2) | torch.rand({b}, 2, {v}, {v}, {v})
networks.blocks.SABlock(hidden_size={w}, num_heads={h}) | tokens
networks.blocks.CrossAttentionBlock(hidden_size={w}, num_heads={h}) | tokens, tokens
networks.blocks.TransformerBlock(hidden_size={w}, mlp_dim={m}, num_heads={h}, with_cross_attention=False) | tokens
networks.blocks.Warp(mode='bilinear', padding_mode='zeros') | torch.rand({b}, 1, {v}, {v}), torch.randn({b}, 2, {v}, {v})
networks.blocks.Warp(mode='bilinear', padding_mode='border') | volume, torch.randn({b}, 3, {v}, {v}, {v})
networks.blocks.DVF2DDF(num_steps=3) | torch.rand({b}, 2, {v}, {v})
networks.blocks.SubpixelUpsample(spatial_dims=2, in_channels=1, out_channels=2, scale_factor=3) | slice
networks.blocks.SubpixelDownsample(spatial_dims=2, in_channels=1, out_channels=2, scale_factor=2) | slice
networks.blocks.MaxAvgPool(spatial_dims=2, kernel_size=3, stride=2, padding=1) | slice
networks.layers.GaussianFilter(2, 1.5) | slice
networks.layers.MedianFilter(radius=1, spatial_dims=2) | slice
networks.layers.SavitzkyGolayFilter(5, 2) | slice
networks.layers.HilbertTransform(2) | slice
losses.DiceLoss(softmax=True, include_background=False) | scores, labels
losses.DiceLoss(sigmoid=True, squared_pred=True, jaccard=True) | scores, labels
losses.DiceCELoss(softmax=True) | scores, labels
losses.DiceFocalLoss(sigmoid=True) | scores, labels
losses.GeneralizedDiceLoss(softmax=True) | scores, labels
losses.TverskyLoss(softmax=True, alpha=0.3, beta=0.7) | scores, labels
losses.FocalLoss(gamma=2.0, use_softmax=True, alpha=0.25) | scores, labels
losses.AsymmetricUnifiedFocalLoss() | two, two.round()
losses.SoftDiceclDiceLoss(iter_=2) | labels, labels.flip(2)
losses.SSIMLoss(spatial_dims=2, win_size=5) | torch.rand({b}, 1, {v}, {v}), torch.rand({b}, 1, {v}, {v})
losses.LocalNormalizedCrossCorrelationLoss(spatial_dims=2, kernel_size=5) | torch.rand({b}, 1, {v}, {v}), torch.rand({b}, 1, {v}, {v})
losses.GlobalMutualInformationLoss(num_bins=8) | torch.rand({b}, 1, {v}, {v}), torch.rand({b}, 1, {v}, {v})
losses.BendingEnergyLoss() | two
losses.DiffusionLoss() | two
losses.BarlowTwinsLoss() | torch.randn(12, 16), torch.randn(12, 16)
losses.ContrastiveLoss() | torch.randn(12, 16), torch.randn(12, 16)
losses.JukeboxLoss(spatial_dims=2) | torch.rand({b}, 1, {v}, {v}), torch.rand({b}, 1, {v}, {v})
losses.MCCLoss(softmax=True) | scores, labels
"""

SOURCES = {
    "vit_pytorch": ("vit_pytorch", VIT),
    "transformers": ("", TRANSFORMERS),
    "monai": ("monai", MONAI),
    "geometric": ("torch_geometric.nn", GRAPHS),
}
"""What precedes the expressions of a source, and its rows."""


class ResearchModels:
    """One task for each row; its family is the class that it makes."""

    packages = (
        "torch",
        "vit-pytorch",
        "x-transformers",
        "perceiver-pytorch",
        "performer-pytorch",
        "local-attention",
        "conformer",
        "linear-attention-transformer",
        "segmentation-models-pytorch",
        "monai",
        "torch-geometric",
    )
    imported: tuple[str, ...] = ()

    def tasks(self, real: bool = False) -> Iterator[CorpusTask]:
        """All tasks. real: images of 224, 1024 tokens of 384, volumes of 64, 20,000 nodes."""
        sizes = REAL if real else SMALL
        words = {**sizes, "vit": COMMON.format_map(sizes)}
        for source, (prefix, rows) in SOURCES.items():
            for number, row in enumerate(filter(None, rows.split("\n"))):
                build, _, given = row.partition(" | ")
                inputs = [_input(one).format_map(sizes) for one in _split(given)]
                yield _task(source, number, f"{prefix}.{build.format_map(words)}".removeprefix("."), inputs)


def _task(source: str, number: int, build: str, inputs: Sequence[str]) -> CorpusTask:
    family = build.partition("(")[0]
    module, _, name = family.rpartition(".")
    text = module_task(family, f"{TORCHVISION}\nimport {module}", build, inputs, "eval")
    return CorpusTask(file_name(source, name, f"{number:03d}"), family, text)


def _input(given: str) -> str:
    """An input's expression; a name of `INPUTS` at its start stands for that expression."""
    name, dot, rest = given.partition(".")
    return f"{INPUTS[name]}{dot}{rest}" if name in INPUTS else given


def _split(given: str) -> list[str]:
    """The inputs of a row: what commas outside of brackets separate."""
    found, depth, one = [], 0, ""
    for letter in given:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            found.append(one.strip())
            one = ""
        else:
            one += letter
    return [*found, one.strip()]
