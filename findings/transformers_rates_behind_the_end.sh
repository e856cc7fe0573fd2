#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# transformers 5.24.0: behind the last step of a run whose warm-up is as long as the run, the cosine schedule's rate alternates between full
# and 0 in each step, and the polynomial one divides by zero.
#
#     findings/transformers_rates_behind_the_end.sh     # downloads PyPI's torch 2.15.0 and transformers 5.24.0: some GB, removed at the end
#
# Input: get_cosine_schedule_with_warmup, get_linear_ and get_polynomial_decay_schedule_with_warmup with num_warmup_steps and
# num_training_steps of 10, and a cosine with a warm-up of 3, each for 26 steps.
# Expected: from step 10 on the final rate, as of the linear one.
# Seen: cosine 1, 0, 1, 0, ...; with a warm-up of 3 it climbs back to 1 in as many steps as it took to fall, and so on. Polynomial:
# ZeroDivisionError at step 10, and the final rate from step 11 on.
# Matters to whoever takes more steps than the schedule was told: a run that is made longer after resuming, or a scheduler that is stepped once
# for each of several processes.
# Reason: transformers/optimization.py: the progress of cosine is not limited to 1, and with num_training_steps - num_warmup_steps of 0, taken
# as 1, it is a whole number, whose half cosine wave is at a top or at the bottom. The polynomial's comparison is "beyond", not "at or beyond".
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

cat > "$folder/rates.py" <<'PYTHON'
import sys
import warnings

import torch
import transformers
from transformers import optimization

warnings.filterwarnings("ignore")
TOTAL = 10


def rates(make, warmup, **options):
    """The rates of 26 steps; a step whose rate raised an exception has its name."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    factor = make(optimizer, warmup, TOTAL, **options).lr_lambdas[0]
    seen = []
    for step in range(26):
        try:
            seen.append(round(factor(step), 6))
        except ArithmeticError as error:
            seen.append(type(error).__name__)
    return seen


def shown(values):
    return " ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)


def main():
    climb = [step / 10 for step in range(10)]
    linear = rates(optimization.get_linear_schedule_with_warmup, TOTAL)
    cosine = rates(optimization.get_cosine_schedule_with_warmup, TOTAL)
    later = rates(optimization.get_cosine_schedule_with_warmup, 3)
    polynomial = rates(optimization.get_polynomial_decay_schedule_with_warmup, TOTAL, lr_end=0.25)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}: rates of steps 0 to 25, of a run of {TOTAL}")
    for name, values in (("linear, warm-up 10", linear), ("cosine, warm-up 10", cosine), ("cosine, warm-up 3", later),
                         ("polynomial, warm-up 10, to 0.25", polynomial)):
        print(f"{name}: {shown(values)}")
    checks = {
        "linear stays at 0": linear == climb + [0.0] * 16,
        "cosine alternates": cosine == climb + [1.0, 0.0] * 8,
        "cosine with a warm-up of 3 falls to 0 at step 10 and is at 1 again at step 17": later[10] == 0 and later[17] == 1 and later[24] == 0,
        "polynomial divides by zero at step 10 alone": polynomial == climb + ["ZeroDivisionError"] + [0.25] * 15,
    }
    for what, holds in checks.items():
        print(f"{'so' if holds else 'NOT so'}: {what}")
    return 0 if all(checks.values()) else 1


sys.exit(main())
PYTHON
"$folder/packages/bin/python" "$folder/rates.py"
