#!/usr/bin/env python3
"""How often a rank that gets a quarter of its time is named, and how often one that does not is.

    bench/slow_rank.py [--tessera build/tessera] [--rounds 10] [--share 0.25]

Trainings of a small ViT on 2 and 3 ranks, with steps of tens of milliseconds and with short ones,
as a study whose `launch.throttle` slows rank 1 down, and the same without it. Printed for each: in
how many runs a note names rank 1, in how many another rank, and in how many summary.json says that
the others waited for rank 1 the most (docs/measuring.md).
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

STUDY = """
[study]
name = "slow_rank"
title = "A slow rank"
what = "Who is named."
repeats = {rounds}
warmup = 0
time_limit = 300
[base]
model = {{ name = "vit_micro" }}
run = {{ threads = 1, eval_every = 0 }}
parallel.comm = "mpi"
checkpoint.keep_best = false
"""
PART = """
[[part]]
name = "{name}"
title = "{name}"
kind = "techniques"
[part.set]
run = {{ np = {ranks}, steps = {steps} }}
batch = {{ global = {batch}, micro = {batch} }}
data = {{ source = "synthetic", train_size = {size}, test_size = 16 }}
[[part.technique]]
name = "equal"
[[part.technique]]
name = "slow"
set = {{ "launch.throttle" = "1:{share}" }}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", default="build/tessera")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.25)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--keep", action="store_true", help="leave the runs, and say where")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="slow_rank_"))
    text = STUDY.format(rounds=options.rounds)
    for ranks in (2, 3):
        for name, each, steps in (("long", 96, options.steps), ("short", 8, 4 * options.steps)):
            text += PART.format(name=f"{name}-{ranks}", ranks=ranks, batch=each * ranks,
                                steps=steps, size=each * ranks * 8, share=options.share)
    (folder / "study.toml").write_text(text)
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1",
                                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                                "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    command = [options.tessera, "study", folder / "study.toml", "--out", folder / "out"]
    ended = subprocess.run(command, env=environment, text=True, capture_output=True)
    if ended.returncode != 0:
        sys.exit(f"the study ended with {ended.returncode}:\n"
                 f"{ended.stdout[-3000:]}{ended.stderr[-3000:]}")

    rows = {}
    for summary in sorted((folder / "out" / "runs").rglob("summary.json")):
        part, point = summary.parent.parent.name, summary.parent.name
        told = json.loads(summary.read_text())
        said = "".join((summary.parent / name).read_text() for name in ("log.txt", "stderr.txt")
                       if (summary.parent / name).exists())
        named = set(re.findall(r"rank (\d+) is slow", said))
        row = rows.setdefault((part, "slow" if point.startswith("slow") else "equal"),
                              {"runs": 0, "one": 0, "other": 0, "waited": 0, "ms": []})
        row["runs"] += 1
        row["one"] += "1" in named
        row["other"] += bool(named - {"1"})
        row["waited"] += (told.get("waited_for") or {}).get("rank") == 1
        row["ms"].append(told["step_ms"]["median"])
    print("| steps and ranks | rank 1 | runs | rank 1 named | another named | waited for rank 1 "
          "| ms a step |\n|---|---|---|---|---|---|---|")
    for (part, which), row in rows.items():
        ms = sorted(row["ms"])[len(row["ms"]) // 2]
        share = f"{options.share:g} of its time" if which == "slow" else "as the others"
        print(f"| {part} | {share} | {row['runs']} | {row['one']} | {row['other']} "
              f"| {row['waited']} | {ms:.1f} |")
    if options.keep:
        print(f"the runs are in {folder}")
    else:
        subprocess.run(["rm", "-r", folder], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
