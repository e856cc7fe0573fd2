// SPDX-License-Identifier: MIT
/// \file
/// Attention by products and softmax on the emulated GPU.
#include <memory>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/attention.hpp>
#include <halftone/kernel/device.hpp>
#include <halftone/policy/presets.hpp>

#include "autodiff/weigh.hpp"
#include "emulator/damage.hpp"
#include "kernel/attention/checks.hpp"
#include "kernel/attention/hidden.hpp"
#include "kernel/attention/shifted.hpp"

namespace emulator_kernel_attention_math_tests {

namespace ht = halftone;
namespace emulator = ht::emulator;
using ht::attention_strategy;
using ht::bfloat16;
using ht::extent;
using support::attention_sizes;
using support::bounds;
using support::layout;

constexpr auto full = ht::attention_mask::full;
constexpr auto causal = ht::attention_mask::causal;

template <class Compute, class T>
void check_math(const attention_sizes& sizes, layout way, bounds kind = bounds::telling, double deviation = 1) {
    support::check_problem<Compute, T>(
        sizes, way, kind, deviation,
        [](const support::problem<T>& p, const auto& check) {
            emulator::device device;
            check(support::math_outcome_of<Compute>(p, device));
        },
        attention_strategy::math);
}

TEST_CASE("attention on a GPU by products and softmax is within bounds") {
    // Batch, queries, keys, query heads, key heads, head size.
    check_math<float, float>({2, 5, 7, 4, 2, 16, causal}, layout::heads_first, bounds::may_hide);
    check_math<float, float>({1, 9, 17, 1, 1, 300, full}, layout::contiguous, bounds::may_hide);
    check_math<bfloat16, bfloat16>({1, 17, 17, 2, 2, 24, causal}, layout::fused);
    check_math<bfloat16, bfloat16>({1, 5, 20, 1, 1, 264, full}, layout::heads_first_chunks, bounds::may_hide);
    check_math<bfloat16, bfloat16>({1, 20, 20, 1, 1, 16, causal}, layout::fused_chunks, bounds::may_hide, 300);
}

TEST_CASE("attention on a GPU by products and softmax over packed sequences") {
    support::for_each_pack([](const auto&... pack) {
        support::check_packed<float, float>(
            pack...,
            [](const support::packed_problem<float>& p, const auto& check) {
                emulator::device device;
                check(p.template math_outcome_on<float>(device));
            },
            attention_strategy::math);
    });
}

TEST_CASE("attention on a GPU by products and softmax: hidden values have no effect, NaNs of visible ones propagate") {
    const auto check = [](auto& p, const support::seen_pairs& seen, const auto& run) {
        support::check_hidden(p, seen, {0, 5}, {2, 8}, run, 3);
    };
    SUBCASE("causal") {
        const attention_sizes sizes{1, 9, 12, 2, 1, 8, causal};
        support::problem<float> p(sizes, layout::heads_first);
        check(p, support::seen_of(sizes), [](const support::problem<float>& now) {
            emulator::device device;
            return support::math_outcome_of<float>(now, device);
        });
        support::problem<bfloat16> q(sizes, layout::heads_first);
        check(q, support::seen_of(sizes), [](const support::problem<bfloat16>& now) {
            emulator::device device;
            return support::math_outcome_of<bfloat16>(now, device);
        });
    }
    SUBCASE("packed") {
        const support::sequence_lengths lengths{{4, 0, 3, 9}, {5, 2, 0, 9}};
        support::packed_problem<float> p(lengths, {1, 0, 0, 2, 1, 8, full}, layout::heads_first);
        check(p.whole, support::seen_of(lengths, full), [&](const support::problem<float>&) {
            emulator::device device;
            return p.math_outcome_on<float>(device);
        });
    }
    SUBCASE("no finite score") {
        support::check_lowest_score<float>({1, 5, 6, 2, 1, 8, causal}, layout::heads_first, [](const auto& p) {
            emulator::device device;
            return support::math_outcome_of<float>(p, device);
        });
    }
}

TEST_CASE("attention on a GPU by products and softmax: scores of a million are as exact as small ones") {
    for (const float scale : {1.0f, 0.3f}) {
        support::check_shifted<float, float>({1, 9, 20, 2, 1, 16, causal}, scale, attention_strategy::math,
                                             [](const support::problem<float>& p) {
                                                 emulator::device device;
                                                 return support::math_outcome_of<float>(p, device);
                                             });
    }
}

TEST_CASE("attention on a GPU by products and softmax with hidden NaN: in many schedules, and with damage") {
    support::problem<float> p({1, 9, 9, 1, 1, 4, causal}, layout::contiguous);
    for (const auto& x : {p.x.q.view, p.x.k.view, p.x.v.view, p.d_o.view}) {
        for (extent i = 5; i < 9; ++i) x(0, i, 0, i % 4) = std::numeric_limits<float>::quiet_NaN();
    }
    const support::guarded<float> factors(81), copy(36), want(36);
    std::fill_n(factors.data(), 81, 0.5f);
    const ht::kernel::attention_visibility visible{9, 9, causal, {}};
    const ht::const_view<float, 2> x(&p.x.v.view(0, 0, 0, 0), {9, 4});
    const auto run = [&](emulator::device& device, const support::guarded<float>& to) {
        using rows = ht::kernel::attention_rows<emulator::device>;
        std::vector<std::int32_t> found(9, 7);
        std::fill_n(to.data(), 36, 1.0f);
        const auto finite = rows::finite<float>(device, x, copy.view(ht::shape<2>{9, 4}), found.data());
        rows::add_not_finite<float>(device, visible, ht::kernel::attention_sum::over_keys,
                                    factors.view(ht::shape<2>{9, 9}), x, found.data(), to.view(ht::shape<2>{9, 4}));
        return finite.data() == copy.data() && support::is_finite(ht::view<float, 4>(copy.data(), {1, 9, 1, 4}));
    };
    emulator::device first;
    CHECK(run(first, want));
    CHECK((want[4 * 4] == 1 && ht::is_nan(want[5 * 4 + 1])));
    emulator::check_kernels([&](emulator::device& device) {
        const support::guarded<float> to(36);
        return run(device, to) && to.same_bits(want);
    });
}

TEST_CASE("a GPU's math kernels clamp invalid offsets") {
    const support::problem<float> p({1, 9, 12, 1, 1, 8, causal}, layout::contiguous);
    const auto intact = [&](std::vector<std::int32_t> of_queries, std::vector<std::int32_t> of_keys) {
        const support::guarded<std::int32_t> query_offsets(of_queries), key_offsets(of_keys);
        emulator::device device;
        const support::outcome<float> got(p, [&](auto forward, auto backward) {
            forward.sequences = backward.sequences = {query_offsets.const_view(), key_offsets.const_view(), 9, 12};
            ht::kernel::attention_math<emulator::device>::forward<float>(device, forward);
            ht::kernel::attention_math<emulator::device>::backward<float>(device, backward);
        });
        CHECK(got.intact());
    };
    intact({0, 5, 9}, {-7, 20, 3});
    intact({3, 20, -4, 9}, {12, 0, 1 << 30, -(1 << 30)});
    intact({0}, {0});
    intact({-(1 << 30), 1 << 30}, {0, 12});
}

TEST_CASE("attention on a GPU: the strategy that the problem requires or the caller requests") {
    emulator::device device;
    const support::problem<bfloat16> p({1, 9, 9, 1, 1, 264, causal}, layout::contiguous);
    const auto by_policy = [&](attention_strategy strategy) {
        return support::outcome<bfloat16>(p, [&](auto forward, auto backward) {
            forward.options.strategy = backward.options.strategy = strategy;
            ht::attention<ht::amp_bf16>(device, forward.q, forward.k, forward.v, forward.o, forward.logsumexp,
                                        forward.options);
            ht::attention_gradients<ht::amp_bf16>(device, backward);
        });
    };
    const auto math = support::math_outcome_of<bfloat16>(p, device);
    CHECK(by_policy(attention_strategy::automatic).same_bits(math));
    CHECK(by_policy(attention_strategy::math).same_bits(math));
    CHECK_THROWS_AS(by_policy(attention_strategy::flash), ht::argument_error);
}

TEST_CASE("attention on a GPU: the choice says which kernels run") {
    emulator::device device;
    const auto reason = [&](extent head_size) {
        const ht::view<bfloat16, 4> x(reinterpret_cast<bfloat16*>(64), {1, 9, 1, head_size});
        return ht::choose_attention<ht::amp_bf16>(device, ht::kernel::attention_forward<bfloat16>{x, x, x, x}).reason;
    };
    CHECK(reason(64) == "flash: math would store 9 x 9 scores a head");
    CHECK(reason(20) == "flash: math would store 9 x 9 scores a head; no matrix units: head_size is not a multiple of 8");
    CHECK(reason(264) == "math: head_size is 264; flash kernels take a head_size of at most 256");
}

TEST_CASE("attention on a GPU: a tape copies the offsets of packed sequences from the host") {
    using roles = ht::roles<float, float, float>;
    constexpr extent batch = 2, time = 5, heads = 2, width = 8;
    support::random data(6);
    const support::guarded<float> qkv(data.normals<float>(batch * time * 3 * width)),
        d_o(data.normals<float>(batch * time * width));
    const std::vector<std::int32_t> offsets{0, time, 2 * time};
    const auto packed = ht::packed_sequences::of({offsets.data(), {3}}, time);
    emulator::device device;
    ht::tape tape{device};
    const auto values_of = [&](const auto& view) {
        std::vector<float> values(static_cast<std::size_t>(view.size()));
        device.memory().read(values.data(), view.data(), values.size() * sizeof(float));
        return values;
    };
    const auto run = [&](const ht::shape<3>& shape, const ht::packed_sequences& sequences) {
        const auto x = tape.leaf(qkv.view(shape));
        const auto o = ht::self_attention<roles>(tape, x, heads, {.mask = causal}, sequences);
        std::vector<float> all = values_of(o.view());
        tape.backward(autodiff_test::weigh(tape, o, d_o.view()));
        for (const float slope : values_of(tape.gradient(x))) all.push_back(slope);
        return all;
    };
    const ht::shape<3> in_a_row{1, batch * time, 3 * width};
    CHECK(run(in_a_row, packed) == run(ht::shape<3>{batch, time, 3 * width}, {}));
    CHECK_THROWS_AS(run(in_a_row, ht::packed_sequences::of({offsets.data(), {3}}, time - 1)), ht::shape_error);
    CHECK_THROWS_AS(run(in_a_row, ht::packed_sequences::of({offsets.data(), {2}}, 2 * time)), ht::shape_error);
}

TEST_CASE("attention on a GPU by products and softmax: in many schedules, and with damage") {
    const support::packed_problem<float> p({{3, 6, 2}, {4, 35, 1}}, {1, 0, 0, 1, 1, 4, causal}, layout::contiguous);
    const ht::kernel::attention_visibility visible{11, 40, causal, p.sequences()};
    emulator::device first;
    const support::guarded<float> scores(11 * 40), want(2 * 11);
    support::random data(2);
    const std::vector<float> values = data.normals<float>(11 * 40);
    const auto run = [&](emulator::device& device, const support::guarded<float>& x,
                         const support::guarded<float>& to) {
        using rows = ht::kernel::attention_rows<emulator::device>;
        std::copy(values.begin(), values.end(), x.data());
        rows::mask_scores(device, visible, 0.5f, x.view(ht::shape<2>{11, 40}));
        rows::logsumexp(device, visible, x.view(ht::shape<2>{11, 40}), to.view(ht::shape<2>{11, 2}));
        for (extent i = 0; i < x.size(); ++i) x[i] = std::fabs(x[i]);
        rows::finish_logsumexp(device, visible, x.view(ht::shape<2>{11, 40}), to.view(ht::shape<2>{11, 2}));
    };
    run(first, scores, want);
    emulator::check_kernels([&](emulator::device& device) {
        const support::guarded<float> x(11 * 40), to(2 * 11);
        run(device, x, to);
        return x.same_bits(scores) && to.same_bits(want);
    });
}

}  // namespace emulator_kernel_attention_math_tests
