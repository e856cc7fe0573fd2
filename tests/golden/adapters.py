#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes peft_folders/, adapters of PEFT for the models in llama_folders/ and gpt2/, and adapters.txt: logits, loss and gradients, on the CPU.

    python3 tests/golden/adapters.py                   # needs PyPI's torch, transformers and peft; those committed are of 2.15, 5.24 and 0.21
    python3 tests/golden/adapters.py --compare FOLDER  # whether PEFT loads each adapter FOLDER/NAME.BASE, without a warning, and computes the
                                                   # logits in its logits.txt; tests/io/peft.cpp writes them to $HALFTONE_SAVED_PEFT

Matrices are as PEFT has them: lora_A (r, in), lora_B (out, r), those of a GPT-2's own layers (in, out).
"""
import json
import pathlib
import sys
import warnings

import peft
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from golden_model import generator, numbers, off, transformers_version

HERE = pathlib.Path(__file__).parent
FOLDERS = HERE / "peft_folders"
BATCH, TIME = 2, 13
REGEX = r".*\.layers\.\d+\.(self_attn\.[qo]_proj|mlp\.(?!gate)\w+_proj)"

# The folder of the base, and the options of its adapter.
CASES = {
    "all_linear": ("qwen2", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "suffixes": ("qwen2", dict(r=2, lora_alpha=3, target_modules=["q_proj", "self_attn.v_proj"])),
    "regex": ("qwen2", dict(r=3, lora_alpha=5, target_modules=REGEX)),
    "patterns": ("qwen2", dict(r=4, lora_alpha=6, use_rslora=True, exclude_modules=["layers.0.self_attn.k_proj"],
                               target_modules=["q_proj", "k_proj", "v_proj", "up_proj", "down_proj"],
                               rank_pattern={"layers.1.self_attn.q_proj": 3, "q_proj": 2, r"layers.\d.mlp.down_proj": 5},
                               alpha_pattern={"v_proj": 16, r"layers\.0\.mlp\.(up|down)_proj": 7})),
    # "norm" is the end of input_layernorm and of post_attention_layernorm, too.
    "saved": ("qwen2", dict(r=2, target_modules=["q_proj", "o_proj"], layers_to_transform=[1], modules_to_save=["norm"])),
    "head": ("llama", dict(r=2, target_modules=["gate_proj"], modules_to_save=["lm_head", "embed_tokens", "1.self_attn"])),
    "heads": ("qwen3", dict(r=2, target_modules=None, modules_to_save=["q_norm"])),
    "gpt2": ("gpt2", dict(r=3, lora_alpha=7, target_modules="all-linear")),
    "gpt2_saved": ("gpt2", dict(r=2, target_modules=["c_attn", "mlp.c_proj"], fan_in_fan_out=True, rank_pattern={"h.1.mlp.c_proj": 4},
                                modules_to_save=["ln_f", "mlp.c_fc", "wpe"])),
}
STORED_AS_BFLOAT16 = ["suffixes"]


def base_of(name):
    folder = HERE / "gpt2" if name == "gpt2" else HERE / "llama_folders" / name
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")


def batch():
    values = generator()
    tokens, targets = (torch.tensor([values.next() % 32 for _ in range(BATCH * TIME)]).reshape(BATCH, TIME) for _ in range(2))
    targets[0, 3] = -100
    return tokens, targets


def fill(file, is_bfloat16):
    """Numbers for the tensors of an adapter, which are zeros in lora_B, or those of the base."""
    values = generator(777)
    tensors = load_file(file)
    for name, t in tensors.items():
        t += values.numbers(t.shape, 0.25)
        if is_bfloat16:
            tensors[name] = t.bfloat16()
    save_file(tensors, file, {"format": "pt"})


def make(name):
    base, options = CASES[name]
    torch.manual_seed(1)
    model = get_peft_model(base_of(base), LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **options))
    folder = FOLDERS / name
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = base  # rather than a path of this machine
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()  # a set, whose order differs from run to run
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    fill(folder / "adapter_model.safetensors", name in STORED_AS_BFLOAT16)


def run(name):
    base, _ = CASES[name]
    model = PeftModel.from_pretrained(base_of(base), FOLDERS / name, is_trainable=True).train()
    tokens, targets = batch()
    logits = model(tokens, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
    loss.backward()
    yield f"case {name} {base} {loss.item():.8g}"
    yield "logits " + numbers(logits.detach())
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    for n, p in trained.items():
        yield f"gradient {n.replace('.modules_to_save', '').replace('.default', '')} " + numbers(p.grad)


def compare(folder):
    found = sorted(pathlib.Path(folder).iterdir())
    for adapter in found:
        name, base = adapter.name.split(".")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = PeftModel.from_pretrained(base_of(base), adapter)
            again = model.load_adapter(adapter, "again")
        texts = [str(w.message) for w in said if "is_gradient_checkpointing" not in str(w.message)]
        assert not texts, (name, texts)
        assert not again.unexpected_keys, (name, again.unexpected_keys)
        with torch.no_grad():
            logits = model.eval()(batch()[0], use_cache=False).logits
            without = base_of(base)(batch()[0], use_cache=False).logits
        ours = torch.tensor([float(x) for x in (adapter / "logits.txt").read_text().split()]).reshape(logits.shape)
        assert off(ours, logits) < 1e-5, (name, off(ours, logits))
        assert off(without, logits) > 1e-2, name
        config = json.loads((adapter / "adapter_config.json").read_text())
        print(name, f"off by {off(ours, logits):.2g};", "targets:", ", ".join(config["target_modules"]))
    print(len(found), "adapters agree")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--compare":
        compare(sys.argv[2])
    else:
        for case in CASES:
            make(case)
        head = ["# SPDX-License-Identifier: MIT",
                f"# Written by adapters.py with torch {torch.__version__.split('+')[0]}, {transformers_version()} and peft {peft.__version__}: for each",
                "# adapter its name, its base and the loss; the logits; the gradient of each tensor."]
        lines = head + [line for case in CASES for line in run(case)]
        (HERE / "adapters.txt").write_text("\n".join(lines) + "\n")
