#!/usr/bin/env python3
"""Tessera and PyTorch on the same card, side by side: training and inference of vit_b_16, swin_t
and resnet50 in bf16.

    bench/peer_torch_cuda.py [--binary build-cuda/tessera] [--batch 256] [--rounds 2] [--models
        vit_b_16,swin_t,resnet50] [--cases train,infer,latency] [--largest [--compiled]] [--out
        FILE]

Needs torch and torchvision with CUDA. Convention: a round is one measurement of Tessera and one of
each way of PyTorch (eager, torch.compile), in turns; each gives the median of its runs; reported
are medians over rounds, their range, and the ratio to PyTorch's best. Images and labels lie on the
card for both. PyTorch has autocast to bf16, a fused AdamW, channels_last for convolutions and for
inference weights in bf16. `latency` is an inference of one image from pixels in the host's memory
to logits there, by the clock of the calling thread; PyTorch has pinned memory and bf16 there, and
its calls are replayed as CUDA graphs, as Tessera's are. Memory is what each side holds at most:
PyTorch's allocator, and what Tessera's plan takes. See bench/README.md. With --largest there is
another table instead: the largest batch of a training step that fits on the card, in steps of 16
images. Tessera's is what its plan says, and is run; PyTorch's is found by trying (eager). With
--compiled torch.compile has to make a step of it, too, and one of 16 images more (minutes).
"""
import argparse
import datetime
import gc
import json
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import torchvision

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ("vit_b_16", "swin_t", "resnet50")


class Torch:
    """One model of torchvision, as a function that does one step."""

    def __init__(self, name, case, batch, compiled):
        torch.manual_seed(0)
        layout = torch.channels_last if name.startswith("resnet") else torch.contiguous_format
        model = getattr(torchvision.models, name)().cuda().to(memory_format=layout)
        self.images = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=layout)
        self.labels = torch.randint(0, 1000, (batch,), device="cuda")
        self.case = case
        self.graph = None
        if case == "train":
            self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05,
                                               fused=True)
        else:
            model = model.eval().bfloat16()
            self.images = self.images.bfloat16()
        self.model = torch.compile(model) if compiled else model

    def capture(self):
        """The call as a graph, where starting kernels takes as long as running them."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.inference_mode():
            for _ in range(3):
                self.model(self.images)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph), torch.inference_mode():
            self.logits = self.model(self.images)
        self.host_images = self.images.cpu().pin_memory()
        self.host_logits = self.logits.cpu().pin_memory()
        self.graph = graph

    def step(self):
        if self.graph:
            self.images.copy_(self.host_images, non_blocking=True)
            self.graph.replay()
            return self.host_logits.copy_(self.logits, non_blocking=True)
        if self.case != "train":
            with torch.inference_mode():
                return self.model(self.images)
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(self.model(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def measure(self, seconds):
        for _ in range(3):
            self.step()
        if self.case == "latency" and not self.graph:
            self.capture()
        torch.cuda.synchronize()
        times, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 5:
            start = time.perf_counter()
            calls = 1 if self.case == "latency" else 3
            for _ in range(calls):
                self.step()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / calls * 1000)
        return statistics.median(times)


def tessera(options, model, case):
    verb = "train" if case == "train" else "infer"
    command = [str(options.binary), "bench", verb, "--model", model, "--data",
               "synthetic:224x224x3,1000", "--device", "cuda", "--dtype", "bf16",
               "--batch", str(batch_of(options, case)), "--json"]
    if case == "train":
        command += ["--global-batch", str(options.batch)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"peer_torch_cuda: {' '.join(command)} ended with "
                 f"{done.returncode}:\n{done.stderr}")
    found = json.loads(done.stdout)
    clock = "call_ms" if case == "latency" else "ms"
    return found[clock]["median"], found["peak_bytes"]


def batch_of(options, case):
    return 1 if case == "latency" else options.batch


def row(options, model, case):
    """Medians over rounds in ms of Tessera and of each way of PyTorch, and the bytes of each."""
    found = {"tessera": []}
    ways, bytes_of = {}, {}
    for way in ("eager", "compiled"):
        held = torch.cuda.memory_allocated()
        try:
            ways[way] = Torch(model, case, batch_of(options, case), way == "compiled")
            ways[way].measure(0)  # compiles
            torch.cuda.reset_peak_memory_stats()
            ways[way].measure(0)
            bytes_of[way] = torch.cuda.max_memory_allocated() - held
            found[way] = []
        except Exception as error:  # what PyTorch cannot compile is said, and left out
            ways.pop(way, None)
            print(f"peer_torch_cuda: {model} {case} {way}: {str(error).splitlines()[0]}",
                  file=sys.stderr)
    for _ in range(options.rounds):
        ms, bytes_of["tessera"] = tessera(options, model, case)
        found["tessera"].append(ms)
        for way, peer in ways.items():
            found[way].append(peer.measure(options.seconds))
    ways.clear()
    gc.collect()
    torch.cuda.empty_cache()
    return found, bytes_of


def fits(step):
    """Whether a function runs in the card's memory; what it took is given back either way."""
    try:
        step()
        torch.cuda.synchronize()
        return True
    except torch.OutOfMemoryError:
        return False
    finally:
        gc.collect()
        torch.cuda.empty_cache()


def last_that(holds, known, grain=16):
    """The largest multiple of `grain` for which `holds` is true, which it is for `known`."""
    low, high = known, 2 * known
    while holds(high):
        low, high = high, 2 * high
    while high - low > grain:
        middle = (low + high) // 2 // grain * grain
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def torch_steps(model, batch, compiled):
    peer = Torch(model, "train", batch, compiled)
    for _ in range(2):  # the optimizer's state comes with the first
        peer.step()


def planned(options, model, batch):
    """Whether the plan of a step takes no more than the card has to give."""
    command = [str(options.binary), "explain", "--model", model, "--data",
               "synthetic:224x224x3,1000", "--device", "cuda", "--dtype", "bf16",
               "--global-batch", str(batch), "--no-program", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    free = torch.cuda.mem_get_info()[0]
    return done.returncode == 0 and json.loads(done.stdout)["peak_bytes"] < free


def ours_that_runs(options, model):
    """What the plan promises, run: algorithms chosen on the card may want a little more."""
    batch = last_that(lambda batch: planned(options, model, batch), options.batch)
    while True:
        try:
            ms, _ = tessera(argparse.Namespace(**{**vars(options), "batch": batch}), model, "train")
            return batch, batch / ms * 1000
        except SystemExit as problem:
            print(f"peer_torch_cuda: {model} with {batch} images: {problem}", file=sys.stderr)
            batch -= 16


def largest(options):
    lines = [f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, bf16, "
             f"{datetime.date.today()}", "",
             "| model | Tessera: largest batch | img/s with it | PyTorch eager: largest batch | "
             "torch.compile with that, with 16 more | Tessera's to PyTorch's |",
             "|---|---|---|---|---|---|"]
    for model in options.models.split(","):
        ours, speed = ours_that_runs(options, model)
        theirs = last_that(lambda batch: fits(lambda: torch_steps(model, batch, False)),
                           options.batch)
        sizes = (theirs, theirs + 16) if options.compiled else ()
        compiled = ["fits" if fits(lambda: torch_steps(model, batch, True)) else "does not fit"
                    for batch in sizes]
        lines.append(f"| {model} | {ours:,} | {speed:,.0f} | {theirs:,} | "
                     f"{', '.join(compiled) or '-'} | {ours / theirs:.2f} |")
        print(lines[-1], file=sys.stderr, flush=True)
        if options.out:
            options.out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build-cuda/tessera")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--cases", default="train,infer")
    parser.add_argument("--largest", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    if options.largest:
        return largest(options)
    lines = [f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, CUDA "
             f"{torch.version.cuda}, bf16, batch {options.batch}, {datetime.date.today()}, "
             f"{options.rounds} rounds", "",
             "| model | | Tessera ms (range) | img/s | PyTorch eager ms | torch.compile ms | best "
             "of PyTorch img/s | ratio | GB: Tessera, eager, compile |",
             "|---|---|---|---|---|---|---|---|---|"]
    for model in options.models.split(","):
        for case in options.cases.split(","):
            found, held = row(options, model, case)
            middle = {way: statistics.median(times) for way, times in found.items()}
            digits = 3 if case == "latency" else 2
            best = min(ms for way, ms in middle.items() if way != "tessera")
            shown = [f"{middle[way]:.{digits}f} "
                     f"({min(found[way]):.{digits}f}-{max(found[way]):.{digits}f})" if way in found
                     else "-" for way in ("tessera", "eager", "compiled")]
            memory = ", ".join(f"{held[way] / 1e9:.2f}" if way in held else "-"
                               for way in ("tessera", "eager", "compiled"))
            speed = {way: batch_of(options, case) / ms * 1000 for way,
                     ms in {"tessera": middle["tessera"], "best": best}.items()}
            lines.append(f"| {model} | {case} | {shown[0]} | {speed['tessera']:,.0f} | {shown[1]} "
                         f"| {shown[2]} | {speed['best']:,.0f} | {best / middle['tessera']:.2f} | "
                         f"{memory} |")
            print(lines[-1], file=sys.stderr, flush=True)
            if options.out:
                options.out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
