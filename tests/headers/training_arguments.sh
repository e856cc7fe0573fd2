#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The fields and defaults of ht::training_arguments are those of transformers' TrainingArguments, or docs/training.md says otherwise.
set -euo pipefail
command -v python3 >/dev/null 2>&1 || { echo "skipped: there is no python3"; exit 77; }
exec python3 "$(dirname "${BASH_SOURCE[0]}")/training_arguments.py"
