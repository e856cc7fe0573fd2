# SPDX-License-Identifier: MIT
"""The training step of bench_train_step in PyTorch: GPT-2's architecture as ht::nn::gpt has it (pre-norm blocks, learned
positions, tied head, gelu by tanh), cross-entropy, clip_grad_norm_, fused AdamW; and greedy generation of bench_generate with
a cache of keys and values, by the same model and by transformers. Registered with torch_cpu.py."""
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

    def forward(self, tokens, targets, stream=None):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        x = x if stream is None else x.to(stream)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return f.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def train_step(q):
    """One step: {layers, heads, width, vocabulary, context, batch, length, dtype: bfloat16 (autocast) or float32, compiled,
    narrow_stream: whether under autocast the embeddings' sum is cast to bfloat16, so that all sums of the residual stream are}."""
    model = GPT(q["layers"], q["heads"], q["width"], q["vocabulary"], q["context"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    shape = (q["batch"], q["length"])
    tokens, targets = torch.randint(q["vocabulary"], shape), torch.randint(q["vocabulary"], shape)
    run = torch.compile(model) if q["compiled"] else model
    mixed = q["dtype"] == "bfloat16"
    stream = torch.bfloat16 if mixed and q.get("narrow_stream") else None

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            loss = run(tokens, targets, stream)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


class Generator:
    """Greedy tokens of prompts padded on the left, all of a batch in one step, with keys and values in tensors made before."""

    def __init__(self, q, dtype):
        self.model = GPT(q["layers"], q["heads"], q["width"], q["vocabulary"], q["context"]).to(dtype).eval()
        self.heads, self.new, self.dtype = q["heads"], q["new"], dtype
        self.lengths = [len(p) for p in q["prompts"]]
        self.longest = max(self.lengths)
        self.tokens = torch.tensor([[0] * (self.longest - len(p)) + p for p in q["prompts"]])
        shape = (len(self.lengths), self.heads, self.longest + self.new, q["width"] // self.heads)
        self.cache = [(torch.empty(shape, dtype=dtype), torch.empty(shape, dtype=dtype)) for _ in self.model.blocks]
        self.padding = torch.tensor([self.longest - n for n in self.lengths])
        keys = torch.arange(self.longest + self.new)
        self.seen = keys[None, :] >= self.padding[:, None]  # padding is hidden
        self.causal = keys[None, :] <= keys[:, None]

    def step(self, tokens, begin):
        b, t = tokens.shape
        end = begin + t
        positions = (torch.arange(begin, end)[None, :] - self.padding[:, None]).clamp(min=0)
        x = self.model.tokens(tokens) + self.model.positions(positions)
        mask = self.seen[:, None, None, :end]
        if t > 1:
            mask = mask & self.causal[None, None, begin:end, :end] | torch.eye(t, end, dtype=torch.bool)
        elif len(self.lengths) == 1:
            mask = None
        for block, (keys, values) in zip(self.model.blocks, self.cache):
            c = x.shape[2]
            q, k, v = block.qkv(block.norm1(x)).split(c, dim=2)
            q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
            keys[:, :, begin:end], values[:, :, begin:end] = k, v
            y = f.scaled_dot_product_attention(q, keys[:, :, :end], values[:, :, :end], attn_mask=mask)
            x = x + block.proj(y.transpose(1, 2).reshape(b, t, c))
            x = x + block.down(f.gelu(block.up(block.norm2(x)), approximate="tanh"))
        return self.model.head(self.model.norm(x[:, -1])).argmax(-1)

    def __call__(self):
        with torch.inference_mode():
            made = [self.step(self.tokens, 0)]
            while len(made) < self.new:
                made.append(self.step(made[-1][:, None], self.longest + len(made) - 1))
            return torch.stack(made, 1)


def generate(q):
    """{layers, heads, width, vocabulary, context, dtype, prompts, new}: so many tokens of each prompt."""
    return Generator(q, getattr(torch, q["dtype"]))


def by_transformers(model, q):
    """Greedy tokens of prompts padded on the left, by transformers' generate."""
    model = model.to(getattr(torch, q["dtype"])).eval()
    longest = max(len(p) for p in q["prompts"])
    tokens = torch.tensor([[0] * (longest - len(p)) + p for p in q["prompts"]])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in q["prompts"]])
    return lambda: model.generate(tokens, attention_mask=mask, max_new_tokens=q["new"], do_sample=False)


def generate_gpt2(q):
    """The same as generate by transformers' GPT2LMHeadModel."""
    import transformers

    config = transformers.GPT2Config(vocab_size=q["vocabulary"], n_positions=q["context"], n_embd=q["width"],
                                     n_layer=q["layers"], n_head=q["heads"], bos_token_id=0, eos_token_id=None, pad_token_id=0)
    return by_transformers(transformers.GPT2LMHeadModel(config), q)


def generate_qwen2(q):
    """{layers, heads, kv_heads, width, intermediate, vocabulary, context, dtype, prompts, new}: by transformers' Qwen2ForCausalLM."""
    import transformers

    config = transformers.Qwen2Config(vocab_size=q["vocabulary"], hidden_size=q["width"], intermediate_size=q["intermediate"],
                                      num_hidden_layers=q["layers"], num_attention_heads=q["heads"],
                                      num_key_value_heads=q["kv_heads"], max_position_embeddings=q["context"],
                                      rope_parameters={"rope_type": "default", "rope_theta": 1e6}, tie_word_embeddings=True,
                                      bos_token_id=0, eos_token_id=None, pad_token_id=0)
    return by_transformers(transformers.Qwen2ForCausalLM(config), q)


def tune_qwen2(q):
    """{method: lora or full, rank, layers, heads, kv_heads, width, intermediate, vocabulary, context, batch, length}: a step of AdamW in bf16, by
    PEFT's adapters on all linear layers, or of the whole model."""
    import transformers

    config = transformers.Qwen2Config(vocab_size=q["vocabulary"], hidden_size=q["width"], intermediate_size=q["intermediate"],
                                      num_hidden_layers=q["layers"], num_attention_heads=q["heads"],
                                      num_key_value_heads=q["kv_heads"], max_position_embeddings=q["context"],
                                      rope_parameters={"rope_type": "default", "rope_theta": 1e6}, tie_word_embeddings=True)
    model = transformers.Qwen2ForCausalLM(config).to(torch.bfloat16)
    if q["method"] == "lora":
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(r=q["rank"], lora_alpha=2 * q["rank"], target_modules="all-linear",
                                                           task_type="CAUSAL_LM"))
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    ids = torch.randint(q["vocabulary"], (q["batch"], q["length"]))

    def step():
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()

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


OPS = {"train_step": train_step, "adamw": adamw, "clip": clip, "sgd": sgd, "generate": generate,
       "generate_gpt2": generate_gpt2, "generate_qwen2": generate_qwen2, "tune_qwen2": tune_qwen2}
