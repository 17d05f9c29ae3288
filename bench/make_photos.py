#!/usr/bin/env python3
"""Writes a folder of JPEGs that cost a decoder what photographs cost: noise with the spectrum of
natural images, in colours.

Needs pillow and numpy; the build and the tests need neither.

    bench/make_photos.py photos --images 256 --size 500x375

One folder per class below train/ and val/, names and contents follow from the numbers alone.
"""
import argparse
import pathlib

import numpy as np
from PIL import Image


def photo(seed, width, height, roughness):
    """Amplitudes fall with the frequency to the power `roughness`; photographs have about 1, and
    less colour than light."""
    rng = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None] * height,
                         np.fft.fftfreq(width)[None, :] * width)
    amplitude = 1 / np.maximum(frequency, 1) ** roughness
    planes = []
    for _ in range(3):
        phase = rng.uniform(0, 2 * np.pi, (height, width))
        plane = np.fft.ifft2(amplitude * np.exp(1j * phase)).real
        planes.append(plane / plane.std())
    light, red, blue = planes
    colours = np.stack([light + 0.4 * red, light - 0.2 * red - 0.2 * blue, light + 0.4 * blue],
                       axis=2)
    return Image.fromarray(np.clip(118 + 52 * colours, 0, 255).astype(np.uint8))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--classes", type=int, default=8)
    parser.add_argument("--size", default="500x375",
                        help="width x height; every fourth image stands upright")
    parser.add_argument("--quality", type=int, default=92)
    parser.add_argument("--roughness", type=float, default=1.1)
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    total = 0
    for i in range(arguments.images):
        part = "val" if i // arguments.classes % 8 == 7 else "train"
        path = arguments.out / part / f"class_{i % arguments.classes}" / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = (height, width) if i % 4 == 3 else (width, height)
        photo(i, *size, arguments.roughness).save(path, quality=arguments.quality,
                                                  subsampling="4:2:0")
        total += path.stat().st_size
    print(f"{arguments.images} images, {total / arguments.images / 1000:.1f} kB each")


if __name__ == "__main__":
    main()
