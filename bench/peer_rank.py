#!/usr/bin/env python3
"""One process of a peer of bench/peers_ranks.py, which starts it; alone it is of no use.

    bench/peer_rank.py SPEC    a JSON document: side, model, batch, steps, threads, setting, result

It is a rank of PyTorch DDP, FSDP2, Accelerate or DeepSpeed over gloo, or one process of PyTorch
without a wrapper; "tune" tries PyTorch's settings. What it found is written to the file `result`.
"""
import itertools
import json
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torchvision
from torch.nn.functional import cross_entropy

import peer_torch


def make_net(model):
    if model != "resnet_micro_cifar":
        return peer_torch.make_net(model)
    block = torchvision.models.resnet.BasicBlock

    def stage(before, after, stride):
        shortcut = None
        if stride > 1:
            shortcut = torch.nn.Sequential(
                torch.nn.Conv2d(before, after, 1, stride, bias=False), torch.nn.BatchNorm2d(after))
        return block(before, after, stride, shortcut)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, 1, 1, bias=False), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
        stage(16, 16, 1), stage(16, 32, 2), stage(32, 64, 2),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10))


class Job:
    """One rank's model, batch and optimizer; `step()` is what is timed."""

    def __init__(self, model, batch, setting, rank=0):
        torch.manual_seed(1)
        last = setting["channels_last"]
        layouts = [torch.channels_last if what in last else torch.contiguous_format
                   for what in ("weights", "images")]
        torch.backends.mkldnn.set_flags(setting["mkldnn"])
        self.net = make_net(model).to(memory_format=layouts[0]).train()
        self.params = sum(p.numel() for p in self.net.parameters())
        self.seen = self.updates = 0
        first = next(m for m in self.net.modules() if isinstance(m, torch.nn.Conv2d))
        first.register_forward_pre_hook(self.count)
        torch.manual_seed(2 + rank)
        self.images = torch.randn(batch, 3, 32, 32).contiguous(memory_format=layouts[1])
        self.labels = torch.randint(0, 10, (batch,))
        self.fused, self.engine, self.accelerator = setting["fused_adamw"], None, None

    def count(self, _, inputs):
        self.seen += inputs[0].shape[0]

    def optimize(self):
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3, weight_decay=0.05,
                                           fused=self.fused)

    def wrap(self, side):
        if side == "fsdp2":
            from torch.distributed.fsdp import fully_shard
            mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
            for module in self.net.modules():
                if type(module).__name__ in ("EncoderBlock", "BasicBlock", "Bottleneck"):
                    fully_shard(module, mesh=mesh)
            fully_shard(self.net, mesh=mesh)
        self.optimize()
        options = {"gradient_as_bucket_view": True, "static_graph": True}
        if side == "ddp":
            self.net = torch.nn.parallel.DistributedDataParallel(self.net, **options)
        elif side == "accelerate":
            import accelerate
            handler = accelerate.DistributedDataParallelKwargs(**options)
            self.accelerator = accelerate.Accelerator(cpu=True, kwargs_handlers=[handler])
            self.net, self.optimizer = self.accelerator.prepare(self.net, self.optimizer)
        elif side.startswith("deepspeed"):
            import deepspeed
            batch, world = len(self.labels), dist.get_world_size()
            config = {"train_batch_size": batch * world, "train_micro_batch_size_per_gpu": batch,
                      "zero_optimization": {"stage": int(side.split()[1])},
                      "zero_force_ds_cpu_optimizer": False}
            self.engine, self.optimizer, _, _ = deepspeed.initialize(
                model=self.net, optimizer=self.optimizer, config=config)

    def step(self):
        self.loss = cross_entropy((self.engine or self.net)(self.images), self.labels)
        if self.engine:
            self.engine.backward(self.loss)
            self.engine.step()
        else:
            if self.accelerator:
                self.accelerator.backward(self.loss)
            else:
                self.loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.updates += 1

    def times(self, steps):
        """Milliseconds of every step."""
        found = []
        for _ in range(steps):
            start = time.perf_counter()
            self.step()
            found.append(1e3 * (time.perf_counter() - start))
        return found


def tune(spec):
    """Tries every setting on one rank: the fastest, and the fastest with contiguous weights."""
    layouts = ("", "images", "images and weights") if "resnet" in spec["model"] else ("",)
    found = []
    for mkldnn, fused, last in itertools.product((True, False), (False, True), layouts):
        setting = {"mkldnn": mkldnn, "fused_adamw": fused, "channels_last": last}
        job = Job(spec["model"], spec["batch"], setting)
        job.optimize()
        job.times(2)
        found.append((statistics.median(job.times(5)), setting))
    # A tie goes to the fused AdamW, one call where FSDP2's sharded parameters take hundreds.
    found.sort(key=lambda row: row[0] * (0.98 if row[1]["fused_adamw"] else 1.0))
    contiguous = next(row[1] for row in found if "weights" not in row[1]["channels_last"])
    return {"ms": found[0][0], "setting": found[0][1], "contiguous": contiguous, "tried": found}


def resident_mb():
    """Memory of this process now."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def worker(spec):
    torch.set_num_threads(spec["threads"])
    start_mb = resident_mb()
    if spec["side"] == "tune":
        return tune(spec)
    job = Job(spec["model"], spec["batch"], spec["setting"], int(os.environ["RANK"]))
    if spec["side"] == "torch":
        job.optimize()
        ms, seen = job.times(spec["steps"]), job.seen
    else:
        if spec["side"].startswith("deepspeed"):
            import deepspeed
            deepspeed.init_distributed("gloo")
        elif spec["side"] != "accelerate":  # Accelerate joins the group by itself.
            dist.init_process_group("gloo")
        job.wrap(spec["side"])
        torch.set_num_threads(spec["threads"])
        job.seen = 0
        dist.barrier()
        ms = job.times(spec["steps"])
        total = torch.tensor([job.seen])
        dist.all_reduce(total)
        seen = int(total)
        dist.barrier()
    if not torch.isfinite(job.loss):
        raise SystemExit("the loss is not finite")
    return {"ms": ms, "images_seen": seen, "updates": job.updates, "params": job.params,
            "start_mb": start_mb, "torch_threads": torch.get_num_threads()}


def main():
    spec = json.loads(sys.argv[1])
    pathlib.Path(spec["result"]).write_text(json.dumps(worker(spec)))


if __name__ == "__main__":
    main()
