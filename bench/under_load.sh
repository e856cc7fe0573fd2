#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Measures which fraction of its rate a training step keeps while other programs run. It builds train_gpt and bench_train_step and
# runs them alone, with one busy process per processor, with a single busy process, and pinned to one processor with two threads, in
# turn with PyTorch on the same models. It prints a table and which targets are met; a round takes some minutes.
#
#     bench/under_load.sh [--build FOLDER] [ARGUMENT...]
#
#     --build FOLDER     the build folder, `build` by default
#     ARGUMENT...        arguments of under_load.py: --torch PYTHON, --before PROGRAM (an earlier train_gpt), --policy fp32,
#                        --rounds N, --json FILE
#
# Nothing else should run meanwhile. Ends with 0 where everything ran, whatever holds.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

build=$root/build
arguments=()
while (($#)); do
    case $1 in
        --build)
            (($# > 1)) || { echo "under_load.sh: --build needs a folder" >&2; exit 2; }
            build=$2
            shift
            ;;
        --help | -h)
            sed -n '3,/^set/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'
            exit 0
            ;;
        *) arguments+=("$1") ;;
    esac
    shift
done

cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$build" --parallel "$(nproc 2>/dev/null || echo 2)" --target train_gpt bench_train_step
exec python3 "$root/bench/under_load.py" --train-gpt "$build/examples/train_gpt" --train-step "$build/bench/bench_train_step" \
    "${arguments[@]}"
