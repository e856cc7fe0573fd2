#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes gpt2/, a small random GPT-2 as transformers saves it, and gpt2.txt: its logits, loss and gradients, on the CPU.

    python3 tests/golden/gpt2.py                           # needs PyPI's torch and transformers; those committed are of 2.15 and 5
    python3 tests/golden/gpt2.py --compare A B             # whether transformers computes the same logits from two folders
    python3 tests/golden/gpt2.py --large FOLDER            # GPT-2 124M with random weights, and FOLDER/logits.txt: for programs/gpt2_124m.py

Gradients are in halftone's order, matrices as (out, in). Each is followed by the error of PyTorch's autocast to bfloat16: the norm of
the difference over the norm.
"""
import argparse
import pathlib

import torch
import transformers

from golden_model import generator, numbers, off, write

HERE = pathlib.Path(__file__).parent
BATCH, TIME = 2, 13
SMALL = dict(vocab_size=32, n_positions=16, n_embd=16, n_layer=2, n_head=4)


def made(**sizes):
    config = transformers.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager", **sizes)
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(config).float().train()
    with torch.no_grad():
        for name, p in model.named_parameters():
            mean = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
            p.copy_(mean + torch.randn(p.shape) * (0.02 if sizes["n_embd"] > 100 else 0.25))
    return model


def parameters(model):
    """(parameter, whether halftone has its transpose), in halftone's order."""
    core = model.transformer
    yield core.wte.weight, False
    yield core.wpe.weight, False
    for block in core.h:
        for norm, first, second in ((block.ln_1, block.attn.c_attn, block.attn.c_proj), (block.ln_2, block.mlp.c_fc, block.mlp.c_proj)):
            yield norm.weight, False
            yield norm.bias, False
            for layer in (first, second):
                yield layer.weight, True
                yield layer.bias, False
    yield core.ln_f.weight, False
    yield core.ln_f.bias, False


def step(model, tokens, targets, low):
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
        logits = model(tokens, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
    loss.backward()
    return logits.detach().float(), loss.item(), [(p.grad.T if turned else p.grad).flatten() for p, turned in parameters(model)]


def small():
    model = made(**SMALL)
    model.save_pretrained(HERE / "gpt2")
    (HERE / "gpt2" / "generation_config.json").unlink(missing_ok=True)
    values = generator()
    tokens, targets = (torch.tensor([values.next() % 32 for _ in range(BATCH * TIME)]).reshape(BATCH, TIME) for _ in range(2))
    targets[0, 3] = -100
    (logits, loss, gradients), low = step(model, tokens, targets, False), step(model, tokens, targets, True)
    lines = [f"case gpt2 {len(gradients)} {off(low[0], logits):.6g} {abs(low[1] - loss):.6g} {loss:.8g}", "logits " + numbers(logits)]
    lines += [f"gradient {off(low[2][i], g):.6g} " + numbers(g) for i, g in enumerate(gradients)]
    write("gpt2", lines)


def logits_of(model, vocabulary):
    values = generator()
    tokens = torch.tensor([[values.next() % vocabulary for _ in range(TIME)]])
    with torch.no_grad():
        return model.eval()(tokens, use_cache=False).logits


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", nargs=2, metavar="FOLDER")
    parser.add_argument("--large", metavar="FOLDER")
    given = parser.parse_args()
    if given.compare:
        first, second = (transformers.GPT2LMHeadModel.from_pretrained(folder, torch_dtype=torch.float32) for folder in given.compare)
        a, b = (logits_of(model, model.config.vocab_size) for model in (first, second))
        print("the same bits" if torch.equal(a, b) else f"off by {off(a, b):.3g}")
    elif given.large:
        folder = pathlib.Path(given.large)
        model = made(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)
        model.save_pretrained(folder)
        logits = logits_of(model, 50257).flatten().tolist()
        (folder / "logits.txt").write_text(" ".join(f"{v:.9g}" for v in logits) + "\n")
    else:
        small()


if __name__ == "__main__":
    main()
