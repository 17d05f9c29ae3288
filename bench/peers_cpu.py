#!/usr/bin/env python3
"""Tessera beside PyTorch, OpenVINO and ONNX Runtime on the same CPU: f32, bf16, int8.

    bench/peers_cpu.py [--rounds 3] [--threads 16] [--tessera build/tessera] [--seconds 1.0]
                       [--cases vit_b_16:8:bf16:infer,resnet50:8:f32:train]

Needs torch and torchvision; OpenVINO (inference) and ONNX Runtime (f32 inference, also onnx) take
part where they are installed. Convention: a round measures Tessera and then each peer, every second
round backwards, so that drift of the machine favours none; each measurement is the median over its
runs. Shown are medians over the rounds, and the ratio of Tessera to the best peer of its round,
with the range of that ratio. PyTorch in bf16 is measured with weights in bf16 (`model.bfloat16()`)
and under autocast for inference, under autocast for training, and the better one counts.
int8 (inference of transformers) is Tessera with calibrated activations beside PyTorch and ONNX
Runtime with dynamic ones, which is what they do without data; --beside says what Tessera runs
everything else in.
GFLOP/s are 2 x multiply-adds as Tessera counts them, for all. See bench/README.md.
"""
import argparse
import copy
import importlib.util
import io
import json
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
                   for dtype in ("f32", "bf16") for model in MODELS)


def model_of(name):
    if name == "vit_tiny_cifar":
        return torchvision.models.VisionTransformer(
            image_size=32, patch_size=4, num_layers=12, num_heads=3, hidden_dim=192, mlp_dim=768,
            num_classes=10)
    return getattr(torchvision.models, name)()


def median_seconds(step, budget):
    """The median of the runs that fit `budget` seconds, at least three, after two for warm-up."""
    step(), step()
    times, until = [], time.perf_counter() + budget
    while len(times) < 3 or time.perf_counter() < until:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def torch_steps(name, batch, dtype, what):
    """PyTorch's ways to do one batch, by name."""
    torch.manual_seed(0)
    size = 32 if "cifar" in name else 224
    x = torch.randn(batch, 3, size, size)
    model = model_of(name)
    if name.startswith("resnet"):
        x = x.to(memory_format=torch.channels_last)
        model = model.to(memory_format=torch.channels_last)
    steps = {}
    if what == "infer":
        model.eval()

        def infer(m, images, autocast):
            def step():
                with torch.inference_mode():
                    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                        m(images)
            return step
        if dtype == "f32":
            steps["torch"] = infer(model, x, False)
        elif dtype == "int8":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it is to be replaced by another package
                quantised = torch.ao.quantization.quantize_dynamic(
                    model, {torch.nn.Linear}, dtype=torch.qint8)
                steps["torch_dynamic_int8"] = infer(quantised, x, False)
        else:
            steps["torch_autocast"] = infer(model, x, True)
            steps["torch_bf16"] = infer(copy.deepcopy(model).bfloat16(), x.bfloat16(), False)
        return steps
    labels = torch.randint(0, 10, (batch,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)

    def train():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = torch.nn.functional.cross_entropy(model(x).float(), labels)
        loss.backward()
        optimizer.step()
    steps["torch" if dtype == "f32" else "torch_autocast"] = train
    return steps


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
    content = file.getvalue()
    if dtype == "int8":
        from onnxruntime.quantization import quantize_dynamic
        with tempfile.TemporaryDirectory() as folder:
            plain, quantised = pathlib.Path(folder, "f32.onnx"), pathlib.Path(folder, "int8.onnx")
            plain.write_bytes(content)
            quantize_dynamic(plain, quantised, op_types_to_quantize=["MatMul", "Gemm"],
                             per_channel=True)
            content = quantised.read_bytes()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    data = x.numpy()
    return lambda: session.run(None, {"x": data})


def peers_of(name, batch, dtype, what, threads):
    steps = torch_steps(name, batch, dtype, what)
    if what != "infer":
        return steps
    if dtype != "int8" and importlib.util.find_spec("openvino"):
        steps["openvino"] = openvino_step(name, batch, dtype, threads)
    if dtype in ("f32", "int8") and all(map(importlib.util.find_spec, ("onnxruntime", "onnx"))):
        steps["onnxruntime"] = onnxruntime_step(name, batch, threads, dtype)
    return steps


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


def measure(options, case):
    name, batch, dtype, what = case.split(":")
    batch = int(batch)
    peers, rows, flops = peers_of(name, batch, dtype, what, options.threads), [], 0
    for number in range(options.rounds):
        row = {}
        for who in (list(peers) + ["tessera"])[::1 if number % 2 else -1]:
            if who == "tessera":
                found = tessera(options, name, batch, dtype, what)
                row[who] = found["ms"]["median"] / 1e3
                flops = found["gflops"] * row[who]
            else:
                row[who] = median_seconds(peers[who], options.seconds)
        rows.append(row)
    best = [min(seconds for who, seconds in row.items() if who != "tessera") / row["tessera"]
            for row in rows]
    shown = {who: flops / statistics.median(row[who] for row in rows)
             for who in ["tessera", *peers]}
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
    parser.add_argument("--beside", default="f32", choices=["f32", "bf16"],
                        help="int8: what Tessera runs the other layers in")
    parser.add_argument("--tessera", default=str(ROOT / "build/tessera"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    versions = [f"torch {torch.__version__}"]
    for module in ("openvino", "onnxruntime"):
        if importlib.util.find_spec(module):
            versions.append(f"{module} {importlib.import_module(module).__version__}")
    print(f"{platform.machine()}, {options.threads} threads, {options.rounds} rounds; "
          f"{', '.join(versions)}\n")
    print("| case | Tessera ms | Tessera GFLOP/s | peers GFLOP/s | to the best peer (range) |")
    print("|---|---|---|---|---|")
    for case in options.cases.split(","):
        measure(options, case)


if __name__ == "__main__":
    sys.exit(main())
