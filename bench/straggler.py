#!/usr/bin/env python3
"""One of three ranks at a third of its speed (stopped and continued in a duty cycle): who is named,
who waits, and what measured weights bring.

    python3 bench/straggler.py > bench/results/straggler_MACHINE_DATE.md
"""
import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path


def ranks_of(tessera, out):
    """pid by rank of the processes that run this folder, from the environment that mpirun gave
    them."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if str(out) not in (entry / "cmdline").read_text():
                continue
            if not os.readlink(entry / "exe").endswith("tessera"):
                continue
            env = dict(e.split("=", 1) for e in (entry / "environ").read_text().split("\0")
                       if "=" in e)
        except OSError:
            continue
        if "OMPI_COMM_WORLD_RANK" in env:
            found[int(env["OMPI_COMM_WORLD_RANK"])] = int(entry.name)
    return found


def throttle(pid, share, period, done):
    while not done.is_set():
        try:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(period * (1 - share))
            os.kill(pid, signal.SIGCONT)
            time.sleep(period * share)
        except ProcessLookupError:
            return


def run(args, keys, slow):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [args.tessera, "train", "--model", args.model, "--data", "synthetic",
                   "--np", "3", "--oversubscribe", "--threads", "1", "--global-batch",
                   str(args.batch), "--steps", str(args.steps), "--out", str(out)]
        for key in ["run.eval_every=0", "data.test_size=16",
                    f"data.train_size={args.batch * args.steps}", "data.workers=1", *args.set,
                    *keys]:
            command += ["--set", key]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True)
        done = threading.Event()
        if slow:
            while len(ranks_of(args.tessera, out)) < 3 and process.poll() is None:
                time.sleep(0.05)
            log = out / "log.txt"
            while process.poll() is None and (not log.exists() or "step " not in log.read_text()):
                time.sleep(0.05)
            threading.Thread(target=throttle,
                             args=(ranks_of(args.tessera, out)[args.rank], 1 / 3, 0.06, done),
                             daemon=True).start()
        text, _ = process.communicate()
        done.set()
        if process.returncode != 0:
            raise SystemExit(text)
        summary = json.loads((out / "summary.json").read_text())
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        steps = [line for line in lines if line["kind"] == "step"]
        return {"ms": [s["step_ms"] for s in steps], "loss": [s["loss"] for s in steps],
                "ranks": summary["ranks"], "text": (out / "log.txt").read_text()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tessera", default="build/tessera")
    parser.add_argument("--model", default="vit_tiny_cifar")
    parser.add_argument("--batch", type=int, default=42)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE of the configuration")
    args = parser.parse_args()
    tail = args.steps // 3
    print(f"# One of three ranks at a third of its speed: {args.model}, {args.batch} images a "
          f"step, {args.steps} steps\n")
    fast = run(args, [], False)
    even = run(args, [], True)
    measured = run(args, ["parallel.weights=measured"], True)
    ms = {name: statistics.median(r["ms"][-tail:]) for name,
          r in (("fast", fast), ("even", even), ("measured", measured))}
    print("| run | median step ms, last third | throughput over the even split |\n|---|---|---|")
    print(f"| nobody throttled | {ms['fast']:.1f} | {ms['even'] / ms['fast']:.2f}x |")
    print(f"| rank {args.rank} throttled, even split | {ms['even']:.1f} | 1.00x |")
    print(f"| rank {args.rank} throttled, measured weights | {ms['measured']:.1f} | "
          f"{ms['even'] / ms['measured']:.2f}x |")
    apart = [abs(a - b) / abs(a) for a, b in zip(even["loss"], measured["loss"])]
    print(f"\nLosses of the two throttled runs, relative difference in f32: at most "
          f"{max(apart[:30]):.1e} in the first 30 steps, {max(apart):.1e} in all.\n")
    for name, r in (("even split", even), ("measured weights", measured)):
        print(f"Said under the {name}:\n\n```")
        for line in r["text"].splitlines():
            if re.search("is slow|shares of the batch", line):
                print(line)
        print("```\n\nBreakdown, ms a step, mean of sampled steps:\n")
        print("| rank | " + " | ".join(r["ranks"][0]["breakdown"]) + " |\n|" + "---|"
              * (1 + len(r["ranks"][0]["breakdown"])))
        for i, rank in enumerate(r["ranks"]):
            print(f"| {i} | " + " | ".join(f"{v:.1f}" for v in rank["breakdown"].values()) + " |")
        print()


if __name__ == "__main__":
    main()
