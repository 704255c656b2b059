"""SegFormer on ADE20K: logits of 150 classes at 128 x 128 enlarged to 512 x 512, cross entropy, 4 images."""

import torch

BATCH, CLASSES, SIDE, SCALE = 4, 150, 128, 4


class Model(torch.nn.Module):
    def forward(self, logits, target):
        large = torch.nn.functional.interpolate(logits, scale_factor=SCALE, mode="bilinear", align_corners=False)
        losses = torch.nn.functional.cross_entropy(large, target, reduction="none")
        return losses, losses.mean()


def get_inputs():
    return [
        torch.randn(BATCH, CLASSES, SIDE, SIDE),
        torch.randint(0, CLASSES, (BATCH, SCALE * SIDE, SCALE * SIDE)),
    ]


def get_input_groups():
    return [[torch.randn(3, CLASSES, 9, 7), torch.randint(0, CLASSES, (3, 9 * SCALE, 7 * SCALE))]]
