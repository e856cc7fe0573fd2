// SPDX-License-Identifier: MIT
/// \file
/// Embeddings on a tape: sums of rows, exact on small integers.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/embedding.hpp>
#include <halftone/kernel/embedding/cpu.hpp>

#include "autodiff/weigh.hpp"
#include "support/each_set.hpp"
#include "support/gradient_sink.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace autodiff_embedding_tests {

namespace ht = halftone;
using support::guarded;
using doubles = std::vector<double>;

template <class P>
struct fixture {
    static constexpr int vocabulary = 9, context = 5, width = 7, batch = 2, time_steps = 4;
    using Y = typename P::output;
    using roles = ht::roles<typename P::compute, Y, typename P::grad>;
    using storage = ht::storage_signature<P, ht::op::linear>;

    ht::cpu device;
    ht::store parameters{device.memory()};
    ht::parameter<storage, 2> table = parameters.add<P, ht::op::linear>("tokens", ht::shape<2>{vocabulary, width}, {});
    ht::parameter<storage, 2> positions =
        parameters.add<P, ht::op::linear>("positions", ht::shape<2>{context, width}, {});
    support::random data{1};
    std::vector<float> t = data.integers<float>(vocabulary * width, 5), p = data.integers<float>(context * width, 5);
    guarded<Y> dy{data.integers<Y>(batch * time_steps * width, 4)};
    std::vector<std::int32_t> ids = {3, 0, 3, 8, 3, 1, 0, 7};  // 3 thrice, 2 never

    explicit fixture(ht::isa set = ht::default_isa()) : device({.threads = 2, .instruction_set = set}) {
        parameters.commit();
        support::set(table, t), support::set(positions, p);
    }
    ht::const_view<std::int32_t, 2> tokens() const { return {ids.data(), {batch, time_steps}}; }
    doubles table_gradient(double times = 1) const {
        doubles g(vocabulary * width);
        for (std::size_t i = 0; i < ids.size(); ++i) {
            for (std::size_t j = 0; j < width; ++j)
                g[static_cast<std::size_t>(ids[i]) * width + j] +=
                    times * static_cast<double>(dy[static_cast<std::int64_t>(i * width + j)]);
        }
        return g;
    }
    doubles position_gradient(double times = 1) const {
        doubles g(context * width);
        for (std::size_t i = 0; i < ids.size(); ++i) {
            for (std::size_t j = 0; j < width; ++j)
                g[i % time_steps * width + j] +=
                    times * static_cast<double>(dy[static_cast<std::int64_t>(i * width + j)]);
        }
        return g;
    }
};

template <class P>
void values_and_gradients(ht::isa set) {
    fixture<P> f(set);
    using roles = typename fixture<P>::roles;
    ht::tape tape{f.device};
    support::gradient_sink sink(f.parameters);
    const auto pass = [&] {
        const auto x = ht::embedding<roles>(tape, f.tokens(), f.table, f.positions);
        static_assert(std::is_same_v<decltype(x), const ht::variable<typename P::output, 3>>);
        for (std::size_t i = 0; i < f.ids.size(); ++i) {
            for (std::size_t j = 0; j < f.width; ++j) {
                const float want =
                    f.t[static_cast<std::size_t>(f.ids[i]) * f.width + j] + f.p[i % f.time_steps * f.width + j];
                REQUIRE(static_cast<float>(x.view().data()[i * f.width + j]) == want);
            }
        }
        tape.backward(autodiff_test::weigh(tape, x, f.dy.view()), sink);
    };
    // The next window overwrites an earlier one's gradients, also in rows without a token and unused positions.
    for (int window = 0; window < 2; ++window) {
        pass();
        CHECK(sink.of(f.table) == f.table_gradient());
        CHECK(sink.of(f.positions) == f.position_gradient());
        pass();
        CHECK(sink.of(f.table) == f.table_gradient(2));
        CHECK(sink.of(f.positions) == f.position_gradient(2));
        sink.close();
    }
    const auto alone = ht::embedding<roles>(tape, f.tokens(), f.table, ht::absent{});
    CHECK(static_cast<float>(alone.view()(0, 1, 0)) == f.t[0]);
    tape.backward(autodiff_test::weigh(tape, alone, f.dy.view()), sink);
    CHECK(sink.of(f.table) == f.table_gradient());
}

TEST_CASE("embedding: values and gradients, exact on small integers") {
    support::for_each_set([](ht::isa set) {
        values_and_gradients<ht::full_fp32>(set);
        values_and_gradients<ht::amp_bf16>(set);
    });
}

TEST_CASE("embedding: positions that a shorter batch does not reach have no gradient left from a longer one") {
    using P = ht::full_fp32;
    fixture<P> f;
    ht::tape tape{f.device};
    support::gradient_sink sink(f.parameters);
    const auto pass = [&](int steps) {
        const ht::const_view<std::int32_t, 2> tokens(f.ids.data(), {1, steps});
        tape.backward(ht::sum(tape, ht::embedding<fixture<P>::roles>(tape, tokens, f.table, f.positions)), sink);
    };
    pass(5);
    CHECK(sink.of(f.positions) == doubles(5 * 7, 1.0));
    sink.close();
    pass(2);
    doubles want(5 * 7);
    for (std::size_t i = 0; i < 2 * 7; ++i) want[i] = 1;
    CHECK(sink.of(f.positions) == want);
}

TEST_CASE("embedding: a frozen table, frozen positions") {
    using P = ht::amp_bf16;
    for (const char* frozen : {"tokens", "positions"}) {
        fixture<P> f;
        f.parameters.freeze(frozen);
        ht::tape tape{f.device};
        support::gradient_sink sink(f.parameters);
        tape.backward(autodiff_test::weigh(
                          tape, ht::embedding<fixture<P>::roles>(tape, f.tokens(), f.table, f.positions), f.dy.view()),
                      sink);
        if (!f.table.is_frozen()) CHECK(sink.of(f.table) == f.table_gradient());
        if (!f.positions.is_frozen()) CHECK(sink.of(f.positions) == f.position_gradient());
    }
    fixture<P> f;
    f.parameters.freeze("*");
    ht::tape tape{f.device};
    const auto x = ht::embedding<fixture<P>::roles>(tape, f.tokens(), f.table, f.positions);
    CHECK(!x.wants_gradient());
    CHECK(tape.graph().records() == 0);
}

TEST_CASE("embedding: tokens outside the vocabulary, too many of them in a row") {
    using P = ht::full_fp32;
    fixture<P> f;
    ht::tape tape{f.device};
    f.ids[5] = 9;
    CHECK_THROWS_WITH_AS(ht::embedding<fixture<P>::roles>(tape, f.tokens(), f.table, f.positions),
                         "embedding: the token of row 5 is 9; expected 0 to 8", ht::argument_error);
    const ht::const_view<std::int32_t, 2> long_row(f.ids.data(), {1, 8});
    CHECK_THROWS_WITH_AS(ht::embedding<fixture<P>::roles>(tape, long_row, f.table, f.positions),
                         "embedding: 8 tokens in a row; the context holds 5", ht::shape_error);
}

/// Token 3, which occurs three times, given as 3 and as -6, counted from the end.
TEST_CASE("embedding: the row of padding_idx gets no gradient, positions do") {
    using P = ht::full_fp32;
    for (const ht::extent padding : {3, -6}) {
        fixture<P> f;
        ht::tape tape{f.device};
        support::gradient_sink sink(f.parameters);
        for (int pass = 0; pass < 2; ++pass) {
            const auto x = ht::embedding<typename fixture<P>::roles>(tape, f.tokens(), f.table, f.positions, {}, padding);
            tape.backward(autodiff_test::weigh(tape, x, f.dy.view()), sink);
        }
        doubles want = f.table_gradient(2);
        for (std::size_t j = 0; j < fixture<P>::width; ++j) want[3 * fixture<P>::width + j] = 0;
        CHECK(sink.of(f.table) == want);
        CHECK(sink.of(f.positions) == f.position_gradient(2));
    }
    fixture<P> f;
    ht::inference eval{f.device};
    CHECK_THROWS_WITH_AS(
        (ht::embedding<typename fixture<P>::roles>(eval, f.tokens(), f.table, f.positions, {}, 9)),
        "embedding: padding_idx is 9; expected -9 to 8", ht::argument_error);
}

}  // namespace autodiff_embedding_tests
