#!/usr/bin/env python3
"""Writes what torchvision and Pillow make of a few small images, for tests/data: a text file of
images and of operations with their results.

Needs torch, torchvision, pillow and numpy; the build and the tests need none of them.

    tools/make_augment_golden.py tests/golden/augment.txt

Convention: one line per item, pixels as hexadecimal bytes in rows of interleaved channels.
    image NAME H W C PIXELS
    case OP ARGS.. IMAGE H W C PIXELS          the result; ARGS are numbers
    policy OP BINS BIN SIGN IMAGE H W C PIXELS  one operation of a policy at a bin of its range;
        SIGN is 1 or -1
    sub N OP PROBABILITY BIN OP PROBABILITY BIN  row N of AutoAugment's policy for CIFAR; BIN is -1
        for operations without one
"""
import sys

import numpy as np
import torchvision
from PIL import Image
from torchvision.transforms import autoaugment, functional
from torchvision.transforms.functional import InterpolationMode

NEAREST = InterpolationMode.NEAREST


def make_images():
    rng = np.random.default_rng(3)
    y, x = np.mgrid[0:11, 0:14]
    ramp = np.stack([x * 18, y * 23, 255 - x * 9 - y * 11], axis=2)
    return {
        "rgb": rng.integers(0, 256, (11, 14, 3)),
        "ramp": ramp,
        "dull": 60 + rng.integers(0, 70, (9, 8, 3)),
        "grey": rng.integers(0, 256, (10, 7, 1)),
        "rgba": rng.integers(0, 256, (7, 9, 4)),
        "flat": np.full((5, 6, 3), 77),
        "narrow": rng.integers(0, 256, (6, 2, 3)),
        "tiny": rng.integers(0, 256, (1, 1, 3)),
        "photo": np.clip(np.stack([40 + np.hypot(*np.mgrid[-12:13, -14:15]) * k for k in (7, 9, 8)],
                                  axis=2) + rng.normal(0, 12, (25, 29, 3)), 0, 255),
    }


def to_pil(array):
    array = array.astype(np.uint8)
    return Image.fromarray(array[:, :, 0]) if array.shape[2] == 1 else Image.fromarray(array)


def pixels(image):
    array = np.asarray(image)
    array = array.reshape(*array.shape[:2], -1)
    height, width, channels = array.shape
    return f"{height} {width} {channels} {array.astype(np.uint8).tobytes().hex()}"


def resize(image, height, width):
    """Across, then down, as Pillow did up to version 12; newer ones choose the order by the sizes,
    which moves some values by 1. Channel by channel, because Pillow multiplies colours by alpha
    first."""
    bands = [functional.resize(functional.resize(band, [image.height, width]), [height, width])
             for band in image.split()]
    return Image.merge(image.mode, bands)


def eval_transform(image, size, crop_h, crop_w):
    height, width = functional._compute_resized_output_size((image.height, image.width), [size])
    return functional.center_crop(resize(image, height, width), [crop_h, crop_w])


def padded_crop(image, mode, pad, top, left):
    height, width = image.height, image.width
    padded = functional.pad(image, pad, padding_mode="reflect" if mode else "constant")
    return functional.crop(padded, top + pad, left + pad, height, width)


# name: (function, argument lists, images)
COLOUR = ["rgb", "ramp", "dull", "grey", "flat", "tiny", "narrow"]
CASES = {
    "brightness": (functional.adjust_brightness, [[0.37], [1.9]], ["rgb", "grey", "rgba", "tiny"]),
    "contrast": (functional.adjust_contrast, [[0.0], [0.6], [1.7]],
                 ["rgb", "ramp", "dull", "grey", "rgba", "tiny"]),
    "saturation": (functional.adjust_saturation, [[0.0], [0.45], [1.8]],
                   ["rgb", "ramp", "grey", "rgba", "flat"]),
    "sharpness": (functional.adjust_sharpness, [[0.0], [1.9]],
                  ["rgb", "ramp", "grey", "rgba", "narrow", "tiny"]),
    "hue": (functional.adjust_hue, [[-0.5], [-0.13], [0.0], [0.1]],
            ["rgb", "ramp", "dull", "grey", "flat"]),
    "posterize": (lambda i, b: functional.posterize(i, int(b)), [[1], [4], [8]], ["rgb", "grey"]),
    "solarize": (functional.solarize, [[100.5], [255.0]], ["rgb", "grey"]),
    "invert": (functional.invert, [[]], ["rgb", "grey"]),
    "autocontrast": (functional.autocontrast, [[]], COLOUR + ["photo"]),
    "equalize": (functional.equalize, [[]], COLOUR + ["photo"]),
    "resize": (resize, [[3, 4], [4, 20], [17, 3], [11, 14], [1, 1]],
               ["rgb", "grey", "rgba", "tiny", "narrow", "photo"]),
    "resized_crop": (lambda i, t, l, h, w, oh, ow: resize(functional.crop(i, t, l, h, w), oh, ow),
                     [[3, 5, 20, 11, 13, 13], [0, 0, 25, 29, 9, 8], [15, 20, 10, 9, 14, 15],
                      [7, 4, 1, 24, 5, 6]], ["photo"]),
    "eval": (eval_transform, [[16, 14, 14], [12, 12, 12], [25, 24, 23], [13, 8, 11]],
             ["photo", "grey"]),
    "padded_crop": (padded_crop,
                    [[m, 2, t, l] for m in (0, 1) for t, l in ((-2, 1), (2, -2), (0, 0), (-1, 2))],
                    ["rgb", "grey"]),
}


def main():
    arrays = make_images()
    images = {name: to_pil(array) for name, array in arrays.items()}
    lines = [f"# torchvision {torchvision.__version__}, Pillow {Image.__version__}; made by "
             f"tools/make_augment_golden.py"]
    lines += [f"image {name} {pixels(image)}" for name, image in images.items()]
    for op, (function, arguments, names) in CASES.items():
        for name in names:
            for args in arguments:
                words = " ".join([op, *map(str, args)])
                lines.append(f"case {words} {name} {pixels(function(images[name], *args))}")
    random, learned = (("rgb", 9), ("rgb", 30), ("grey", 17),
                       ("photo", 17)), (("rgb", 3), ("grey", 9))
    for policy, bins, chosen in ((autoaugment.RandAugment(), 31, random),
                                 (autoaugment.AutoAugment(), 10, learned)):
        for name, bin in chosen:
            image = images[name]
            for op, (values,
                     signed) in policy._augmentation_space(bins,
                                                           (image.height, image.width)).items():
                if name == "photo" and op not in ("Rotate", "ShearX", "ShearY"):
                    continue
                value = float(values[bin].item()) if values.ndim else 0.0
                for sign in (1, -1) if signed else (1,):
                    result = autoaugment._apply_op(image, op, sign * value, interpolation=NEAREST,
                                                   fill=None)
                    lines.append(f"policy {op} {bins} {bin} {sign} {name} {pixels(result)}")
    cifar10 = autoaugment.AutoAugment(autoaugment.AutoAugmentPolicy.CIFAR10)
    for n, sub in enumerate(cifar10.policies):
        lines.append(f"sub {n} " + " ".join(f"{op} {p} {-1 if bin is None else bin}" for op, p,
                                            bin in sub))
    with open(sys.argv[1], "w") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
