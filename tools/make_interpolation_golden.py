#!/usr/bin/env python3
"""Writes PyTorch's bicubic interpolation of position embeddings, for tests/weights: a small f64 file.

Needs torch, torchvision and safetensors; the build and the tests need none of them.

    tools/make_interpolation_golden.py tests/golden/interpolation.safetensors

Convention: case NAME has tensors NAME.from [1, T, D] and NAME.to [1, T', D] and metadata NAME = "class h w h' w'" (class: 1 with a class
position). Squares with a class position go through torchvision's interpolate_embeddings, the others through the same call it makes.
"""
import sys

import torch
from safetensors.torch import save_file
from torch.nn import functional
from torchvision.models.vision_transformer import interpolate_embeddings

# name, class position, grid from, grid to, dim
CASES = [
    ("up", True, (3, 3), (5, 5), 3),
    ("down", True, (6, 6), (4, 4), 2),
    ("far_up", True, (2, 2), (9, 9), 2),
    ("from_one", True, (1, 1), (3, 3), 2),
    ("to_one", True, (4, 4), (1, 1), 2),
    ("mean_up", False, (4, 4), (7, 7), 3),
    ("wide", True, (4, 4), (3, 8), 2),
    ("turn", True, (2, 7), (7, 2), 2),
    ("tall_mean", False, (5, 2), (9, 3), 1),
]


def interpolated(x, has_class, source, target):
    if has_class and source[0] == source[1] and target[0] == target[1]:
        return interpolate_embeddings(target[0], 1, {"encoder.pos_embedding": x})["encoder.pos_embedding"]
    kept, grid = x[:, : int(has_class)], x[:, int(has_class) :]
    image = grid.transpose(1, 2).reshape(1, -1, *source)
    image = functional.interpolate(image, size=target, mode="bicubic", align_corners=True)
    return torch.cat([kept, image.flatten(2).transpose(1, 2)], dim=1)


def main():
    generator = torch.Generator().manual_seed(5)
    tensors, metadata = {}, {}
    for name, has_class, source, target, dim in CASES:
        x = torch.randn(1, source[0] * source[1] + has_class, dim, generator=generator, dtype=torch.float64)
        tensors[name + ".from"] = x
        tensors[name + ".to"] = interpolated(x, has_class, source, target).contiguous()
        metadata[name] = f"{int(has_class)} {source[0]} {source[1]} {target[0]} {target[1]}"
    save_file(tensors, sys.argv[1], metadata=metadata)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
