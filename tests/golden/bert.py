#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes bert.txt: hidden states, logits, loss and gradients of small random encoders of transformers with a classifier's head, on
the CPU.

    python3 tests/golden/bert.py                  # needs PyPI's torch and transformers; those committed are of 2.15 and 5
    python3 tests/golden/bert.py --folders        # writes bert_folders/: the padded case as transformers saves it, its BertModel, and
                                                  # a BertForPreTraining with the same encoder
    python3 tests/golden/bert.py --compare FOLDER # whether transformers reads from FOLDER what it has in bert_folders/;
                                                  # tests/io/bert.cpp writes such folders to $HALFTONE_SAVED_BERTS/like and /new

Weights and inputs come from llama.py's generator, which the test runs, too. They stand in halftone's order: query, key and value
are one matrix. One case has padded rows, token types and a padding token, whose row gets no gradient, the other none of these.
"""
import pathlib
import sys

import torch
import transformers

from golden_model import generator, numbers, off, write

FOLDERS = pathlib.Path(__file__).parent / "bert_folders"
CASES = {"padded": dict(pad_token_id=0), "plain": dict(pad_token_id=None)}
BATCH, TIME = 4, 9
LENGTHS = [9, 1, 6, 4]


def groups(model):
    """(parameters, scale, mean) as halftone has them: those of a group are one matrix, one behind the other."""

    def linear(*layers):
        yield [x.weight for x in layers], 0.25, 0.0
        yield [x.bias for x in layers], 0.5, 0.0

    def norm(layer):
        yield [layer.weight], 0.5, 1.0
        yield [layer.bias], 0.5, 0.0

    core = model.bert
    yield [core.embeddings.word_embeddings.weight], 1.0, 0.0
    yield [core.embeddings.position_embeddings.weight], 0.25, 0.0
    yield [core.embeddings.token_type_embeddings.weight], 1.0, 0.0
    yield from norm(core.embeddings.LayerNorm)
    for block in core.encoder.layer:
        attention = block.attention
        yield from linear(attention.self.query, attention.self.key, attention.self.value)
        yield from linear(attention.output.dense)
        yield from norm(attention.output.LayerNorm)
        yield from linear(block.intermediate.dense)
        yield from linear(block.output.dense)
        yield from norm(block.output.LayerNorm)
    yield from linear(core.pooler.dense)
    yield from linear(model.classifier)


def step(model, inputs, labels, low):
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
        result = model(**inputs, output_hidden_states=True)
        loss = torch.nn.functional.cross_entropy(result.logits.float(), labels)
    loss.backward()
    return result.hidden_states[-1].detach().float(), result.logits.detach().float(), loss.item()


def made(name):
    """The model, its groups of parameters and the generator after it has made these."""
    config = transformers.BertConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, max_position_embeddings=12,
        type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, classifier_dropout=0.0, num_labels=5,
        attn_implementation="eager", **CASES[name],
    )
    model = transformers.BertForSequenceClassification(config).float().train()
    values = generator()
    all_groups = list(groups(model))
    with torch.no_grad():
        for parameters, scale, mean in all_groups:
            for p in parameters:
                p.copy_(values.numbers(p.shape, scale, mean))
    return model, all_groups, values


def run(name):
    model, all_groups, values = made(name)
    config = model.config
    draw = lambda count, below: torch.tensor([values.next() % below for _ in range(count)])
    inputs = {"input_ids": draw(BATCH * TIME, config.vocab_size).reshape(BATCH, TIME)}
    types = draw(BATCH * TIME, config.type_vocab_size).reshape(BATCH, TIME)
    labels = draw(BATCH, config.num_labels)
    if name == "padded":
        padding = torch.arange(TIME) >= torch.tensor(LENGTHS)[:, None]
        inputs = {"input_ids": inputs["input_ids"].masked_fill(padding, 0), "token_type_ids": types, "attention_mask": (~padding).long()}
    hidden, logits, loss = step(model, inputs, labels, False)
    gradients = [torch.cat([p.grad.flatten() for p in parameters]) for parameters, _, _ in all_groups]
    low_hidden, low_logits, low_loss = step(model, inputs, labels, True)
    low_gradients = [torch.cat([p.grad.flatten() for p in parameters]) for parameters, _, _ in all_groups]
    yield f"case {name} {len(gradients)} {off(low_logits, logits):.6g} {abs(low_loss - loss):.6g} {loss:.8g}"
    yield "logits " + numbers(logits)
    yield f"hidden {off(low_hidden, hidden):.6g} " + numbers(hidden)
    for g, low in zip(gradients, low_gradients):
        yield f"gradient {off(low, g):.6g} " + numbers(g)


def save_folders():
    classifier = made("padded")[0].eval()
    classifier.save_pretrained(FOLDERS / "classifier")
    classifier.bert.save_pretrained(FOLDERS / "base", max_shard_size="10KB")  # several files
    torch.manual_seed(0)
    pretraining = transformers.BertForPreTraining(transformers.BertConfig(**{**classifier.config.to_dict(), "id2label": None, "label2id": None}))
    pretraining.bert.load_state_dict(classifier.bert.state_dict())
    pretraining.save_pretrained(FOLDERS / "pretraining")


def compare(folder):
    """Tensors, configurations and results: equal but for what describes the writer."""
    for name, kind in (("classifier", transformers.BertForSequenceClassification), ("base", transformers.BertModel)):
        ours, theirs = (kind.from_pretrained(f / name, dtype="auto", output_loading_info=True) for f in (folder, FOLDERS))
        assert not any(ours[1].values()), ours[1]
        ours, theirs = ours[0].eval(), theirs[0].eval()
        assert ours.config.architectures == theirs.config.architectures, ours.config.architectures
        ours_of, theirs_of = ours.state_dict(), theirs.state_dict()
        assert ours_of.keys() == theirs_of.keys(), (name, ours_of.keys() ^ theirs_of.keys())
        for key, value in theirs_of.items():
            assert torch.equal(ours_of[key], value), (name, key)
        tokens = torch.arange(BATCH * TIME).reshape(BATCH, TIME) % 32
        for a, b in zip(ours(tokens, token_type_ids=tokens % 2).to_tuple(), theirs(tokens, token_type_ids=tokens % 2).to_tuple()):
            assert torch.equal(a, b), name
        different = {k for k, v in theirs.config.to_dict().items() if ours.config.to_dict().get(k) != v}
        different -= {"_name_or_path"}
        print(name, "equal;", "of the configuration differ:", ", ".join(sorted(different)) or "none")


if __name__ == "__main__":
    if sys.argv[1:] == ["--folders"]:
        save_folders()
    elif len(sys.argv) == 3 and sys.argv[1] == "--compare":
        compare(pathlib.Path(sys.argv[2]))
    else:
        write("bert", [line for case in CASES for line in run(case)])
