#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
set -euo pipefail
# shellcheck source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

help() {
    cat <<'TEXT'
examples/finetune.sh [--yes] [FOLDER DATA] [--budget N] [--method lora|qlora|full] [FINETUNE-ARGUMENT...]

Installs the packages that the program needs (after listing them), builds examples/finetune in Release, and tunes the model in FOLDER, a
Llama, Mistral, Qwen2 or Qwen3 of transformers, on the conversations in DATA, JSON lines. Without FOLDER and DATA it makes a small model and
a task of its own.

    --yes    install without asking; without a terminal it never asks
    --help   this text; examples/finetune.sh -- --help prints that of the program

All other arguments, and all after --, are passed to the program. With --out FOLDER it writes its results there instead of to
build/finetune/results.
TEXT
}

arguments=()
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
        --out | --out=*) own_out=yes ;;
    esac
done

need_compiler
need cmake cmake
need ninja ninja-build
need_header CLI/CLI.hpp libcli11-dev
need_header nlohmann/json.hpp nlohmann-json3-dev
install_packages

build=$root/build/finetune
configure "$build" -DHALFTONE_BUILD_TESTS=OFF -DHALFTONE_BUILD_BENCH=OFF -DHALFTONE_BUILD_EXAMPLES=ON
cmake --build "$build" --target finetune --parallel "$(job_count)"

program=("$build/examples/finetune")
if [[ $own_out == no ]]; then
    program+=(--out "$build/results")
fi
exec "${program[@]}" "${arguments[@]}"
