#!/usr/bin/env python3
"""Pastes the blocks of README.md and recipes/README.md that need the network or photos of one's
own, in order, in a folder where made-up data lie in their places:

    tools/paste_data_blocks.py [--tessera build/tessera]      (in ./check --all)

A comment above such a block names this script. CIFAR-10 has a few images of noise, so that `data
get` finds it there; the photos are those of tests/golden; the weights of Swin-T are fresh ones with
torchvision's names. Trainings are cut to a step or two. Exit status 1 when a command fails.
"""
import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "recipes/README.md"]
SHORT = "--steps 2 --global-batch 4 --set run.eval_every=0"
BLOCK = re.compile(r"<!-- test: not pasted: [^\n]*paste_data_blocks\.py[^\n]*-->\n```sh\n(.*?)```",
                   re.S)
CLASSES = "airplane automobile bird cat deer dog frog horse ship truck".split()


def make_cifar(folder):
    folder.mkdir(parents=True)
    noise = random.Random(0)
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        rows = [bytes([k % 10]) + noise.randbytes(3072) for k in range(20)]
        (folder / f"{name}.bin").write_bytes(b"".join(rows))
    (folder / "batches.meta.txt").write_text("\n".join(CLASSES) + "\n")


def make_photos(folder):
    for picture in sorted((ROOT / "tests/golden/pictures").glob("*.png")):
        (folder / picture.stem).mkdir(parents=True)
        for k in range(3):
            shutil.copy(picture, folder / picture.stem / f"{k}.png")


def run(command, place):
    """What a shell says to it; trainings, which are cut short, are shown as they ran."""
    if re.search(r"\btrain\b", command):
        command += " " + SHORT
    start = time.monotonic()
    done = subprocess.run(command, shell=True, cwd=place, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    print(f"$ {command}\n  ended with {done.returncode}, {time.monotonic() - start:.0f} s",
          flush=True)
    if done.returncode != 0:
        print(done.stdout)
    return done.returncode


def main():
    arguments = argparse.ArgumentParser(description=__doc__,
                                        formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tessera", type=Path, default=ROOT / "build" / "tessera")
    options = arguments.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="tessera-blocks-") as folder:
        place = Path(folder)
        (place / "build").mkdir()
        os.symlink(options.tessera.resolve(), place / "build/tessera")
        os.symlink(ROOT / "recipes", place / "recipes")
        make_cifar(place / "data/cifar-10-batches-bin")
        make_photos(place / "photos")
        failed += run("build/tessera train --model swin_t --data folder:photos --out swin", place)
        failed += run("build/tessera ckpt export swin --out named --naming torchvision && "
                      "mv named/model.safetensors swin_t.safetensors", place)
        for page in PAGES:
            blocks = BLOCK.findall((ROOT / page).read_text())
            if not blocks:
                sys.exit(f"{page} has no block that names this script")
            for line in "".join(blocks).splitlines():
                command = line.split(" #")[0].strip()
                failed += run(command, place) if command else 0
    print("everything ran" if not failed else "FAILED")
    return 1 if failed else 0


sys.exit(main())
