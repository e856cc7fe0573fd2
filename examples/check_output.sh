#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs a lesson and checks that it ends well and prints, in this order, what its source promises: the text behind each
# "// Prints: ". One that makes a device ends in one line and exit code 2 where it cannot have it.
#
#     examples/check_output.sh 01_rounding.cpp path/to/lesson_01_rounding
set -euo pipefail
source=$1
program=$2
status=0
output=$("$program") || status=$?
echo "$output"
if ((status)); then
    echo "${program##*/} ended with exit code $status"
    exit 1
fi
rest=$output
while IFS= read -r promise; do
    if [[ $rest != *"$promise"* ]]; then
        echo "${source##*/} promises a line that its program did not print, or not in this place: $promise"
        exit 1
    fi
    rest=${rest#*"$promise"}
done < <(sed -n 's|^ *// Prints: ||p' "$source")

if grep -q 'ht::cpu device' "$source"; then
    status=0
    complaint=$(HALFTONE_ISA=none "$program" 2>&1) || status=$?
    expected="isa: 'none' is no instruction set; known: portable, avx2, avx512, avx512_bf16, amx"
    if [[ $status != 2 || $complaint != "$expected" ]]; then
        echo "${program##*/} with HALFTONE_ISA=none ended with exit code $status and said: $complaint"
        exit 1
    fi
fi
