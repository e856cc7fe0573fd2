#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What users include compiles without a warning with libc++, clang++'s and that of zig c++, as C++20 and C++23; and a program that rounds
# to bfloat16 and trains links and runs with zig c++, which has a runtime of its own.
#
#     tests/portable/libcxx.sh         CLANGXX names a clang++ that has libc++, clang++-19 or clang++ by default; zig is `zig`, or
#                                      PyPI's ziglang
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-Wall -Wextra -Wpedantic -Werror -I"$root/include")

printf '#include <halftone/%s.hpp>\n' number policy kernel amp halftone >"$work/all.cpp"
cat >>"$work/all.cpp" <<'CODE'
int main() {}
CODE
cat >"$work/program.cpp" <<'CODE'
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/kernel.hpp>

namespace ht = halftone;

bool rounds(ht::cpu& device) {
    std::vector<float> x(1003);
    std::vector<ht::bfloat16> y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1 + static_cast<float>(i) / 1024;
    const ht::shape<1> all{static_cast<ht::extent>(x.size())};
    ht::map(device, [](auto a) { return a; }, ht::view<const float, 1>(x.data(), all), ht::view(y.data(), all));
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (y[i].bits() != ht::bfloat16(x[i]).bits()) return false;
    }
    return true;
}

int main() {
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::amp_bf16> model{device, {.vocabulary = 11, .context = 8, .layers = 1, .heads = 2, .width = 16}};
    ht::adamw optimizer{device, model, {.lr = 1e-2}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    const std::vector<std::int32_t> tokens{3, 1, 4, 1, 5, 9, 2, 6}, targets{1, 4, 1, 5, 9, 2, 6, 5};
    struct {
        ht::const_view<std::int32_t, 2> tokens, targets;
    } batch{{tokens.data(), {1, 8}}, {targets.data(), {1, 8}}};
    float first = 0, last = 0;
    for (int step = 0; step < 20; ++step) {
        const auto loss = model.loss(tape, batch);
        (step == 0 ? first : last) = loss.item();
        tape.backward(loss, acc);
        auto grads = acc.take();
        optimizer.step(grads);
    }
    if (!rounds(device)) return std::puts("a map rounds to bfloat16 otherwise than the number"), 1;
    return last < first / 2 ? 0 : (std::puts("the model does not learn"), 1);
}
CODE

checked=0
clang=
for candidate in ${CLANGXX:-clang++-19 clang++}; do
    if echo '#include <version>' | "$candidate" -stdlib=libc++ -fsyntax-only -x c++ - >/dev/null 2>&1; then
        clang=$candidate
        break
    fi
done
if [[ -n $clang ]]; then
    for standard in 20 23; do
        "$clang" -stdlib=libc++ -std=c++$standard "${flags[@]}" -fsyntax-only "$work/all.cpp"
        checked=$((checked + 1))
    done
else
    echo "not checked: libc++ of clang++ (there is no clang++-19 with libc++-19-dev)"
fi

zig=()
if command -v zig >/dev/null 2>&1; then
    zig=(zig c++)
elif python3 -m ziglang version >/dev/null 2>&1; then
    zig=(python3 -m ziglang c++)
fi
if ((${#zig[@]})); then
    export ZIG_LOCAL_CACHE_DIR=$work/zig ZIG_GLOBAL_CACHE_DIR=${ZIG_GLOBAL_CACHE_DIR:-$work/zig}
    for standard in 20 23; do
        "${zig[@]}" -std=c++$standard "${flags[@]}" -c "$work/all.cpp" -o "$work/all.o"
        checked=$((checked + 1))
    done
    "${zig[@]}" -std=c++20 -O1 "${flags[@]}" "$work/program.cpp" -o "$work/program"
    "$work/program"
else
    echo "not checked: zig c++ (there is no zig, and no ziglang of PyPI)"
fi
((checked)) || { echo "skipped: there is neither zig nor a clang++ with libc++"; exit 77; }
echo "halftone compiles with libc++ in $checked ways, without a warning"
