#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# HALFTONE_ONE_SET compiles the kernels of one instruction set, that of the compiler's flags: a program with it has no function of
# another set, computes the bits that an ordinary program computes under HALFTONE_ISA, and refuses other sets; its inline namespace has
# a name of its own, so that both sorts of program link into one; without flags for a set, and with halftone::compiled, it says so or
# does without.
#
#     tests/headers/one_set.sh            AVX2
#     tests/headers/one_set.sh --full     every set
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cxx=${CXX:-c++}
command -v "$cxx" >/dev/null 2>&1 || { echo "skipped: there is no $cxx"; exit 77; }
[[ $(uname -m) == x86_64 ]] || { echo "skipped: other processors than x86-64 have one set"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "one_set: $*"; exit 1; }

cat >"$work/layer.cpp" <<'CODE'
#include <cstdio>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/number/nf4.hpp>
namespace ht = halftone;

struct layer : ht::nn::model {
    using policy = ht::amp_bf16;
    ht::nn::layer_norm<ht::at<policy, "norm">> norm;
    ht::nn::linear<ht::at<policy, "up">> up;
    explicit layer(ht::cpu& device) : model{device}, norm{parameters(), 40}, up{parameters(), 40, 24} { commit(*this); }
    auto operator()(auto& ctx, const auto& x) const { return ht::gelu(ctx, up(ctx, norm(ctx, x))); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.norm, self.up); }
};

int main() {
    try {
        ht::cpu device{{.threads = 1}};
        std::printf("%s\n", ht::name(device.instruction_set()));
        layer model{device};
        ht::adamw optimizer{device, model, {.lr = 1e-2f}};
        ht::accumulator acc{model, ht::unscaled};
        ht::tape tape{device};
        std::vector<float> x(17 * 40), t(17 * 24);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 23) / 16 - 0.7f;
        for (std::size_t i = 0; i < t.size(); ++i) t[i] = static_cast<float>(i % 7) / 8;
        const ht::const_view<float, 2> input{x.data(), {17, 40}}, target{t.data(), {17, 24}};
        for (int step = 0; step < 5; ++step) {
            const auto loss = ht::mean_squared_error(tape, model(tape, tape.constant(input)), target);
            std::printf("%a\n", static_cast<double>(loss.item()));
            tape.backward(loss, acc);
            auto gradients = acc.take();
            optimizer.step(gradients);
        }
        // A product with a weight in blocks, (8, 64).
        std::vector<std::byte> codes(ht::nf4::bytes(8 * 64));
        ht::nf4::encode(x.data(), 8 * 64, codes.data());
        std::vector<float> y(5 * 8);
        ht::matmul<ht::amp_bf16>(device, ht::const_view<float, 2>(x.data(), {5, 64}),
                                 ht::transpose(ht::coded_matrix<ht::nf4>(codes.data(), 8, 64)), ht::view<float, 2>(y.data(), {5, 8}));
        for (const float v : y) std::printf("%a ", static_cast<double>(v));
        std::printf("\n");
    } catch (const ht::error& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
CODE

# build NAME FLAG...: the program $work/NAME.
build() {
    "$cxx" -std=c++20 -O0 -Wall -Wextra -Wpedantic -Werror -I"$here/../../include" "${@:2}" "$work/layer.cpp" -o "$work/$1" -pthread 2>"$work/errors" ||
        { cat "$work/errors"; fail "$1 does not compile"; }
}

if (build refused -march=x86-64 -DHALFTONE_ONE_SET) >"$work/log"; then fail "takes a set without the compiler's flags"; fi
grep -q 'HALFTONE_ONE_SET takes the instruction set of the compiler' "$work/log" || { cat "$work/log"; fail "says nothing of -march"; }

build every
# name of the set, its namespace, a set that the program lacks, a flag
sets=("avx2 avx2 portable x86-64-v3")
if [[ ${1:-} == --full ]]; then
    sets+=("avx512 avx512 avx2 skylake-avx512" "avx512_bf16 avx512 avx2 cooperlake" "amx avx512 avx2 sapphirerapids")
fi
for one in "${sets[@]}"; do
    read -r set namespace other march <<<"$one"
    build "$set" -march="$march" -DHALFTONE_ONE_SET -DHALFTONE_COMPILED
    nm -C "$work/$set" >"$work/symbols"
    abi=$(grep -o "halftone::v[0-9_]*_$set::" "$work/symbols" | sort -u)
    [[ $abi == halftone::v*_"$set":: ]] || fail "$set has no inline namespace of its own: '$abi'"
    if grep -E "$abi(portable|avx2|avx512)::" "$work/symbols" | grep -v "$abi$namespace::" >"$work/log"; then
        head -n 3 "$work/log"
        fail "the program of $set has functions of another set"
    fi
    grep -q "$abi$namespace::norm_rows" "$work/symbols" || fail "the program of $set has none of its functions"
    if ! HALFTONE_ISA=$set "$work/every" >"$work/bits" 2>/dev/null; then
        echo "not checked: this processor lacks $set, whose bits are not compared"
        continue
    fi
    (($(sort -u "$work/bits" | wc -l) == 7)) || fail "the program does not learn"
    HALFTONE_ISA=$set "$work/$set" | cmp - "$work/bits" || fail "$set computes other bits than an ordinary program"
    if HALFTONE_ISA=$other "$work/$set" 2>"$work/log"; then fail "the program of $set takes HALFTONE_ISA=$other"; fi
    [[ $(cat "$work/log") == "isa: HALFTONE_ISA is $other, which this program lacks: HALFTONE_ONE_SET compiled another" ]] ||
        { cat "$work/log"; fail "says something else of HALFTONE_ISA=$other"; }
    echo "one_set: $set: $(grep -c "$abi$namespace::" "$work/symbols") functions of the set, and the bits of an ordinary program"
done
