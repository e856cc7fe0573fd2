// SPDX-License-Identifier: MIT
/// \file
/// Attention on a tape: within bounds by running error analysis; with q, k and v in separate tensors, in one tensor, and as the
/// same variable.
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/attention.hpp>
#include <halftone/kernel/attention/cpu.hpp>
#include <halftone/kernel/attention/reference.hpp>

#include "autodiff/compare.hpp"
#include "autodiff/weigh.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace autodiff_attention_tests {

namespace ht = halftone;
using support::attention_of;
using support::guarded;
using support::matrix;
using support::tracked;
using doubles = std::vector<double>;

constexpr int batch = 2, time_steps = 6, heads = 2, head_size = 5, width = heads * head_size;

/// Rows of one batch entry, columns [first, first + width) of `all`.
template <class Number>
matrix<Number> part(const matrix<Number>& all, int entry, int first) {
    matrix<Number> m(time_steps, width);
    for (int i = 0; i < time_steps; ++i) {
        for (int j = 0; j < width; ++j) m(i, j) = all(entry * time_steps + i, first + j);
    }
    return m;
}
template <class Number>
void put(const matrix<Number>& m, matrix<Number>& all, int entry, int first) {
    for (int i = 0; i < time_steps; ++i) {
        for (int j = 0; j < width; ++j) all(entry * time_steps + i, first + j) = m(i, j);
    }
}

template <class Number>
struct definition {
    matrix<Number> o, dqkv;

    template <class Store>
    definition(const matrix<Number>& qkv, const matrix<Number>& d_o, bool causal, const Store& store)
        : o(qkv.rows, width), dqkv(qkv.rows, 3 * width) {
        for (int b = 0; b < batch; ++b) {
            const attention_of<Number> a(part(qkv, b, 0), part(qkv, b, width), part(qkv, b, 2 * width), heads, causal,
                                         store);
            put(a.o, o, b, 0);
            matrix<Number> dq, dk, dv;
            a.backward(part(d_o, b, 0), each(a.o, store), dq, dk, dv, store);
            put(dq, dqkv, b, 0), put(dk, dqkv, b, width), put(dv, dqkv, b, 2 * width);
        }
    }
};

template <class T>
struct inputs {
    support::random data{1};
    guarded<T> qkv{data.normals<T>(batch * time_steps * 3 * width)}, d_o{data.normals<T>(batch * time_steps * width)};
    ht::view<T, 3> view() const { return qkv.view(ht::shape<3>{batch, time_steps, 3 * width}); }
    /// One of q, k and v, with memory of its own.
    guarded<T> third(int which) const {
        std::vector<T> values;
        for (int i = 0; i < batch * time_steps; ++i) {
            for (int j = 0; j < width; ++j) values.push_back(qkv[i * 3 * width + which * width + j]);
        }
        return guarded<T>(values);
    }
};
constexpr ht::shape<4> in_heads{batch, time_steps, heads, head_size};

template <class T>
matrix<tracked> third_of(const matrix<tracked>& all, int which) {
    matrix<tracked> m(all.rows, width);
    for (int i = 0; i < all.rows; ++i) {
        for (int j = 0; j < width; ++j) m(i, j) = all(i, which * width + j);
    }
    return m;
}

template <class T>
void within_bounds(ht::isa set, ht::attention_mask mask) {
    using roles = ht::roles<T, T, T>;
    ht::cpu device{{.threads = 2, .instruction_set = set}};
    const inputs<T> in;
    const definition<tracked> want(matrix<tracked>(batch * time_steps, 3 * width, in.qkv.data()),
                                   matrix<tracked>(batch * time_steps, width, in.d_o.data()),
                                   mask == ht::attention_mask::causal, support::stored_as<T>{});
    ht::tape tape{device};

    const auto qkv = tape.leaf(in.view());
    const auto o = ht::self_attention<roles>(tape, qkv, heads, {.mask = mask});
    CHECK(o.shape() == ht::shape<3>{batch, time_steps, width});
    autodiff_test::check_within(o.view(), want.o);
    tape.backward(autodiff_test::weigh(tape, o, in.d_o.view()));
    autodiff_test::check_within(tape.gradient(qkv), want.dqkv);

    const guarded<T> q = in.third(0), k = in.third(1), v = in.third(2);
    const auto x = tape.leaf(q.view(in_heads)), y = tape.leaf(k.view(in_heads)), z = tape.leaf(v.view(in_heads));
    const auto apart = ht::attention<roles>(tape, x, y, z, {.mask = mask});
    autodiff_test::check_within(apart.view(), want.o);
    tape.backward(autodiff_test::weigh(tape, apart, in.d_o.view()));
    autodiff_test::check_within(tape.gradient(x), third_of<T>(want.dqkv, 0));
    autodiff_test::check_within(tape.gradient(y), third_of<T>(want.dqkv, 1));
    autodiff_test::check_within(tape.gradient(z), third_of<T>(want.dqkv, 2));

    ht::inference eval{device};
    CHECK(support::doubles(ht::self_attention<roles>(eval, eval.constant(in.view()), heads, {.mask = mask}).view()) ==
          support::doubles(o.view()));
}

TEST_CASE("attention: values and gradients within their bounds") {
    support::for_each_set([](ht::isa set) {
        within_bounds<float>(set, ht::attention_mask::causal);
        within_bounds<float>(set, ht::attention_mask::full);
        within_bounds<ht::bfloat16>(set, ht::attention_mask::causal);
    });
}

TEST_CASE("attention: the definition is the reference's, its gradients are central differences") {
    support::random data(5);
    const doubles qkv = data.normals<double>(batch * time_steps * 3 * width),
                  d_o = data.normals<double>(batch * time_steps * width);
    const definition<double> d(matrix<double>(batch * time_steps, 3 * width, qkv.data()),
                               matrix<double>(batch * time_steps, width, d_o.data()), true, support::stored_exactly{});
    const auto reference = [&](const doubles& at) {
        doubles o(d_o.size()), logsumexp(batch * heads * time_steps);
        const auto third = [&](int which) {
            return ht::const_view<double, 4>(at.data() + which * width, in_heads,
                                             {time_steps * 3 * width, 3 * width, head_size, 1});
        };
        ht::reference::attention(third(0), third(1), third(2), ht::view<double, 4>(o.data(), in_heads),
                                 ht::view<double, 3>(logsumexp.data(), {batch, heads, time_steps}),
                                 ht::attention_options{.mask = ht::attention_mask::causal});
        return o;
    };
    const doubles o = reference(qkv);
    for (std::size_t i = 0; i < o.size(); ++i) CHECK(d.o.values[i] == doctest::Approx(o[i]).epsilon(1e-12));
    support::check_gradient(
        [&](const doubles& at) {
            const doubles there = reference(at);
            double sum = 0;
            for (std::size_t i = 0; i < there.size(); ++i) sum += there[i] * d_o[i];
            return sum;
        },
        qkv, d.dqkv.values);
}

TEST_CASE("attention: one variable as queries, keys and values has the sum of three gradients") {
    using roles = ht::roles<float, float, float>;
    ht::cpu device{{.threads = 1}};
    const inputs<float> in;
    const guarded<float> x = in.third(0);
    std::vector<float> thrice;
    for (int i = 0; i < batch * time_steps; ++i) {
        for (int j = 0; j < 3 * width; ++j) thrice.push_back(x[i * width + j % width]);
    }
    const definition<tracked> want(matrix<tracked>(batch * time_steps, 3 * width, thrice.data()),
                                   matrix<tracked>(batch * time_steps, width, in.d_o.data()), false,
                                   support::stored_exactly{});
    ht::tape tape{device};
    const auto leaf = tape.leaf(x.view(in_heads));
    tape.backward(autodiff_test::weigh(tape, ht::attention<roles>(tape, leaf, leaf, leaf), in.d_o.view()));
    autodiff_test::check_within(
        tape.gradient(leaf),
        plus(plus(third_of<float>(want.dqkv, 0), third_of<float>(want.dqkv, 1)), third_of<float>(want.dqkv, 2)));

    // The same in one fused tensor, used twice: the second contribution is added.
    const guarded<float> side(thrice);
    const auto qkv = tape.leaf(side.view(ht::shape<3>{batch, time_steps, 3 * width}));
    const auto once = autodiff_test::weigh(tape, ht::self_attention<roles>(tape, qkv, heads), in.d_o.view());
    const auto twice = autodiff_test::weigh(tape, ht::self_attention<roles>(tape, qkv, heads), in.d_o.view());
    tape.backward(ht::add(tape, once, twice));
    autodiff_test::check_within(tape.gradient(qkv), plus(want.dqkv, want.dqkv));
}

TEST_CASE("attention: values whose sum before the division leaves float's range are infinite, as in PyTorch's fused kernels") {
    ht::cpu device{{.threads = 1}};
    ht::inference eval{device};
    const ht::shape<4> s{1, 5, 1, 8};
    const auto first = [&](float value) {
        const guarded<float> zeros(std::vector<float>(40, 0.0f)), values(std::vector<float>(40, value));
        const auto q = eval.constant(zeros.view(s));
        return ht::attention<ht::roles<float, float, float>>(eval, q, q, eval.constant(values.view(s))).view().data()[0];
    };
    CHECK(first(3e38f) == std::numeric_limits<float>::infinity());
    CHECK(std::fabs(first(6e37f) - 6e37f) <= 6e37f * 4 * static_cast<float>(support::u));
}

/// Both batch entries as packed sequences of one row, and as they are.
template <class T>
void packed_as_batch(ht::attention_strategy strategy) {
    using roles = ht::roles<T, T, T>;
    ht::cpu device{{.threads = 2}};
    const inputs<T> in;
    const ht::attention_options options{.mask = ht::attention_mask::causal, .strategy = strategy};
    const std::vector<std::int32_t> offsets{0, time_steps, 2 * time_steps};
    const auto packed = ht::packed_sequences::of({offsets.data(), {3}}, time_steps);
    const auto in_a_row = [](const ht::shape<4>& s) { return ht::shape<4>{1, s[0] * s[1], s[2], s[3]}; };

    ht::tape tape{device};
    const auto rows = tape.leaf(in.view()),
               row = tape.leaf(in.qkv.view(ht::shape<3>{1, batch * time_steps, 3 * width}));
    const auto batched = ht::self_attention<roles>(tape, rows, heads, options);
    const std::vector<double> want = support::doubles(batched.view());
    tape.backward(autodiff_test::weigh(tape, batched, in.d_o.view()));
    const std::vector<double> gradient = support::doubles(tape.gradient(rows));
    const auto got = ht::self_attention<roles>(tape, row, heads, options, packed);
    CHECK(support::doubles(got.view()) == want);
    tape.backward(autodiff_test::weigh(tape, got, in.d_o.view()));
    CHECK(support::doubles(tape.gradient(row)) == gradient);

    const guarded<T> q = in.third(0), k = in.third(1), v = in.third(2);
    const auto x = tape.leaf(q.view(in_a_row(in_heads))), y = tape.leaf(k.view(in_a_row(in_heads))),
               z = tape.leaf(v.view(in_a_row(in_heads)));
    const auto apart = ht::attention<roles>(tape, x, y, z, options, packed);
    CHECK(support::doubles(apart.view()) == want);
    tape.backward(autodiff_test::weigh(tape, apart, in.d_o.view()));
    for (const auto& [leaf, which] : {std::pair(x, 0), std::pair(y, 1), std::pair(z, 2)}) {
        const std::vector<double> part = support::doubles(tape.gradient(leaf));
        bool same = true;
        for (std::size_t i = 0; i < part.size(); ++i)
            same = same && part[i] == gradient[i / width * 3 * width + which * width + i % width];
        CHECK(same);
    }
}

TEST_CASE("attention: packed sequences give a batch's results") {
    packed_as_batch<float>(ht::attention_strategy::flash);
    packed_as_batch<ht::bfloat16>(ht::attention_strategy::automatic);
}

TEST_CASE("attention: invalid packed sequences") {
    using roles = ht::roles<float, float, float>;
    ht::cpu device{{.threads = 1}};
    const inputs<float> in;
    ht::tape tape{device};
    const auto rows = tape.constant(in.view()), row = tape.constant(in.qkv.view(ht::shape<3>{1, 12, 3 * width}));
    const auto attend = [&](const auto& qkv, const std::vector<std::int32_t>& offsets, ht::extent longest) {
        return ht::self_attention<roles>(
            tape, qkv, heads, {},
            ht::packed_sequences::of({offsets.data(), {static_cast<ht::extent>(offsets.size())}}, longest));
    };
    CHECK_NOTHROW(attend(row, {0, 5, 5, 12}, 7));
    CHECK_THROWS_WITH_AS(attend(rows, {0, 6}, 6), "attention: packed sequences in a batch of 2; expected 1",
                         ht::shape_error);
    CHECK_THROWS_WITH_AS(attend(row, {0, 5, 11}, 6),
                         "attention: the offsets of queries go from 0 to 11; expected 0 to 12", ht::shape_error);
    CHECK_THROWS_WITH_AS(attend(row, {1, 5, 12}, 7),
                         "attention: the offsets of queries go from 1 to 12; expected 0 to 12", ht::shape_error);
    CHECK_THROWS_WITH_AS(
        attend(row, {0, 9, 5, 12}, 12),
        "attention: the offsets give sequence 1 -4 queries; expected 0 to 12, the length stated of the longest",
        ht::shape_error);
    CHECK_THROWS_WITH_AS(
        attend(row, {0, 5, 12}, 6),
        "attention: the offsets give sequence 1 7 queries; expected 0 to 6, the length stated of the longest",
        ht::shape_error);
}

TEST_CASE("attention: by products and softmax, within bounds; heads that only these take") {
    using roles = ht::roles<float, float, float>;
    ht::cpu device{{.threads = 1}};
    const inputs<float> in;
    const definition<tracked> want(matrix<tracked>(batch * time_steps, 3 * width, in.qkv.data()),
                                   matrix<tracked>(batch * time_steps, width, in.d_o.data()), true,
                                   support::stored_exactly{});
    ht::tape tape{device};
    const auto qkv = tape.leaf(in.view());
    const auto o = ht::self_attention<roles>(
        tape, qkv, heads, {.mask = ht::attention_mask::causal, .strategy = ht::attention_strategy::math});
    autodiff_test::check_within(o.view(), want.o);
    tape.backward(autodiff_test::weigh(tape, o, in.d_o.view()));
    autodiff_test::check_within(tape.gradient(qkv), want.dqkv);

    support::random data(7);
    const guarded<float> wide{data.normals<float>(2 * 3 * 300)};
    const auto x = tape.leaf(wide.view(ht::shape<3>{1, 2, 900}));
    CHECK_NOTHROW(ht::self_attention<roles>(tape, x, 1));
    CHECK_THROWS_AS(ht::self_attention<roles>(tape, x, 1, {.strategy = ht::attention_strategy::flash}),
                    ht::argument_error);
}

TEST_CASE("attention: keys without gradients") {
    using roles = ht::roles<float, float, float>;
    ht::cpu device{{.threads = 1}};
    const inputs<float> in;
    const guarded<float> q = in.third(0), k = in.third(1), v = in.third(2);
    const auto gradient_of_q = [&](bool alone) {
        ht::tape tape{device};
        const auto x = tape.leaf(q.view(in_heads));
        const auto y = alone ? tape.constant(k.view(in_heads)) : tape.leaf(k.view(in_heads));
        const auto z = alone ? tape.constant(v.view(in_heads)) : tape.leaf(v.view(in_heads));
        tape.backward(autodiff_test::weigh(tape, ht::attention<roles>(tape, x, y, z), in.d_o.view()));
        if (alone) CHECK_THROWS_AS(static_cast<void>(tape.gradient(y)), ht::state_error);
        return support::doubles(tape.gradient(x));
    };
    CHECK(gradient_of_q(true) == gradient_of_q(false));
}

TEST_CASE("attention: head counts that do not divide the width") {
    using roles = ht::roles<float, float, float>;
    ht::cpu device{{.threads = 1}};
    const inputs<float> in;
    ht::tape tape{device};
    const auto qkv = tape.constant(in.view());
    CHECK_THROWS_WITH_AS(ht::self_attention<roles>(tape, qkv, 3),
                         "self_attention: qkv is (2, 6, 30); its last extent is not a multiple of 3 times 3 heads",
                         ht::shape_error);
    CHECK_THROWS_AS(ht::self_attention<roles>(tape, qkv, 0), ht::shape_error);
}

}  // namespace autodiff_attention_tests
