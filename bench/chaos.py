#!/usr/bin/env python3
"""Why two ranks and one rank part after some steps: the growth of rounding errors in a training.

The same training runs in f64 on one rank, on one rank whose start differs in the last bit of one weight, and on two ranks. Both
differences are followed step by step. If they grow alike, the second rank adds no error of its own: the training itself doubles any
error, however small, every few steps.

  bench/chaos.py                           the batch-16 setting of studies/quick.toml at four learning rates (minutes on 2 cores)
  bench/chaos.py --lr 2e-3 --steps 128     one of them, shorter
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


def flags(lr, steps):
    return ["--model", "vit_micro", "--data", "synthetic", "--set", "data.train_size=2048", "--set", "data.test_size=16",
            "--global-batch", "16", "--lr", str(lr), "--steps", str(steps), "--threads", "1", "--dtype", "f64",
            "--set", "run.eval_every=0", "--set", "checkpoint.keep_best=false"]


def tessera(binary, *words):
    done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stderr[-2000:]}")


def start_of(binary, folder):
    """The weights before the first step, as an f64 file: a step at a rate of nothing, exported."""
    run = folder / "start"
    tessera(binary, "train", *flags(1e-300, 1), "--set", "optim.weight_decay=0", "--out", run)
    tessera(binary, "ckpt", "export", run, "--out", folder / "exported", "--dtype", "f64")
    return next((folder / "exported").glob("*.safetensors"))


def one_ulp_off(source, target):
    """Copies a weight file; the last bit of one element of the first two-dimensional tensor is turned. Returns what was changed."""
    data = bytearray(source.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    name = min(n for n, t in header.items() if n != "__metadata__" and len(t["shape"]) == 2 and t["dtype"] == "F64")
    at = 8 + size + header[name]["data_offsets"][0]
    before = struct.unpack("<d", data[at:at + 8])[0]
    data[at] ^= 1
    target.write_bytes(data)
    return name, struct.unpack("<d", data[at:at + 8])[0] - before


def losses(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["loss"], row["grad_norm"]) for row in rows if row["kind"] == "step"]


def apart(a, b):
    """Of every step: the larger of the relative differences of loss and gradient norm."""
    return [max(abs(x - y) / abs(x) for x, y in zip(one, two)) for one, two in zip(a, b)]


def doubling(curve):
    """Steps in which a difference doubles, by least squares over the steps at which it is between 1e-14 and 1e-3."""
    last = next((i for i, d in enumerate(curve) if d > 1e-3), len(curve))
    points = [(i, math.log2(d)) for i, d in enumerate(curve[:last]) if d > 1e-14]
    if len(points) < 5:
        return math.inf
    n, sx, sy = len(points), sum(x for x, _ in points), sum(y for _, y in points)
    slope = (n * sum(x * y for x, y in points) - sx * sy) / (n * sum(x * x for x, _ in points) - sx * sx)
    return 1 / slope if slope > 0 else math.inf


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "build/tessera"))
    parser.add_argument("--lr", type=float, nargs="+", default=[2e-3, 1e-3, 5e-4, 2.5e-4])
    parser.add_argument("--steps", type=int, default=384)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        start = start_of(options.binary, folder)
        moved = folder / "one_ulp.safetensors"
        name, by = one_ulp_off(start, moved)
        print(f"one ulp: {name}[0] + {by:.2e}; {options.steps} steps, batch 16, f64\n")
        for lr in options.lr:
            curves = {}
            for what, extra in {"one rank": ["--init", start], "one ulp off": ["--init", moved],
                                "two ranks": ["--init", start, "--np", 2, "--comm", "local"]}.items():
                run = folder / f"{lr}-{what.replace(' ', '_')}"
                tessera(options.binary, "train", *flags(lr, options.steps), *extra, "--out", run)
                curves[what] = losses(run)
            ulp, ranks = apart(curves["one rank"], curves["one ulp off"]), apart(curves["one rank"], curves["two ranks"])
            print(f"learning rate {lr:g}: last loss {curves['one rank'][-1][0]:.4f}; a difference doubles every "
                  f"{doubling(ulp):.1f} steps (one ulp), {doubling(ranks):.1f} steps (two ranks)\n")
            print("| step | loss | one ulp off | two ranks |\n|---|---|---|---|")
            for i in [i for i in range(len(ulp)) if (i + 1) % 16 == 0 and i < 128 or (i + 1) % 64 == 0]:
                print(f"| {i + 1} | {curves['one rank'][i][0]:.4f} | {ulp[i]:.1e} | {ranks[i]:.1e} |")
            print(flush=True)


if __name__ == "__main__":
    main()
