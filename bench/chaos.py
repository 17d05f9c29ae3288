#!/usr/bin/env python3
"""Why two ranks and one rank part after some steps: the growth of rounding errors in a training.

The same training runs on one rank, on one rank whose start differs in the last bit of one weight,
and on two ranks. Both differences are followed step by step. If they grow alike, the second rank
adds no error of its own: the training itself doubles any error, however small, every few steps.

  bench/chaos.py
      the batch-16 setting of studies/quick.toml at two learning rates, in f64
  bench/chaos.py --dtype f32 --lr 2e-3 1e-3 5e-4 2.5e-4 --steps 384
      in f32, where a last bit is 2^29 times as much
The rate is held at its peak after the warm-up, so that the steps do not depend on how many follow.
"""
import argparse
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def flags(lr, steps, dtype):
    return ["--model", "vit_micro", "--data", "synthetic", "--set", "data.train_size=2048", "--set",
            "data.test_size=16",
            "--global-batch", "16", "--lr", repr(lr), "--steps", str(steps), "--threads", "1",
            "--dtype", dtype,
            "--set", "lr.schedule=constant", "--set", f"lr.warmup={min(19, steps)}", "--set",
            "run.eval_every=0", "--set", "checkpoint.keep_best=false"]


def tessera(binary, *words):
    done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stderr[-2000:]}")


def start_of(binary, folder, dtype):
    """The weights before the first step, as a file: a step at a rate of nothing, exported."""
    run = folder / "start"
    tessera(binary, "train", *flags(1e-30, 1, dtype), "--set", "optim.weight_decay=0", "--out", run)
    tessera(binary, "ckpt", "export", run, "--out", folder / "exported", "--dtype", dtype)
    return next((folder / "exported").glob("*.safetensors"))


def one_ulp_off(source, target):
    """Copies a weight file; the last bit of one element of the first two-dimensional tensor is
    turned. Returns what was changed."""
    data = bytearray(source.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    name = min(n for n, t in header.items() if n != "__metadata__" and len(t["shape"]) == 2)
    form, width = ("<d", 8) if header[name]["dtype"] == "F64" else ("<f", 4)
    at = 8 + size + header[name]["data_offsets"][0]
    before = struct.unpack(form, data[at:at + width])[0]
    data[at] ^= 1
    target.write_bytes(data)
    return name, struct.unpack(form, data[at:at + width])[0] - before


def losses(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["loss"], row["grad_norm"]) for row in rows if row["kind"] == "step"]


def apart(a, b):
    """Of every step: the larger of the relative differences of loss and gradient norm."""
    return [max(abs(x - y) / abs(x) for x, y in zip(one, two)) for one, two in zip(a, b)]


def doubling(curve, least):
    """Steps in which a difference doubles, by least squares over the steps at which it is between
    `least` and 1e-3."""
    last = next((i for i, d in enumerate(curve) if d > 1e-3), len(curve))
    points = [(i, math.log2(d)) for i, d in enumerate(curve[:last]) if d > least]
    if len(points) < 5:
        return math.inf
    n, sx, sy = len(points), sum(x for x, _ in points), sum(y for _, y in points)
    above = n * sum(x * y for x, y in points) - sx * sy
    slope = above / (n * sum(x * x for x, _ in points) - sx * sx)
    return 1 / slope if slope > 0 else math.inf


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "build/tessera"))
    parser.add_argument("--lr", type=float, nargs="+", default=[2e-3, 2.5e-4])
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--dtype", choices=["f64", "f32"], default="f64")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        start = start_of(options.binary, folder, options.dtype)
        moved = folder / "one_ulp.safetensors"
        name, by = one_ulp_off(start, moved)
        print(f"one ulp: {name}[0] + {by:.2e}; {options.steps} steps, batch 16, {options.dtype}\n")
        for lr in options.lr:
            curves = {}
            for what, extra in {"one rank": ["--init", start], "one ulp off": ["--init", moved],
                                "two ranks": ["--init", start, "--np", 2, "--comm",
                                              "local"]}.items():
                run = folder / f"{lr}-{what.replace(' ', '_')}"
                tessera(options.binary, "train", *flags(lr, options.steps, options.dtype), *extra,
                        "--out", run)
                curves[what] = losses(run)
            least = 1e-14 if options.dtype == "f64" else 1e-6
            ulp = apart(curves["one rank"], curves["one ulp off"])
            ranks = apart(curves["one rank"], curves["two ranks"])
            print(f"learning rate {lr:g}: last loss {curves['one rank'][-1][0]:.4f}; a difference "
                  f"doubles every "
                  f"{doubling(ulp, least):.1f} steps (one ulp), {doubling(ranks, least):.1f} steps "
                  f"(two ranks)\n")
            print("| step | loss | one ulp off | two ranks |\n|---|---|---|---|")
            for i in [i for i in range(len(ulp)) if (i + 1) % 16 == 0 and i < 128
                      or (i + 1) % 64 == 0]:
                loss = curves["one rank"][i][0]
                print(f"| {i + 1} | {loss:.4f} | {ulp[i]:.1e} | {ranks[i]:.1e} |")
            print(flush=True)


if __name__ == "__main__":
    main()
