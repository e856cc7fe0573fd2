#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs a lesson and checks that it succeeds and prints, in this order, the text after each "// Prints: " in its source. A lesson that
# runs on a device must print the same on a GPU, and one line if there is no such device.
#
#     examples/check_output.sh 01_rounding.cpp path/to/lesson_01_rounding
set -euo pipefail
source=$1
program=$2

# The program, under EMULATOR where that names one; Windows ends a line by two characters.
run() { ${EMULATOR:+"$EMULATOR"} "$program" "$@" 2>&1 </dev/null | tr -d '\r'; }

# check OUTPUT
check() {
    local rest=$1 promise
    while IFS= read -r promise; do
        if [[ $rest != *"$promise"* ]]; then
            echo "${source##*/} promises a line that its program did not print, or not in this place: $promise"
            exit 1
        fi
        rest=${rest#*"$promise"}
    done < <(sed -n 's|^ *// Prints: ||p' "$source")
}
status=0
output=$(run) || status=$?
echo "$output"
if ((status)); then
    echo "${program##*/} ended with exit code $status"
    exit 1
fi
check "$output"
if ! grep -q '#include "with_device.hpp"' "$source"; then exit 0; fi

# refuse LINE ARGUMENT...
refuse() {
    local line=$1 status=0 complaint
    complaint=$(run "${@:2}") || status=$?
    if [[ $status != 2 || $complaint != "$line" ]]; then
        echo "${program##*/} ${*:2} ended with exit code $status and said: $complaint"
        exit 1
    fi
}
HALFTONE_ISA=none refuse "isa: 'none' is not an instruction set; known: portable, avx2, avx512, avx512_bf16, amx"
usage='expected no argument, or --device cpu, or --device cuda'
refuse "$usage" --device tpu
refuse "$usage" --device
refuse "$usage" cuda

status=0
output=$(run --device cuda) || status=$?
if ((status == 0)); then
    echo "on the GPU it prints:"
    echo "$output"
    check "$output"
elif ((status != 3)) || [[ $output != cuda:* || $output == *$'\n'* ]]; then
    echo "${program##*/} --device cuda ended with exit code $status and said: $output"
    exit 1
fi
