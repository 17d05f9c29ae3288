#!/usr/bin/env python3
"""Two builds of tessera side by side: batch-1 inference and small training steps, where what is not
kernels shows first.

    bench/two_builds.py OLD NEW --rounds 11 > bench/results/two_builds_MACHINE_DATE.md
    bench/two_builds.py OLD NEW --models --threads 8 --rounds 5 --repeats 10     whole models
        instead, where kernels count

Each round runs every case with both builds, one after the other, the order changing from round to
round; the ratio is new over old of the same round. A run's own number is the median of its repeats
("ms"), and "least" the fastest of them, which a busy machine disturbs less. "CPU" is processor time
of one run: that of the whole process with many repeats less that with few, so start and compilation
fall out, and so does whoever else has the cores. `host` is what `tessera bench` calls rest: the
share of the run in no kernel at all; a kernel's own preparation (signatures, tiles) is inside its
time, so only the ratio shows what that costs.
"""
import argparse
import json
import resource
import statistics
import subprocess
import sys

CASES = [
    ("vit_micro, batch 1, inference",
     ["infer", "--model", "vit_micro", "--batch", "1", "--threads", "1"]),
    ("vit_tiny_cifar, batch 1, inference",
     ["infer", "--model", "vit_tiny_cifar", "--batch", "1", "--threads", "1"]),
    ("vit_micro, batch 1, 2 threads, inference",
     ["infer", "--model", "vit_micro", "--batch", "1", "--threads", "2"]),
    ("vit_micro, batch 8, training",
     ["train", "--model", "vit_micro", "--batch", "8", "--threads", "1"]),
    ("vit_micro, batch 32, training",
     ["train", "--model", "vit_micro", "--batch", "32", "--threads", "1"]),
    ("vit_micro, batch 8, training on 2 ranks",
     ["train", "--model", "vit_micro", "--batch", "8", "--threads", "1", "--np", "2", "--comm",
      "local"]),
]
MODELS = [("vit_b_16", 4), ("swin_t", 4), ("resnet50", 4), ("vit_tiny_cifar", 32)]


def model_cases(threads):
    """Inference and training of four models, the batch as it stands beside each."""
    return [(f"{model}, batch {batch}, {threads} threads, {what}",
             [verb, "--model", model, "--batch", str(batch), "--threads", str(threads)])
            for model, batch in MODELS for verb,
            what in (("infer", "inference"), ("train", "training"))]


def processor_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def bench(binary, words, repeats):
    command = [binary, "bench", *words, "--repeats", str(repeats), "--json"]
    before = processor_s()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout), processor_s() - before


def measure(binary, words, repeats):
    few = max(1, repeats // 10)
    _, start_s = bench(binary, words, few)
    document, all_s = bench(binary, words, repeats)
    host = sum(op["share"] for op in document["ops"] if op["op"] == "rest")
    return {"ms": document["ms"]["median"], "least": document["ms"]["min"], "host": host,
            "cpu": (all_s - start_s) / (repeats - few) * 1e3}


def spread(values, digits):
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--models", action="store_true",
                        help="four whole models instead of small steps")
    parser.add_argument("--threads", type=int, default=2, help="of --models")
    args = parser.parse_args()
    cases = model_cases(args.threads) if args.models else CASES
    seen = {name: {"old": [], "new": []} for name, _ in cases}
    for turn in range(args.rounds):
        sides = [("old", args.old), ("new", args.new)]
        for name, words in cases:
            for side, binary in sides if turn % 2 == 0 else sides[::-1]:
                seen[name][side].append(measure(binary, words, args.repeats))
        print(f"round {turn + 1} of {args.rounds}", file=sys.stderr)
    print(f"Medians of {args.rounds} rounds of {args.repeats} runs (least to most).\n")
    print("| case | old ms | new ms | new / old | of the fastest runs | CPU ms, old | CPU, new / "
          "old | host share, old | host share, new |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, _ in cases:
        old, new = seen[name]["old"], seen[name]["new"]
        ratios = [n["ms"] / o["ms"] for o, n in zip(old, new)]
        fastest = [n["least"] / o["least"] for o, n in zip(old, new)]
        processor = [n["cpu"] / o["cpu"] for o, n in zip(old, new)]
        print(f"| {name} | {spread([r['ms'] for r in old], 3)} | "
              f"{spread([r['ms'] for r in new], 3)} | {spread(ratios, 3)} | "
              f"{spread(fastest, 3)} | {spread([r['cpu'] for r in old], 2)} | "
              f"{spread(processor, 3)} | {100 * statistics.median(r['host'] for r in old):.1f}% | "
              f"{100 * statistics.median(r['host'] for r in new):.1f}% |")


if __name__ == "__main__":
    main()
