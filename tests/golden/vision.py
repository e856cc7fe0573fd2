#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes resnet.txt and vit.txt: torchvision's ResNet-18 and a small VisionTransformer with random weights, on the CPU.

    python3 tests/golden/vision.py            # needs PyPI's torch and torchvision; those committed are of 2.15 and 0.29

Weights, images and labels come from golden_model.py's generator, which the test runs, too. Of the vision transformer there are logits,
loss and gradients. Of the ResNet, which has 11 million parameters, there are those of a step that normalises by the batch, with sums in
place of whole gradients, the sums of the running statistics behind it, and the logits in evaluation by these.

The sums of a tensor: sum j of 64 has the elements whose index is j modulo 64, each with a sign by the generator, begun at 1. The norm of
64 such sums is that of the tensor on average over signs, within an eighth or so.
"""
import copy

import torch
import torchvision

from golden_model import generator, numbers, off, write

CLASSES = 10
# With these no input of a relu is so near to 0 that float32 decides at random on which side it is.
RESNET = dict(name="resnet18", seed=1, images=2, size=64)
NEAREST = 4e-6


def norm(layer):
    yield layer.weight, 0.5, 1.0
    yield layer.bias, 0.5, 0.0


def affine(weight, bias):
    yield weight, 0.25, 0.0
    yield bias, 0.5, 0.0


def of_vit(model):
    """(parameter, scale, mean), in halftone's order."""
    yield from affine(model.conv_proj.weight, model.conv_proj.bias)
    yield model.class_token, 0.25, 0.0
    yield model.encoder.pos_embedding, 0.25, 0.0
    for block in model.encoder.layers:
        yield from norm(block.ln_1)
        yield from affine(block.self_attention.in_proj_weight, block.self_attention.in_proj_bias)
        yield from affine(block.self_attention.out_proj.weight, block.self_attention.out_proj.bias)
        yield from norm(block.ln_2)
        yield from affine(block.mlp[0].weight, block.mlp[0].bias)
        yield from affine(block.mlp[3].weight, block.mlp[3].bias)
    yield from norm(model.encoder.ln)
    yield from affine(model.heads.head.weight, model.heads.head.bias)


def of_resnet(model):
    """The same; the fourth power of a weight's scale is at most 16 by the number of its elements."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            yield from norm(module)
        elif isinstance(module, (torch.nn.Conv2d, torch.nn.Linear)):
            scale = 1.0
            while scale**4 * module.weight.numel() > 16:
                scale /= 2
            yield module.weight, scale, 0.0
            if module.bias is not None:
                yield module.bias, 0.5, 0.0


def fill(model, groups, seed, images, size):
    """Images and labels, behind the parameters."""
    values = generator(seed)
    with torch.no_grad():
        for parameter, scale, mean in groups(model):
            parameter.copy_(values.numbers(parameter.shape, scale, mean))
    batch = values.numbers((images, 3, size, size), 1.0)
    return batch, torch.tensor([values.next() % CLASSES for _ in range(images)])


def step(model, images, labels, low=False):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
        logits = model(images)
    loss = torch.nn.functional.cross_entropy(logits.double() if images.dtype == torch.float64 else logits.float(), labels)
    loss.backward()
    return logits.detach().float(), loss.item()


def sums(values):
    signs = generator(1)
    flat = values.detach().flatten().double()
    flat = flat * torch.tensor([1.0 if signs.next() < 32768 else -1.0 for _ in range(len(flat))], dtype=torch.float64)
    return torch.nn.functional.pad(flat, (0, -len(flat) % 64)).reshape(-1, 64).sum(0)[: len(flat)]


def head_line(name, count, low, high, seed):
    return f"case {name} {count} {off(low[0], high[0]):.6g} {abs(low[1] - high[1]):.6g} {high[1]:.8g} {seed}"


def vit():
    model = torchvision.models.VisionTransformer(
        image_size=12, patch_size=4, num_layers=2, num_heads=4, hidden_dim=16, mlp_dim=24, num_classes=CLASSES
    ).train()
    images, labels = fill(model, of_vit, 12345, 4, 12)
    in_bfloat16 = copy.deepcopy(model)
    high, low = step(model, images, labels), step(in_bfloat16, images, labels, True)
    pairs = [(p.grad, q.grad) for (p, _, _), (q, _, _) in zip(of_vit(model), of_vit(in_bfloat16))]
    yield head_line("vit", len(pairs), low, high, 12345)
    yield "logits " + numbers(high[0])
    for wanted, rounded in pairs:
        yield f"gradient {off(rounded, wanted):.6g} " + numbers(wanted)


def is_far_from_zero(model, images):
    nearest = []
    for module in model.modules():
        if isinstance(module, torch.nn.ReLU):
            module.register_forward_pre_hook(lambda _, inputs: nearest.append(inputs[0].abs().min().item()))
    with torch.no_grad():
        model(images)
    return min(nearest) > NEAREST


def statistics(model):
    return [value for name, value in model.named_buffers() if name.endswith(("mean", "var"))]


def resnet(name, seed, images, size):
    model = torchvision.models.resnet18(num_classes=CLASSES).train()
    batch, labels = fill(model, of_resnet, seed, images, size)
    assert is_far_from_zero(copy.deepcopy(model).double(), batch.double()), "choose another seed"
    in_bfloat16 = copy.deepcopy(model)
    high, low = step(model, batch, labels), step(in_bfloat16, batch, labels, True)
    pairs = [(p.grad, q.grad) for p, q in zip(model.parameters(), in_bfloat16.parameters())]
    yield "# The last number of a case is the generator's begin. Gradients and states stand here by their sums: see vision.py."
    yield head_line(name, len(pairs), low, high, seed)
    yield "logits " + numbers(high[0])
    for wanted, rounded in pairs:
        yield f"gradient {off(rounded, wanted):.6g} " + numbers(sums(wanted))
    for wanted, rounded in zip(statistics(model), statistics(in_bfloat16)):
        yield f"state {off(rounded, wanted):.6g} " + numbers(sums(wanted))
    with torch.no_grad():
        evaluated = model.eval()(batch)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rounded = in_bfloat16.eval()(batch).float()
    yield f"evaluation {off(rounded, evaluated):.6g} " + numbers(evaluated)


if __name__ == "__main__":
    library = f"torchvision {torchvision.__version__.split('+')[0]}"
    write("vit", list(vit()), "vision", library)
    write("resnet", list(resnet(**RESNET)), "vision", library)
