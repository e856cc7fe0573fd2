#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes amp.txt: what torch.amp.GradScaler and torch.autocast do with two small models, two optimizers and three losses
through scripted overflows, on the CPU.

    python3 tests/golden/amp.py               # needs PyPI's torch; the traces committed are those of 2.15

Model a is a linear layer and relu, model b a linear layer after it. Losses, each the mean of squares: `both` of b(a(x1)) - t1,
`of_a` of a(x2) / 2 (an eighth of it), `of_b` of b(x3) - t3. All numbers that go in are multiples of 1/32; see value().

A step is a word of one letter for each micro-batch: '.' unchanged; 'i', 'a', 'b' the loss both, of_a, of_b times infinity;
'h', 'g' the inputs x1 times 2^60, 4.
"""
import pathlib

import torch

ROWS, IN, HIDDEN, OUT = 4, 5, 4, 4
torch.set_num_threads(1)


def value(salt, i):
    return ((7919 * salt + 104729 * i + 31 * i * i) % 65 - 32) / 32


def matrix(salt, rows, columns):
    return torch.tensor([[value(salt, r * columns + c) for c in range(columns)] for r in range(rows)])


# name: policy, scaler options, clip by norm, clip by value, script. `load` saves the scaler's state and loads it into a new
# one, `interval=n` does so with another growth interval; `word=s` ends the step with update(s). The norm is that of both
# optimizers' gradients, so where it is clipped both overflow: of one alone PyTorch may make NaNs of the other's parameters.
CASES = {
    "plain": ("fp32", (65536.0, 2.0, 0.5, 3, 1), 0, 0, ". . . . i . . a . . . b . . . . h . . . i a b . . . ."),
    "backoff_to_the_ground": ("fp32", (4.0, 4.0, 0.0625, 2, 1), 0, 0, ". i i i . . . i b b . . . . . a . . . ."),
    "accumulated": ("fp32", (1024.0, 2.0, 0.5, 2, 1), 0, 0,
                    "... ... .i. ... ... ..a b.. ... ... ... hhh ... ... .ab ... ... ... ... ... ..."),
    "norm_clipped": ("fp32", (2.0**20, 2.0, 0.5, 4, 1), 0.25, 0, ". . . i . . . . . h . . i . . . . . . ."),
    "value_clipped": ("fp32", (2.0**10, 2.0, 0.5, 4, 1), 0, 0.0625, ". . . i . . . . . a . . b . . . . . . ."),
    "clipped_twice": ("fp32", (2.0**10, 2.0, 0.5, 2, 1), 0.125, 0.0625, ".. .. .i .. .. i. .. .. .. .. .. .."),
    "disabled": ("fp32", (2.0**10, 2.0, 0.5, 2, 0), 0.5, 0, ". . . . . load . . . . . ."),
    "loaded": ("fp32", (2.0**8, 2.0, 0.5, 5, 1), 0, 0,
               ". . . load . . . i load . . . . . . interval=7 . . . . . . . . interval=2 i . . . a load . ."),
    "set_by_hand": ("fp32", (2.0**16, 2.0, 0.5, 3, 1), 0, 0, ". . .=32 . i=64 . . b . . . .=1048576 . . a=4 . . ."),
    "natural": ("fp32", (2.0**124, 2.0, 0.5, 2, 1), 0, 0, ". . . . . . g . . g g . . g . . . . g g g . . g"),
    "bf16": ("bf16", (65536.0, 2.0, 0.5, 3, 1), 0, 0, ". . . i . . . . a . b . . h . . . . . ."),
    "fp16": ("fp16", (256.0, 2.0, 0.5, 8, 1), 0, 0, ". . . i . . . . a . b . . h . . . . . ."),
}


class counted:
    """An optimizer's steps, counted."""

    def __init__(self, optimizer):
        self.steps, step = 0, optimizer.step
        self.optimizer = optimizer

        def counting(*args, **kwargs):
            self.steps += 1
            return step(*args, **kwargs)

        optimizer.step = counting


def run(policy, options, clip_norm, clip_value, script):
    def make_scaler(state=None):
        scaler = torch.amp.GradScaler("cpu", *options[:4], enabled=bool(options[4]))
        scaler.scale(torch.ones(1))  # makes the scale's tensor
        if state is not None:
            scaler.load_state_dict(state)
            if state:
                scaler._scale.fill_(state["scale"]), scaler._growth_tracker.fill_(state["_growth_tracker"])
        return scaler

    a, b = torch.nn.Linear(IN, HIDDEN), torch.nn.Linear(HIDDEN, OUT)
    with torch.no_grad():
        a.weight.copy_(matrix(1, HIDDEN, IN)), a.bias.copy_(matrix(2, 1, HIDDEN)[0])
        b.weight.copy_(matrix(3, OUT, HIDDEN)), b.bias.copy_(matrix(4, 1, OUT)[0])
    params = [*a.parameters(), *b.parameters()]
    if policy == "fp32":
        first = torch.optim.AdamW(a.parameters(), lr=2.0**-7, betas=(0.875, 0.96875), weight_decay=0.125, foreach=False)
    else:
        first = torch.optim.SGD(a.parameters(), lr=2.0**-6, foreach=False)
    both = [counted(first), counted(torch.optim.SGD(b.parameters(), lr=2.0**-6, momentum=0.5, foreach=False))]
    types = {"bf16": torch.bfloat16, "fp16": torch.float16}
    mse = torch.nn.functional.mse_loss

    scaler, salt = make_scaler(), 10
    for word in script.split():
        if word == "load":
            scaler = make_scaler(scaler.state_dict())
            yield "load"
            continue
        if word.startswith("interval="):
            state = scaler.state_dict()
            state["growth_interval"] = int(word.split("=")[1])
            scaler = make_scaler(state)
            yield f"interval {state['growth_interval']}"
            continue
        letters, _, by_hand = word.partition("=")
        for p in params:
            p.grad = None
        for letter in letters:
            salt += 1
            x1, x2, x3 = matrix(salt, ROWS, IN), matrix(salt + 1000, ROWS, IN), matrix(salt + 2000, ROWS, HIDDEN)
            t1, t3 = matrix(salt + 3000, ROWS, OUT), matrix(salt + 4000, ROWS, OUT)
            x1 = x1 * {"h": 2.0**60, "g": 4.0}.get(letter, 1.0)
            with torch.autocast("cpu", types.get(policy, torch.bfloat16), enabled=policy != "fp32"):
                h2 = torch.relu(a(x2))
                losses = [mse(b(torch.relu(a(x1))).float(), t1), mse(h2.float(), torch.zeros(ROWS, HIDDEN)) / 8, mse(b(x3).float(), t3)]
            for loss, mine in zip(losses, "iab"):
                scaler.scale(loss / len(letters) * (float("inf") if letter == mine else 1)).backward()
        found = []
        for c in both:
            scaler.unscale_(c.optimizer)
            found.append(int(any(f.item() != 0 for f in scaler._found_inf_per_device(c.optimizer).values())) if options[4] else 0)
        if clip_value:
            torch.nn.utils.clip_grad_value_(params, clip_value)
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(params, clip_norm)
        for c in both:
            scaler.step(c.optimizer)
        scaler.update(float(by_hand) if by_hand else None)
        tracker = scaler.state_dict().get("_growth_tracker", 0)
        shown = [f"{loss.item():.9g}" for loss in losses]
        yield f"step {letters} {by_hand or 0} {scaler.get_scale().hex()} {tracker} {found[0]} {found[1]} {both[0].steps} {both[1].steps} {' '.join(shown)}"
    yield "end " + " ".join(f"{v:.9g}" for p in params for v in p.detach().flatten().tolist())


lines = [
    "# SPDX-License-Identifier: MIT",
    f"# Written by amp.py with torch {torch.__version__.split('+')[0]}: for each case its options,",
    "#     case name policy init_scale growth_factor backoff_factor growth_interval enabled clip_norm clip_value",
    "# then for each step its word (see amp.py), the scale set by hand or 0, scale and growth tracker after it, found_inf of each",
    "# optimizer, the steps that each has taken, and the losses of its last micro-batch; at the end all parameters.",
]
for name, (policy, options, clip_norm, clip_value, script) in CASES.items():
    init, growth, backoff, interval, enabled = options
    lines.append(f"case {name} {policy} {init.hex()} {growth.hex()} {backoff.hex()} {interval} {enabled} {clip_norm} {clip_value}")
    lines += run(policy, options, clip_norm, clip_value, script)
(pathlib.Path(__file__).parent / "amp.txt").write_text("\n".join(lines) + "\n")
