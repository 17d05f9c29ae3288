#!/usr/bin/env python3
"""Strong and weak scaling of data-parallel training on one machine, with the breakdown of a step
and each switch of the schedule on and off.

    python3 bench/scaling.py --ranks 1,2,4,8,16 > bench/results/scaling_MACHINE_DATE.md

Every row is one run of `tessera train --np N --threads 1` on the embedded data: the median of its
steps (10th-90th percentile beside it), and means over ranks of the breakdown of its sampled steps.
Rows are run in rounds, so that drift of the machine favours none; the median of the rounds is
shown.
"""
import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

PARTS = ["compute", "comm_exposed", "comm_hidden", "wait", "data", "host"]


def run(args, ranks, batch, keys=()):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [args.tessera, "train", "--model", args.model, "--data", "synthetic",
                   "--np", str(ranks), "--oversubscribe", "--threads", "1", "--quiet",
                   "--global-batch", str(batch), "--steps", str(args.steps), "--out", str(out)]
        keys = ["run.eval_every=0", "data.test_size=16", f"data.train_size={batch * args.steps}",
                "data.workers=1",
                "checkpoint.every=1000000", "run.trace=0", *keys]
        for key in keys:
            command += ["--set", key]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        summary = json.loads((out / "summary.json").read_text())
        steps = [json.loads(line)["step_ms"]
                 for line in (out / "metrics.jsonl").read_text().splitlines()
                 if '"kind":"step"' in line]
    steps = sorted(steps[2:])  # the first ones warm up
    mean = {p: statistics.mean(r["breakdown"][p] for r in summary["ranks"]) for p in PARTS}
    comm = sum(row["bytes"] for row in summary["comm"].values())
    return {"ms": statistics.median(steps), "p10": steps[len(steps) // 10],
            "p90": steps[-1 - len(steps) // 10], "parts": mean, "bytes": comm}


def rounds(args, cases):
    """cases: (name, ranks, batch, keys); the median of args.rounds runs of each."""
    seen = {case[0]: [] for case in cases}
    for _ in range(args.rounds):
        for name, ranks, batch, keys in cases:
            seen[name].append(run(args, ranks, batch, keys))
    return {name: sorted(runs, key=lambda r: r["ms"])[len(runs) // 2] for name,
            runs in seen.items()}


def table(title, rows, head):
    print(f"\n## {title}\n\n| {head} | step ms (p10-p90) | images/s | "
          + " | ".join(PARTS) + " | MB sent |")
    print("|" + "---|" * (4 + len(PARTS)))
    for name, batch, r in rows:
        parts = " | ".join(f"{r['parts'][p]:.1f}" for p in PARTS)
        print(f"| {name} | {r['ms']:.1f} ({r['p10']:.1f}-{r['p90']:.1f}) | "
              f"{batch / r['ms'] * 1e3:.1f} | {parts} | {r['bytes'] / 1e6:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tessera", default="build/tessera")
    parser.add_argument("--model", default="vit_tiny_cifar")
    parser.add_argument("--ranks", default="1,2,4,8,16")
    parser.add_argument("--weak", type=int, default=32, help="images per rank")
    parser.add_argument("--strong", type=int, default=64, help="images in all")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--switches", type=int, default=0,
                        help="ranks for the switches; 0: the most of --ranks")
    args = parser.parse_args()
    ranks = [int(n) for n in args.ranks.split(",")]
    print(f"# Scaling of {args.model}, f32, one thread a rank, {args.steps} steps a run, "
          f"{args.rounds} round(s)")

    weak = rounds(args, [(n, n, args.weak * n, ()) for n in ranks])
    base = weak[ranks[0]]["ms"]
    table(f"Weak: {args.weak} images a rank",
          [(f"{n} ({base / weak[n]['ms'] * 100:.1f}%)", args.weak * n, weak[n]) for n in ranks],
          "ranks (efficiency)")
    strong = rounds(args, [(n, n, args.strong, ()) for n in ranks])
    base = strong[ranks[0]]["ms"] * ranks[0]
    table(f"Strong: {args.strong} images in all",
          [(f"{n} ({base / n / strong[n]['ms'] * 100:.1f}%)", args.strong, strong[n])
           for n in ranks], "ranks (efficiency)")

    n = args.switches or max(ranks)
    batch = args.strong if args.strong >= n else n
    cases = [("all on", ()), ("overlap off", ("parallel.overlap=false",)),
             ("one bucket", ("parallel.bucket_mb=10000",)),
             ("early update off", ("parallel.overlap_update=false",)),
             ("plain MPI", ("parallel.all_reduce=mpi",)),
             ("ring", ("parallel.all_reduce=ring",)),
             ("plain MPI, overlap off", ("parallel.all_reduce=mpi", "parallel.overlap=false")),
             ("ZeRO 1", ("parallel.zero=1",)), ("ZeRO 2", ("parallel.zero=2",)),
             ("ZeRO 3", ("parallel.zero=3",)),
             ("ZeRO 3, prefetch off", ("parallel.zero=3", "parallel.prefetch=false")),
             ("ZeRO 3, overlap off", ("parallel.zero=3", "parallel.overlap=false")),
             ("bf16 on the wire", ("parallel.compress=bf16",)),
             ("int8 on the wire", ("parallel.compress=int8",))]
    seen = rounds(args, [(name, n, batch, keys) for name, keys in cases])
    table(f"Switches: {n} ranks, {batch} images in all",
          [(name, batch, seen[name]) for name, _ in cases], "what")


if __name__ == "__main__":
    main()
