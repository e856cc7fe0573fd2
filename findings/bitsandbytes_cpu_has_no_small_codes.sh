#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# bitsandbytes 0.50.2 on a CPU: its eight-bit dynamic map has 256 numbers, but quantize_blockwise never gives the seven of least magnitude, zero among
# them, nor, of the map without a sign, eleven; numbers of the map itself come back as others.
#
#     findings/bitsandbytes_cpu_has_no_small_codes.sh     # downloads PyPI's torch 2.15.0, bitsandbytes 0.50.2 and numpy (some GB), removed at the end
#
# Input: a block of 256 numbers, float32, which are the map's own, the largest 1; blocks of half a million numbers from 1e-9 to 1 in equal steps of their
# logarithm, and from -1 to 1 in equal steps, with zeros; a block of a 1 and 255 zeros.
# Expected: the nearest number of the map each: a number of the map is stored as itself, and all 256 codes occur.
# Seen: with a sign codes 124 to 130 never occur, which stand for 0 and for the magnitudes 5.5e-7, 3.25e-6 and 7.75e-6 of the block's largest; nine
# numbers of the map come back as others. Zero comes back as +2.125e-5 of the largest: 255 zeros beside a 1 add up to 0.0054. Without a sign eleven codes never
# occur, and nothing is below 1.56e-5, where the map goes down to 3.25e-7.
# Matters to whoever compares states of 8-bit optimizers or double-quantised scales between processors, or takes the map's table for what is stored: the
# decades that a dynamic map has for small numbers are not there, and zeros become positive numbers.
# Reason: the quotient is first rounded to one of 65,536 equal steps from -1 to 1, of which none is 0, and the step's code is looked up.
#
# Ends with 0 if bitsandbytes behaves so, 1 if it behaves otherwise, 2 if the packages cannot be installed.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/packages"
if ! "$folder/packages/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 bitsandbytes==0.50.2 numpy==2.4.6; then
    echo "not checked: torch 2.15.0 and bitsandbytes 0.50.2 cannot be installed"
    exit 2
fi

cat > "$folder/codes.py" <<'PYTHON'
import sys

import bitsandbytes
import torch
from bitsandbytes import functional as F


def stored(values, table):
    codes, state = F.quantize_blockwise(values, code=table, blocksize=256)
    return codes, F.dequantize_blockwise(codes, state)


def look(signed):
    """Codes that never occur, how many of the map's numbers come back as others, and the least magnitude that does."""
    table = F.create_dynamic_map(signed=signed)
    own, _ = stored(table.clone(), table)
    others = int((own.long() != torch.arange(256)).sum())
    small = torch.logspace(-9, 0, 1 << 18)
    many = torch.cat([small, torch.zeros(255), torch.linspace(-1 if signed else 0, 1, 1 << 18), *([-small] if signed else [])])
    many = many[: len(many) // 255 * 255].view(-1, 255)
    codes, back = stored(torch.cat([many, torch.ones(len(many), 1)], 1).contiguous(), table)
    never = sorted(set(range(256)) - set(torch.unique(codes).tolist()))
    print(f"{'with' if signed else 'without'} a sign: codes {never} never occur, {others} numbers of the map come back as others, "
          f"the least magnitude is {back.abs().min().item():.4g}, the map's {table[table != 0].abs().min().item():.4g}")
    return never, others, round(back.abs().min().item(), 8)


with_sign, without = look(True), look(False)
one = torch.zeros(256)
one[0] = 1
_, back = stored(one, F.create_dynamic_map(signed=True))
print(f"bitsandbytes {bitsandbytes.__version__}: 255 zeros beside a 1 come back as {back[1].item():.4g} each, {back[1:].sum().item():.4f} together")
holds = (with_sign == (list(range(124, 131)), 9, 2.125e-05) and without == ([0, 1, 2, 3, 4, 5, 6, 8, 9, 11, 13], 11, 1.562e-05) and
         abs(back[1:].sum().item() - 0.0054) < 1e-4)
print("so" if holds else "NOT so: seven and eleven codes never occur, and zeros come back as positive numbers")
sys.exit(0 if holds else 1)
PYTHON
"$folder/packages/bin/python" "$folder/codes.py" 2>"$folder/messages" || { tail -n 3 "$folder/messages"; exit 1; }
