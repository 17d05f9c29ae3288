#!/usr/bin/env python3
"""What PyTorch's own autocast makes of the committed goldens: how far bf16 (or f16) is from f64.

    tools/autocast_error.py [--device cuda] [--dtype bf16] [--above 0.015] [GOLDEN...]

Each golden (tests/golden/*.safetensors without traces) is computed again by PyTorch, weights in
f32 and forward and backward under autocast. Printed: for every file the tensor that is furthest
from the golden, as a share of the golden's norm, and every tensor above --above. It is what a
limit for low precision can be compared with. Needs torch and torchvision.
"""
import argparse
import json
import pathlib
import struct

import torch
from torch.nn import functional

import make_goldens

DTYPES = {"F64": torch.float64, "F32": torch.float32, "I64": torch.int64}


def read(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(bytearray(data[8 + length + begin:8 + length + end]),
                                dtype=DTYPES[entry["dtype"]]) if end > begin else torch.empty(0)
        tensors[name] = flat.reshape(entry["shape"])
    return metadata, tensors


def errors(path, device, dtype):
    """{name of a tensor: its distance from the golden over the golden's norm}"""
    metadata, tensors = read(path)
    model = json.loads(metadata["tessera.model"])
    net = make_goldens.NETS[model["family"]](model).train()
    state = {name[6:]: t.float() for name, t in tensors.items() if name.startswith("param.")}
    net.load_state_dict(state, strict=False)
    net.to(device)
    with torch.autocast(device, dtype=dtype):
        logits = net(tensors["input"].float().to(device))
        loss = functional.cross_entropy(logits, tensors["labels"].to(device))
    loss.backward()
    got = {"logits": logits, "loss": loss.reshape(1)}
    got |= {"grad." + name: p.grad for name, p in net.named_parameters()}
    return {name: float((t.detach().double().cpu() - tensors[name].double()).norm() /
                        tensors[name].double().norm())
            for name, t in got.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("goldens", nargs="*", type=pathlib.Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["bf16", "f16"], default="bf16")
    parser.add_argument("--above", type=float, default=0.015)
    options = parser.parse_args()
    folder = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"
    paths = options.goldens or sorted(path for path in folder.glob("*.safetensors")
                                      if path.stem.split("_")[0] in make_goldens.NETS)
    dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float16
    for path in paths:
        found = errors(path, options.device, dtype)
        worst = max(found, key=found.get)
        print(f"{path.stem}: {len(found)} tensors, the worst is {worst} at {found[worst]:.4f}")
        for name, error in found.items():
            if error > options.above:
                print(f"    {name}  {error:.4f}")


if __name__ == "__main__":
    main()
