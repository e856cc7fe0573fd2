#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes chat_models/: small models of conversation as transformers saves them, one also as a GGUF file, and transformers' greedy answers.

    python3 tests/golden/chat_models.py      # needs PyPI's torch 2.15.0, transformers 5.24.0, tokenizers 0.23.3, gguf 0.19.0 and what chat.py needs

chat_models/NAME/ has a model, its tokenizer and answers.json: conversations with the question and the answer of each turn, the number of its
prompt's tokens, and the answer's ids, with the one that ends it. llama3.gguf has the model of llama3/, and these answers. A turn is a line,
and its strings have no escapes but \\" and those that printf '%b' knows, so that tests/programs/chat.sh needs no reader of JSON.

Weights are random, and of seeds the first is taken with which in all steps the two largest scores are at least 100 times further apart than
a score in float32 is from that in float64. llama3's, in bfloat16, are trained so that a run in bfloat16 has the same answers, in float32 and
in bfloat16 with scores that are at least 0.25 apart, one of them END. Other answers have all their tokens.
"""
import importlib.metadata
import json
import pathlib
import types

import numpy
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import chat
import gguf_files
import tokenizer as golden

VERSIONS = {"torch": "2.15.0", "transformers": "5.24.0", "tokenizers": "0.23.3", "gguf": "0.19.0"}
FOLDER = pathlib.Path(__file__).parent / "chat_models"
NEW = 64
DATE = "26 Jul 2024"  # which Llama 3.1's template tells, and Llama 3.2's if it is given
END = "caf\u00e9, \u4e2d\u6587 and \U0001f600: na\u00efve.\nThe end"  # with characters of several tokens
CONVERSATIONS = [(None, ["Why is the sky blue?", "And  at night, 1234567 stars?"]), ("Be brief.", ["What is bf16? \u00c7a va, \u4e2d\u6587?"])]
SIZES = dict(vocab_size=384, hidden_size=32, num_hidden_layers=2, max_position_embeddings=512, intermediate_size=64, num_attention_heads=4,
             num_key_value_heads=2)
# Frequencies that are kept, that are between, and that are divided by the factor.
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
PLAIN = dict(rope_type="default", rope_theta=1000.0)
QWEN = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

# Short templates of our own, which render these conversations as the families' do: that is asserted.
CHATML = """{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
LLAMA = """{{- bos_token + '<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\nToday Date: ' + date_string + '\\n\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content | trim }}{% set messages = messages[1:] %}{% endif %}{{ '<|eot_id|>' }}
{%- for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""
OWN = {
    "qwen2.5": """{%- if messages[0].role != 'system' %}
{{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}{% endif %}""" + CHATML,
    "qwen3": CHATML + "{% if add_generation_prompt and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}",
    "llama3.1": "{%- if date_string is not defined %}{% set date_string = '26 Jul 2024' %}{% endif %}" + LLAMA,
    "llama3.2": "{%- if date_string is not defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}" + LLAMA,
}


def case(arch, config, special, ends, pad, **rest):
    defaults = dict(pattern=None, words=[], normalizer=None, begin=None, end=ends[0], template=None, is_template_in_config=False, samples={},
                    conversations=CONVERSATIONS, dtype=torch.float32, shard="1GB", any_bytes=False)
    return types.SimpleNamespace(arch=arch, config=config, special=special, ends=ends, pad=pad, **{**defaults, **rest})


CASES = {
    "qwen2": case(transformers.Qwen2Config, dict(**SIZES, rms_norm_eps=1e-6, tie_word_embeddings=True, rope_parameters=PLAIN), QWEN,
                  ["<|im_end|>", "<|endoftext|>"], "<|endoftext|>", pattern=golden.QWEN2, normalizer=normalizers.NFC(), template="qwen2.5",
                  is_template_in_config=True, samples=dict(do_sample=True, temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.1)),
    "llama3": case(transformers.LlamaConfig, dict(**SIZES, rms_norm_eps=1e-5, tie_word_embeddings=False, rope_parameters=LLAMA3, head_dim=8),
                   ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"],
                   ["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"], "<|end_of_text|>", pattern=golden.LLAMA3, begin="<|begin_of_text|>", end="<|eot_id|>",
                   template="llama3.2", samples=dict(do_sample=True, temperature=0.6, top_p=0.9), dtype=torch.bfloat16, shard="60KB",
                   conversations=CONVERSATIONS + [(None, ["How does it end?"])]),
    "qwen3": case(transformers.Qwen3Config, dict(**SIZES, rms_norm_eps=1e-6, tie_word_embeddings=True, rope_parameters=PLAIN, head_dim=16), QWEN,
                  ["<|im_end|>", "<|endoftext|>"], "<|endoftext|>", pattern=golden.QWEN2, normalizer=normalizers.NFC(), template="qwen3",
                  words=["<think>", "</think>"], samples=dict(do_sample=True, temperature=0.6, top_p=0.95, top_k=20), dtype=torch.float16),
    "gpt2": case(transformers.GPT2Config, dict(vocab_size=384, n_embd=32, n_layer=2, n_head=4, n_positions=128), ["<|endoftext|>"], ["<|endoftext|>"],
                 "<|endoftext|>", any_bytes=True, dtype=torch.float16, conversations=[(None, [text]) for text in ("Rounding is", "  two words, caf\u00e9 and 12", "a")]),
}


def make_tokenizer(c, folder):
    t = Tokenizer(models.BPE(ignore_merges=c.begin is not None))
    if c.normalizer:
        t.normalizer = c.normalizer
    t.pre_tokenizer, t.decoder = golden.steps(c.pattern) if c.pattern else golden.bytes_of(), decoders.ByteLevel()
    t.train_from_iterator(golden.documents(), trainers.BpeTrainer(vocab_size=368, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_special_tokens(c.special)
    t.add_tokens([AddedToken(word, normalized=False) for word in c.words])
    if c.begin:
        t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            single=f"{c.begin} $A", pair=f"{c.begin} $A {c.begin} $B", special_tokens=[(c.begin, t.token_to_id(c.begin))])])
    template = OWN.get(c.template)
    transformers.PreTrainedTokenizerFast(tokenizer_object=t, bos_token=c.begin, eos_token=c.end, pad_token=c.pad, chat_template=template,
                                         model_max_length=512, clean_up_tokenization_spaces=False).save_pretrained(folder)
    if c.is_template_in_config:  # as transformers 4 has it
        (folder / "chat_template.jinja").unlink()
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}, indent=2) + "\n")


def is_text(token):
    return all(c == "\n" or 0x20 <= ord(c) < 0x7F for c in token)


def make_model(c, tok, seed):
    """A random model. Tokens that are no text are hardly ever its answer, and those that the tokenizer does not have never."""
    ends = [tok.convert_tokens_to_ids(end) for end in c.ends]
    model = transformers.AutoModelForCausalLM.from_config(
        c.arch(**c.config, bos_token_id=tok.bos_token_id, eos_token_id=ends[0], attn_implementation="eager")).eval()
    rng = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        is_gain = ("norm" in name or "ln_" in name) and name.endswith("weight")
        scale = 0.2 if is_gain or name.endswith("bias") else 1.0 if any(e in name for e in ("embed_tokens", "wte", "wpe", "lm_head")) else 0.4
        p.data = torch.randn(p.shape, generator=rng) * scale + (1.0 if is_gain else 0.0)
    head = model.get_output_embeddings().weight.data
    head[len(tok):] = 0
    for i in range(len(tok)):
        token = tok.decode([i])
        if i in tok.added_tokens_decoder or not is_text(token):
            head[i] *= 0.7 if c.any_bytes and "\ufffd" in token else 0.05
    model.generation_config = transformers.GenerationConfig(bos_token_id=tok.bos_token_id, eos_token_id=ends if len(ends) > 1 else ends[0],
                                                            pad_token_id=tok.pad_token_id, **c.samples)
    return model


def prompt_of(tok, messages):
    if not tok.chat_template:
        return tok.encode(messages[0]["content"])
    return tok.apply_chat_template(messages, add_generation_prompt=True, date_string=DATE)["input_ids"]


def answer(model, prompt):
    """The new ids, and the scores of each."""
    made = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False, max_new_tokens=NEW,
                          return_dict_in_generate=True, output_scores=True)
    return made.sequences[0, len(prompt):].tolist(), torch.cat(made.scores).double()


def gap(scores):
    """By how much the largest is above the next, in the worst step."""
    top = scores.topk(2).values
    return (top[:, 0] - top[:, 1]).min().item()


def converse(model, tok, conversations):
    """Conversations with their answers; (prompt, ids, scores) of each turn."""
    cases, steps = [], []
    for system, questions in conversations:
        messages, turns = [{"role": "system", "content": system}] if system else [], []
        for question in questions:
            messages.append({"role": "user", "content": question})
            prompt = prompt_of(tok, messages)
            ids, scores = answer(model, prompt)
            steps.append((prompt, ids, scores))
            text = tok.decode(ids, skip_special_tokens=True)
            messages.append({"role": "assistant", "content": text})
            turns.append({"user": question, "answer": text, "prompt_tokens": len(prompt), "ids": ids})
        cases.append({"system": system, "turns": turns, "options": {"max_new_tokens": NEW}})
    return cases, steps


def is_lively(c, cases):
    """All tokens, of many kinds; valid text, or, where there may be any bytes, some answers that are and some that are not."""
    turns = [turn for case in cases for turn in case["turns"]]
    valid = [is_text(turn["answer"]) for turn in turns]
    return all(len(turn["ids"]) == NEW and len(set(turn["ids"])) > 20 for turn in turns) and (0 < sum(valid) < len(valid) if c.any_bytes else all(valid))


def train(model, targets):
    """Until in every step of the targets, (prompt, ids), the right id's logit is well above all others."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    for step in range(3000):
        worst, loss = float("inf"), 0.0
        for prompt, ids in targets:
            logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1:-1]
            right = torch.tensor(ids)
            of_right = logits.gather(1, right[:, None])[:, 0]
            margin = of_right - logits.scatter(1, right[:, None], -1e9).max(1).values
            worst = min(worst, margin.min().item())
            loss = loss + torch.nn.functional.softplus(9.0 - margin).mean()
        if worst > 6:
            return step
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    raise RuntimeError("training does not end")


def targets_of(model, c, tok):
    """The answers that the model has, but END to the last question."""
    *_, (_, (last,)) = c.conversations
    cases, steps = converse(model, tok, c.conversations[:-1])
    end = tok.encode(END, add_special_tokens=False) + [tok.convert_tokens_to_ids(c.end)]
    return cases, [(prompt, ids) for prompt, ids, _ in steps] + [(prompt_of(tok, [{"role": "user", "content": last}]), end)]


def lowest_gap(folder, c, tok, cases, steps):
    """(gap, error) of a folder's model in float32; raises for a model in bfloat16 whose answers are others there."""
    exact_cases, exact = converse(transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64), tok, c.conversations)
    if exact_cases != cases:
        return 0.0, 1.0
    if c.dtype == torch.bfloat16:
        low_cases, low = converse(transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16), tok, c.conversations)
        gaps = [gap(scores) for _, _, scores in low]
        print(f"    in bfloat16 {'equal' if low_cases == cases else 'OTHER'} answers, gap {min(gaps):.3g}, error "
              f"{max((a - b).abs().max().item() for (_, _, a), (_, _, b) in zip(steps, low) if a.shape == b.shape):.3g}")
        assert low_cases == cases and min(gaps + [gap(scores) for _, _, scores in steps]) >= 0.25
    return min(gap(scores) for _, _, scores in steps), max((a - b).abs().max().item() for (_, _, a), (_, _, b) in zip(steps, exact))


def write_answers(folder, cases):
    def line(turn):
        text = json.dumps(turn, ensure_ascii=False)
        assert "\\u" not in text and "\\/" not in text, text
        return text

    parts = [f'{{"system": {json.dumps(c["system"])}, "options": {json.dumps(c["options"])}, "turns": [\n' + ",\n".join(map(line, c["turns"])) + "\n]}"
             for c in cases]
    (folder / "answers.json").write_text("[\n" + ",\n".join(parts) + "\n]\n")
    assert json.loads((folder / "answers.json").read_text()) == cases


def check_templates(c, tok, templates, cases):
    """Our template, and that of llama3.gguf, render the conversations as the family's does."""
    for case in cases if c.template else ():
        messages = [{"role": "system", "content": case["system"]}] if case["system"] else []
        for turn in case["turns"]:
            messages += [{"role": "user", "content": turn["user"]}, {"role": "assistant", "content": turn["answer"]}]
        for name in (c.template, "llama3.1") if c.template == "llama3.2" else (c.template,):
            for many in (messages, messages[:-1]):
                how = dict(tokenize=False, add_generation_prompt=many is not messages, date_string=DATE)
                ours, theirs = (tok.apply_chat_template(many, chat_template=t, **how) for t in (OWN[name], templates[chat.TEMPLATES[name]]))
                assert ours == theirs or many is messages and name == "qwen3", (name, ours, theirs)  # which tells of a last answer's thought


def write_gguf(path, folder):
    """llama3's folder as convert_hf_to_gguf.py converts it, but for Llama 3.1's template, which makes the same prompts."""
    import gguf

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    made = json.loads((folder / "tokenizer.json").read_text())
    config, special = model.config, {t["content"]: t["id"] for t in made["added_tokens"]}
    tokens = sorted([*made["model"]["vocab"].items(), *special.items()], key=lambda item: item[1])
    spelt = [token for token, _ in tokens] + [f"[PAD{i}]" for i in range(len(tokens), config.vocab_size)]
    kinds = gguf.TokenType
    writer = gguf.GGUFWriter(path, "llama")
    gguf_files.add_sizes(writer, "llama", config)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(spelt)
    writer.add_token_types([kinds.UNUSED if i >= len(tokens) else kinds.CONTROL if t in special else kinds.NORMAL for i, t in enumerate(spelt)])
    writer.add_token_merges([" ".join(merge) for merge in made["model"]["merges"]])
    writer.add_bos_token_id(special["<|begin_of_text|>"])
    writer.add_eos_token_id(special["<|eot_id|>"])
    writer.add_eot_token_id(special["<|eot_id|>"])
    writer.add_eom_token_id(special["<|eom_id|>"])
    writer.add_chat_template(OWN["llama3.1"])
    writer.add_tensor("rope_freqs.weight", gguf_files.factors(config))
    heads = {"self_attn.q_proj": config.num_attention_heads, "self_attn.k_proj": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        count = next((n for part, n in heads.items() if part in name), 0)
        array = tensor.numpy()
        writer.add_tensor(gguf_files.name_of(name), numpy.ascontiguousarray(gguf_files.permuted(array, count) if count else array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run(name, templates):
    c, folder = CASES[name], FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    make_tokenizer(c, folder)
    tok = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    for seed in range(200):
        model = make_model(c, tok, seed)
        if c.dtype == torch.bfloat16:
            cases, targets = targets_of(model, c, tok)
            if not is_lively(c, cases):
                continue
            print(f"    trained in {train(model, targets)} steps")
        elif not is_lively(c, converse(model, tok, c.conversations)[0]):
            continue
        for path in folder.glob("model*"):
            path.unlink()
        model.to(c.dtype).save_pretrained(folder, max_shard_size=c.shard)
        cases, steps = converse(transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), tok, c.conversations)
        is_trained = c.dtype == torch.bfloat16 and cases[-1]["turns"][-1]["answer"] == END
        if not is_lively(c, cases[:-1] if is_trained else cases):
            continue
        found, error = lowest_gap(folder, c, tok, cases, steps)
        print(f"{name}: seed {seed}, gap {found:.3g}, error of float32 {error:.3g}")
        if found >= 100 * error:
            check_templates(c, tok, templates, cases)
            return write_answers(folder, cases)
    raise RuntimeError(f"no seed of {name} is good")


if __name__ == "__main__":
    for package, version in VERSIONS.items():
        assert importlib.metadata.version(package).split("+")[0] == version, (package, version)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    found = chat.templates()
    for name in CASES:
        run(name, found)
    write_gguf(FOLDER / "llama3.gguf", FOLDER / "llama3")
