#!/usr/bin/env python3
"""Proves with the real packages that weights travel: what `tessera ckpt export` writes is loaded by
torchvision, timm, transformers and ONNX Runtime with no missing key and with our logits, and what
those packages write is read by Tessera with theirs.

  pip install torch torchvision timm transformers safetensors onnx onnxruntime pillow
  tools/prove_exports.py [--tessera build/tessera] [--large] [--report FILE.md]

Weights are random (all of them, running statistics included) and hold numbers that bf16 and f16
hold too, so that no rounding hides anything. --large adds the models in their published sizes. Exit
code 1 when anything is not as promised."""
import argparse
import json
import os
import re
import subprocess
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import export_checks  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
import timm  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402
import transformers  # noqa: E402
from export_checks import (ROOT, batch_of, difference, failures, logits_of,  # noqa: E402
                           our_logits, picture, randomise, record, report, rows, scratch,
                           tessera)
from PIL import Image  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

arguments = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--tessera", default="build/tessera")
arguments.add_argument("--large", action="store_true")
arguments.add_argument("--report")
options = arguments.parse_args()
export_checks.binary = options.tessera


def keys_of(folder):
    with safe_open(folder / "model.safetensors", "pt") as file:
        return set(file.keys())


def in_torchvision(folder):
    said = json.loads((folder / "config.json").read_text())["torchvision"]
    extra = {"block": getattr(torchvision.models.resnet, said["block"])} if "block" in said else {}
    model = getattr(torchvision.models, said["class"])(**said["args"], **extra)
    with safe_open(folder / "model.safetensors", "pt") as file:
        model.load_state_dict({key: file.get_tensor(key) for key in file.keys()}, strict=True)
    return model.eval(), set(model.state_dict()) == keys_of(folder)


def in_timm(folder):
    model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    return model, set(model.state_dict()) == keys_of(folder)


def in_hf(folder):
    model, info = transformers.AutoModelForImageClassification.from_pretrained(
        folder, output_loading_info=True)
    return model.eval(), not any(info[key]
                                 for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))


def prove_namings(title, weights, side, namings):
    """Exports in each naming, loaded by its package; returns pictures and our logits."""
    h, w = side
    pictures = [picture(scratch / f"{title}-{i}.png", h, w, i) for i in range(3)]
    ours = our_logits(weights, *pictures, side=side)
    odd = picture(scratch / f"{title}-odd.png", h + 77, w + 31, 9)
    ours_odd = our_logits(weights, odd)
    for naming, load in (("torchvision", in_torchvision), ("timm", in_timm), ("hf", in_hf)):
        folder = scratch / f"{title}-{naming}"
        if naming not in namings:
            done = tessera("ckpt", "export", weights, "--out", folder, "--naming", naming, ok=False)
            said = done.stderr.strip().splitlines()[0][:120] if done.stderr else ""
            record(title, f"--naming {naming} is refused", done.returncode == 2
                   and not folder.exists(), note=said)
            continue
        tessera("ckpt", "export", weights, "--out", folder, "--naming", naming)
        model, complete = load(folder)
        _, numbers = batch_of(folder, pictures)
        record(title, f"{naming}: every key, no other", complete)
        record(title, f"{naming}: logits", difference(ours, logits_of(model, numbers)))
        record(title, f"{naming}: read back by tessera",
               difference(our_logits(folder, *pictures, side=side), ours), 0.0)
        image = Image.open(odd)
        if naming == "timm":
            prepare = timm.data.create_transform(**timm.data.resolve_data_config({}, model=model),
                                                 is_training=False)
            record(title, "timm: logits with its preprocessing",
                   difference(ours_odd, logits_of(model, prepare(image)[None])))
        if naming == "hf":
            prepare = transformers.AutoImageProcessor.from_pretrained(folder)
            numbers = prepare(image, return_tensors="pt")["pixel_values"]
            record(title, "hf: logits with its preprocessing",
                   difference(ours_odd, logits_of(model, numbers)), 2e-2,
                   type(prepare).__name__ + ", which resizes in torch: pixels differ by 1")
    return pictures, ours


def prove_onnx(title, weights, pictures, ours):
    for dtype in ("f32", "bf16", "f16"):
        folder = scratch / f"{title}-onnx-{dtype}"
        tessera("ckpt", "export", weights, "--out", folder, "--onnx", "--dtype", dtype)
        path = str(folder / "model.onnx")
        onnx.checker.check_model(path, full_check=True)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        _, numbers = batch_of(scratch / f"{title}-reference", pictures)
        mine = [session.run(["logits"], {"images": numbers[:n].numpy()})[0] for n in (1, 3)]
        note = f"{os.path.getsize(path) / 1e6:.1f} MB, checked by onnx.checker, batches of 1 and 3"
        record(title, f"onnx {dtype}: logits",
               max(difference(mine[0], ours[:1]), difference(mine[1], ours)), note=note)
    folder = scratch / f"{title}-onnx-pixels"
    tessera("ckpt", "export", weights, "--out", folder, "--onnx", "--preprocess")
    path = str(folder / "model.onnx")
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    pixels, _ = batch_of(scratch / f"{title}-reference", pictures)
    record(title, "onnx --preprocess: logits of u8 pixels",
           difference(session.run(["logits"], {"images": pixels})[0], ours))


def from_torchvision(title, model, side, namings=("torchvision", "timm", "hf")):
    """A plain state dict of torchvision's, recognised by its names and shapes."""
    weights = scratch / f"{title}.safetensors"
    save_file({k: v.contiguous() for k, v in randomise(model).state_dict().items()}, weights)
    reference = scratch / f"{title}-reference"
    tessera("ckpt", "export", weights, "--out", reference)
    pictures, ours = prove_namings(title, reference, side, namings)
    _, numbers = batch_of(reference, pictures)
    record(title, "torchvision's own file, recognised: logits",
           difference(ours, logits_of(model, numbers)))
    prove_onnx(title, reference, pictures, ours)


def from_timm(title, name, arguments, side):
    """A folder as timm pushes it to the hub, and its preprocessing."""
    model = randomise(timm.create_model(name, num_classes=11,
                                        pretrained_cfg_overlay={"input_size": (3, *side)},
                                        **arguments))
    folder = scratch / f"{title}-saved"
    timm.models.save_for_hf(model, folder, model_args=arguments, safe_serialization="both")
    pictures = [picture(scratch / f"{title}-{i}.png", side[0] + 40, side[1] + 15, i)
                for i in range(2)]
    prepare = timm.data.create_transform(**timm.data.resolve_data_config({}, model=model),
                                         is_training=False)
    numbers = torch.stack([prepare(Image.open(p)) for p in pictures])
    cfg = model.pretrained_cfg
    record(title, "timm's own folder, recognised: logits",
           difference(our_logits(folder, *pictures), logits_of(model, numbers)),
           note=f"{cfg['interpolation']}, crop_pct {cfg['crop_pct']}, its transform")
    return folder, pictures, logits_of(model, numbers)


def from_hf(title, config, kind, side):
    model = randomise(kind(config))
    folder = scratch / f"{title}-saved"
    model.save_pretrained(folder)
    said = {"image_processor_type": "ViTImageProcessor", "do_resize": True,
            "size": {"height": side[0], "width": side[1]},
            "resample": 3, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
            "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.25, 0.3]}
    (folder / "preprocessor_config.json").write_text(json.dumps(said))
    pictures = [picture(scratch / f"{title}-{i}.png", *side, i) for i in range(2)]
    _, numbers = batch_of(folder, pictures)
    record(title, "Hugging Face's own folder, recognised: logits",
           difference(our_logits(folder, *pictures, side=side), logits_of(model, numbers)))
    odd = picture(scratch / f"{title}-odd.png", side[0] + 40, side[1] + 90, 5)
    squashed = np.asarray(Image.open(odd).resize((side[1], side[0]), Image.BICUBIC)) / 255.0
    numbers = (squashed - np.array(said["image_mean"])) / np.array(said["image_std"])
    numbers = torch.tensor(numbers.astype(np.float32)).permute(2, 0, 1)[None]
    record(title, "... squashed by Pillow's bicubic filter",
           difference(our_logits(folder, odd), logits_of(model, numbers)))


def prove_pickle():
    """A .pth is named, and the line that the message prints converts it."""
    model = randomise(torchvision.models.resnet18(num_classes=7))
    path = scratch / "old one.pth"
    torch.save({"state_dict": model.state_dict()}, path)
    done = tessera("predict", "--weights", path, picture(scratch / "p.png", 224, 224, 1), ok=False)
    text = " ".join(done.stderr.split())
    record("a .pth", "is named in the message", done.returncode == 4 and "torch.save" in text)
    line = text[text.index("python3 -c"):text.index(" (pip install")]
    subprocess.run(line.replace("python3", sys.executable, 1), shell=True, check=True)
    _ = tessera("ckpt", "export", path.with_suffix(".safetensors"), "--out",
                scratch / "pickle-reference")
    pictures = [scratch / "p.png"]
    _, numbers = batch_of(scratch / "pickle-reference", pictures)
    record("a .pth", "the printed line converts it: logits",
           difference(our_logits(path.with_suffix(".safetensors"), *pictures, side=(224, 224)),
                      logits_of(model, numbers)))


def main():
    tv = torchvision.models
    from_torchvision("vit 48x2, 32 px",
                     tv.VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=1,
                                          hidden_dim=48,
                                                            mlp_dim=80, num_classes=10), (32, 32))
    from_torchvision("swin 24, window 7, 224 px",
                     tv.SwinTransformer([4, 4], 24, [2, 2, 2, 2], [2, 2, 4, 4], [7, 7],
                                        num_classes=10),
                     (224, 224))
    from_torchvision("swin 24, padded windows",
                     tv.SwinTransformer([4, 4], 24, [2, 2], [2, 2], [6, 6], num_classes=10),
                     (224, 224),
                     ("torchvision", "hf"))
    from_torchvision("swin 24, odd merging",
                     tv.SwinTransformer([32, 32], 24, [2, 2], [2, 2], [3, 3], num_classes=10),
                     (224, 224),
                     ("torchvision", "hf"))
    from_torchvision("resnet18", tv.resnet18(num_classes=10), (224, 224))
    from_torchvision("resnet bottleneck 1-1-1-1",
                     tv.ResNet(tv.resnet.Bottleneck, [1, 1, 1, 1], num_classes=10), (224, 224))
    prove_refusals()
    vit = {"embed_dim": 64, "depth": 2, "num_heads": 2, "img_size": 64}
    from_timm("timm vit", "vit_base_patch16_224", vit, (64, 64))
    mean = {**vit, "class_token": False, "global_pool": "avg", "fc_norm": False}
    folder, pictures, _ = from_timm("timm vit, mean pooling", "vit_base_patch16_224", mean,
                                    (64, 64))
    for naming in ("torchvision", "hf"):
        done = tessera("ckpt", "export", folder, "--out", scratch / "no", "--naming", naming,
                       ok=False)
        record("timm vit, mean pooling", f"--naming {naming} is refused", done.returncode == 2
               and not (scratch / "no").exists(),
               note=done.stderr.strip().splitlines()[0][:110])
    from_timm("timm swin", "swin_tiny_patch4_window7_224",
              {"embed_dim": 24, "num_heads": [2, 2, 4, 4], "depths": [1, 2, 1, 1]},
              (224, 224))
    from_timm("timm resnet", "resnet50", {"layers": [1, 1, 1, 1]}, (224, 224))
    t = transformers
    from_hf("hf vit", t.ViTConfig(hidden_size=48, num_hidden_layers=2, num_attention_heads=3,
                                  intermediate_size=64, image_size=32,
                                  patch_size=8, num_labels=6, layer_norm_eps=1e-6),
            t.ViTForImageClassification, (32, 32))
    from_hf("hf swin", t.SwinConfig(embed_dim=24, depths=[2, 2], num_heads=[2, 4], image_size=56,
                                    patch_size=4, window_size=7,
                                    num_labels=6), t.SwinForImageClassification, (56, 56))
    from_hf("hf resnet", t.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 64],
                                        depths=[1, 2, 1], layer_type="basic",
                                        num_labels=6), t.ResNetForImageClassification, (224, 224))
    prove_pickle()
    prove_other_functions()
    prove_readme()
    if options.large:
        for name in ("vit_b_16", "swin_t", "resnet50"):
            from_torchvision(name, getattr(tv, name)(), (224, 224))


def prove_other_functions():
    """Tensors of ours and another function: only config.json tells, and it is refused."""
    t = transformers
    small = {"hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 3,
             "intermediate_size": 64, "image_size": 32, "patch_size": 8}
    resnet = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1],
              "layer_type": "bottleneck"}
    for name, config, kind in [("quick_gelu", t.ViTConfig(**small, hidden_act="quick_gelu"),
                                t.ViTForImageClassification),
                               ("downsample_in_bottleneck",
                                t.ResNetConfig(**resnet, downsample_in_bottleneck=True),
                                t.ResNetForImageClassification)]:
        kind(config).save_pretrained(scratch / name)
        done = tessera("ckpt", "export", scratch / name, "--out", scratch / "never", "--naming",
                       "hf", ok=False)
        record(f"hf, {name}", "is refused", done.returncode == 4 and name in done.stderr,
               note=done.stderr.strip().splitlines()[0][-110:])


def prove_readme():
    """The README's block of Python, as it stands, in a folder where its commands before and after
    it are run."""
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S).group(1)
    folder = scratch / "readme"
    folder.mkdir()
    tessera("train", "--model", "vit_micro", "--steps", 2, "--set", "data.train_size=64", "--set",
            "data.test_size=16", "--out", folder / "vit", "--quiet")
    tessera("ckpt", "export", folder / "vit", "--out", folder / "exported", "--naming", "timm")
    pictures = sorted((ROOT / "tests/golden/pictures").glob("*.png"))
    before = our_logits(folder / "vit", *pictures)
    done = subprocess.run([sys.executable, "-c", block], cwd=folder, capture_output=True, text=True)
    record("README", "its Python runs as it stands", done.returncode == 0,
           note=done.stderr.strip()[-110:])
    record("README", "the weights that come back have our logits",
           difference(our_logits(folder / "exported", *pictures), before))
    model = tessera("ckpt", "export", folder / "swin_t.safetensors", "--out", folder / "swin",
                    "--naming", "torchvision", ok=False)
    record("README", "swin_t.safetensors is recognised", model.returncode == 0
           and "swin_t" in model.stderr, note=model.stderr.strip()[:110])


def prove_refusals():
    """A residual network with the stem for small images: no library has words for it."""
    model = torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1],
                                      num_classes=10)
    model.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    weights = scratch / "cifar-stem.safetensors"
    save_file({k: v.contiguous() for k, v in randomise(model).state_dict().items()}, weights)
    for naming in ("torchvision", "timm", "hf"):
        done = tessera("ckpt", "export", weights, "--out", scratch / "never", "--naming", naming,
                       ok=False)
        record("resnet with a 3x3 stem", f"--naming {naming} is refused", done.returncode == 2
               and not (scratch / "never").exists())


main()
if options.report:
    report(options.report, options.large)
print(f"{len(rows)} checks, {failures()} failed")
sys.exit(1 if failures() else 0)
