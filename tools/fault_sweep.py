#!/usr/bin/env python3
"""Runs the whole sweep of failing calls (docs/testing.md) on all cores, and sums up its counts.

    tools/fault_sweep.py                       everything, one process a core
    tools/fault_sweep.py --every 20            every 20th case of each part, to see that it works
    tools/fault_sweep.py --only processes      the parts whose name contains this
    tools/fault_sweep.py --limit 400           starts no share after 400 s, and says how many were
        left
    tools/fault_sweep.py --list                the parts

Each part is cut into shares (TESSERA_FAULT_SHARD), each share is a process of faults_test. Exit
status: 0 when every share ran and passed, and nothing was found.
"""
import argparse
import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import threading
import time

# A part: its test, and how many cores a case keeps busy (two ranks mostly start, end and wait).
PARTS = {
    "processes": ("Long.EveryCallOfTwoProcesses", 1),
    "threads": ("Long.EveryCallOfTwoThreads", 1),
    "one rank": ("Long.EveryCallOfOneRank", 1),
    "deaths": ("Long.DeathAfterEveryCall", 1),
    "readers": ("Long.EveryCallOfAReader", 1),
    "beside a writer": ("Long.ReadersBesideATrainingFindACheckpoint", 1),
    "power": ("Long.ACrashAtEveryFlush", 1),
    "power, two ranks": ("Long.ACrashAtEveryFlushOfTwoProcesses", 1),
    "races": ("Long.ManyRacesForAFolder", 4),
    "overtaken": ("Long.AProcessThatIsOvertakenRemovesNothing", 1),
    "closed": ("Long.EveryClosedDescriptor", 1),
    "slow disk": ("Long.ADiskThatIsAlwaysSlowIsNoHang", 1),
}
WHOLE = {"closed", "slow disk"}  # a few cases: not cut


class Cores:
    """A share takes all that it needs at once: two that wait for more cannot stall each other."""

    def __init__(self, count):
        self.free, self.change = count, threading.Condition()

    def take(self, count):
        with self.change:
            self.change.wait_for(lambda: self.free >= count)
            self.free -= count

    def give(self, count):
        with self.change:
            self.free += count
            self.change.notify_all()


def shares(options):
    """(part, test, share, cores) of everything that was asked for, the longest parts first."""
    cut = 4 * options.jobs + 1  # odd: cases come in pairs, once and for ever
    for part, (test, cores) in PARTS.items():
        if options.only and not any(word in part for word in options.only):
            continue
        count = 1 if part in WHOLE else cut * options.every
        for k in range(0, count, 1 if part in WHOLE else options.every):
            yield part, test, f"{k}/{count}", min(cores, options.jobs)


def run(share, program, environment, cores, deadline):
    part, test, which, needs = share
    cores.take(needs)
    start = time.monotonic()
    try:
        if start > deadline:
            return share, None, "", 0
        ended = subprocess.run(
            [program, "--gtest_brief=1", f"--gtest_filter={test}"], text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=environment | {"TESSERA_FAULT_SHARD": which, "TESSERA_FAULT_JOBS": "1"})
    finally:
        cores.give(needs)
    return share, ended.returncode, ended.stdout, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/tests/faults_test")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", action="append")
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS")
    parser.add_argument("--log", help="a file for what the shares that failed said")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{part:16} {test}" for part, (test, _) in PARTS.items()))
        return 0
    if not os.access(options.program, os.X_OK):
        sys.exit(f"{options.program} is not there; build it: ninja -C build faults_test")
    # Otherwise every mpirun would put its ranks on the first two cores.
    environment = os.environ | {"OMPI_MCA_hwloc_base_binding_policy": "none",
                                "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    if "TMPDIR" not in environment and os.access("/dev/shm", os.W_OK):
        environment["TMPDIR"] = "/dev/shm"

    work, start = list(shares(options)), time.monotonic()
    if not work:
        sys.exit(f"no part is called like {options.only}; --list names them")
    place = environment.get("TMPDIR", "/tmp")
    print(f"{len(work)} shares on {options.jobs} cores, files in {place}", flush=True)
    counts = collections.defaultdict(collections.Counter)
    seconds, failed, findings, left = collections.Counter(), [], [], collections.Counter()
    cores = Cores(options.jobs)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        under_way = [pool.submit(run, share, options.program, environment, cores,
                                 start + options.limit) for share in work]
        for done, future in enumerate(concurrent.futures.as_completed(under_way), 1):
            (part, test, which, _), status, said, took = future.result()
            if status is None:
                left[part] += 1
                continue
            seconds[part] += took
            for name, rest in re.findall(r"^count: ([^|\n]*) \| (.*)$", said, re.M):
                for key, number in re.findall(r"([^|]+) (-?\d+)(?: \||$)", rest):
                    counts[name][key.strip()] += int(number)
            findings += re.findall(r"^finding: (.*)$", said, re.M)
            if status != 0:
                failed.append(f"TESSERA_FAULT_SHARD={which} {options.program} "
                              f"--gtest_filter={test}  (exit {status})")
                if options.log:
                    with open(options.log, "a", encoding="utf-8") as log:
                        log.write(f"==== {failed[-1]}\n{said}\n")
            print(f"  {time.monotonic() - start:4.0f} s  {done}/{len(work)}  {part} {which}: "
                  f"{'ok' if status == 0 else 'FAILED'} in {took:.0f} s", flush=True)

    part_of = f" (every {options.every}th case)" if options.every > 1 else ""
    print(f"\nsummary, {time.monotonic() - start:.0f} s{part_of}")
    for name, row in counts.items():
        print(f"  {name}: " + ", ".join(f"{key} {number}" for key, number in row.items()))
    total = sum((row for row in counts.values()), collections.Counter())
    print(f"  all: {total['faults']} faults, {total['cases']} other cases, "
          f"{len(findings)} findings, {len(failed)} of {len(work)} shares failed")
    print("  seconds of all shares: "
          + ", ".join(f"{part} {took:.0f}" for part, took in seconds.items()))
    for part, number in left.items():
        print(f"not run, the time was over: {number} shares of {part}")
    for line in findings:
        print(f"finding: {line}")
    for line in failed:
        print(f"failed: {line}")
    return 1 if failed or findings or left else 0


if __name__ == "__main__":
    sys.exit(main())
