#!/usr/bin/env python3
"""Inference of one model under several layouts of ranks on the same cores: latency of a batch,
throughput, bytes moved, memory of a rank, and how far the logits are from those of one rank.

    python3 bench/inference.py --rounds 3             writes
        bench/results/inference_MACHINE_DATE.md, and the raw numbers as .jsonl beside it

Every cell is one run of `tessera bench infer --json`; ranks x threads is the same for all layouts,
so that they compete for the same cores. Rounds go through all layouts, every second one backwards,
so that drift of the machine favours none; shown are medians over the rounds with their range. The
ratio to the first layout is taken within a round. A layout that the binary refuses is listed with
its message.
"""
import argparse
import datetime
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
AXES = ["dp", "tp", "sp", "pp"]


def parse_layout(text):
    """"dp2xtp2" -> {"dp": 2, "tp": 2}; "1": one rank."""
    if text == "1":
        return {}
    axes = [re.fullmatch(r"([a-z]+)([0-9]+)", part) for part in text.split("x")]
    if not all(a and a[1] in AXES for a in axes):
        raise SystemExit(f"expected a layout such as 1, dp4 or dp2xtp2 (axes {', '.join(AXES)}), "
                         f"found {text}")
    return {a[1]: int(a[2]) for a in axes}


def ranks_of(axes):
    count = 1
    for n in axes.values():
        count *= n
    return count


def run(args, layout, batch, check):
    """The JSON document, or {"refused": message}."""
    axes = parse_layout(layout)
    ranks = ranks_of(axes)
    command = [args.tessera, "bench", "infer", "--model", args.model, "--dtype", args.dtype,
               "--batch", str(batch), "--json", "--np", str(ranks), "--oversubscribe", "--threads",
               str(args.cores // ranks), "--comm", args.comm]
    command += [word for axis, n in axes.items() for word in (f"--{axis}", str(n))]
    command += (["--repeats", str(args.repeats)] if args.repeats
                else []) + (["--check"] if check else [])
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        said = [line.strip() for line in done.stderr.splitlines()
                if line.startswith("error:")] or done.stderr.splitlines()[-1:]
        return {"refused": f"{said[0].removeprefix('error: ') if said else 'no message'} (exit "
                           f"code {done.returncode})"}
    document = json.loads(done.stdout)
    del document["ops"]
    return document


def spread(values, digits):
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({least:.{digits}f}-{most:.{digits}f})"


def table(layouts, batch, seen, cores):
    head = ["layout", "ranks x threads", "ms a batch", "images/s", f"times as fast as {layouts[0]}",
            "GFLOP/s", "MB handed over a rank and batch",
            "MiB planned a rank", "logits differ by"]
    lines = [f"\n## Batch {batch}\n", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    first = [d for d in seen[layouts[0], batch] if "refused" not in d]
    for layout in layouts:
        runs = seen[layout, batch]
        ranks = ranks_of(parse_layout(layout))
        refused = next((d["refused"] for d in runs if "refused" in d), None)
        if refused:
            lines.append(f"| {layout} | {ranks} x {cores // ranks} | refused: {refused} |" + " |"
                         * (len(head) - 3))
            continue
        ms = [d["ms"]["median"] for d in runs]
        ratios = [a["ms"]["median"] / b for a, b in zip(first, ms)]
        difference = next((d["logits_difference"] for d in runs
                           if d.get("logits_difference") is not None), None)
        verbs = ", ".join(f"{verb} {n / 1e6:.3g}" for verb, n in runs[0]["comm_bytes"].items()
                          if verb != "total")
        cells = [layout, f"{ranks} x {cores // ranks}", spread(ms, 1),
                 spread([d["images_per_s"] for d in runs], 2),
                 spread(ratios, 2) if ratios else "", spread([d["gflops"] for d in runs], 1),
                 f"{runs[0]['comm_bytes']['total'] / 1e6:.3g}" + (f" ({verbs})" if verbs else ""),
                 f"{runs[0]['peak_bytes'] / 2**20:.1f}",
                 "not checked" if difference is None else f"{difference:.1e}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def machine():
    try:
        cpu = re.search(r"Model name:\s*(.*)", subprocess.check_output(["lscpu"], text=True))
    except (OSError, subprocess.CalledProcessError):
        cpu = None
    return f"{cpu[1] if cpu else platform.machine()}, {os.cpu_count()} cores"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", default=str(ROOT / "build/tessera"))
    parser.add_argument("--model", default="vit_b_16")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--layouts", default="1,dp4,tp4,pp4,dp2xtp2",
                        help="the first one is what the others are compared with")
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=0,
                        help="timed batches of a run; 0: two seconds' worth")
    parser.add_argument("--cores", type=int, default=0, help="ranks x threads; 0: the cores of "
                        "this machine, or as many as the largest layout has ranks")
    parser.add_argument("--comm", default="auto")
    parser.add_argument("--out", default="", help="the table; the raw numbers go beside it")
    args = parser.parse_args()
    layouts, batches = args.layouts.split(","), [int(b) for b in args.batches.split(",")]
    most = max(ranks_of(parse_layout(layout)) for layout in layouts)
    args.cores = args.cores or max(most, (os.cpu_count() or 1) // most * most)
    uneven = [layout for layout in layouts if args.cores % ranks_of(parse_layout(layout))]
    if uneven:
        raise SystemExit(f"--cores {args.cores} cannot be shared out evenly by {', '.join(uneven)}")
    out = Path(args.out or ROOT / "bench/results"
               / f"inference_{platform.machine()}_{datetime.date.today()}.md")
    if out.exists():
        raise SystemExit(f"{out} is there already: results are added, not overwritten (--out FILE)")

    seen = {(layout, batch): [] for layout in layouts for batch in batches}
    with open(out.with_suffix(".jsonl"), "w") as raw:
        for number in range(args.rounds):
            cells = list(seen)
            for layout, batch in reversed(cells) if number % 2 else cells:
                if any("refused" in d for d in seen[layout, batch]):
                    continue
                document = run(args, layout, batch, check=number == 0)
                seen[layout, batch].append(document)
                raw.write(json.dumps({"round": number + 1, "asked": layout, "batch": batch,
                                      **document}) + "\n")
                raw.flush()
                print(f"round {number + 1}/{args.rounds}  {layout}  batch {batch}: " +
                      (document.get("refused") or f"{document['ms']['median']:.1f} ms"),
                      file=sys.stderr, flush=True)

    version = subprocess.run([args.tessera, "--version"], capture_output=True,
                             text=True).stdout.strip()
    command = shlex.join(["bench/inference.py", *sys.argv[1:]])
    lines = [f"# Inference of {args.model} under several layouts, {args.dtype}, {args.cores} cores "
             f"in all", "",
             f"{machine()}, {version}, {datetime.date.today()}. Command: `{command}`; "
             f"{args.rounds} round(s).",
             "Medians over the rounds with their range; memory is that of the rank that needs the "
             "most, bytes those of the rank that hands over the most;",
             "logits differ by: largest difference from one rank's over their largest."]
    for batch in batches:
        lines += table(layouts, batch, seen, args.cores)
    lines += ["", "## Verdict", "", "(to be written)"]
    out.write_text("\n".join(lines) + "\n")
    print(out)


if __name__ == "__main__":
    main()
