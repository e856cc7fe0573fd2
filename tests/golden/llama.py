#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes llama.txt: logits, loss and gradients of small random models of transformers, on the CPU.

    python3 tests/golden/llama.py                  # needs PyPI's torch and transformers; those committed are of 2.15 and 5
    python3 tests/golden/llama.py --folders        # writes llama_folders/, the same models as transformers saves them
    python3 tests/golden/llama.py --compare FOLDER # whether transformers reads from FOLDER/NAME what it has in llama_folders/NAME;
                                                   # tests/io/llama.cpp writes such folders to $HALFTONE_SAVED_LLAMAS/like and /new

Weights and tokens come from a generator that the test runs, too, so that they need not be stored. They are in halftone's order:
q_proj, k_proj and v_proj are one matrix, gate_proj and up_proj another. Gradients are in float32, of the first batch; each is
preceded by the error of PyTorch's autocast to bfloat16: the norm of the difference over the norm, of the logits and of each gradient, the
root mean square over 16 batches, over which the test takes halftone's, too.
"""
import pathlib
import sys

import torch
import transformers

from golden_model import generator, mean_square, numbers, off, write

FOLDERS = pathlib.Path(__file__).parent / "llama_folders"

COMMON = dict(
    vocab_size=32, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=32, attn_implementation="eager", attention_dropout=0.0,
)
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
CASES = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, dict(rms_norm_eps=1e-5, tie_word_embeddings=False, head_dim=8),
              dict(rope_type="default", rope_theta=10000.0)),
    "llama3": (transformers.LlamaConfig, transformers.LlamaForCausalLM, dict(rms_norm_eps=1e-5, tie_word_embeddings=True),
               dict(rope_type="llama3", rope_theta=500.0, **LLAMA3)),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM, dict(rms_norm_eps=1e-6, tie_word_embeddings=True),
              dict(rope_type="default", rope_theta=1000.0)),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM, dict(rms_norm_eps=1e-6, tie_word_embeddings=True, head_dim=8),
              dict(rope_type="default", rope_theta=1000.0)),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM,
                dict(rms_norm_eps=1e-5, tie_word_embeddings=False, sliding_window=5), dict(rope_type="default", rope_theta=10000.0)),
}
BATCH, TIME = 2, 13
DRAWS = 16


def groups(model, config):
    """(parameters, scale, mean) as halftone has them: those of a group are one matrix, one behind the other."""
    core = model.model
    yield [core.embed_tokens.weight], 1.0, 0.0
    for block in core.layers:
        attention, mlp = block.self_attn, block.mlp
        projections = [attention.q_proj, attention.k_proj, attention.v_proj]
        yield [block.input_layernorm.weight], 0.5, 1.0
        yield [p.weight for p in projections], 0.25, 0.0
        if projections[0].bias is not None:
            yield [p.bias for p in projections], 0.5, 0.0
        if hasattr(attention, "q_norm"):
            yield [attention.q_norm.weight], 0.5, 1.0
            yield [attention.k_norm.weight], 0.5, 1.0
        yield [attention.o_proj.weight], 0.25, 0.0
        yield [block.post_attention_layernorm.weight], 0.5, 1.0
        yield [mlp.gate_proj.weight, mlp.up_proj.weight], 0.25, 0.0
        yield [mlp.down_proj.weight], 0.25, 0.0
    yield [core.norm.weight], 0.5, 1.0
    if not config.tie_word_embeddings:
        yield [model.lm_head.weight], 0.25, 0.0


def step(model, tokens, targets, low):
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
        logits = model(tokens, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
    loss.backward()
    return logits.detach().float(), loss.item()


def made(name):
    """The model, its groups of parameters and the generator after it has made these."""
    make_config, make_model, options, rope = CASES[name]
    try:
        config = make_config(**COMMON, **options, rope_parameters=rope)
    except TypeError:
        config = make_config(**COMMON, **options, rope_theta=rope["rope_theta"], rope_scaling=rope)
    model = make_model(config).float().train()
    values = generator()
    all_groups = list(groups(model, config))
    with torch.no_grad():
        for parameters, scale, mean in all_groups:
            for p in parameters:
                p.copy_(values.numbers(p.shape, scale, mean))
    return model, all_groups, values


def run(name):
    model, all_groups, values = made(name)
    config = model.config
    draws = []
    for _ in range(DRAWS):
        tokens = torch.tensor([values.next() % config.vocab_size for _ in range(BATCH * TIME)]).reshape(BATCH, TIME)
        targets = torch.tensor([values.next() % config.vocab_size for _ in range(BATCH * TIME)]).reshape(BATCH, TIME)
        targets[0, 3] = -100
        results = []
        for low in (False, True):
            logits, loss = step(model, tokens, targets, low)
            results.append((logits, loss, [torch.cat([p.grad.flatten() for p in ps]) for ps, _, _ in all_groups]))
        draws.append(results)
    logits, loss, gradients = draws[0][0]
    of_logits = mean_square([off(low[0], exact[0]) for exact, low in draws])
    of_loss = mean_square([low[1] - exact[1] for exact, low in draws])
    yield f"case {name} {len(gradients)} {of_logits:.6g} {of_loss:.6g} {loss:.8g}"
    yield "logits " + numbers(logits)
    for i, g in enumerate(gradients):
        yield f"gradient {mean_square([off(low[2][i], exact[2][i]) for exact, low in draws]):.6g} " + numbers(g)


def save_folders():
    for name in CASES:
        # One of them in several files, as large models are.
        made(name)[0].save_pretrained(FOLDERS / name, max_shard_size="12KB" if name == "llama" else "1GB")


def compare(folder):
    """Tensors and configurations: equal but for what describes the writer."""
    for name in CASES:
        ours, theirs = (transformers.AutoModelForCausalLM.from_pretrained(f / name, dtype="auto") for f in (folder, FOLDERS))
        ours_of, theirs_of = ours.state_dict(), theirs.state_dict()
        is_same = type(ours) is type(theirs)
        # A Mistral that is saved like no folder is a Llama: its window is for the calls.
        assert is_same or (name == "mistral" and type(ours) is transformers.LlamaForCausalLM), (name, type(ours))
        assert ours_of.keys() == theirs_of.keys(), (name, ours_of.keys() ^ theirs_of.keys())
        for key, value in theirs_of.items():
            assert torch.equal(ours_of[key], value), (name, key)
        tokens = torch.arange(2 * TIME).reshape(2, TIME) % 32
        assert not is_same or torch.equal(ours(tokens).logits, theirs(tokens).logits), name
        different = {k for k, v in theirs.config.to_dict().items() if ours.config.to_dict().get(k) != v}
        different -= {"_name_or_path"}
        print(name, "equal;", "of the configuration differ:", ", ".join(sorted(different)) or "none")


if __name__ == "__main__":
    if sys.argv[1:] == ["--folders"]:
        save_folders()
    elif len(sys.argv) == 3 and sys.argv[1] == "--compare":
        compare(pathlib.Path(sys.argv[2]))
    else:
        write("llama", [line for case in CASES for line in run(case)])
