#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tokenizers/chat.json: a small tokenizer, and 213 conversations as transformers' apply_chat_template renders and encodes them.

    python3 tests/golden/chat.py     # needs PyPI's transformers 5.24.0 and tokenizers 0.23.3, and pip, which brings the wheels named below

The templates are those that TRL 1.16.0 and axolotl 0.19.0 copied from the models: TRL's llama3, llama3_1, llama3_2, qwen2_5 and qwen3,
axolotl's chatml and mistral_v3_tekken. "answers" are the tokens that TRL's llama3_training and qwen2_5_training mark as the assistant's; of Qwen's without
the newlines of the header and behind the end of a turn.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import zipfile

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

import tokenizer as golden

WHEELS = {"trl==1.16.0": "trl/chat_templates/", "axolotl==0.19.0": "axolotl/utils/chat_templates/templates/"}
TEMPLATES = {"chatml": "chatml", "llama3": "llama3", "llama3.1": "llama3_1", "llama3.2": "llama3_2", "qwen2.5": "qwen2_5", "qwen3": "qwen3", "mistral": "mistral_v3_tekken"}
TRAINING = {"llama3": "llama3_training", "qwen2.5": "qwen2_5_training"}
SPECIAL = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]", "[/INST]",
           "<|endoftext|>"]
WORDS = ["hello", " world", "The policy", "  two", "\n", "\n\n", "\t", " ", "\u00a0", "\u3000", "\u200b", "\x1c", "caf\u00e9", "e\u0301", "'s", "123", " 4567", "?", "!", "\u4e2d\u6587",
         "<b>", "\U0001f600"]

OF_QWEN3 = [  # what an answer behind a tool's response keeps, and answers to nobody
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nb\n</think>\n\nc"},
     {"role": "user", "content": "<tool_response>d</tool_response>"}, {"role": "assistant", "content": "e"}],
    [{"role": "assistant", "content": "<think>a</think>b"}],
    [{"role": "system", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "c"}, {"role": "assistant", "content": "d"}],
]


def templates():
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for wheel, inside in WHEELS.items():
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, wheel], check=True)
        for path in sorted(pathlib.Path(folder).glob("*.whl")):
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    if name.endswith(".jinja") and any(name.startswith(inside) for inside in WHEELS.values()):
                        key = pathlib.PurePosixPath(name).stem
                        if key not in found or path.name.startswith("trl"):
                            found[key] = archive.read(name).decode()
    return found


def words(rng, most):
    return "".join(rng.choice(WORDS) for _ in range(rng.randrange(most)))


def conversation(rng, name):
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": "system", "content": words(rng, 4)})
    for _ in range(rng.randrange(1, 4)):
        messages.append({"role": "user", "content": words(rng, 6)})
        answer = {"role": "assistant", "content": words(rng, 6)}
        if name == "qwen3":
            kind = rng.random()
            if kind < 0.2:
                answer["reasoning_content"] = words(rng, 5)
            elif kind < 0.4:
                answer["content"] = "<think>" + words(rng, 5) + "</think>" + words(rng, 5)
            elif kind < 0.5:
                answer["content"] = words(rng, 3) + "</think>" + words(rng, 3) + "</think>" + words(rng, 2)
        messages.append(answer)
    if rng.random() < 0.4:
        messages.pop()
    if name not in ("mistral",) and rng.random() < 0.15:
        messages.append({"role": rng.choice(["assistant", "system", "user"]), "content": words(rng, 4)})
    if name == "qwen3" and rng.random() < 0.2:
        messages.append({"role": "user", "content": "<tool_response>" + words(rng, 3) + "</tool_response>"})
        messages.append({"role": "assistant", "content": words(rng, 3)})
    return messages


def main():
    rng = random.Random(3)
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = golden.steps(golden.LLAMA3), decoders.ByteLevel()
    t.train_from_iterator(golden.documents(), trainers.BpeTrainer(vocab_size=340, special_tokens=SPECIAL,
                          initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_tokens(["<think>", "</think>"])
    found = templates()
    cases = []
    for name, file in TEMPLATES.items():
        tok = PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>" if name == "mistral" else "<|begin_of_text|>", eos_token="</s>", chat_template=found[file])
        for messages in [conversation(rng, name) for _ in range(30)] + (OF_QWEN3 if name == "qwen3" else []):
            options = {"add_generation_prompt": messages[-1]["role"] != "assistant" and rng.random() < 0.7}
            if name == "qwen3" and rng.random() < 0.5:
                options["enable_thinking"] = False
            date = {"date_string": "01 Feb 2026"} if name == "llama3.2" else {}
            case = {"template": name, "messages": messages, **options, **({"date": "01 Feb 2026"} if date else {})}
            case["text"] = tok.apply_chat_template(messages, tokenize=False, **options, **date)
            case["ids"] = tok.apply_chat_template(messages, tokenize=True, **options, **date)["input_ids"]
            if name in TRAINING and any(m["role"] == "assistant" for m in messages):
                marked = tok.apply_chat_template(messages, chat_template=found[TRAINING[name]], tokenize=True, return_dict=True, return_assistant_tokens_mask=True,
                                                 **options)
                if marked["input_ids"] == case["ids"]:
                    marks = marked["assistant_masks"]
                    mask = list(marks)
                    newline = t.encode("\n").ids[0]
                    end = t.token_to_id("<|im_end|>")
                    ids = case["ids"]
                    for i in range(1, len(ids)):
                        # TRL marks the newline of the header, which a generation prompt has, and that behind the end of a turn
                        if ids[i] == newline and marks[i] and (ids[i - 1] == end or not marks[i - 1]):
                            mask[i] = 0
                    case["answers"] = mask
            cases.append(case)
    path = pathlib.Path(__file__).parent / "tokenizers" / "chat.json"
    path.write_text(json.dumps({"tokenizer": json.loads(t.to_str()), "cases": cases}, separators=(",", ":")) + "\n")
    print(len(cases), "conversations,", sum("answers" in c for c in cases), "with marks of answers")


if __name__ == "__main__":
    main()
