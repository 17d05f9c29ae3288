#!/usr/bin/env python3
"""The time budget of a training step as a page: every kernel with its floor, its time and the
ratio.

    tessera bench ops --model M --batch 256 --dtype bf16 --device cuda --json > M.json
    bench/ops_table.py M.json... [--whole] [--out FILE]

Convention: a floor is the larger of operations / peak and bytes / rate of a copy, both measured by
`bench ops` in the same process. The first table adds up by op; with --whole a second one has every
shape. Lines end with the ten largest losses, as `bench ops` prints them.
"""
import argparse
import collections
import json
import pathlib


def row(name, calls, ms, floor):
    return f"| {name} | {calls} | {floor:.2f} | {ms:.2f} | {100 * floor / ms:.0f}% |"


def page(found, whole):
    total = sum(op["ms"] for op in found["ops"])
    floor = sum(op["floor_ms"] for op in found["ops"])
    lines = [f"### {found['model']}, {found['dtype']}, batch {found['batch']}", "",
             f"Each op by itself: {total:.1f} ms, floor {floor:.1f} ms; "
             f"peak {found['peak_gflops'] / 1e3:.0f} TFLOP/s, "
             f"copies {found['copy_gbytes'] / 1e3:.2f} TB/s.", "",
             "| op | kernels | floor ms | ms | of the floor |", "|---|---|---|---|---|"]
    by_op = collections.defaultdict(lambda: [0, 0.0, 0.0])
    for op in found["ops"]:
        sums = by_op[op["name"].split()[0]]
        sums[0] += op["calls"]
        sums[1] += op["ms"]
        sums[2] += op["floor_ms"]
    for name, (calls, ms, least) in sorted(by_op.items(), key=lambda it: -it[1][1]):
        lines.append(row(name, calls, ms, least))
    if whole:
        lines += ["", "| kernel | of them | floor ms | ms | of the floor |",
                  "|---|---|---|---|---|"]
        lines += [row(f"`{op['name']}`", op["calls"], op["ms"], op["floor_ms"])
                  for op in sorted(found["ops"], key=lambda op: -op["ms"])]
    lost = sorted(found["ops"], key=lambda op: op["floor_ms"] - op["ms"])[:10]
    losses = (f"`{op['name']}` {op['ms'] - op['floor_ms']:.2f} ms" for op in lost)
    lines += ["", "The ten largest losses: " + ", ".join(losses) + "."]
    return lines


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    pages = (page(json.loads(file.read_text()), options.whole) for file in options.files)
    text = "\n\n".join("\n".join(lines) for lines in pages) + "\n"
    if options.out:
        options.out.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
