#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
set -euo pipefail
# shellcheck source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

help() {
    cat <<'TEXT'
examples/train.sh [--yes] [TRAIN_GPT-ARGUMENT...]

Installs the packages that training needs (after listing them), builds examples/train_gpt in Release and trains a small GPT on the King
James text, or on the text of this repository if that is not available, under each policy in turn: full_fp32, amp_fp16 and amp_bf16, or
the policies in --policy, which may include tf32 and fp8_hybrid. With --model llama it trains a small Llama instead of the GPT.

    --yes    install without asking; without a terminal it never asks
    --help   this text; examples/train.sh -- --help prints that of the program

All other arguments, and all after --, are passed to the program: --policy amp_bf16 --steps 100, for instance. With --text FILE it reads
another text; with --out FOLDER it writes its results there instead of to build/train/train_gpt.
TEXT
}

arguments=()
more=()
own_text=no
own_out=no
while (($#)); do
    case $1 in
        --yes) assume_yes=yes ;;
        --help | -h)
            help
            exit 0
            ;;
        --)
            shift
            arguments+=("$@")
            break
            ;;
        *) arguments+=("$1") ;;
    esac
    shift
done
for argument in "${arguments[@]}"; do
    case $argument in
        --text | --text=*) own_text=yes ;;
        --out | --out=*) own_out=yes ;;
        *tf32* | *fp8_hybrid* | llama | --model=llama) more=(-DHALFTONE_TRAIN_GPT_MORE=ON) ;;  # minutes more to compile
    esac
done

need_compiler
need cmake cmake
need ninja ninja-build
need_header CLI/CLI.hpp libcli11-dev
need_header nlohmann/json.hpp nlohmann-json3-dev
if [[ $own_text == no ]]; then
    wish bible bible-kjv
fi
install_packages

build=$root/build/train
configure "$build" -DHALFTONE_BUILD_TESTS=OFF -DHALFTONE_BUILD_BENCH=OFF -DHALFTONE_BUILD_EXAMPLES=ON "${more[@]}"
cmake --build "$build" --target train_gpt --parallel "$(job_count)"

program=("$build/examples/train_gpt")
if [[ $own_out == no ]]; then
    program+=(--out "$build/train_gpt")
fi
if [[ $own_text == no ]] && command -v bible >/dev/null 2>&1; then
    text=$build/king_james.txt
    # Written aside and renamed, so that an interrupted run leaves no half of it behind.
    if [[ ! -s $text ]]; then
        bible -f gen1:1-rev22:21 </dev/null >"$text.part"
        mv "$text.part" "$text"
    fi
    size=$(wc -c <"$text")
    if ((size < 4300000 || size > 4500000)); then
        echo "The King James text came out at $size bytes in place of about 4,404,412; using this repository's own text."
        rm -f "$text"
    else
        program+=(--text "$text")
    fi
fi
exec "${program[@]}" "${arguments[@]}"
