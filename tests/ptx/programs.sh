#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The lessons and train_gpt with --device cuda on a machine without a GPU: built with nvcc as for one, and run by the machine for
# PTX (run.sh). Their own tests tell whether a lesson prints what it promises and train_gpt's losses are the CPU's.
#
#     tests/ptx/programs.sh [FOLDER]       # where to build; a temporary one otherwise
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${1:-}
if [[ -z $build ]]; then
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
fi
mkdir -p "$build"
build=$(cd "$build" && pwd)

status=0
bash "$root/tests/ptx/run.sh" --library "$build/libptx.so" || status=$?
if ((status)); then exit "$status"; fi
cmake=${CMAKE:-cmake}
"$cmake" -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DHALFTONE_BUILD_CUDA=ON -DHALFTONE_BUILD_EMULATOR=OFF \
    -DHALFTONE_TRAIN_GPT_MORE=ON -DCMAKE_CUDA_ARCHITECTURES=80-virtual -DCMAKE_CUDA_FLAGS=-no-compress >"$build/configure.log" ||
    { tail -n 20 "$build/configure.log"; exit 1; }
lessons=()
for lesson in $(grep -l '^#include "with_device.hpp"' "$root"/examples/[0-9]*.cpp); do lessons+=("lesson_$(basename "$lesson" .cpp)"); done
"$cmake" --build "$build" --parallel "$(nproc)" --target train_gpt "${lessons[@]}" >"$build/build.log" 2>&1 || { tail -n 40 "$build/build.log"; exit 1; }

export LD_PRELOAD=$build/libptx.so
for lesson in "${lessons[@]}"; do
    bash "$root/examples/check_output.sh" "$root/examples/${lesson#lesson_}.cpp" "$build/examples/$lesson" >"$build/$lesson.log" 2>&1 &&
        grep -q '^on the GPU it prints:' "$build/$lesson.log" || { status=1; echo "$lesson fails:"; tail -n 20 "$build/$lesson.log"; }
done
echo "${#lessons[@]} lessons print what they promise"

# Every policy's last losses on both devices, of the same weights and batches.
cd "$build"
for device in cpu cuda; do
    examples/train_gpt --device $device --policy full_fp32,amp_bf16,amp_fp16,tf32,fp8_hybrid --layers 2 --heads 2 --width 64 --context 32 --batch 2 \
        --accumulation 2 --steps 20 --eval-windows 4 --write 0 --text "$root/README.md" --out "train_$device" >"train_$device.log" 2>&1 ||
        { status=1; tail -n 5 "train_$device.log"; }
done
losses() { sed -n 's/.*"validation_loss": \([-0-9.e]*\).*/\1/p' "train_$1/summary.json"; }
paste <(losses cuda) <(losses cpu) | awk '{ d = $1 - $2; if (d < 0) d = -d; print $1 " on cuda, " $2 " on the CPU"; if (!(d <= 0.002)) far = 1 }
    END { exit far || NR != 5 }' || { status=1; echo "train_gpt: the losses differ"; }
exit "$status"
