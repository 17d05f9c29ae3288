#!/usr/bin/env python3
"""Accuracy after equal epochs with every kind of gradient compression beside none, several seeds;
and the bytes of a step, predicted and sent.

    python3 bench/compression.py --data cifar10:DIR > bench/results/compression_MACHINE_DATE.md
"""
import argparse
import concurrent.futures
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

KINDS = ["none", "bf16", "fp16", "int8", "topk=0.01", "onebit", "powersgd=4"]


def arguments(args, kind):
    out = [args.recipe, "--data", args.data, "--np", str(args.ranks),
           "--oversubscribe", "--threads", "1"]
    for key in [f"data.fraction={args.fraction}", f"parallel.compress={kind}", "data.workers=1",
                "run.trace=0", *args.set]:
        out += ["--set", key]
    return out


def run(args, kind, seed):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [args.tessera, "train", *arguments(args, kind), "--epochs", str(args.epochs),
                   "--seed", str(seed), "--quiet", "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        summary = json.loads((out / "summary.json").read_text())
        sent = sum(row["bytes"] for row in summary["comm"].values())
        return summary["final"]["test_top1"], summary["final"]["loss"], sent


def predicted(args, kind):
    done = subprocess.run([args.tessera, "explain", *arguments(args, kind), "--json"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)["comm_bytes"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tessera", default="build/tessera")
    parser.add_argument("--recipe", default="recipes/vit_cifar10_fast.toml")
    parser.add_argument("--data", required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--fraction", type=float, default=0.2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    print(f"# Gradient compression: {args.recipe}, {args.ranks} ranks, {args.epochs} epochs of "
          f"{args.fraction:g} of the training samples, "
          f"{args.seeds} seeds\n")
    todo = [(kind, seed) for seed in range(args.seeds) for kind in KINDS]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = dict(zip(todo, pool.map(lambda t: run(args, *t), todo)))
    print("| compression | top-1, mean (each seed) | last training loss | bytes a step, predicted "
          "| sent | of none |\n|---|---|---|---|---|---|")
    none = results["none", 0][2]
    for kind in KINDS:
        top1 = [results[kind, s][0] * 100 for s in range(args.seeds)]
        loss = statistics.mean(results[kind, s][1] for s in range(args.seeds))
        sent = results[kind, 0][2]
        print(f"| {kind} | {statistics.mean(top1):.2f}% ({', '.join(f'{t:.2f}' for t in top1)}) | "
              f"{loss:.3f} | {predicted(args, kind):,} | {sent:,} | "
              f"{sent / none * 100:.1f}% |")


if __name__ == "__main__":
    main()
