#!/usr/bin/env python3
"""Tessera on several ranks beside PyTorch DDP, FSDP2, Accelerate and DeepSpeed on the same CPU.

    bench/peers_ranks.py --np 1,2 --rounds 3 --jsonl FILE.jsonl > FILE.md
    bench/peers_ranks.py --np 1,2,4,8,16 --threads 1 --cases vit_tiny_cifar:32,resnet18_cifar:16
    bench/peers_ranks.py --np 1,2 --jsonl FILE.jsonl --report                tables of what is there

Needs torch and torchvision; Accelerate and DeepSpeed take part where they are installed. All train
the same model in f32 with AdamW, with the same images in all and the same threads a rank. Weak
scaling has IMAGES on each rank, strong scaling IMAGES x the most ranks in all, so the largest
number of ranks stands in both. Tessera is `tessera train --np N --zero 0..3` on its embedded data,
which it loads while it trains; peers are processes (bench/peer_rank.py) with torchrun's variables
and gloo on the loopback device, and train on one batch in memory, which costs them nothing.

Convention: a round measures every side once, every second round backwards, so that drift of the
machine favours none; a measurement is the median of its steps after three for warm-up. Shown are
medians over the rounds with their range. Ratios and efficiencies are taken within a round, the
latter against one rank of the same framework without any wrapper. "RSS" is the largest resident
memory of any process of the run at its peak, as the kernel counted it. PyTorch runs with the
fastest of its settings on one rank (fused AdamW, oneDNN, channels_last). Every run is checked: the
images that went through the model, the updates and the parameters must be those of the other side.
A run during which other processes had more than --others of the machine is repeated. Lines in
--jsonl add up, and a round that was cut goes on where it ended (--budget), so a campaign may be run
in pieces. See bench/README.md.
"""
import argparse
import datetime
import importlib.metadata
import importlib.util
import itertools
import json
import os
import pathlib
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEER = str(ROOT / "bench/peer_rank.py")
# Sides on several ranks with the stage of ZeRO that their sharding corresponds to.
SIDES = {"tessera zero 0": 0, "tessera zero 1": 1, "tessera zero 2": 2, "tessera zero 3": 3,
         "ddp": 0, "accelerate": 0, "deepspeed 1": 1, "deepspeed 2": 2, "deepspeed 3": 3,
         "fsdp2": 3}
ALONE = ("tessera zero 0", "torch")  # on one rank
CASES = "vit_tiny_cifar:16,resnet_micro_cifar:64"
WARM = 3  # steps that are not timed


# This process does not import torch: the peak of a child's memory begins with its parent's.
def finish(processes, limit_s):
    """Exit codes, and memory in MB and others' use of the machine; one that fails ends them all."""
    codes, peak, own_s, began, busy_s = {}, 0.0, 0.0, time.monotonic(), busy_seconds()
    try:
        while len(codes) < len(processes) and not any(codes.values()):
            for process in processes:
                if process.pid in codes:
                    continue
                pid, status, used = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    process.returncode = codes[pid] = os.waitstatus_to_exitcode(status)
                    peak = max(peak, used.ru_maxrss * 1024 / 1e6)
                    own_s += used.ru_utime + used.ru_stime
            if time.monotonic() - began > limit_s:
                break
            time.sleep(0.02)
    finally:
        for process in processes:
            if process.pid not in codes:
                os.killpg(process.pid, signal.SIGKILL)
                codes[process.pid] = process.wait()
    others = (busy_seconds() - busy_s - own_s) / (time.monotonic() - began) / os.cpu_count()
    return list(codes.values()), {"rss_mb": peak, "others": max(0.0, others)}


def busy_seconds():
    """Processor time of the whole machine so far."""
    user, nice, system = map(int, pathlib.Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_peer(options, spec, ranks):
    port, started = free_port(), []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(ranks):
            environment = os.environ | {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks),
                "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "OMP_NUM_THREADS": str(options.threads),
                "GLOO_SOCKET_IFNAME": "lo", "DS_ACCELERATOR": "cpu", "ACCELERATE_USE_CPU": "true",
                "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}
            said = open(pathlib.Path(folder, f"said{rank}"), "w")
            spec = spec | {"result": str(pathlib.Path(folder, f"result{rank}"))}
            with said:
                started.append(subprocess.Popen(
                    [sys.executable, PEER, json.dumps(spec)], stdout=said,
                    stderr=subprocess.STDOUT, env=environment, start_new_session=True))
        codes, used = finish(started, options.limit)
        if any(codes):
            texts = [pathlib.Path(folder, f"said{r}").read_text().strip() for r in range(ranks)]
            last = next((text.splitlines()[-1] for text in texts if text), "no output")
            if options.verbose:
                print("\n".join(texts), file=sys.stderr)
            return {"failed": f"exit codes {codes}: {last}"[:300]}
        return json.loads(pathlib.Path(folder, "result0").read_text()) | used


def run_tessera(options, spec, ranks, zero):
    images, steps = spec["batch"] * ranks, spec["steps"]
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "run")
        command = [options.tessera, "train", "--model", spec["model"], "--data", "synthetic",
                   "--np", str(ranks), "--zero", str(zero), "--threads", str(options.threads),
                   "--global-batch", str(images), "--micro-batch", str(spec["batch"]), "--dtype",
                   "f32", "--device", "cpu", "--steps", str(steps), "--quiet", "--out", str(out)]
        for key in ("optim.name=adamw", "run.eval_every=0", "run.trace=0", "data.test_size=16",
                    f"data.train_size={images * steps}", "checkpoint.every=1000000"):
            command += ["--set", key]
        said = pathlib.Path(folder, "said")
        with said.open("w") as file:
            started = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT,
                                       start_new_session=True)
        codes, used = finish([started], options.limit)
        if any(codes):
            return {"failed": f"exit code {codes[0]}: {said.read_text().strip()[-200:]}"}
        summary = json.loads((out / "summary.json").read_text())
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        commit = json.loads((out / "env.json").read_text())["commit"]
    done = [line for line in lines if line["kind"] == "step"]
    epoch = next(line for line in lines if line["kind"] == "epoch")
    layout, batch = summary["layout"], summary["batch"]
    if (layout["dp"], layout["zero"], batch["accumulate"]) != (ranks, zero, 1):
        raise SystemExit(f"{' '.join(command)}: ran as {layout}, {batch}")
    # The data are as many images as were asked for: one whole epoch has seen each of them once.
    whole = epoch["whole"] and (epoch["epoch"], epoch["step"]) == (1, steps)
    seen = sum(round(line["images_per_s"] * line["step_ms"] / 1e3) for line in done)
    return {"ms": [line["step_ms"] for line in done], "images_seen": seen if whole else 0,
            "updates": len(done), "params": summary["params"], "commit": commit, **used}


class Campaign:
    """Lines of the --jsonl file, those of earlier calls first."""

    def __init__(self, options):
        self.options, self.lines = options, []
        self.file = options.jsonl
        if self.file and self.file.exists():
            self.lines = [json.loads(line) for line in self.file.read_text().splitlines()]

    def add(self, **fields):
        self.lines.append(fields)
        if self.file:
            with self.file.open("a") as file:
                print(json.dumps(fields), file=file)

    def of(self, kind, **fields):
        wanted = {"kind": kind, **fields}
        return [line for line in self.lines
                if all(line.get(key) == value for key, value in wanted.items())]

    def setting(self, case):
        """PyTorch's best setting for a case, tried once for all rounds."""
        found = self.of("setting", model=case.model, threads=self.options.threads)
        if not found:
            spec = {"side": "tune", "model": case.model, "batch": case.weak,
                    "threads": self.options.threads}
            tried = run_peer(self.options, spec, 1)
            if "failed" in tried:
                raise SystemExit(f"PyTorch on one rank: {tried['failed']}")
            self.add(kind="setting", model=case.model, threads=self.options.threads,
                     images=case.weak, **tried)
            found = self.of("setting", model=case.model, threads=self.options.threads)
        return found[0]

    def measure(self, case, side, ranks, images, number):
        options, known = self.options, self.setting(case)
        step_ms = known["ms"] * images / ranks / known["images"]
        steps = WARM + max(5, min(100, round(1e3 * options.seconds / step_ms)))
        apart = side.startswith(("fsdp2", "deepspeed"))  # They take contiguous weights only.
        spec = {"side": side, "model": case.model, "batch": images // ranks, "steps": steps,
                "threads": options.threads, "setting": known["contiguous" if apart else "setting"]}
        for _ in range(3):
            if side.startswith("tessera"):
                found = run_tessera(options, spec, ranks, SIDES[side])
            else:
                found = run_peer(options, spec, ranks)
            if found.get("others", 1.0) < options.others:
                break
        row = {"model": case.model, "side": side, "ranks": ranks, "images": images,
               "round": number, "threads": options.threads}
        if "failed" in found:
            self.add(kind="failed", why=found["failed"], **row)
            print(f"{row}: {found['failed']}", file=sys.stderr)
            return
        if found["others"] > options.others:
            self.add(kind="disturbed", others=found["others"], **row)
            print(f"{row}: disturbed by others, {found['others']:.2f}", file=sys.stderr)
            return
        others = self.of("run", model=case.model)
        params = others[0]["params"] if others else found["params"]
        for what, is_, must in (("images", found["images_seen"], images * steps),
                                ("updates", found["updates"], steps),
                                ("parameters", found["params"], params)):
            if is_ != must:
                raise SystemExit(f"{side} on {ranks} ranks, {case.model}: {is_} {what}, not {must}")
        ms = found.pop("ms")[WARM:]
        self.add(kind="run", **row, ms=statistics.median(ms), fastest=min(ms), **found)
        print(f"round {number}: {case.model} {side}, {ranks} x {images // ranks} images: "
              f"{statistics.median(ms):.1f} ms, {found['rss_mb']:.0f} MB, others had "
              f"{100 * found['others']:.0f}% of the machine", file=sys.stderr)


class Case:
    """MODEL:IMAGES[:STRONG], the images of a rank and, for strong scaling, of all."""

    def __init__(self, text, ranks):
        self.model, *numbers = text.split(":")
        self.weak = int(numbers[0])
        self.strong = int(numbers[1]) if len(numbers) > 1 else self.weak * max(ranks)
        if any(self.strong % n for n in ranks):
            raise SystemExit(f"{text}: {self.strong} images cannot be shared by {ranks} ranks")

    def runs(self, ranks, sides):
        """One round: (side, ranks, images in all)."""
        return [(side, n, images) for n in ranks for images in sorted({self.weak * n, self.strong})
                for side in (sides if n > 1 else ALONE)]


def spread(values, digits):
    if not values:
        return ""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def table(campaign, case, ranks, weak):
    """Prints weak or strong scaling of one case."""
    title = f"weak: {case.weak} images a rank" if weak else f"strong: {case.strong} images in all"
    print(f"\n## {case.model}, {title}\n")
    print("| ranks | side | ms a step | images/s | efficiency, % | RSS, MB | "
          "times the best peer's speed | times the best with the same sharding |")
    print("|---|---|---|---|---|---|---|---|")
    runs = campaign.of("run", model=case.model, threads=campaign.options.threads)

    def ms(side, n):
        images = case.weak * n if weak else case.strong
        return {run["round"]: run["ms"] for run in runs
                if (run["side"], run["ranks"], run["images"]) == (side, n, images)}

    for n in ranks:
        images = case.weak * n if weak else case.strong
        sides = {side: ms(side, n) for side in (SIDES if n > 1 else ALONE)}
        for side, mine in sides.items():
            if not mine:
                continue
            ours = side.startswith("tessera")
            rss = [run["rss_mb"] for run in runs
                   if (run["side"], run["ranks"], run["images"]) == (side, n, images)]
            alone = ms(ALONE[0] if ours else ALONE[1], 1)
            efficiency = [100 * alone[r] / mine[r] / (1 if weak else n) for r in mine if r in alone]

            def ratios(level):
                found = []
                for number, own in mine.items():
                    peers = [theirs[number] for who, theirs in sides.items()
                             if not who.startswith("tessera") and number in theirs
                             and level in (None, SIDES.get(who, 0))]
                    found += [min(peers) / own] if peers else []
                return spread(found, 2)
            same = ratios(SIDES[side]) if ours and n > 1 else ""
            print(f"| {n} | {side} | {spread(list(mine.values()), 1)} | "
                  f"{1e3 * images / statistics.median(mine.values()):.1f} | "
                  f"{spread(efficiency, 1) if n > 1 else ''} | {statistics.median(rss):.0f} | "
                  f"{ratios(None)} | {same} |")


def report(campaign, cases, ranks):
    options = campaign.options
    versions = [f"{name} {importlib.metadata.version(name)}"
                for name in ("torch", "accelerate", "deepspeed") if importlib.util.find_spec(name)]
    commits = sorted({run["commit"] for run in campaign.of("run") if "commit" in run})
    print(f"{platform.machine()}, {os.cpu_count()} cores, {options.threads} thread(s) a rank, f32, "
          f"AdamW, {datetime.date.today()}; Tessera {', '.join(commits)}, {', '.join(versions)}.")
    missing = [name for name in ("accelerate", "deepspeed") if not importlib.util.find_spec(name)]
    if missing:
        print(f"Not installed here: {', '.join(missing)}.")
    for case in cases:
        rounds = {run["round"] for run in campaign.of("run", model=case.model)}
        for line in campaign.of("setting", model=case.model, threads=options.threads):
            print(f"{case.model}: {len(rounds)} rounds. PyTorch's best setting: {line['setting']}, "
                  f"with contiguous weights (FSDP2, DeepSpeed): {line['contiguous']}.")
    started = [run["start_mb"] for run in campaign.of("run") if "start_mb" in run]
    if started:
        others = [100 * run["others"] for run in campaign.of("run") if "others" in run]
        print(f"Other processes used {spread(others, 1)}% of the machine during a run.")
        print(f"Of a peer's RSS {statistics.median(started):.0f} MB are PyTorch's libraries, "
              "loaded before the model is built.")
    for side in SIDES:
        for why in sorted({line["why"] for line in campaign.of("failed", side=side)}):
            print(f"{side} failed: {why}")
    for case, weak in itertools.product(cases, (False, True)):
        table(campaign, case, ranks, weak)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--np", default="1,2", help="numbers of ranks; 1 always takes part")
    parser.add_argument("--threads", type=int, default=1, help="of a rank")
    parser.add_argument("--cases", default=CASES, help="MODEL:IMAGES[:STRONG],...")
    parser.add_argument("--sides", default=",".join(SIDES), help="on several ranks")
    parser.add_argument("--rounds", type=int, default=3, help="with those in --jsonl")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which none begins")
    parser.add_argument("--seconds", type=float, default=4.0, help="steps of a run, about")
    parser.add_argument("--limit", type=float, default=600, help="seconds a run may take")
    parser.add_argument("--others", type=float, default=0.05,
                        help="share of the machine used by others that has a run repeated, twice")
    parser.add_argument("--tessera", default=str(ROOT / "build/tessera"))
    parser.add_argument("--jsonl", type=pathlib.Path, help="file that every run is added to")
    parser.add_argument("--report", action="store_true", help="only print what --jsonl has")
    parser.add_argument("--verbose", action="store_true", help="all that a failed peer said")
    options = parser.parse_args()
    ranks = sorted({1, *map(int, options.np.split(","))})
    cases = [Case(text, ranks) for text in options.cases.split(",")]
    sides = options.sides.split(",")
    if unknown := [side for side in sides if side not in SIDES]:
        parser.error(f"unknown side {unknown[0]!r}; choose from {', '.join(SIDES)}")
    sides = [side for side in sides if importlib.util.find_spec(side.split()[0])
             or not side.startswith(("accelerate", "deepspeed"))]
    campaign = Campaign(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # Children are ended, too.
    until = time.monotonic() + options.budget
    for number, case in itertools.product(range(1, options.rounds + 1), cases):
        for side, n, images in case.runs(ranks, sides)[::1 if number % 2 else -1]:
            done = campaign.of("run", model=case.model, side=side, ranks=n, images=images,
                               round=number, threads=options.threads)
            if not (done or options.report or time.monotonic() > until):
                campaign.measure(case, side, n, images, number)
    report(campaign, cases, ranks)


if __name__ == "__main__":
    sys.exit(main())
