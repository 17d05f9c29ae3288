#!/usr/bin/env python3
"""Tessera beside PyTorch, OpenVINO and ONNX Runtime on the same CPU: f32, bf16, int8.

    bench/peers_cpu.py [--rounds 3] [--threads 16] [--tessera build/tessera] [--seconds 1.0]
                       [--cases vit_b_16:8:bf16:infer,resnet50:8:f32:train]
                       [--peers torch,openvino,onnxruntime] [--settings ...] [--at-once]

Needs torch and torchvision; OpenVINO and ONNX Runtime (also onnx) take part in inference where they
are installed. Convention: a round measures Tessera and then each peer, every second round
backwards, so that drift of the machine favours none; each measurement is the median over its runs.
Shown are medians over the rounds, and the ratio of Tessera to the best peer of its round, with the
range of that ratio.
PyTorch runs at its best setting. All of them are tried first (the times go to stderr) and the two
fastest take part in the rounds: oneDNN on and off, torch.compile, channels_last of convolutions,
AdamW fused or with foreach; in bf16 also autocast, weights in bf16 (inference) and f32 with bf16
multiplications (float32_matmul_precision "medium"), and trainings in f32. A setting that does not
run, or whose step takes twice as long as the fastest so far, is named and left out.
ONNX Runtime in bf16 is its fast math of Arm: f32 that is multiplied as bf16.
For a short run --settings names PyTorch's settings (as an earlier run printed them), which are
then taken without a try, and --at-once prepares the peers of all cases before the first
measurement; their processes sleep until it is their turn.
int8 (inference of transformers) is Tessera with calibrated activations beside PyTorch and ONNX
Runtime with dynamic ones, which is what they do without data; --beside says what Tessera runs
everything else in.
GFLOP/s are 2 x multiply-adds as Tessera counts them, for all. See bench/README.md.
"""
import argparse
import contextlib
import importlib.util
import io
import itertools
import json
import multiprocessing
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import torch
import torchvision

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ("vit_b_16:8", "swin_t:8", "resnet50:8", "vit_tiny_cifar:64")
DEFAULT = ",".join(f"{model}:{dtype}:{what}" for what in ("infer", "train")
                   for dtype in ("f32", "bf16")
                   for model in MODELS + (("vit_b_16:1",) if what == "infer" else ()))


def model_of(name):
    if name == "vit_tiny_cifar":
        return torchvision.models.VisionTransformer(
            image_size=32, patch_size=4, num_layers=12, num_heads=3, hidden_dim=192, mlp_dim=768,
            num_classes=10)
    return getattr(torchvision.models, name)()


def prepare(options):
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")


class TooSlow(Exception):
    pass


def median_seconds(step, budget, longest=float("inf")):
    """The median of the runs that fit `budget` seconds, at least three, after two for warm-up.

    TooSlow where both of those took longer than `longest` seconds."""
    begin = time.perf_counter()
    step()
    first = time.perf_counter() - begin
    if first > longest:
        begin = time.perf_counter()
        step()
        if (second := time.perf_counter() - begin) > longest:
            raise TooSlow(f"a step takes {second:.1f} s")
    else:
        step()
    times, until = [], time.perf_counter() + budget
    while len(times) < 3 or time.perf_counter() < until:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


@contextlib.contextmanager
def torch_flags(mkldnn, fast):
    """oneDNN on or off; fast: f32 factors may be rounded to bf16."""
    torch.set_float32_matmul_precision("medium" if fast else "highest")
    conv = getattr(torch.backends.mkldnn, "conv", None)  # PyTorch before 2.9 has none
    if fast and conv:
        conv.fp32_precision = "bf16"
    try:
        with torch.backends.mkldnn.flags(enabled=mkldnn):
            yield
    finally:
        torch.set_float32_matmul_precision("highest")
        if fast and conv:
            conv.fp32_precision = "none"


def torch_settings(name, dtype, what, compiles):
    """PyTorch's ways to do one batch: what is tried, as keywords of torch_step."""
    if dtype == "int8":
        return [dict(kind="dynamic_int8")]
    kinds = ["f32"] if dtype == "f32" else ["autocast", "fast"]
    if dtype == "bf16":  # some models train faster in f32 than with its bf16
        kinds = ["bf16"] + kinds if what == "infer" else ["f32"] + kinds
    return [dict(kind=kind, mkldnn=mkldnn, compiled=compiled, channels_last=last, fused=fused)
            for kind, mkldnn, compiled, last, fused in itertools.product(
                kinds, (True, False), (False, True) if compiles else (False,),
                (True, False) if name.startswith("resnet") else (False,),
                (True, False) if what == "train" else (False,))
            if mkldnn or (kind == "f32" and not compiled)]


def setting_name(setting):
    words = [setting["kind"]] + [key for key in ("compiled", "channels_last", "fused")
                                 if setting.get(key)]
    return "torch_" + "_".join(words + ([] if setting.get("mkldnn", True) else ["no_mkldnn"]))


def torch_step(name, batch, what, kind, mkldnn=True, compiled=False, channels_last=False,
               fused=False):
    torch.manual_seed(0)
    size = 32 if "cifar" in name else 224
    x, model = torch.randn(batch, 3, size, size), model_of(name)
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
        model = model.to(memory_format=torch.channels_last)
    if kind == "bf16":
        x, model = x.bfloat16(), model.bfloat16()
    model.train(what == "train")
    if kind == "dynamic_int8":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is to be replaced by another package
            model = torch.ao.quantization.quantize_dynamic(
                model, {torch.nn.Linear}, dtype=torch.qint8)
    run = torch.compile(model) if compiled else model

    def flags():
        stack = contextlib.ExitStack()
        stack.enter_context(torch_flags(mkldnn, kind == "fast"))
        stack.enter_context(torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"))
        return stack

    def infer():
        with flags(), torch.inference_mode():
            run(x)
    if what == "infer":
        return infer
    labels = torch.randint(0, 10, (batch,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4,
                                  **({"fused": True} if fused else {"foreach": True}))

    def train():
        optimizer.zero_grad(set_to_none=True)
        with flags():
            loss = torch.nn.functional.cross_entropy(run(x).float(), labels)
        with torch_flags(mkldnn, kind == "fast"):
            loss.backward()
        optimizer.step()
    return train


def best_of_torch(options, name, batch, dtype, what, most=2):
    """The fastest settings of PyTorch, or those that were asked for, as steps by name."""
    found = []
    settings = {setting_name(setting): setting
                for setting in torch_settings(name, dtype, what, options.compile)}
    if options.settings:
        return {title: torch_step(name, batch, what, **settings[title])
                for title in options.settings.split(",") if title in settings}
    for title, setting in settings.items():
        try:
            step = torch_step(name, batch, what, **setting)
            # What is compiled may need more than two steps to be fast.
            longest = 2 * found[0][0] if found and not setting.get("compiled") else float("inf")
            seconds = median_seconds(step, options.seconds / 2, longest)
        except Exception as error:  # whatever a backend refuses, the others go on
            lines = str(error).splitlines() or [type(error).__name__]
            print(f"  {title}: left out ({lines[0][:120]})", file=sys.stderr)
            continue
        print(f"  {title}: {seconds * 1e3:.1f} ms", file=sys.stderr)
        found.append((seconds, title, step))
        found = sorted(found, key=lambda row: row[0])[:most]  # the others free their memory
    return {title: step for _, title, step in found}


def openvino_step(name, batch, dtype, threads):
    import openvino
    size = 32 if "cifar" in name else 224
    x = torch.randn(batch, 3, size, size)
    core = openvino.Core()
    torch.backends.mha.set_fastpath_enabled(False)  # it cannot be traced
    traced = torch.jit.trace(model_of(name).eval(), x, check_trace=False)
    torch.backends.mha.set_fastpath_enabled(True)
    converted = openvino.convert_model(traced, example_input=x, input=[list(x.shape)])
    compiled = core.compile_model(converted, "CPU", {
        "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": str(threads),
        "INFERENCE_PRECISION_HINT": dtype})
    request, data = compiled.create_infer_request(), x.numpy()
    return lambda: request.infer({0: data}, share_inputs=True, share_outputs=True)


def onnxruntime_step(name, batch, threads, dtype):
    import onnxruntime
    size = 32 if "cifar" in name else 224
    x, file = torch.randn(batch, 3, size, size), io.BytesIO()
    torch.onnx.export(model_of(name).eval(), (x,), file, input_names=["x"], opset_version=17,
                      dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    disabled = []
    if dtype == "bf16":  # the fused node has no such kernel
        options.add_session_config_entry("mlas.enable_gemm_fastmath_arm64_bfloat16", "1")
        disabled = ["MatMulAddFusion"]
    content = file.getvalue()
    if dtype == "int8":
        from onnxruntime.quantization import quantize_dynamic
        with tempfile.TemporaryDirectory() as folder:
            plain, quantised = pathlib.Path(folder, "f32.onnx"), pathlib.Path(folder, "int8.onnx")
            plain.write_bytes(content)
            quantize_dynamic(plain, quantised, op_types_to_quantize=["MatMul", "Gemm"],
                             per_channel=True)
            content = quantised.read_bytes()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"],
                                           disabled_optimizers=disabled)
    data = x.numpy()
    return lambda: session.run(None, {"x": data})


def steps_of(module, options, name, batch, dtype, what):
    """The steps of one peer by name; none where it does not do the case."""
    if module == "torch":
        return best_of_torch(options, name, batch, dtype, what)
    if what != "infer":
        return {}
    if module == "openvino":
        return {} if dtype == "int8" else {module: openvino_step(name, batch, dtype,
                                                                 options.threads)}
    fast_math = dtype != "bf16" or platform.machine() == "aarch64"
    if not fast_math or not importlib.util.find_spec("onnx"):
        return {}
    return {module: onnxruntime_step(name, batch, options.threads, dtype)}


def serve(pipe, module, options, case):
    """A peer in a process of its own: says what it has, then measures what it is asked for."""
    prepare(options)
    name, batch, dtype, what = case.split(":")
    steps = steps_of(module, options, name, int(batch), dtype, what)
    pipe.send(list(steps))
    while who := pipe.recv():
        pipe.send(median_seconds(steps[who], options.seconds))


class Peers:
    """Processes that keep out of each other's way: threads of one peer, pinned by it, would make
    another one slower (PyTorch by a quarter, beside OpenVINO on two cores)."""

    def __init__(self, options, case):
        self.pipes, self.processes = {}, []
        spawn = multiprocessing.get_context("spawn")
        for module in options.peers.split(","):
            if not importlib.util.find_spec(module):
                continue
            pipe, theirs = spawn.Pipe()
            process = spawn.Process(target=serve, args=(theirs, module, options, case))
            process.start()
            theirs.close()
            self.processes.append((process, pipe))
            if not options.at_once:
                self.wait_for(pipe)

    def wait_for(self, pipe):
        self.pipes.update(dict.fromkeys(pipe.recv(), pipe))

    def wait(self):
        for _, pipe in self.processes:
            self.wait_for(pipe)

    def seconds(self, who):
        self.pipes[who].send(who)
        return self.pipes[who].recv()

    def stop(self):
        for process, pipe in self.processes:
            pipe.send(None)
            process.join()


def tessera(options, name, batch, dtype, what):
    command = [options.tessera, "bench", what, "--model", name, "--batch", str(batch),
               "--threads", str(options.threads), "--json"]
    if dtype == "int8":
        command += ["--set", "precision.quantise=int8", "--dtype", options.beside]
    else:
        command += ["--dtype", dtype]
    command += ["--repeats", str(options.repeats)] if options.repeats else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def measure(options, case, peers):
    name, batch, dtype, what = case.split(":")
    batch = int(batch)
    rows, flops = [], 0
    for number in range(options.rounds):
        row = {}
        for who in (list(peers.pipes) + ["tessera"])[::1 if number % 2 else -1]:
            if who == "tessera":
                found = tessera(options, name, batch, dtype, what)
                row[who] = found["ms"]["median"] / 1e3
                flops = found["gflops"] * row[who]
            else:
                row[who] = peers.seconds(who)
        rows.append(row)
    peers.stop()
    best = [min(seconds for who, seconds in row.items() if who != "tessera") / row["tessera"]
            for row in rows]
    shown = {who: flops / statistics.median(row[who] for row in rows)
             for who in ["tessera", *peers.pipes]}
    ours_ms = statistics.median(row["tessera"] for row in rows) * 1e3
    print(f"| {name} b{batch} {dtype} {what} | {ours_ms:.1f} | {shown.pop('tessera'):.0f} | "
          + ", ".join(f"{who} {rate:.0f}" for who, rate in shown.items())
          + f" | {statistics.median(best):.2f} ({min(best):.2f}-{max(best):.2f}) |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=DEFAULT,
                        help="MODEL:BATCH:DTYPE:infer|train, with commas between")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=1.0, help="of one measurement of a peer")
    parser.add_argument("--repeats", type=int, default=0, help="of Tessera; 0: as it chooses")
    parser.add_argument("--peers", default="torch,openvino,onnxruntime",
                        help="who takes part, with commas between")
    parser.add_argument("--beside", default="f32", choices=["f32", "bf16"],
                        help="int8: what Tessera runs the other layers in")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True,
                        help="try torch.compile, which takes minutes for a training step")
    parser.add_argument("--settings", default="", metavar="NAMES",
                        help="PyTorch's, with commas between; none of them is tried first")
    parser.add_argument("--at-once", action="store_true",
                        help="prepare the peers of all cases before the first measurement")
    parser.add_argument("--tessera", default=str(ROOT / "build/tessera"))
    options = parser.parse_args()
    if options.at_once and not options.settings:
        parser.error("--at-once needs --settings: settings that are tried at the same time would "
                     "disturb each other")
    cases = options.cases.split(",")
    known = {setting_name(setting) for name, _, dtype, what in map(lambda c: c.split(":"), cases)
             for setting in torch_settings(name, dtype, what, options.compile)}
    if unknown := [name for name in options.settings.split(",") if name and name not in known]:
        parser.error(f"no case has these settings: {', '.join(unknown)}; they have "
                     f"{', '.join(sorted(known))}")
    prepare(options)
    versions = [f"torch {torch.__version__}"]
    for module in ("openvino", "onnxruntime"):
        if importlib.util.find_spec(module):
            versions.append(f"{module} {importlib.import_module(module).__version__}")
    print(f"{platform.machine()}, {options.threads} threads, {options.rounds} rounds; "
          f"{', '.join(versions)}\n")
    print("| case | Tessera ms | Tessera GFLOP/s | peers GFLOP/s | to the best peer (range) |")
    print("|---|---|---|---|---|")
    ready = {case: Peers(options, case) for case in cases if options.at_once}
    for peers in ready.values():
        peers.wait()
    for case in cases:
        measure(options, case, ready[case] if ready else Peers(options, case))


if __name__ == "__main__":
    sys.exit(main())
