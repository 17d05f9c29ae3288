"""Loss traces for make_goldens.py: ten training steps in f64 with loss, gradient norm, and the
weights, averages and running statistics they end in."""
import copy

import torch
from torch.nn import functional

STEPS = 10
BATCH = 4
LABEL_SMOOTHING = 0.1
CLIP_EPS = 1e-6  # PyTorch scales gradients by min(1, clip / (norm + 1e-6))
VIT = dict(family="vit", image=[8, 12], channels=3, patch=4, dim=12, depth=2, heads=3, mlp=20,
           classes=7, pool="class")
RESNET = dict(family="resnet", image=[10, 8], channels=3, block="bottleneck", layers=[1, 1],
              width=3, stem="cifar", classes=7)
ADAMW = dict(name="adamw", lr=1e-3, weight_decay=0.05, betas=[0.9, 0.999], eps=1e-8, clip=1.0)
# name: model, settings of the optimizer
TRACES = {
    "adamw": (VIT, ADAMW),
    # about half of the steps are clipped
    "sgd": (VIT, dict(name="sgd", lr=0.05, weight_decay=0.05, momentum=0.9, clip=4.0)),
    "lamb": (VIT, ADAMW | dict(name="lamb", lr=0.02, eps=1e-6)),
    # embeddings and the first block are frozen
    "fine_tune": (VIT, ADAMW | dict(layer_decay=0.6, ema=0.8, freeze="2")),
    "resnet": (RESNET, dict(name="sgd", lr=0.05, weight_decay=0.01, momentum=0.9, nesterov=True,
                            clip=4.0, micro=2)),
}


class Lamb(torch.optim.Optimizer):
    """You et al. 2020: Adam's direction plus decay, scaled by |w| / |direction| of each tensor (1
    where either is 0)."""

    def __init__(self, groups, lr, betas, eps):
        super().__init__(groups, dict(lr=lr, betas=betas, eps=eps, weight_decay=0.0))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                state = self.state[w]
                if not state:
                    state |= dict(step=0, m=torch.zeros_like(w), v=torch.zeros_like(w))
                state["step"] += 1
                (b1, b2), t = group["betas"], state["step"]
                state["m"].mul_(b1).add_(w.grad, alpha=1 - b1)
                state["v"].mul_(b2).addcmul_(w.grad, w.grad, value=1 - b2)
                below = (state["v"] / (1 - b2**t)).sqrt() + group["eps"]
                direction = state["m"] / (1 - b1**t) / below + group["weight_decay"] * w
                sizes = w.norm(), direction.norm()
                ratio = sizes[0] / sizes[1] if min(sizes) > 0 else 1.0
                w.sub_(group["lr"] * ratio * direction)


def decays(name, parameter):
    return parameter.dim() > 1 and name not in ("class_token", "encoder.pos_embedding")


def above(name, depth):
    """How many layers of a ViT lie above a parameter, the head not counted in: 0 for the head
    itself, depth + 1 for the embeddings."""
    if name.startswith("heads."):
        return 0
    if ".encoder_layer_" in name:
        return depth - int(name.split(".encoder_layer_")[1].split(".")[0])
    return 1 if name.startswith("encoder.ln") else depth + 1


def optimizer(named, model, optim):
    groups = []
    for name, p in named:
        lr = optim["lr"] * optim.get("layer_decay",
                                     1.0) ** (above(name, model["depth"]) if "layer_decay" in optim
                                              else 0)
        groups.append(dict(params=[p], lr=lr, weight_decay=optim["weight_decay"] if decays(name, p)
                           else 0.0))
    if optim["name"] == "adamw":
        return torch.optim.AdamW(groups, lr=optim["lr"], betas=tuple(optim["betas"]),
                                 eps=optim["eps"], foreach=False)
    if optim["name"] == "lamb":
        return Lamb(groups, optim["lr"], tuple(optim["betas"]), optim["eps"])
    return torch.optim.SGD(groups, lr=optim["lr"], momentum=optim["momentum"],
                           nesterov=optim.get("nesterov", False), foreach=False)


def trace(net, images, labels, model, optim):
    """The tensors of one trace; the net is trained on the way."""
    buffers = lambda: {name: b.clone() for name, b in net.named_buffers() if "running_" in name}
    named = list(net.named_parameters())
    tensors = {"input": images, "labels": labels} | {"param." + name: p.detach().clone() for name,
                                                     p in named}
    tensors |= {"param." + name: b for name, b in buffers().items()}
    frozen = int(optim.get("freeze", 0))
    trained = [(name, p) for name, p in named if model["family"] != "vit" or model["depth"] + 1
               - above(name, model["depth"]) >= frozen]
    stepper = optimizer(trained, model, optim)
    average = copy.deepcopy(dict(trained))
    losses, norms = [], []
    for step in range(STEPS):
        stepper.zero_grad()
        parts, total = optim.get("micro", 1), 0.0
        for x, y in zip(images[step].chunk(parts), labels[step].chunk(parts)):
            loss = functional.cross_entropy(net(x), y, label_smoothing=LABEL_SMOOTHING,
                                            reduction="sum") / BATCH
            loss.backward()
            total = total + loss.detach()
        norms.append(torch.nn.utils.clip_grad_norm_([p for _, p in trained],
                                                    optim["clip"]).detach().clone())
        losses.append(total.clone())
        stepper.step()
        for name, p in trained:
            decay = optim.get("ema", 0.0)
            average[name] = decay * average[name].detach() + (1 - decay) * p.detach()
    tensors |= {"loss": torch.stack(losses),
                "grad_norm": torch.stack(norms)} | {"final." + name: p for name, p in named}
    tensors |= {"final." + name: b for name, b in buffers().items()}
    if "ema" in optim:
        tensors |= {"ema." + name: average.get(name, p.detach()) for name, p in named}
    print("  loss", " ".join(f"{x:.4f}" for x in losses), "\n  norm",
          " ".join(f"{x:.3f}" for x in norms))
    return tensors, dict(steps=STEPS, batch=BATCH, optim=optim, label_smoothing=LABEL_SMOOTHING,
                         clip_eps=CLIP_EPS)
