#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Leaves in FOLDER what other programs read in the tests readers.NAME and program.pages: the metrics, trace and event files of a short
# run, a history of memory in each format, and the pages of the programs. Seconds.
#
#     tests/programs/files_of_a_run.sh FOLDER TRAIN_GPT TRADEOFF SCALING
set -euo pipefail
folder=$1 train_gpt=$2 tradeoff=$3 scaling=$4
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"

for i in {1..400}; do printf 'In the beginning was line %3d, and it was good. \n' "$i"; done >text
small=(--text text --layers 1 --width 32 --heads 2 --context 16 --batch 2 --eval-windows 4 --write 20)
echo '{"flops": {"fp32": 1e11, "bf16": 2e11}, "bytes": 2e10}' >peaks.json
"$train_gpt" "${small[@]}" --steps 6 --policy amp_bf16 --trace --tensorboard --speed-of-light --peaks peaks.json --numerics-every 6 --out run
for ending in json html; do
    "$train_gpt" "${small[@]}" --steps 3 --policy amp_bf16 --memory-history "memory.$ending" --out memory_run
done
"$train_gpt" "${small[@]}" --steps 6 --ranks 2 --out ranks
code=0
"$train_gpt" "${small[@]}" --steps 3 --policy amp_fp16 --shadow 2 --out shadow >shadow.log 2>&1 || code=$?
cat shadow.log
((code == 0)) || grep -e '--shadow is not in this build' shadow.log >/dev/null
"$tradeoff" --layers 2 --width 32 --heads 2 --length 12 --vocabulary 40 --batch 4 --texts 30 --steps 6 --out tradeoff
"$scaling" --layers 3 --width 32 --heads 2 --context 16 --vocabulary 50 --batch 2 --step-seconds 0.02 --update-seconds 0.001 --ranks 4096 \
    --json scaling.json --html scaling.html
