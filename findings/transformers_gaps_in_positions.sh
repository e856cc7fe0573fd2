#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# transformers 5.24.0: gaps in position_ids cut attention, without a word, where there is neither a cache nor an attention mask.
#
#     findings/transformers_gaps_in_positions.sh        # downloads PyPI's torch 2.15.0 and transformers 5.24.0: some GB, removed at the end
#
# Input: a random Llama and one row of tokens with the positions 0, 1, 2, 40, 300, ..., in order, with use_cache=False, as in training.
# Expected: the same logits whether attention_mask is absent or all ones: both say that nothing is masked.
# Seen: without the mask each position that is not the one before plus 1 begins a new document, which attends to itself only. With the mask,
# or with the default cache, it does not.
# Matters to whoever compares a model's logits at far positions (a scaling of rotary angles, say) with transformers': pass a mask of ones, as
# tests/golden/wide_heads.py does.
# Reason: transformers/masking_utils.py, _preprocess_mask_arguments, calls find_packed_sequence_indices if there are position_ids and neither a
# mask nor a cache; that function counts a document at each difference of positions other than 1, so at gaps, too, not only where
# positions begin again.
#
# Ends with 0 if transformers behaves so, 1 if it behaves otherwise, 2 if the packages cannot be installed.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/packages"
if ! "$folder/packages/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 transformers==5.24.0; then
    echo "not checked: torch 2.15.0 and transformers 5.24.0 cannot be installed"
    exit 2
fi

cat > "$folder/gaps.py" <<'PYTHON'
import sys

import torch
import transformers

TOKENS = torch.tensor([[3, 14, 15, 9, 26, 5, 30, 8]])
GAPS = torch.tensor([[0, 1, 2, 40, 300, 301, 2000, 2001]])
DOCUMENTS = [(0, 3), (3, 4), (4, 6), (6, 8)]
ONES = torch.ones_like(TOKENS)

torch.manual_seed(0)
config = transformers.LlamaConfig(vocab_size=32, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
                                  max_position_embeddings=4096, bos_token_id=None, eos_token_id=None)
model = transformers.LlamaForCausalLM(config).eval()
for parameter in model.parameters():
    torch.nn.init.normal_(parameter, std=0.5)


def logits(tokens=TOKENS, positions=GAPS, **options):
    with torch.no_grad():
        return model(tokens, position_ids=positions, **options).logits


def off(a, b):
    return ((a - b).norm() / b.norm()).item()


masked = logits(attention_mask=ONES, use_cache=False)
plain = logits(use_cache=False)
apart = torch.cat([logits(TOKENS[:, a:b], GAPS[:, a:b], use_cache=False) for a, b in DOCUMENTS], dim=1)
together = torch.arange(TOKENS.shape[1])[None]
# What is compared, the relative difference, and whether it is there (more than 0.1) or is of roundings (less than 1e-5).
rows = [
    ("gaps, no cache: no mask against a mask of ones", off(plain, masked), True),
    ("gaps, no cache: no mask against each run of positions as a row of its own", off(plain, apart), False),
    ("gaps, default cache: no mask against a mask of ones", off(logits(), logits(attention_mask=ONES)), False),
    ("gaps, a mask of ones: default cache against no cache", off(logits(attention_mask=ONES), masked), False),
    ("no gaps, no cache: no mask against a mask of ones",
     off(logits(positions=together, use_cache=False), logits(positions=together, use_cache=False, attention_mask=ONES)), False),
]
print(f"transformers {transformers.__version__}, torch {torch.__version__}: relative differences of logits")
same = True
for what, difference, differs in rows:
    as_before = difference > 0.1 if differs else difference < 1e-5
    same = same and as_before
    print(f"{difference:10.3g}  {what}{'' if as_before else ': NOT as before'}")
print("as described: each gap begins a document" if same else "transformers behaves otherwise now")
sys.exit(0 if same else 1)
PYTHON
"$folder/packages/bin/python" "$folder/gaps.py"
