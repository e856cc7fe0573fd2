#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Watched tapes cost nothing in programs that do not use them: a training step on a plain tape has exactly the same machine code with
# and without the headers of watched tapes. Nor do ranges cost anything with HALFTONE_NO_RANGES: a function with ranges has the code of
# one without.
#
#     tests/headers/unwatched.sh            mixed precision
#     tests/headers/unwatched.sh --full     float, too: the same headers, with fewer operations
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cxx=${CXX:-c++}
command -v "$cxx" >/dev/null 2>&1 || { echo "skipped: there is no $cxx"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The kernels themselves, which know of no tape, are left out of what is compiled.
cat >"$work/one.cpp" <<'CODE'
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/kernel.hpp>
#include <halftone/nn/linear.hpp>
#if WATCHING
#include <halftone/observe/numerics/numerics.hpp>
#include <halftone/observe/overflow/overflow.hpp>
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
# Under mixed precision: a model with an operation of its own, the loss scale and the optimizer's step.
cat >"$work/mixed.cpp" <<'CODE'
#include <halftone/amp.hpp>
#if WATCHING
#include <halftone/observe/ledger/ledger.hpp>
#include <halftone/observe/numerics/numerics.hpp>
#include <halftone/observe/overflow/overflow.hpp>
#include <halftone/observe/shadow/shadow.hpp>
#include <halftone/observe/lint/policy_lint.hpp>
#endif
namespace ht = halftone;

struct step_of_its_own {
    static constexpr const char* name = "squared";
    static auto forward(auto& ctx, const auto& x) { return ht::keep(ht::map(ctx, [](auto a) { return a * a; }, x), x); }
    static auto backward(auto& ctx, const auto& dy, const auto& x) { return ht::map(ctx, [](auto g, auto a) { return 2 * g * a; }, dy, x); }
};
template <class P>
struct step_net : ht::nn::model {
    using policy = P;
    ht::nn::layer_norm<ht::at<P, "norm">> norm;
    ht::nn::linear<ht::at<P, "up">> up;
    explicit step_net(ht::cpu& device) : model{device}, norm{parameters(), 8}, up{parameters(), 8, 8} { commit(*this); }
    auto operator()(auto& ctx, const auto& x) const { return ht::apply<step_of_its_own>(ctx, up(ctx, norm(ctx, x))); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.norm, self.up); }
};

void step(ht::cpu& device, ht::const_view<float, 2> x, ht::const_view<float, 2> t) {
    step_net<ht::amp_fp16> model{device};
    ht::sgd optimizer{device, model, {.lr = 0.1f}};
    ht::grad_scaler scaler{device};
    ht::accumulator acc{model};
    ht::tape tape{device};
    tape.backward(scaler.scale(ht::mean_squared_error(tape, model(tape, tape.constant(x)), t)), acc);
    auto gradients = scaler.unscale(acc.take());
    optimizer.step(gradients);
    scaler.update();
}
CODE
# functions FILE.s: halftone's and the step, each on a line: its instructions and what they refer to; no data. Labels are numbered within
# their function, constants are told by no number, and constructors not by which of two names for the same code a compiler takes.
functions() {
    awk '
        /^[ \t]*\.type[ \t].*@(gnu_unique_)?object/ { name = $2; sub(/,.*/, "", name); is_data[name] = 1 }
        /^_Z[^ ]*:/ { line = ""; delete number; labels = 0; name = $1; sub(/:.*/, "", name); inside = !(name in is_data) }
        !inside { next }
        /^[ \t]*\.size/ { if (line ~ /^_Z[^ |]*(8halftone|4step)/) print line; inside = 0; next }
        /^[ \t]*\.(cfi|loc|file|p2align|align|section|text|weak|globl|type)/ { next }
        {
            left = $0; text = ""
            while (match(left, /\.L[A-Za-z]*[0-9][0-9_]*/)) {
                label = substr(left, RSTART, RLENGTH)
                if (label ~ /^\.LC/) label = ".LC"
                else { if (!(label in number)) number[label] = ++labels; label = ".L" number[label] }
                text = text substr(left, 1, RSTART - 1) label
                left = substr(left, RSTART + RLENGTH)
            }
            text = text left
            line = line text "|"
        }' "$1" | sed -E 's/([CD])[12]E/\1xE/g' | sort
}
# Without optimisation: the order in which a compiler meets functions changes which register it takes.
programs=(mixed)
if [[ ${1:-} == --full ]]; then programs+=(one); fi
for what in "${programs[@]}"; do
    for watching in 0 1; do
        "$cxx" -std=c++20 -O0 -S -I"$here/../../include" -DHALFTONE_COMPILED -DWATCHING="$watching" "$work/$what.cpp" -o "$work/$watching.s"
        functions "$work/$watching.s" >"$work/$watching"
    done
    (($(wc -l <"$work/0") > 100)) || { echo "unwatched: sees $(wc -l <"$work/0") functions"; exit 1; }
    cmp "$work/0" "$work/1" || { echo "unwatched: a plain tape's step is other code with the headers of watched tapes ($what)"; exit 1; }
    ! grep -Eq 'watched|shadow|hooked' "$work/1" || { echo "unwatched: a plain tape's step speaks of watching ($what)"; exit 1; }
    echo "unwatched: $(wc -l <"$work/0") functions ($what), all the same"
done

cat >"$work/ranges.cpp" <<'CODE'
#include <halftone/exec/ranges.hpp>
extern "C" void timed(halftone::range_listener* listener, void (*work)()) noexcept {
#if RANGES
    const halftone::scoped_range outer(listener, "outer", halftone::track::step);
    const halftone::range inner(listener, "inner", halftone::pass::forward);
#endif
    work();
    static_cast<void>(listener);
}
CODE
# instructions FLAG...: those of the function, between its label and its end
instructions() {
    "$cxx" -std=c++20 -O2 -S -I"$here/../../include" "$@" "$work/ranges.cpp" -o - |
        awk '/^timed:/ { inside = 1; next } /\.size[ \t]*timed/ { exit } inside && !/^[ \t]*\.|^\.L/'
}
without=$(instructions -DRANGES=0)
[[ -n $without && $(instructions -DRANGES=1 -DHALFTONE_NO_RANGES) == "$without" ]] || { echo "unwatched: HALFTONE_NO_RANGES leaves code"; exit 1; }
[[ $(instructions -DRANGES=1) != "$without" ]] || { echo "unwatched: a range has no code where it should have some"; exit 1; }
echo "unwatched: with HALFTONE_NO_RANGES a range has no code"
