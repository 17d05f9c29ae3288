#!/usr/bin/env python3
"""all_reduce of ranks in shared memory beside plain MPI, in rounds (bench/results/comm_*.md).

    bench/all_reduce.py [--binary build/tessera] [--other OLD/tessera] [--rounds 5] [--repeats 41]

Each round is one `tessera bench comm` of each binary in turn, in which the algorithms take turns
too. Printed: of every size the time of the slowest rank in microseconds (median of the rounds'
medians, smallest and largest of them) for shared memory, MPI and a copy, and by how much shared
memory is faster than MPI. Asked for: 3 times from 4 MB on, which the last column says.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys


def first_line(path, key=""):
    try:
        with open(path, encoding="utf-8") as file:
            return next((line.split(":")[-1].strip() for line in file if line.startswith(key)), "?")
    except OSError:
        return "?"


def measure(binary, options, environment):
    """{bytes: {algorithm: (median us, times faster than MPI)}} of one round."""
    command = [binary, "bench", "comm", "--np", str(options.np), "--oversubscribe", "--json",
               "--min-bytes", options.min_bytes, "--max-bytes", options.max_bytes,
               "--repeats", str(options.repeats)]
    ended = subprocess.run(command, env=environment, text=True, capture_output=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {ended.returncode}:\n"
                 f"{ended.stderr}{ended.stdout}")
    return {size["bytes"]: {row["algorithm"]: (row["us"]["median"], row["times_faster_than_mpi"])
                            for row in size["rows"]}
            for size in json.loads(ended.stdout)["sizes"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/tessera")
    parser.add_argument("--other", help="another build, in turns with the first")
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--min-bytes", default="256KB")
    parser.add_argument("--max-bytes", default="64MB")
    options = parser.parse_args()
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1",
                                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    cache = "/sys/devices/system/cpu/cpu0/cache/index"
    print(f"{first_line('/proc/cpuinfo', 'model name')}, {os.cpu_count()} cores, "
          f"{platform.machine()}; L2 {first_line(cache + '2/size')}, "
          f"L3 {first_line(cache + '3/size')}; huge pages of shared memory: "
          f"{first_line('/sys/kernel/mm/transparent_hugepage/shmem_enabled')}; "
          f"load {os.getloadavg()[0]:.1f}")
    for name, binary in (("binary", options.binary), ("other", options.other)):
        if binary:
            version = subprocess.run([binary, "--version"], text=True, capture_output=True).stdout
            print(f"{name}: {binary} {version.strip()}")

    rounds = {}
    for _ in range(options.rounds):
        for binary in filter(None, (options.binary, options.other)):
            rounds.setdefault(binary, []).append(measure(binary, options, environment))

    def spread(values, digits):
        low, middle, high = min(values), statistics.median(values), max(values)
        return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"

    for binary, results in rounds.items():
        print(f"\n{binary}, {options.np} ranks, {options.rounds} rounds of {options.repeats}\n")
        print("| bytes | shared | mpi | copy | mpi / shared | at least 3 |")
        print("|---|---|---|---|---|---|")
        for size in results[0]:
            columns = [spread([r[size][name][0] for r in results], 1)
                       for name in ("shared", "mpi", "copy")]
            times = [r[size]["shared"][1] for r in results]
            met = "" if size < 4 << 20 else "yes" if statistics.median(times) >= 3 else "no"
            print(f"| {size:,} | " + " | ".join(columns) + f" | {spread(times, 2)} | {met} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
