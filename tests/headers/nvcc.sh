#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A .cu file may include everything and train on the CPU: nvcc reads it without a warning, with --full also compiles it, and runs it. The
# ```cuda blocks of README.md and docs/ compile unchanged, also if the operators of CUDA's 16-bit types are disabled
# (-D__CUDA_NO_HALF_OPERATORS__ and similar macros, as in PyTorch's extensions).
#
#     tests/headers/nvcc.sh [--full]       CUDACXX names the compiler, CXX its host compiler
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
nvcc=${CUDACXX:-nvcc}
if ! command -v "$nvcc" >/dev/null 2>&1; then nvcc=/usr/local/cuda/bin/nvcc; fi
command -v "$nvcc" >/dev/null 2>&1 || { echo "skipped: there is no nvcc"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The entries, all headers of CUDA, and those of ranks: two that give one name to different things meet here alone.
# (MPI's and NCCL's need those libraries.)
(cd "$root/include" && find halftone -name "*.cuh" -o -path "halftone/ranks/*.hpp" -o -path "halftone/*.hpp" ! -path "halftone/*/*" | LC_ALL=C sort |
    grep -v "ranks/mpi.hpp\|ranks/nccl.cuh\|\.simd\.hpp" | sed "s/.*/#include <&>/") >"$work/step.cu"
cat >>"$work/step.cu" <<'PROGRAM'
#include <cstdint>
#include <span>
#include <vector>

#include <support/own_numbers.hpp>

namespace ht = halftone;

// Whether a class has operator double() is an expression that nvcc once found false in some functions.
static_assert(ht::check_policy<support::fixed_masters>() && ht::check_policy<support::pure_e6m9>());

// nvcc hands templates on to the host compiler as it has understood them.
bool loads() {
    const std::vector<int> numbers{0, 1, 2, 3, 4, 5, 6, 7};
    const auto sum = [](std::span<const int> some, ht::batch_memory&) {
        int total = 0;
        for (const int n : some) total += n;
        return total;
    };
    ht::data_loader loader{numbers, {.batch_size = 4, .seed = 9}, sum};
    int total = 0;
    for (const int batch : loader) total += batch;
    return total == 28 && loader.position() == ht::loader_position{.seed = 9, .epoch = 1, .size = 8};
}

struct pair {
    ht::const_view<std::int32_t, 2> tokens, targets;
};

int main() {
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::amp_bf16> model{device, {.vocabulary = 11, .context = 8, .layers = 1, .heads = 2, .width = 16}};
    ht::adamw optimizer{device, model, {.lr = 1e-2}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    const std::vector<std::int32_t> tokens{3, 1, 4, 1, 5, 9, 2, 6}, targets{1, 4, 1, 5, 9, 2, 6, 5};
    float first = 0, last = 0;
    for (int step = 0; step < 20; ++step) {
        const auto loss = model.loss(tape, pair{{tokens.data(), {1, 8}}, {targets.data(), {1, 8}}});
        (step == 0 ? first : last) = loss.item();
        tape.backward(loss, acc);
        auto grads = acc.take();
        optimizer.step(grads);
    }
    return last < first / 2 ? (loads() ? 0 : 2) : 1;
}
PROGRAM
awk -v folder="$work" '
    /^```cuda$/ { file = sprintf("%s/snippet%02d.cu", folder, ++count); printf "#line %d \"%s\"\n", FNR + 1, FILENAME > file; next }
    /^```$/ && file { close(file); file = ""; next }
    file { print > file }' "$root/README.md" "$root"/docs/*.md
compiler=()
if [[ ${CXX:-} == *g++* && ${CXX:-} != *clang* ]]; then compiler=(-ccbin "$CXX"); fi
compile() { "$nvcc" "${compiler[@]}" -std=c++20 -arch=sm_90 -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror,-pthread -I"$root/include" -I"$root/tests" "$@"; }
no_operators=(-D__CUDA_NO_{HALF,HALF2,BFLOAT16,BFLOAT162}_OPERATORS__ -D__CUDA_NO_{HALF,BFLOAT16}_CONVERSIONS__)
# Read by the compilers' front ends: kernels like theirs are compiled in tests/cuda, which is read with the operators.
snippets=("$work"/step.cu "$work"/snippet*.cu)
if command -v python3 >/dev/null 2>&1; then
    mapfile -t snippets < <(echo "$work/snippets.cu"; python3 "$root/tests/tools/together.py" join "$work/snippets.cu" "${snippets[@]}")
fi
for snippet in "${snippets[@]}"; do compile "${no_operators[@]}" -fdevice-syntax-only -cuda "$snippet" -o "$snippet.ii"; done
if [[ ${1:-} == --full ]]; then
    compile "$work/step.cu" -o "$work/step"
    status=0
    "$work/step" || status=$?
    case $status in
        0) ;;
        1) echo "the model that nvcc compiled does not learn"; exit 1 ;;
        2) echo "the data_loader that nvcc compiled has other values"; exit 1 ;;
        *) echo "the program that nvcc compiled ends with status $status"; exit 1 ;;
    esac
fi
echo "nvcc takes everything, without a warning"
