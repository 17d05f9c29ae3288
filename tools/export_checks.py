"""The checks of tools/prove_exports.py: runs the binary, makes random weights and pictures,
compares logits and keeps a row for each check. Convention: `binary` is set before the first
call."""
import atexit
import datetime
import json
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import timm
import torch
import torchvision
import transformers
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
scratch = Path(tempfile.mkdtemp(prefix="tessera-exports-"))
atexit.register(shutil.rmtree, scratch, ignore_errors=True)
binary = "build/tessera"
tolerance = 1e-5
rows = []


def tessera(*words, ok=True):
    done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True)
    if ok and done.returncode != 0:
        raise RuntimeError(f"tessera {' '.join(map(str, words))}: {done.stderr}")
    return done


def record(model, what, error, allowed=tolerance, note=""):
    """A row of the report: the largest difference over the largest logit, or a yes or no."""
    fine = bool(error) if isinstance(error, (bool, np.bool_)) else error <= allowed
    shown = ("yes" if error else "NO") if isinstance(error, (bool, np.bool_)) else f"{error:.1e}"
    rows.append((model, what, shown, "ok" if fine else f"FAILED (at most {allowed:.0e})", note))
    print(f"{model:28} {what:44} {shown:9} {'ok' if fine else 'FAILED'} {note}", flush=True)


def failures():
    return sum(row[3] != "ok" for row in rows)


def difference(ours, theirs):
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def randomise(model, seed=0):
    """Every parameter and statistic another number, and each of them exact in bf16 and f16."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if not tensor.is_floating_point():
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            if name.endswith("running_var"):
                value = 1 + 0.3 * noise.abs()
            elif tensor.dim() == 1 and "weight" in name or name.endswith("norm.weight"):
                value = 1 + 0.1 * noise
            elif tensor.dim() == 1 or name.endswith("running_mean"):
                value = 0.1 * noise
            else:
                fan = tensor[0].numel() if tensor.dim() > 1 and tensor.shape[0] > 1 else 100
                value = noise * min(0.3, 1.4 / fan**0.5)
            value = value.bfloat16().float()
            tensor.copy_(torch.where(value.abs() < 2**-14, 0, value))
    return model.eval()


def picture(path, height, width, seed):
    """A smooth random picture with some noise, as a PNG."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (7, 9, 3), np.uint8))
    large = np.asarray(small.resize((width, height), Image.BICUBIC),
                       np.int64) + rng.integers(-20, 20, (height, width, 3))
    Image.fromarray(np.clip(large, 0, 255).astype(np.uint8)).save(path)
    return path


def our_logits(weights, *pictures, side=None):
    """`side`: of pictures that have the model's size and stay as they are."""
    stay = ["--set", f"data.eval_resize={min(side)}"] if side else []
    done = tessera("predict", "--weights", weights, "--json", "--logits", "--batch", 4, *stay,
                   *pictures)
    return np.array([row["logits"] for row in json.loads(done.stdout)])


def batch_of(folder, pictures):
    """Pictures of the model's size as torch reads them, normalised as the folder says."""
    said = json.loads((folder / "preprocessor_config.json").read_text())
    pixels = np.stack([np.asarray(Image.open(p)) for p in pictures])
    mean, deviation = np.array(said["image_mean"]), np.array(said["image_std"])
    numbers = (pixels / 255.0 - mean) / deviation
    return pixels, torch.tensor(numbers.astype(np.float32)).permute(0, 3, 1, 2).contiguous()


def logits_of(model, numbers):
    with torch.no_grad():
        out = model(numbers)
    return (out.logits if hasattr(out, "logits") else out).numpy()


def report(path, large):
    out = [f"# Exports against the packages that read them, {datetime.date.today()}", "",
           f"`tools/prove_exports.py{' --large' if large else ''}`, {platform.machine()}, "
           f"`{tessera('version').stdout.splitlines()[0].strip()}`.", "",
           f"torch {torch.__version__}, torchvision {torchvision.__version__}, timm "
           f"{timm.__version__}, transformers "
           f"{transformers.__version__}, onnx {onnx.__version__}, ONNX Runtime "
           f"{onnxruntime.__version__}.", "",
           "Errors are the largest difference of a logit over the largest logit; at most 1e-5 "
           "where nothing else is said.", "",
           "| model | what | result | | note |", "|---|---|---|---|---|"]
    out += [f"| {a} | {b} | {c} | {d} | {e.replace('|', ' ')} |" for a, b, c, d, e in rows]
    out += ["", f"{len(rows)} checks, {failures()} failed."]
    Path(path).write_text("\n".join(out).replace(str(scratch), "DIR") + "\n")
