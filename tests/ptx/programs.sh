#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The lessons, own_project, train_gpt and bench_cuda on a machine without a GPU: built with nvcc as for a GPU, and run by the PTX
# machine (run.sh). Lessons print what their sources say, train_gpt's losses are the CPU's, and no benchmark's result is wrong.
#
#     tests/ptx/programs.sh [FOLDER]       # the build folder; by default a temporary one
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
lessons=()
while read -r lesson; do lessons+=("$(basename "$lesson" .cpp)"); done < <(grep -l '^#include "with_device.hpp"' "$root"/examples/[0-9]*.cpp)
cmake=${CMAKE:-cmake}
"$cmake" -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DHALFTONE_BUILD_CUDA=ON -DHALFTONE_BUILD_EMULATOR=OFF \
    -DHALFTONE_TRAIN_GPT_MORE=ON -DCMAKE_CUDA_ARCHITECTURES=80-virtual -DCMAKE_CUDA_FLAGS=-no-compress \
    >"$build/configure.log" || { tail -n 20 "$build/configure.log"; exit 1; }
"$cmake" --build "$build" --parallel "$(nproc)" --target train_gpt bench_cuda "${lessons[@]/#/lesson_}" \
    >"$build/build.log" 2>&1 || { tail -n 40 "$build/build.log"; exit 1; }

# run NAME COMMAND...: its output is NAME.log.
run() {
    local name=$1
    shift
    LD_PRELOAD=$build/libptx.so "$@" >"$build/$name.log" 2>&1 && return
    status=1
    echo "$name fails:"
    tail -n 20 "$build/$name.log"
}
for lesson in "${lessons[@]}"; do
    run "$lesson" bash "$root/examples/check_output.sh" "$root/examples/$lesson.cpp" "$build/examples/lesson_$lesson"
    grep -q '^on the GPU it prints:' "$build/$lesson.log" || { status=1; echo "$lesson has not run on the GPU"; }
done
echo "${#lessons[@]} lessons print what they promise"

# A project that owns its pointers and its stream.
nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER:[^=]*=//p' "$build/CMakeCache.txt")
for source in main one_file; do
    "$nvcc" -std=c++20 -cudart shared -gencode arch=compute_80,code=compute_80 -no-compress -I"$root/include" \
        "$root/examples/own_project/$source.cu" -o "$build/own_$source"
    run "own_project_$source" "$build/own_$source"
done
cat "$build"/own_project_*.log

run bench_cuda "$build/bench/bench_cuda" --tiny --seconds 0.001
run bench_cuda_smoke "$build/bench/bench_cuda" --tiny --smoke
echo "bench_cuda: $(wc -l <"$build/bench_cuda.log") lines"

# Every policy's last losses on both devices, of the same weights and batches.
arguments=(--policy full_fp32,amp_bf16,amp_fp16,tf32,fp8_hybrid --layers 2 --heads 2 --width 64 --context 32 --batch 2
    --accumulation 2 --steps 20 --eval-windows 4 --write 0 --text "$root/README.md")
for device in cpu cuda; do
    run "train_$device" "$build/examples/train_gpt" --device $device "${arguments[@]}" --out "$build/train_$device"
done
losses() { sed -n 's/.*"validation_loss": \([-0-9.e]*\).*/\1/p' "$build/train_$1/summary.json"; }
paste <(losses cuda) <(losses cpu) |
    awk '{ d = $1 - $2; if (d < 0) d = -d; print $1 " on cuda, " $2 " on the CPU"; if (!(d <= 0.002)) far = 1 }
        END { exit far || NR != 5 }' || { status=1; echo "train_gpt: the losses differ"; }
exit "$status"
