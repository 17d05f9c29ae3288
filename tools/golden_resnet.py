"""ResNets for make_goldens.py: torchvision's blocks and names with free stages, width, channels and
stem."""
import copy

import torch
from torchvision.models.resnet import BasicBlock, Bottleneck

KEYS = ("image", "channels", "block", "layers", "width", "stem", "classes")
# name, model, batch: odd on purpose
SUITE = [
    ("resnet_basic_cifar", dict(image=[9, 12], channels=3, block="basic", layers=[1, 2], width=5,
                                stem="cifar", classes=7), 5),
    ("resnet_bottleneck_cifar", dict(image=8, channels=1, block="bottleneck", layers=[2, 1],
                                     width=3, stem="cifar", classes=10), 4),
    ("resnet_basic_imagenet", dict(image=[33, 30], channels=4, block="basic", layers=[1, 1],
                                   width=4, stem="imagenet", classes=5), 3),
    ("resnet_bottleneck_imagenet", dict(image=32, channels=3, block="bottleneck", layers=[1, 1, 1],
                                        width=3, stem="imagenet", classes=10), 5),
]


def suite():
    """(name, model, batch, seed) of each committed golden; a seed that a rounding would upset moves
    on (make_goldens.golden)."""
    return [(name, {"family": "resnet"} | model, batch, 201 + i) for i,
            (name, model, batch) in enumerate(SUITE)]


class ResNet(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        block = Bottleneck if model["block"] == "bottleneck" else BasicBlock
        width, channels = model["width"], model["channels"]
        cifar = model["stem"] == "cifar"
        self.conv1 = torch.nn.Conv2d(channels, width, 3 if cifar else 7, 1 if cifar else 2,
                                     1 if cifar else 3, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(width)
        self.relu = torch.nn.ReLU()
        self.maxpool = torch.nn.Identity() if cifar else torch.nn.MaxPool2d(3, 2, 1)
        self.stages, inputs = len(model["layers"]), width
        for stage, count in enumerate(model["layers"]):
            blocks, planes = [], width << stage
            for i in range(count):
                stride = 2 if stage and i == 0 else 1
                shortcut = None
                if stride != 1 or inputs != planes * block.expansion:
                    shortcut = torch.nn.Sequential(
                        torch.nn.Conv2d(inputs, planes * block.expansion, 1, stride, bias=False),
                                                   torch.nn.BatchNorm2d(planes * block.expansion)
                    )
                blocks.append(block(inputs, planes, stride, shortcut))
                inputs = planes * block.expansion
            setattr(self, f"layer{stage + 1}", torch.nn.Sequential(*blocks))
        self.fc = torch.nn.Linear(inputs, model["classes"])

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))


def well_conditioned(net, images, labels):
    """Whether PyTorch's own f32 agrees with its f64: where a ReLU's input is nearly 0, rounding
    flips it and gradients jump."""
    results = []
    for dtype in (torch.float64, torch.float32):
        twin = copy.deepcopy(net).to(dtype)
        loss = torch.nn.functional.cross_entropy(twin(images.to(dtype)), labels)
        loss.backward()
        results.append([p.grad.double() for p in twin.parameters()])
    return all((a - b).norm() <= 1e-5 * a.norm() for a, b in zip(*results))
