// SPDX-License-Identifier: MIT
/// \file
/// Attention and its gradients against the definition, on every instruction set.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/attention/cpu.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/policy/presets.hpp>

#include "kernel/attention/oracle.hpp"
#include "kernel/product/software_tiles.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"

namespace {

namespace ht = halftone;
using ht::attention_mask;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using support::attention_inputs;
using support::attention_results;
using support::attention_sizes;
using support::guarded;
using attention = ht::kernel::attention<ht::cpu>;

/// How q, k, v and the gradients lie in memory.
enum class layout {
    contiguous,   ///< each a tensor of its own
    fused,        ///< q, k and v slices of one (batch, time, 3, heads, head_size) buffer
    heads_first,  ///< (batch, heads, time, head_size) with gaps between the times
};

/// A tensor with its memory, NaN wherever nothing was written.
template <class T>
struct operand {
    std::shared_ptr<guarded<T>> memory;
    ht::view<T, 4> view;

    bool same_bits(const operand& other) const { return memory->same_bits(*other.memory); }
};

template <class T>
operand<T> make_operand(layout way, extent batch, extent time, extent heads, extent width) {
    if (way == layout::heads_first) {
        const extent row = width + 3;
        auto memory = std::make_shared<guarded<T>>(batch * heads * time * row, 5);
        return {memory, {memory->data(), {batch, time, heads, width}, {heads * time * row, row, time * row, 1}}};
    }
    auto memory = std::make_shared<guarded<T>>(batch * time * heads * width, 1);
    return {memory, {memory->data(), {batch, time, heads, width}}};
}

/// q, k and v, or their gradients.
template <class T>
struct operands {
    operand<T> q, k, v;

    operands(layout way, const attention_sizes& s)
        : q(make_operand<T>(way, s.batch, s.queries, s.heads, s.head_size)),
          k(make_operand<T>(way, s.batch, s.keys, s.groups, s.head_size)),
          v(make_operand<T>(way, s.batch, s.keys, s.groups, s.head_size)) {
        if (way != layout::fused) return;
        const extent row = s.heads * s.head_size;
        auto memory = std::make_shared<guarded<T>>(s.batch * s.queries * 3 * row, 3);
        const auto slice = [&](extent which) {
            return operand<T>{memory,
                              {memory->data() + which * row,
                               {s.batch, s.queries, s.heads, s.head_size},
                               {s.queries * 3 * row, 3 * row, s.head_size, 1}}};
        };
        q = slice(0), k = slice(1), v = slice(2);
    }
    bool intact() const { return q.memory->intact() && k.memory->intact() && v.memory->intact(); }
    bool same_bits(const operands& other) const {
        return q.same_bits(other.q) && k.same_bits(other.k) && v.same_bits(other.v);
    }
};

template <class T>
void fill(const ht::view<T, 4>& v, support::random& data, double deviation) {
    for (extent b = 0; b < v.extent_of(0); ++b) {
        for (extent t = 0; t < v.extent_of(1); ++t) {
            for (extent h = 0; h < v.extent_of(2); ++h) {
                for (extent d = 0; d < v.extent_of(3); ++d)
                    v(b, t, h, d) =
                        static_cast<T>(static_cast<float>(bfloat16(static_cast<float>(deviation * data.normal()))));
            }
        }
    }
}

/// One problem in one type.
template <class T>
struct problem {
    attention_sizes sizes;
    layout way;
    ht::attention_options options;
    operands<T> x;
    operand<T> d_o;

    problem(const attention_sizes& s, layout w, double deviation = 1, float scale = 0)
        : sizes(s),
          way(w),
          options{.mask = s.mask, .scale = scale},
          x(w, s),
          d_o(make_operand<T>(w, s.batch, s.queries, s.heads, s.head_size)) {
        support::random data(static_cast<std::uint64_t>(s.queries * 1000 + s.keys * 100 + s.head_size));
        fill(x.q.view, data, deviation);
        fill(x.k.view, data, 1);
        fill(x.v.view, data, 1);
        fill(d_o.view, data, 1);
    }

    attention_inputs exact() const {
        return {sizes,
                options,
                support::exact(x.q.view),
                support::exact(x.k.view),
                support::exact(x.v.view),
                support::exact(d_o.view)};
    }
};

/// What a kernel makes of a problem.
template <class T>
struct outcome {
    operand<T> o;
    operands<T> d;
    guarded<float> logsumexp;

    template <class Compute>
    outcome(const problem<T>& p, ht::cpu& device, Compute, const ht::detail::attention_engine<T>* engine = nullptr)
        : o(make_operand<T>(p.way, p.sizes.batch, p.sizes.queries, p.sizes.heads, p.sizes.head_size)),
          d(p.way, p.sizes),
          logsumexp(p.sizes.batch * p.sizes.heads * p.sizes.queries, 1) {
        const attention_sizes& s = p.sizes;
        const ht::view<float, 3> sums(logsumexp.data(), {s.batch, s.heads, s.queries});
        const ht::kernel::attention_forward<T> forward{p.x.q.view, p.x.k.view, p.x.v.view, o.view, sums, p.options};
        const ht::kernel::attention_backward<T> backward{p.x.q.view, p.x.k.view, p.x.v.view, o.view,   sums,
                                                         p.d_o.view, d.q.view,   d.k.view,   d.v.view, p.options};
        if (engine != nullptr) {
            attention::forward(device, forward, *engine);
            attention::backward(device, backward, *engine);
        } else {
            attention::forward<Compute>(device, forward);
            attention::backward<Compute>(device, backward);
        }
    }
    bool intact() const { return o.memory->intact() && d.intact() && logsumexp.intact(); }
    bool same_bits(const outcome& other) const {
        return o.same_bits(other.o) && d.same_bits(other.d) && logsumexp.same_bits(other.logsumexp);
    }
};

void compare(support::comparison& c, const support::doubles4& got, const support::doubles4& want,
             const support::doubles4& bound) {
    for (std::size_t i = 0; i < got.values.size(); ++i) c.expect(got.values[i], want.values[i], bound.values[i]);
}

template <class T>
bool is_finite(const ht::view<T, 4>& v) {
    bool finite = true;
    for (extent b = 0; b < v.extent_of(0); ++b) {
        for (extent t = 0; t < v.extent_of(1); ++t) {
            for (extent h = 0; h < v.extent_of(2); ++h) {
                for (extent d = 0; d < v.extent_of(3); ++d) finite = finite && ht::is_finite(v(b, t, h, d));
            }
        }
    }
    return finite;
}

double distance(const support::doubles4& a, const support::doubles4& b) {
    double most = 0;
    for (std::size_t i = 0; i < a.values.size(); ++i) {
        const double error = std::fabs(a.values[i] - b.values[i]);
        if (!(error <= most)) most = error;
    }
    return most;
}

enum class bounds {
    telling,   ///< at least half of the values exceed theirs
    may_hide,  ///< gradients that are nearly or exactly zero, huge scores
};

template <class T>
void check_within(const outcome<T>& got, const attention_results& want, const attention_results& bound, bounds kind) {
    CHECK(got.intact());
    CHECK((is_finite(got.o.view) && is_finite(got.d.q.view) && is_finite(got.d.k.view) && is_finite(got.d.v.view)));
    support::comparison o, dq, dk, dv, logsumexp;
    compare(o, support::exact(got.o.view), want.o, bound.o);
    compare(dq, support::exact(got.d.q.view), want.dq, bound.dq);
    compare(dk, support::exact(got.d.k.view), want.dk, bound.dk);
    compare(dv, support::exact(got.d.v.view), want.dv, bound.dv);
    for (extent i = 0; i < got.logsumexp.size(); ++i) {
        logsumexp.expect(static_cast<double>(got.logsumexp[i]), want.logsumexp[static_cast<std::size_t>(i)],
                         bound.logsumexp[static_cast<std::size_t>(i)]);
    }
    CHECK_MESSAGE(o.within(), "o: ", o);
    CHECK_MESSAGE(dq.within(), "dq: ", dq);
    CHECK_MESSAGE(dk.within(), "dk: ", dk);
    CHECK_MESSAGE(dv.within(), "dv: ", dv);
    CHECK_MESSAGE(logsumexp.within(), "logsumexp: ", logsumexp);
    if (kind == bounds::may_hide) return;
    CHECK_MESSAGE(o.telling(), "o: ", o);
    CHECK_MESSAGE(dv.telling(), "dv: ", dv);
    CHECK_MESSAGE(dq.telling(), "dq: ", dq);
    CHECK_MESSAGE(dk.telling(), "dk: ", dk);
}

/// Never worse than twice the obvious implementation (FlashAttention's rule), beyond what float sums may cost.
template <class T>
void check_against_operations(const outcome<T>& got, const attention_results& want, const attention_results& naive,
                              const attention_results& slack) {
    CHECK(distance(support::exact(got.o.view), want.o) <= 2 * distance(naive.o, want.o) + slack.o.largest());
    CHECK(distance(support::exact(got.d.q.view), want.dq) <= 2 * distance(naive.dq, want.dq) + slack.dq.largest());
    CHECK(distance(support::exact(got.d.k.view), want.dk) <= 2 * distance(naive.dk, want.dk) + slack.dk.largest());
    CHECK(distance(support::exact(got.d.v.view), want.dv) <= 2 * distance(naive.dv, want.dv) + slack.dv.largest());
}

/// Every set, since bfloat16's units have bodies of their own too.
template <class Test>
void for_each_isa(const Test& test) {
    for (const ht::isa set : ht::every_isa) {
        CAPTURE(std::string(ht::name(set)));
        if (support::is_tested(set)) test(set);
    }
}

TEST_CASE("attention is tested on every instruction set that is here") {
    for (const ht::isa set : ht::every_isa) {
        if (!support::is_tested(set)) MESSAGE("not tested here: ", std::string(ht::name(set)));
    }
}

template <class Compute, class T>
void check_problem(const attention_sizes& sizes, layout way, bounds kind = bounds::telling, double deviation = 1) {
    CAPTURE(sizes);
    const problem<T> p(sizes, way, deviation);
    const attention_inputs inputs = p.exact();
    const attention_results want = support::attention_by_definition(inputs);
    const attention_results bound = support::attention_bounds(inputs, want, support::roundings_of<Compute, T>());
    // Of few values, either implementation may be the luckier one; beyond float16's range the obvious one has none.
    const bool rule = !std::is_same_v<Compute, float> && sizes.keys >= 63 && sizes.queries >= 63 && deviation == 1;
    const attention_results naive = rule ? support::attention_by_operations<Compute>(inputs) : attention_results(sizes);
    const attention_results slack = rule
                                        ? support::attention_bounds(inputs, want, support::roundings_of<float, float>())
                                        : attention_results(sizes);

    for_each_isa([&](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}}, two{{.threads = 2, .instruction_set = set}};
        const outcome<T> got(p, device, Compute{});
        check_within(got, want, bound, kind);
        if (rule) check_against_operations(got, want, naive, slack);
        CHECK(got.same_bits(outcome<T>(p, two, Compute{})));
    });
}

constexpr auto full = attention_mask::full;
constexpr auto causal = attention_mask::causal;

template <class Compute, class T>
void check_all() {
    // Batch, queries, keys, query heads, key heads, head size.
    check_problem<Compute, T>({2, 2, 2, 2, 2, 16, causal}, layout::contiguous, bounds::may_hide);
    check_problem<Compute, T>({1, 63, 63, 3, 3, 24, causal}, layout::fused);
    check_problem<Compute, T>({1, 64, 64, 2, 2, 64, causal}, layout::fused);
    check_problem<Compute, T>({2, 65, 65, 1, 1, 16, full}, layout::heads_first);
    check_problem<Compute, T>({1, 130, 130, 1, 1, 64, causal}, layout::fused);
    check_problem<Compute, T>({1, 130, 130, 1, 1, 128, full}, layout::contiguous);
    // Keys in several tiles and parts, the last one odd.
    check_problem<Compute, T>({1, 70, 600, 1, 1, 16, causal}, layout::contiguous);
    check_problem<Compute, T>({1, 7, 301, 2, 2, 24, full}, layout::heads_first);
}

TEST_CASE("attention and its gradients are within bounds") {
    SUBCASE("float") { check_all<float, float>(); }
    SUBCASE("bfloat16") { check_all<bfloat16, bfloat16>(); }
    SUBCASE("float16") { check_all<float16, float16>(); }
    SUBCASE("float, products of bfloat16") { check_all<bfloat16, float>(); }
}

TEST_CASE("attention over a single key gives its value, and one query") {
    check_problem<float, float>({1, 1, 1, 1, 1, 16, causal}, layout::contiguous, bounds::may_hide);
    check_problem<float, float>({3, 1, 1, 2, 1, 24, full}, layout::heads_first, bounds::may_hide);
    check_problem<bfloat16, bfloat16>({1, 1, 1, 6, 6, 64, causal}, layout::fused, bounds::may_hide);
    check_problem<float, float>({1, 1, 130, 2, 2, 64, causal}, layout::contiguous);
    check_problem<bfloat16, bfloat16>({1, 1, 130, 2, 2, 64, full}, layout::contiguous, bounds::may_hide);
}

TEST_CASE("any head size up to 256") {
    for (const extent head_size : {1, 2, 3, 15, 17, 33, 80, 100, 160, 256}) {
        check_problem<float, float>({1, 19, 37, 1, 1, head_size, causal}, layout::heads_first, bounds::may_hide);
        check_problem<bfloat16, bfloat16>({1, 37, 37, 1, 1, head_size, full}, layout::fused, bounds::may_hide);
    }
}

TEST_CASE("query heads share key heads") {
    check_problem<float, float>({1, 66, 66, 6, 2, 16, causal}, layout::contiguous);
    check_problem<float, float>({2, 33, 140, 4, 1, 24, full}, layout::heads_first);
    check_problem<bfloat16, bfloat16>({1, 130, 130, 4, 2, 32, causal}, layout::contiguous);
}

TEST_CASE("enough heads that each is one task") {
    check_problem<float, float>({2, 300, 300, 4, 4, 16, causal}, layout::fused);
    check_problem<bfloat16, bfloat16>({3, 150, 150, 3, 3, 16, full}, layout::fused);
}

TEST_CASE("the AMX-shaped products on software tiles, with AMX's packing") {
    if (!support::is_tested(ht::isa::avx512_bf16)) {
        MESSAGE("not tested here: the packing needs avx512_bf16");
        return;
    }
    for (const attention_sizes& sizes :
         {attention_sizes{1, 65, 65, 1, 1, 16, causal}, attention_sizes{1, 40, 140, 2, 1, 80, full}}) {
        CAPTURE(sizes);
        const problem<bfloat16> p(sizes, layout::heads_first);
        const attention_inputs inputs = p.exact();
        const attention_results want = support::attention_by_definition(inputs);
        const attention_results bound =
            support::attention_bounds(inputs, want, support::roundings_of<bfloat16, bfloat16>());
        ht::cpu device{{.threads = 2, .instruction_set = ht::isa::avx512_bf16}};
        auto engine = ht::detail::attention_engine_for<bfloat16, bfloat16>(device);
        engine.unit = support::software_tiles::unit();
        check_within(outcome<bfloat16>(p, device, bfloat16{}, &engine), want, bound, bounds::telling);
    }
}

TEST_CASE("scores of ten thousand and more") {
    for (const double deviation : {300.0, 3000.0, 10000.0}) {
        CAPTURE(deviation);
        check_problem<float, float>({1, 40, 70, 1, 1, 16, full}, layout::contiguous, bounds::may_hide, deviation);
        check_problem<bfloat16, bfloat16>({1, 70, 70, 1, 1, 64, causal}, layout::contiguous, bounds::may_hide,
                                          deviation);
        check_problem<float16, float16>({1, 70, 70, 1, 1, 16, causal}, layout::contiguous, bounds::may_hide, deviation);
    }
}

}  // namespace
