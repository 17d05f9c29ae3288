#!/usr/bin/env python3
"""Pipelines on one machine: the bubble of every schedule against its formula, memory per stage, and
what recomputation costs GPipe.

    python3 bench/pipeline.py > bench/results/pipeline_MACHINE_DATE.md

Every row is `tessera train` on the embedded data, one thread a rank. Bubbles are read off the run's
trace (`tessera explain --run`): the share of time between the first turn's start and the last
turn's end in which ranks had no turn; the median of the rounds, least and most beside it. The
formula is for stages of equal cost; the prediction knows each turn's FLOPs; `of turns` has the
turns as long as they were in this step, each started as soon as the schedule allows, so it holds
what the machine's unequal ranks cost, and measured - of turns what messages and waiting cost.
Memory is what the plan says and what was allocated.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def run(args, model, ranks, batch, keys, steps):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [args.tessera, "train", "--model", model, "--data", "synthetic",
                   "--np", str(ranks), "--oversubscribe", "--pp", str(ranks), "--threads", "1",
                   "--quiet",
                   "--global-batch", str(batch), "--steps", str(steps), "--out", str(out)]
        keys = ["run.eval_every=0", "data.test_size=16", f"data.train_size={batch * steps}",
                "data.workers=1", "checkpoint.every=1000000",
                f"run.trace={min(3, steps - 1)}", *keys]
        if args.depth and model == args.model:
            keys.append(f"model.depth={args.depth}")
        for key in keys:
            command += ["--set", key]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        summary = json.loads((out / "summary.json").read_text())
        steps = [line["step_ms"] for line in lines if line["kind"] == "step"][2:]
        pipeline = None
        if ranks > 1:
            shown = subprocess.run([args.tessera, "explain", "--run", str(out), "--json"],
                                   capture_output=True, text=True)
            if shown.returncode != 0:
                raise SystemExit(f"explain --run: {shown.stderr}")
            pipeline = json.loads(shown.stdout)["pipeline"]
        return {"ms": statistics.median(steps), "pipeline": pipeline, "summary": summary}


def percent(x):
    return "" if x is None else f"{100 * x:.1f}"


def bubbles(args):
    print(f"\n## Bubbles of {args.model}, {args.micro} images a micro-batch\n")
    print("| ranks | schedule | micro-batches | formula % | predicted % | of turns % | measured % "
          "(least-most) | measured - formula | measured - of turns | step ms | images/s |\n|"
          + "---|" * 11)
    worst = 0
    cases = [(ranks, schedule, micros) for ranks in args.ranks for schedule in args.schedules
             for micros in args.micros]
    seen = {case: [] for case in cases}
    try:
        for _ in range(args.rounds):
            for ranks, schedule, micros in cases:
                keys = [f"parallel.schedule={schedule}", f"batch.accumulate={micros}",
                        "parallel.stages=flops"]
                if schedule == "interleaved":
                    keys.append("parallel.chunks=2")
                r = run(args, args.model, ranks, args.micro * micros, keys, args.steps)
                seen[ranks, schedule, micros].append(r)
                p = r["pipeline"]
                print(f"{ranks} ranks {schedule} {micros}: formula {percent(p['bubble_formula'])} "
                      f"measured {percent(p['measured']['bubble'])}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("interrupted: rows of the rounds that were done", file=sys.stderr)
    for (ranks, schedule, micros), runs in seen.items():
        if not runs:
            continue
        got = sorted(r["pipeline"]["measured"]["bubble"] for r in runs)
        middle, p = statistics.median(got), runs[0]["pipeline"]
        ms = statistics.median(r["ms"] for r in runs)
        worst = max(worst, abs(middle - p["bubble_formula"]))
        turns = statistics.median(r["pipeline"]["measured"]["bubble_of_turns"] for r in runs)
        measured = [r["pipeline"]["measured"] for r in runs]
        own = statistics.median(m["bubble"] - m["bubble_of_turns"] for m in measured)
        print(f"| {ranks} | {schedule} | {micros} | {percent(p['bubble_formula'])} | "
              f"{percent(p['bubble_predicted'])} | {percent(turns)} | {percent(middle)} "
              f"({percent(got[0])}-{percent(got[-1])}) | "
              f"{100 * (middle - p['bubble_formula']):+.1f} | {100 * own:+.1f} | {ms:.1f} | "
              f"{args.micro * micros / ms * 1e3:.1f} |")
    print(f"\nLargest difference between measured and formula: {100 * worst:.1f} "
          "percentage points.", flush=True)


def memory(args):
    ranks, micros = max(args.ranks), max(args.micros)
    print(f"\n## Memory of {args.model} on {ranks} ranks, {micros} micro-batches of {args.micro} "
          f"images\n")
    print("| schedule | recompute | in flight per rank | activations per rank, MiB | peak per "
          "rank, MiB | allocated by the largest rank, MiB |\n|" + "---|" * 6)
    for schedule in args.schedules:
        for recompute in ("none", "full"):
            keys = [f"parallel.schedule={schedule}", f"batch.accumulate={micros}",
                    f"parallel.recompute={recompute}", "parallel.stages=flops"]
            if schedule == "interleaved":
                keys.append("parallel.chunks=2")
            r = run(args, args.model, ranks, args.micro * micros, keys, 3)
            by_rank = {}
            for stage in r["pipeline"]["stages"]:
                by_rank[stage["rank"]] = stage
            mib = lambda n: f"{n / 2**20:.1f}"
            peak = r["summary"]["peak_bytes"]
            print(f"| {schedule} | {recompute} | "
                  f"{', '.join(str(s['in_flight']) for s in by_rank.values())} "
                  f"| {', '.join(mib(s['memory']['activations']) for s in by_rank.values())} | "
                  f"{', '.join(mib(s['peak_bytes']) for s in by_rank.values())} "
                  f"| {mib(peak['measured'])} (planned {mib(peak['planned'])}) |", flush=True)


def recomputation(args):
    print(f"\n## Recomputation under GPipe, {args.recompute_micros} micro-batches of {args.micro} "
          f"images\n")
    print("| model | stages | step ms without | step ms with | with / without | peak MiB without | "
          "with |\n|" + "---|" * 7)
    for model in args.recompute_models:
        for name, ranks, keys in (("one rank, no segments", 1, []),
                                  ("[2]: two segments on one rank", 1, ["parallel.segments=2"]),
                                  ("[1,1]: two ranks", 2, [])):
            got = {"none": [], "full": []}
            for _ in range(args.rounds):
                for recompute in got:
                    got[recompute].append(run(args, model, ranks,
                                              args.micro * args.recompute_micros, [
                        *keys, "parallel.schedule=gpipe", "parallel.stages=flops",
                        f"parallel.recompute={recompute}",
                        f"batch.accumulate={args.recompute_micros}"], args.steps))
            ms = {k: statistics.median(r["ms"] for r in v) for k, v in got.items()}
            ratios = sorted(b["ms"] / a["ms"] for a, b in zip(got["none"], got["full"]))
            peak = {k: v[0]["summary"]["peak_bytes"]["measured"] / 2**20 for k, v in got.items()}
            print(f"| {model} | {name} | {ms['none']:.1f} | {ms['full']:.1f} | "
                  f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f}) "
                  f"| {peak['none']:.1f} | {peak['full']:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(n) for n in text.split(",")]
    words = lambda text: text.split(",")
    parser.add_argument("--tessera", default="build/tessera")
    parser.add_argument("--model", default="vit_tiny_cifar")
    parser.add_argument("--depth", type=int, default=0,
                        help="blocks of the model, so that stages can be equal; 0: as it is")
    parser.add_argument("--ranks", type=numbers, default=[2, 3, 4])
    parser.add_argument("--micros", type=numbers, default=[1, 2, 4, 8, 16])
    parser.add_argument("--micro", type=int, default=4, help="images of a micro-batch")
    parser.add_argument("--schedules", type=words, default=["gpipe", "1f1b", "interleaved", "zb"])
    parser.add_argument("--recompute-models", type=words,
                        default=["resnet18_cifar", "swin_tiny_cifar", "vit_tiny_cifar"])
    parser.add_argument("--recompute-micros", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--parts", type=words, default=["bubbles", "memory", "recomputation"])
    args = parser.parse_args()
    print(f"# Pipelines, f32, one thread a rank, {args.steps} steps a run, {args.rounds} round(s)")
    for part in args.parts:
        {"bubbles": bubbles, "memory": memory, "recomputation": recomputation}[part](args)


if __name__ == "__main__":
    sys.exit(main())
