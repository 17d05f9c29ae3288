"""Swin for make_goldens.py: torchvision's model with free channels, and the committed cases."""
import torch
import torchvision

KEYS = ("image", "channels", "patch", "dim", "depths", "heads", "window", "mlp_ratio", "classes")
# name, the keys above, batch: padding of windows and of mergings, images that patches do not tile, windows larger than the image, shifts in one
# dim only
SUITE = [
    ("swin_padded", ([24, 20], 1, 2, 12, [2, 2], [3, 6], 4, 2.0, 7), 3),
    ("swin_odd", ([23, 17], 3, 4, 6, [1, 2, 1], [1, 3, 4], [3, 2], 1.5, 5), 1),
    ("swin_large_window", (12, 2, 2, 8, [2, 2], [2, 1], 7, 2.0, 3), 2),
    ("swin_one_row", ([8, 32], 3, 2, 10, [2], [5], 4, 4.0, 10), 3),
    ("swin_square", (16, 3, 2, 9, [3, 1], [3, 2], 4, 3.0, 4), 2),
]


class Swin(torchvision.models.SwinTransformer):
    def __init__(self, model):
        pair = lambda x: [x, x] if isinstance(x, int) else list(x)
        super().__init__(pair(model["patch"]), model["dim"], model["depths"], model["heads"], pair(model["window"]),
                         mlp_ratio=model["mlp_ratio"], stochastic_depth_prob=0.0, num_classes=model["classes"])
        self.features[0][0] = torch.nn.Conv2d(model["channels"], model["dim"], model["patch"], model["patch"])


def suite():
    """(name, model, batch) of each committed golden."""
    return [(name, {"family": "swin"} | dict(zip(KEYS, values)), batch) for name, values, batch in SUITE]
