#!/usr/bin/env python3
"""Tessera and PyTorch on the same CPU, side by side: training steps (vit_tiny_cifar,
resnet18_cifar) and inference (vit_b_16, resnet50), f32.

    bench/peer_torch.py [--rounds 5] [--threads 2] [--cases train,infer,train_resnet,infer_resnet]
        [--jsonl FILE]      needs torch, torchvision and build/tessera

Convention: the two alternate within each round and change order from round to round, so that drift
of the machine (clock, neighbours) hits both; each round gives one median per side and one ratio;
reported are the medians over rounds with their range. PyTorch runs at its best setting, found first
by trying them all. FLOPs = 2 x multiply-adds of contractions, training 3x. See bench/README.md.
"""
import argparse
import datetime
import itertools
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import time
import warnings

import torch
import torchvision

ROOT = pathlib.Path(__file__).resolve().parent.parent
# model: image, patch, dim, depth, heads, mlp, classes
MODELS = {"vit_tiny_cifar": (32, 4, 192, 12, 3, 768, 10),
          "vit_b_16": (224, 16, 768, 12, 12, 3072, 1000)}
# model: image, blocks per stage, bottleneck blocks, stem for small images, classes
RESNETS = {"resnet18_cifar": (32, (2, 2, 2, 2), False, True, 10),
           "resnet50": (224, (3, 4, 6, 3), True, False, 1000)}
CASES = {"train": ("vit_tiny_cifar", 64), "infer": ("vit_b_16", 8),
         "train_resnet": ("resnet18_cifar", 64), "infer_resnet": ("resnet50", 8)}
# per parameter and step: read forward and backward, write gradient; AdamW reads w g m v, writes w m
# v
OPTIMIZER_TOUCHES = 10


def resnet_flops(model):
    image, layers, bottleneck, small, classes = RESNETS[model]
    expansion = 4 if bottleneck else 1
    size, before = (image, 64) if small else (image // 2, 64)
    products = size * size * 3 * 64 * (9 if small else 49)
    size = size if small else size // 2
    for stage, blocks in enumerate(layers):
        planes = 64 << stage
        for block in range(blocks):
            after, inside = size // (2 if stage and not block else 1), planes * expansion
            if bottleneck:
                products += size**2 * before * planes + after**2 * planes * (9 * planes + inside)
            else:
                products += after**2 * 9 * planes * (before + planes)
            if before != inside or after != size:
                products += after**2 * before * inside
            size, before = after, inside
    return 2 * (products + before * classes)


def forward_flops(model):
    if model in RESNETS:
        return resnet_flops(model)
    image, patch, dim, depth, _, mlp, classes = MODELS[model]
    patches = (image // patch) ** 2
    tokens = patches + 1
    block = 4 * tokens * dim * dim + 2 * tokens * tokens * dim + 2 * tokens * dim * mlp
    return 2 * (patches * 3 * patch * patch * dim + depth * block + dim * classes)


def make_net(model):
    if model in RESNETS:
        _, layers, bottleneck, small, classes = RESNETS[model]
        blocks = torchvision.models.resnet
        block = blocks.Bottleneck if bottleneck else blocks.BasicBlock
        net = torchvision.models.ResNet(block, list(layers), num_classes=classes)
        if small:
            net.conv1, net.maxpool = torch.nn.Conv2d(3, 64, 3, 1, 1,
                                                     bias=False), torch.nn.Identity()
        return net
    image, patch, dim, depth, heads, mlp, classes = MODELS[model]
    return torchvision.models.VisionTransformer(image, patch, depth, heads, dim, mlp,
                                                num_classes=classes)


class Peer:
    """One case in PyTorch: `step()` is what is timed."""

    def __init__(self, verb, model, batch):
        torch.manual_seed(1)
        sizes = (MODELS | RESNETS)[model]
        image, classes = sizes[0], sizes[-1]
        self.train = verb == "train"
        self.resnet = model in RESNETS
        self.images = torch.randn(batch, 3, image, image)
        self.labels = torch.randint(0, classes, (batch,))
        self.net = make_net(model).train(self.train)
        self.choose({})

    def settings(self):
        fused = (False, True) if self.train else (False,)
        layouts = (False, True) if self.resnet else (False,)
        return [dict(mkldnn=m, fused_adamw=f, channels_last=c) for m, f,
                c in itertools.product((True, False), fused, layouts)]

    def choose(self, setting):
        self.mkldnn = setting.get("mkldnn", True)
        layout = torch.channels_last if setting.get("channels_last") else torch.contiguous_format
        self.net = self.net.to(memory_format=layout)
        self.images = self.images.contiguous(memory_format=layout)
        if self.train:
            self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3,
                                               fused=setting.get("fused_adamw", False))

    def step(self):
        with torch.backends.mkldnn.flags(enabled=self.mkldnn):
            if not self.train:
                with torch.inference_mode():
                    return self.net(self.images)
            torch.nn.functional.cross_entropy(self.net(self.images), self.labels).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def measure(self, seconds):
        """Milliseconds of single steps, after one to warm up."""
        self.step()
        times, end = [], time.perf_counter() + seconds
        while len(times) < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            self.step()
            times.append(1e3 * (time.perf_counter() - start))
        return times


def best_setting(peer):
    """The fastest setting; one that this build of PyTorch cannot run is passed over and named."""
    found = []
    for setting in peer.settings():
        try:
            peer.choose(setting)
            found.append((statistics.median(peer.measure(2.0)), setting))
        except RuntimeError as error:
            print(f"  {setting}: not available ({str(error).splitlines()[0]})", file=sys.stderr)
            continue
        print(f"  {setting}: {found[-1][0]:.1f} ms", file=sys.stderr)
    best = min(found, key=lambda row: row[0])[1]
    peer.choose(best)
    return best


def measure_tessera(binary, verb, model, batch, threads):
    command = [str(binary), "bench", verb, "--model", model, "--batch", str(batch), "--threads",
               str(threads), "--dtype", "f32", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr.strip()}")
    return json.loads(done.stdout)


class Floors:
    """What nobody can beat here: the matmul rate (GFLOP/s) and the copy bandwidth (GB/s). Sampled
    again before every round, and the best counts, because a floor measured while the machine was
    busy would be no floor."""

    def __init__(self):
        self.matmul_gflops = self.copy_gb_per_s = 0.0

    def sample(self):
        a, b, c = (torch.randn(1536, 1536) for _ in range(3))
        for mkldnn in (True, False):
            with torch.backends.mkldnn.flags(enabled=mkldnn):
                self.matmul_gflops = max(self.matmul_gflops, 2 * 1536**3
                                         / fastest(lambda: torch.mm(a, b, out=c), 6) / 1e9)
        source = torch.zeros(32 << 20)
        target = torch.ones_like(source)
        self.copy_gb_per_s = max(self.copy_gb_per_s, 2 * 4
                                 * source.numel() / fastest(lambda: target.copy_(source), 6) / 1e9)


def fastest(function, tries):
    times = []
    for _ in range(tries):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def machine():
    try:
        fields = dict(line.split(":", 1)
                      for line in subprocess.check_output(["lscpu"], text=True).splitlines()
                      if ":" in line)
        cpu = fields.get("Model name", "").strip()
    except (OSError, subprocess.CalledProcessError):
        cpu = ""
    try:
        commit = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
                                         text=True, stderr=subprocess.DEVNULL).strip()
    except (OSError, subprocess.CalledProcessError):
        commit = ""
    return dict(cpu=cpu or platform.machine(), commit=commit or "unknown", torch=torch.__version__,
                date=datetime.date.today().isoformat())


def spread(values, digits=1):
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({least:.{digits}f}-{most:.{digits}f})"


def compare(name, args, floors, record):
    verb = name.split("_")[0]
    model, batch = CASES[name]
    flops = forward_flops(model) * batch * (3 if verb == "train" else 1)
    print(f"{verb} {model} batch {batch}: PyTorch's settings", file=sys.stderr)
    peer = Peer(verb, model, batch)
    setting = best_setting(peer)
    weights = 4 * sum(p.numel()
                      for p in peer.net.parameters()) * (OPTIMIZER_TOUCHES if verb == "train"
                                                         else 1)

    def tessera():
        result = measure_tessera(args.binary, verb, model, batch, args.threads)
        floors.matmul_gflops = max(floors.matmul_gflops, result.get("peak_gflops") or 0.0)
        return result["ms"]["median"]

    sides = {"tessera": tessera, "torch": lambda: statistics.median(peer.measure(args.seconds))}
    if args.torch_only:
        del sides["tessera"]
    times = {side: [] for side in sides}
    for index in range(args.rounds):
        floors.sample()
        for side in (list(sides) if index % 2 == 0 else reversed(list(sides))):
            times[side].append(sides[side]())
            record(kind="round", case=name, model=model, batch=batch, side=side, round=index + 1,
                   ms=times[side][-1])
            print(f"  round {index + 1} {side}: {times[side][-1]:.1f} ms", file=sys.stderr)
    case = f"{verb} {model} b{batch}"
    rows = []
    for side, ms in times.items():
        middle = statistics.median(ms)
        ratios = [t / o for t, o in zip(times["torch"], ms)]
        rows.append([case, side, spread(ms), f"{1e3 * batch / middle:.1f}",
                     f"{flops / middle / 1e6:.1f}", spread(ratios, 2)])
        record(kind="summary", case=name, model=model, batch=batch, side=side, threads=args.threads,
               dtype="f32", rounds=args.rounds,
               ms=dict(median=middle, min=min(ms), max=max(ms)), images_per_s=1e3 * batch / middle,
               gflops=flops / middle / 1e6,
               ratio=dict(median=statistics.median(ratios), min=min(ratios), max=max(ratios)),
               setting=setting if side == "torch" else None)
    rows.append([case, "floor: arithmetic", f"{flops / floors.matmul_gflops / 1e6:.1f}", "",
                 f"{floors.matmul_gflops:.1f}", ""])
    rows.append([case, "floor: weights through memory",
                 f"{weights / floors.copy_gb_per_s / 1e6:.1f}", "", "", ""])
    return rows, setting


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0,
                        help="PyTorch's time per round (at least three steps)")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/tessera")
    parser.add_argument("--jsonl", type=pathlib.Path, help="also append every measurement to this "
                                                           "file, one JSON document per line")
    parser.add_argument("--torch-only", action="store_true", help="measure PyTorch alone")
    args = parser.parse_args()
    cases = args.cases.split(",")
    if unknown := [case for case in cases if case not in CASES]:
        parser.error(f"unknown case {unknown[0]!r}; choose from {', '.join(CASES)}")
    if not args.torch_only and not args.binary.exists():
        parser.error(f"{args.binary} is not there: build it (./demo does) or give --torch-only")
    torch.set_num_threads(args.threads)
    # about Intel GPUs, whenever mkldnn is switched
    warnings.filterwarnings("ignore", message=".*TF32.*")

    about = machine()
    log = args.jsonl.open("a") if args.jsonl else None

    def record(**fields):
        if log:
            print(json.dumps(fields), file=log, flush=True)

    floors = Floors()
    floors.sample()
    print(f"matmul {floors.matmul_gflops:.1f} GFLOP/s, copy {floors.copy_gb_per_s:.1f} GB/s with "
          f"{args.threads} threads", file=sys.stderr)
    table, settings = [], {}
    for name in cases:
        rows, settings[name] = compare(name, args, floors, record)
        table += rows
    record(kind="machine", **about, matmul_gflops=floors.matmul_gflops,
           copy_gb_per_s=floors.copy_gb_per_s, threads=args.threads)
    print(f"{about['cpu']}, {args.threads} threads, f32, commit {about['commit']}, torch "
          f"{about['torch']}, {about['date']}; {args.rounds} alternating rounds.")
    print(f"Command: bench/peer_torch.py {' '.join(sys.argv[1:])}".rstrip()
          + f". PyTorch's best settings: {settings}.\n")
    print("| case | side | ms: median (min-max) | images/s | GFLOP/s | times PyTorch's speed "
          "|\n|---|---|---|---|---|---|")
    for row in table:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
