#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# TRL 1.16.0: seven of its chat templates for training mark as the assistant's, and so train the model to predict, tokens that every
# generation prompt already has; a loss of "the assistant's tokens only" is not a loss of what the model will generate.
#
#     findings/trl_trains_on_the_generation_prompt.sh     # downloads PyPI's trl 1.16.0, transformers 5.24.0 and numpy, removed at the end
#
# Input: one question and its answer, [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}], rendered by each
# NAME_training.jinja of the package with return_assistant_tokens_mask=True, over a tokenizer of single bytes, so that each mark is that of a byte;
# beside it the same template's prompt for generation, of the question alone with add_generation_prompt=True.
# Expected: the first marked byte is the first behind the generation prompt, in all templates whose prompt the text begins with.
# Seen: so in 17 of them. In the others marks begin within the prompt: gptoss "<|start|>assistant", muse_glimmer the same, qwen2_5 the newline of
# the header, qwen3_5_nothink a whole empty thought ("<think>\n\n</think>\n\n"), qwen3_5_think, qwen3_6 and qwen3_8 "<think>\n". Templates of one family
# differ: qwen2_5_vl, qwen3 and qwen3_vl begin behind the prompt.
# Matters to whoever compares losses of two models, or of two libraries: of a short answer up to half of what is averaged are tokens that are certain, so
# that the loss is lower and gradients of the answer are smaller; with qwen3_5_nothink 19 of 38 bytes here are of that kind.
# Reason: {% generation %} stands before the piece of text that the branch add_generation_prompt writes by itself.
#
# Ends with 0 if TRL behaves so, 1 if it behaves otherwise, 2 if the packages cannot be installed.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/packages"
if ! { "$folder/packages/bin/pip" install --quiet --disable-pip-version-check transformers==5.24.0 numpy jinja2 &&
       "$folder/packages/bin/pip" install --quiet --disable-pip-version-check --no-deps trl==1.16.0; }; then
    echo "not checked: trl 1.16.0 and transformers 5.24.0 cannot be installed"
    exit 2
fi

cat > "$folder/marks.py" <<'PYTHON'
import importlib.metadata
import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

TURNS = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]
EXPECTED = {
    "gptoss": "<|start|>assistant", "muse_glimmer": "<|start|>assistant", "qwen2_5": "\n", "qwen3_5_nothink": "<think>\n\n</think>\n\n",
    "qwen3_5_think": "<think>\n", "qwen3_6": "<think>\n", "qwen3_8": "<think>\n",
}

bytes_alone = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[]))
bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
bytes_alone.decoder = decoders.ByteLevel()

within, behind, other = {}, [], []
for file in sorted(pathlib.Path(importlib.metadata.distribution("trl").locate_file("trl/chat_templates")).glob("*_training.jinja")):
    name = file.stem.removesuffix("_training")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytes_alone, bos_token="!", eos_token="#", chat_template=file.read_text())
    try:
        marked = tokenizer.apply_chat_template(TURNS, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        text = tokenizer.apply_chat_template(TURNS, tokenize=False).encode()
        prompt = tokenizer.apply_chat_template(TURNS[:1], tokenize=False, add_generation_prompt=True).encode()
    except Exception as e:  # a template of pictures, which wants parts of content
        other.append(f"{name} ({type(e).__name__})")
        continue
    first = marked["assistant_masks"].index(1)
    if not text.startswith(prompt):
        other.append(f"{name} (the text does not begin with the prompt)")
    elif first < len(prompt):
        within[name] = text[first:len(prompt)].decode()
        print(f"{name:18} marks {text[first:len(prompt)].decode()!r} of the prompt, {len(prompt) - first} of {sum(marked['assistant_masks'])} marked bytes")
    else:
        behind.append(name)
print(f"trl {importlib.metadata.version('trl')}: {len(within)} templates mark a part of the generation prompt, {len(behind)} do not:", *behind)
print("not compared:", *other)
holds = within == EXPECTED and len(behind) == 17 and {"llama3", "qwen2_5_vl", "qwen3", "qwen3_vl"} <= set(behind)
print("so" if holds else "NOT so: marks begin within the prompt in those seven, and behind it in the other 17")
sys.exit(0 if holds else 1)
PYTHON
"$folder/packages/bin/python" "$folder/marks.py" 2>"$folder/messages" || { tail -n 3 "$folder/messages"; exit 1; }
