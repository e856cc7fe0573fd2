# SPDX-License-Identifier: MIT
"""The training step of bench_train_step in PyTorch: GPT-2's architecture as ht::nn::gpt has it (pre-norm blocks, learned
positions, tied head, gelu by tanh), cross-entropy, clip_grad_norm_, fused AdamW. Registered with torch_cpu.py."""
import torch
from torch import nn
from torch.nn import functional as f


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(c, dim=2)
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
        y = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.down(f.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, heads, width, vocabulary, context):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 / (2 * layers) ** 0.5 if "proj" in name or "down" in name else 0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return f.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def train_step(q):
    """One step: {layers, heads, width, vocabulary, context, batch, length, dtype: bfloat16 (autocast) or float32, compiled}."""
    model = GPT(q["layers"], q["heads"], q["width"], q["vocabulary"], q["context"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    shape = (q["batch"], q["length"])
    tokens, targets = torch.randint(q["vocabulary"], shape), torch.randint(q["vocabulary"], shape)
    run = torch.compile(model) if q["compiled"] else model
    mixed = q["dtype"] == "bfloat16"

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            loss = run(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def parameters_of(count):
    """`count` parameters in tensors like those of a GPT-2: one large one, then blocks of 12 width^2; and their gradients."""
    sizes = []
    for size in [50304 * 768] + [3 * 768 * 768, 768 * 768, 4 * 768 * 768, 4 * 768 * 768] * 10000:
        sizes.append(min(size, count))
        count -= sizes[-1]
        if count == 0:
            break
    all = [nn.Parameter(torch.randn(n) * 0.02) for n in sizes]
    for p in all:
        p.grad = torch.randn(p.shape) * 1e-3
    return all


def adamw(q):
    """{count, clip}: fused AdamW, optionally after clip_grad_norm_."""
    parameters = parameters_of(q["count"])
    optimizer = torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.1, fused=True)

    def step():
        if q["clip"]:
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    return step


def clip(q):
    """{count}: clip_grad_norm_."""
    parameters = parameters_of(q["count"])
    return lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0)


def sgd(q):
    """{count}: fused SGD with momentum."""
    optimizer = torch.optim.SGD(parameters_of(q["count"]), lr=3e-4, momentum=0.9, weight_decay=0.1, fused=True)
    return optimizer.step


OPS = {"train_step": train_step, "adamw": adamw, "clip": clip, "sgd": sgd}
