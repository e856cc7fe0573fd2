#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes wide_heads.txt: logits, loss and gradients of small random models of transformers with heads as wide as real ones, on the CPU.

    python3 tests/golden/wide_heads.py        # needs PyPI's torch and transformers; those committed are of 2.15 and 5

    llama_64     a Llama with heads of 64, theta 500,000
    llama3_128   heads of 128, theta 500,000, Llama 3's scaling of angles, tokens at the positions FAR, up to 16,383, and the vocabulary of
                 Llama 3, 128,256, whose table is the head's, too
    qwen3_128    heads of 128 with norms, theta 1,000,000
    gpt2_64, bert_64     two heads of 64, one layer; the others have two

Weights and inputs are made as llama.py, gpt2.py and bert.py make them, but that GPT-2's weights come from the generator, too. Of a gradient, and of
logits, of more than 2,048 numbers every k-th is written, for an odd k. transformers computes angles in float32; llama3_128 is
written with angles in float64, and its results with transformers' own have to be within the test's bound of these.
"""
import math

import torch
import transformers

import bert
import gpt2
import llama
from golden_model import generator, numbers, off, write

BATCH, TIME = 2, 13
FAR = [0, 1, 2, 40, 300, 2000, 8000, 8191, 8192, 9001, 12000, 16000, 16383]
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
LLAMAS = {
    "llama_64": (transformers.LlamaConfig, transformers.LlamaForCausalLM, dict(head_dim=64, tie_word_embeddings=False, rms_norm_eps=1e-5),
                 dict(rope_type="default", rope_theta=500000.0)),
    "llama3_128": (transformers.LlamaConfig, transformers.LlamaForCausalLM, dict(head_dim=128, tie_word_embeddings=True, rms_norm_eps=1e-5, vocab_size=128256),
                   dict(rope_type="llama3", rope_theta=500000.0, **LLAMA3)),
    "qwen3_128": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM, dict(head_dim=128, tie_word_embeddings=True, rms_norm_eps=1e-6),
                  dict(rope_type="default", rope_theta=1000000.0)),
}


class exact_angles(torch.nn.Module):
    """A Llama 3's rotary embedding with angles in float64."""

    def __init__(self, theta, columns):
        super().__init__()
        frequencies = [theta ** (-2 * i / columns) for i in range(columns // 2)]
        self.frequencies = torch.tensor([self.scaled(f) for f in frequencies], dtype=torch.float64)

    @staticmethod
    def scaled(frequency):
        waves = LLAMA3["original_max_position_embeddings"] * frequency / (2 * math.pi)
        low, high = LLAMA3["low_freq_factor"], LLAMA3["high_freq_factor"]
        share = min(max((waves - low) / (high - low), 0.0), 1.0)
        return (1 - share) * frequency / LLAMA3["factor"] + share * frequency

    def forward(self, x, position_ids):
        angles = position_ids[..., None].double() * self.frequencies
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def sampled(values):
    values = values.flatten()
    return values if len(values) <= 2048 else values[::len(values) // 1024 | 1]


def step(model, compute, low):
    """compute() gives logits and loss. Returns these, detached; gradients stay in the model."""
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
        logits, loss = compute()
    loss.backward()
    return logits.detach().float(), loss.item()


def lines_of(name, model, gradients, compute):
    logits, loss = step(model, compute, False)
    exact = gradients()
    low_logits, low_loss = step(model, compute, True)
    low = gradients()
    logits, low_logits = sampled(logits), sampled(low_logits)
    yield f"case {name} {len(exact)} {off(low_logits, logits):.6g} {abs(low_loss - loss):.6g} {loss:.8g}"
    yield "logits " + numbers(logits)
    for g, l in zip(exact, low):
        yield f"gradient {off(sampled(l), sampled(g)):.6g} " + numbers(sampled(g))


def next_ids(values, below):
    return torch.tensor([values.next() % below for _ in range(BATCH * TIME)]).reshape(BATCH, TIME)


def language_model(model, vocabulary, values, **options):
    """compute() of a model of language: logits and the loss of targets, one of which does not count."""
    tokens, targets = next_ids(values, vocabulary), next_ids(values, vocabulary)
    targets[0, 3] = -100

    def compute():
        logits = model(tokens, use_cache=False, **options).logits
        return logits, torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    return compute


def of_llama(name):
    make_config, make_model, options, rope = LLAMAS[name]
    sizes = dict(vocab_size=32, hidden_size=32, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                 max_position_embeddings=16384, attn_implementation="eager", attention_dropout=0.0)
    config = make_config(**{**sizes, **options}, rope_parameters=rope)
    model = make_model(config).float().train()
    values, groups = generator(), list(llama.groups(model, config))
    with torch.no_grad():
        for parameters, scale, mean in groups:
            for p in parameters:
                p.copy_(values.numbers(p.shape, scale, mean))
    # Without the mask of ones transformers takes each gap in the positions as the start of another document.
    far = dict(position_ids=torch.tensor([FAR] * BATCH), attention_mask=torch.ones(BATCH, TIME, dtype=torch.long))
    compute = language_model(model, config.vocab_size, values, **(far if name == "llama3_128" else {}))
    gradients = lambda: [torch.cat([p.grad.flatten() for p in ps]) for ps, _, _ in groups]
    if name == "llama3_128":
        logits, _ = step(model, compute, False)
        before = gradients()
        model.model.rotary_emb = exact_angles(500000.0, 128)
        exact, _ = step(model, compute, False)
        worst = max([off(logits, exact)] + [off(a, b) for a, b in zip(before, gradients())])
        print(f"{name}: angles in float32 change logits and gradients by {worst:.3g}")
        assert worst < 1e-4
    yield from lines_of(name, model, gradients, compute)


def of_gpt2():
    config = transformers.GPT2Config(vocab_size=32, n_positions=16, n_embd=128, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0,
                                     attn_pdrop=0.0, attn_implementation="eager")
    model = transformers.GPT2LMHeadModel(config).float().train()
    values, all_parameters = generator(), list(gpt2.parameters(model))
    with torch.no_grad():
        for p, turned in all_parameters:
            is_gain = any(p is norm.weight for norm in (model.transformer.h[0].ln_1, model.transformer.h[0].ln_2, model.transformer.ln_f))
            is_table = p is model.transformer.wte.weight
            scale = 1.0 if is_table else 0.5 if p.dim() == 1 else 0.25
            drawn = values.numbers(p.T.shape if turned and p.dim() == 2 else p.shape, scale, 1.0 if is_gain else 0.0)
            p.copy_(drawn.T if turned and p.dim() == 2 else drawn)
    gradients = lambda: [(p.grad.T if turned and p.dim() == 2 else p.grad).flatten() for p, turned in all_parameters]
    yield from lines_of("gpt2_64", model, gradients, language_model(model, 32, values))


def of_bert():
    config = transformers.BertConfig(
        vocab_size=32, hidden_size=128, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, max_position_embeddings=16,
        type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, classifier_dropout=0.0, num_labels=5,
        attn_implementation="eager", pad_token_id=None)
    model = transformers.BertForSequenceClassification(config).float().train()
    values, groups = generator(), list(bert.groups(model))
    with torch.no_grad():
        for parameters, scale, mean in groups:
            for p in parameters:
                p.copy_(values.numbers(p.shape, scale, mean))
    tokens = next_ids(values, 32)
    labels = torch.tensor([values.next() % 5 for _ in range(BATCH)])

    def compute():
        logits = model(tokens).logits
        return logits, torch.nn.functional.cross_entropy(logits.float(), labels)

    gradients = lambda: [torch.cat([p.grad.flatten() for p in ps]) for ps, _, _ in groups]
    yield from lines_of("bert_64", model, gradients, compute)


lines = [line for name in LLAMAS for line in of_llama(name)]
write("wide_heads", lines + list(of_gpt2()) + list(of_bert()))
