#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Watching costs who does not watch nothing: a training step on a plain tape is the same code, to the instruction, whether the
# headers of watched tapes are there or not.
#
#     tests/headers/unwatched.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cxx=${CXX:-c++}
for tool in objdump "$cxx"; do
    command -v "$tool" >/dev/null 2>&1 || { echo "skipped: there is no $tool"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/step.cpp" <<'CODE'
#include <halftone/autodiff/reduce.hpp>
#include <halftone/kernel.hpp>
#include <halftone/nn/linear.hpp>
#if WATCHING
#include <halftone/observe/numerics.hpp>
#include <halftone/observe/overflow.hpp>
#endif
namespace ht = halftone;

struct sink {
    ht::gradient_slabs* slabs;
    template <class Loss>
    void receive(const Loss&) {}
    ht::gradient_slabs* find(const ht::store&) { return slabs; }
};

void step(ht::cpu& device, const ht::nn::linear<ht::full_fp32>& layer, ht::const_view<float, 2> x, ht::const_view<float, 2> t, sink& gradients) {
    ht::tape tape{device};
    tape.backward(ht::mean_squared_error(tape, layer(tape, tape.constant(x)), t), gradients);
}
CODE
# functions FILE.o: halftone's and the step, each on a line: its instructions and what they refer to. Constants are told by no
# number, and constructors not by which of two names for the same code a compiler takes.
functions() {
    objdump -dr --no-show-raw-insn "$1" | sed -E 's/\.LC[0-9]+/.LC/g; s/\.(rodata|text)[^ ]*\+0x[0-9a-f]+/.\1/g; s/([CD])[12]E/\1xE/g' |
        awk '/^Disassembly of section / { if (line) print line; line = $0; next } line { line = line "|" $0 } END { print line }' |
        grep -E '^Disassembly of section \.text\._Z[^ |]*(8halftone|4step)' | sort
}
# Without optimisation: the order in which a compiler meets functions changes which register it takes.
for watching in 0 1; do
    "$cxx" -std=c++20 -O0 -ffunction-sections -c -I"$here/../../include" -DWATCHING="$watching" "$work/step.cpp" -o "$work/$watching.o"
    functions "$work/$watching.o" >"$work/$watching"
done
(($(wc -l <"$work/0") > 100)) || { echo "unwatched: sees $(wc -l <"$work/0") functions"; exit 1; }
cmp "$work/0" "$work/1" || { echo "unwatched: a plain tape's step is other code with the headers of watched tapes"; exit 1; }
! grep -q watched "$work/1" || { echo "unwatched: a plain tape's step speaks of watching"; exit 1; }
echo "unwatched: $(wc -l <"$work/0") functions, all the same"
