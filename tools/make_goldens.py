#!/usr/bin/env python3
"""Writes PyTorch's numbers for `tessera verify` and for the tests: goldens (forward and backward)
and loss traces (ten training steps).

Needs torch, torchvision, safetensors and numpy (pip install torch torchvision safetensors numpy);
the build and the tests need none of them.

    tools/make_goldens.py --suite tests/golden        the small committed goldens, f64
    tools/make_goldens.py --trace tests/golden        the committed loss traces, f64
    tools/make_goldens.py --image 48,32 --channels 4 --patch 8 --dim 40 --depth 3 --heads 5 --mlp 96
        --classes 7 --batch 5 \\
                          --pool class --seed 3 --dtype f32 --out /tmp/odd.safetensors      any ViT;
                              then: tessera verify /tmp/odd.safetensors
    tools/make_goldens.py --family swin --image 24,20 --patch 2 --dim 12 --depths 2,2 --heads 3,6
        --window 4 --mlp-ratio 2 --out FILE   any Swin
    tools/make_goldens.py --family resnet --image 40 --block basic --layers 2,2 --width 16 --stem
        cifar --batch 4 --out FILE              any ResNet

Convention: everything is computed in f64. With --dtype f32 the inputs and parameters are rounded to
f32 first, so the stored results are what exact arithmetic gives for exactly the stored inputs.
"""
import argparse
import json
import math
import pathlib

import golden_resnet
import golden_swin
import golden_traces
import torch
import torchvision
from safetensors.torch import save_file
from torch.nn import functional

# name, image, channels, patch, dim, depth, heads, mlp, classes, batch, pool: odd on purpose
SUITE = [
    ("vit_square", 16, 3, 4, 18, 2, 3, 24, 10, 2, "class"),
    ("vit_wide", (8, 20), 3, 4, 15, 2, 5, 22, 7, 5, "class"),
    ("vit_tall_gray", (20, 12), 1, 4, 15, 3, 3, 20, 7, 1, "class"),
    ("vit_four_channels", (12, 8), 4, 4, 20, 1, 5, 33, 3, 5, "class"),
    ("vit_one_head", 9, 2, 3, 17, 2, 1, 19, 5, 3, "class"),
    ("vit_mean", 12, 3, 4, 16, 2, 2, 24, 10, 4, "mean"),
    ("vit_mean_wide", (6, 21), 1, 3, 15, 3, 3, 20, 7, 1, "mean"),
]


class Vit(torchvision.models.VisionTransformer):
    """torchvision's ViT, parameter names and all, with free image height and width, free channels,
    and mean pooling without a class token."""

    def __init__(self, model):
        height, width = sides(model["image"])
        patch, dim = model["patch"], model["dim"]
        divides = height % patch == 0 and width % patch == 0
        assert divides, "the patch must divide both sides of the image"
        super().__init__(patch, patch, model["depth"], model["heads"], dim, model["mlp"],
                         num_classes=model["classes"])
        self.pool = model["pool"]
        tokens = (height // patch) * (width // patch) + (self.pool == "class")
        self.encoder.pos_embedding = torch.nn.Parameter(torch.empty(1, tokens, dim))
        self.conv_proj = torch.nn.Conv2d(model["channels"], dim, patch, patch)
        if self.pool == "mean":
            del self.class_token

    def forward(self, x_nchw):
        x = self.conv_proj(x_nchw).flatten(2).transpose(1, 2)
        if self.pool == "class":
            x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.encoder(x)
        return self.heads(x[:, 0] if self.pool == "class" else x.mean(dim=1))


NETS = {"vit": Vit, "swin": golden_swin.Swin, "resnet": golden_resnet.ResNet}


def sides(image):
    return (image, image) if isinstance(image, int) else tuple(image)


def rounded(tensor, dtype):
    return tensor.to(dtype).double()


def randomise(net, generator, dtype):
    """Every parameter away from its special start: torchvision's zero head would hide all
    gradients, unit norms would hide their weights."""
    gains = {id(module.weight) for module in net.modules()
             if isinstance(module, (torch.nn.LayerNorm, torch.nn.BatchNorm2d))}
    for name, parameter in net.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        if id(parameter) in gains:
            value = 1.0 + 0.2 * noise
        elif parameter.dim() == 1:
            value = 0.1 * noise
        elif name in ("class_token", "encoder.pos_embedding"):
            value = 0.5 * noise
        else:
            value = noise / math.sqrt(parameter[0].numel())
        parameter.data = rounded(value, dtype)
    for name, buffer in net.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            noise = 0.3 * torch.randn(buffer.shape, generator=generator, dtype=torch.float64)
            buffer.data = rounded(noise if name.endswith("mean") else noise.exp(), dtype)


def build(model, seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    net = NETS[model["family"]](model).double().train()
    randomise(net, generator, dtype)
    return net, generator


def draw(model, generator, dtype, *lead):
    height, width = sides(model["image"])
    images = rounded(torch.randn(*lead, model["channels"], height, width, generator=generator,
                                 dtype=torch.float64), dtype)
    return images, torch.randint(0, model["classes"], lead, generator=generator)


def save(tensors, metadata, path, dtype):
    stored = {name: (t if t.dtype == torch.int64 else t.detach().to(dtype)).contiguous().clone()
              for name, t in tensors.items()}
    save_file(stored, str(path), metadata=metadata)
    print(f"{path}  {path.stat().st_size / 1024:.1f} KiB")


def golden(model, batch, seed, dtype, path):
    net, generator = build(model, seed, dtype)
    images, labels = draw(model, generator, dtype, batch)
    if model["family"] == "resnet" and not golden_resnet.well_conditioned(net, images, labels):
        # the next seed whose numbers a rounding does not change
        return golden(model, batch, seed + 1000, dtype, path)
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()
               if not name.endswith("num_batches_tracked")}
    logits = net(images)
    loss = functional.cross_entropy(logits, labels)
    loss.backward()
    tensors = {"input": images, "labels": labels, "logits": logits, "loss": loss.reshape(1)}
    for name, parameter in net.named_parameters():
        tensors["param." + name] = parameter
        tensors["grad." + name] = parameter.grad
    tensors |= {"param." + name: buffer for name, buffer in buffers.items()}
    tensors |= {"after." + name: buffer for name, buffer in net.named_buffers()
                if "running_" in name}
    save(tensors, {"tessera.model": json.dumps(model)}, path, dtype)


def trace(model, optim, path, seed=11):
    net, generator = build(model, seed, torch.float64)
    images, labels = draw(model, generator, torch.float64, golden_traces.STEPS, golden_traces.BATCH)
    images = images.float().double()  # a training run feeds f32 images, also to an f64 program
    tensors, settings = golden_traces.trace(net, images, labels, model, optim)
    save(tensors, {"tessera.model": json.dumps(model), "tessera.trace": json.dumps(settings)}, path,
         torch.float64)


def numbers(text):
    return [int(part) for part in text.split(",")]


def image_sides(text):
    parts = numbers(text)
    if len(parts) not in (1, 2) or min(parts) < 1:
        raise argparse.ArgumentTypeError("expected H or H,W")
    return parts[0] if len(parts) == 1 else parts


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=pathlib.Path, metavar="DIR",
                        help="write the small committed goldens here")
    parser.add_argument("--trace", type=pathlib.Path, metavar="DIR",
                        help="write the loss traces here")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE",
                        help="write one golden, described by the options below")
    parser.add_argument("--family", choices=list(NETS), default="vit")
    parser.add_argument("--image", type=image_sides, default=32, metavar="H[,W]")
    for name, default in dict(channels=3, patch=4, dim=192, depth=12, mlp=768, classes=10, batch=2,
                              seed=1).items():
        parser.add_argument("--" + name, type=int, default=default, help=f"default {default}")
    parser.add_argument("--heads", type=numbers, default=[3],
                        help="default 3; swin: one number per stage")
    parser.add_argument("--depths", type=numbers, default=[2, 2], help="swin, default 2,2")
    parser.add_argument("--window", type=image_sides, default=7, metavar="H[,W]",
                        help="swin, default 7")
    parser.add_argument("--mlp-ratio", type=float, default=4.0, help="swin, default 4")
    parser.add_argument("--block", choices=["basic", "bottleneck"], default="bottleneck",
                        help="resnet")
    parser.add_argument("--layers", type=numbers, default=[3, 4, 6, 3],
                        help="resnet, default 3,4,6,3")
    parser.add_argument("--width", type=int, default=64, help="resnet, default 64")
    parser.add_argument("--stem", choices=["imagenet", "cifar"], default="imagenet", help="resnet")
    parser.add_argument("--pool", choices=["class", "mean"], default="class")
    parser.add_argument("--dtype", choices=["f64", "f32"], default="f64")
    args = parser.parse_args()
    if not (args.suite or args.trace or args.out):
        parser.error("nothing to do: give --suite DIR, --trace DIR or --out FILE")
    keys = ("image", "channels", "patch", "dim", "depth", "heads", "mlp", "classes", "pool")
    if args.suite:
        args.suite.mkdir(parents=True, exist_ok=True)
        for seed, (name, image, channels, patch, dim, depth, heads, mlp, classes, batch,
                   pool) in enumerate(SUITE, start=1):
            image = list(image) if isinstance(image, tuple) else image
            model = {"family": "vit"} | dict(zip(keys,
                                                 (image, channels, patch, dim, depth, heads, mlp,
                                                  classes, pool)))
            golden(model, batch, seed, torch.float64, args.suite / f"{name}.safetensors")
        for name, model, batch, seed in golden_swin.suite() + golden_resnet.suite():
            golden(model, batch, seed, torch.float64, args.suite / f"{name}.safetensors")
    if args.trace:
        args.trace.mkdir(parents=True, exist_ok=True)
        for name, (model, optim) in golden_traces.TRACES.items():
            trace(model, optim, args.trace / f"trace_{name}.safetensors")
    if args.out:
        model = {"family": args.family} | {key: getattr(args, key)
                                           for key in {"vit": keys, "swin": golden_swin.KEYS,
                                                       "resnet": golden_resnet.KEYS}[args.family]}
        if args.family == "vit":
            model["heads"] = args.heads[0]
        golden(model, args.batch, args.seed, torch.float64 if args.dtype == "f64"
               else torch.float32, args.out)


if __name__ == "__main__":
    main()
