#!/usr/bin/env python3
"""Writes PyTorch's bicubic interpolation of position embeddings and of bias tables, for
tests/weights: a small f64 file.

Needs torch, torchvision and safetensors; the build and the tests need none of them.

    tools/make_interpolation_golden.py tests/golden/interpolation.safetensors

Convention: case NAME has tensors NAME.from [1, T, D] and NAME.to [1, T', D] and metadata NAME =
"KIND h w h' w'". KIND class and mean: position embeddings with and without a class position;
squares with one go through torchvision's interpolate_embeddings, the others through the same call
it makes. KIND table: Swin's biases by relative position, for windows h x w and h' x w', corners not
aligned.
"""
import sys

import torch
from safetensors.torch import save_file
from torch.nn import functional
from torchvision.models.vision_transformer import interpolate_embeddings

# name, kind, grid (or window) from, to, dim (or heads)
CASES = [
    ("up", "class", (3, 3), (5, 5), 3),
    ("down", "class", (6, 6), (4, 4), 2),
    ("far_up", "class", (2, 2), (9, 9), 2),
    ("from_one", "class", (1, 1), (3, 3), 2),
    ("to_one", "class", (4, 4), (1, 1), 2),
    ("mean_up", "mean", (4, 4), (7, 7), 3),
    ("wide", "class", (4, 4), (3, 8), 2),
    ("turn", "class", (2, 7), (7, 2), 2),
    ("tall_mean", "mean", (5, 2), (9, 3), 1),
    ("table_up", "table", (3, 3), (4, 4), 2),
    ("table_down", "table", (4, 4), (2, 2), 3),
    ("table_wide", "table", (2, 3), (3, 5), 1),
    ("table_from_one", "table", (1, 1), (2, 2), 2),
]


def table(x, source, target):
    rows = [tuple(2 * side - 1 for side in window) for window in (source, target)]
    image = x.transpose(1, 2).reshape(1, -1, *rows[0])
    return functional.interpolate(image, size=rows[1], mode="bicubic",
                                  align_corners=False).flatten(2).transpose(1, 2)


def interpolated(x, has_class, source, target):
    if has_class and source[0] == source[1] and target[0] == target[1]:
        return interpolate_embeddings(target[0], 1,
                                      {"encoder.pos_embedding": x})["encoder.pos_embedding"]
    kept, grid = x[:, : int(has_class)], x[:, int(has_class) :]
    image = grid.transpose(1, 2).reshape(1, -1, *source)
    image = functional.interpolate(image, size=target, mode="bicubic", align_corners=True)
    return torch.cat([kept, image.flatten(2).transpose(1, 2)], dim=1)


def main():
    generator = torch.Generator().manual_seed(5)
    tensors, metadata = {}, {}
    for name, kind, source, target, dim in CASES:
        rows = source[0] * source[1] + (kind == "class")
        if kind == "table":
            rows = (2 * source[0] - 1) * (2 * source[1] - 1)
        x = torch.randn(1, rows, dim, generator=generator, dtype=torch.float64)
        tensors[name + ".from"] = x
        tensors[name + ".to"] = (table(x, source, target) if kind == "table"
                                 else interpolated(x, kind == "class", source, target)).contiguous()
        metadata[name] = f"{kind} {source[0]} {source[1]} {target[0]} {target[1]}"
    save_file(tensors, sys.argv[1], metadata=metadata)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
