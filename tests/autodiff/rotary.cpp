// SPDX-License-Identifier: MIT
/// \file
/// Rotary embedding on a tape: its gradient, positions and types (tests/kernel has the tests of its kernel); and
/// attention whose heads of queries share those of keys and values.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/attention.hpp>
#include <halftone/autodiff/op/elementwise_loss.hpp>
#include <halftone/autodiff/op/packed.hpp>
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/autodiff/op/rotary.hpp>
#include <halftone/kernel/attention/cpu.hpp>
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/packed_positions/cpu.hpp>
#include <halftone/kernel/rotary/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>

#include "support/guarded.hpp"
#include "support/random.hpp"

namespace autodiff_rotary_tests {

namespace ht = halftone;
using ht::bfloat16, ht::extent;
using support::guarded;

constexpr ht::shape<4> heads{2, 5, 3, 8};

TEST_CASE("rotary: its gradient is the inverse rotation, added to the earlier one") {
    ht::cpu device{{.threads = 1}};
    support::random data(1);
    const guarded<float> x(data.normals<float>(heads.size())), w(data.normals<float>(heads.size()));
    const auto table = ht::rotary_table(device, 5, 8);
    for (const ht::rotary_layout layout : {ht::rotary_layout::half_split, ht::rotary_layout::interleaved}) {
        const ht::rotary_options options{.layout = layout, .heads = 2};
        guarded<float> want(heads.size());
        ht::rotary(device, w.const_view(heads), table, want.view(heads), {.layout = layout, .heads = 2, .inverse = true});
        ht::tape tape{device};
        const auto leaf = tape.leaf(x.view(heads));
        const auto weights = tape.constant(w.view(heads));
        tape.backward(ht::dot(tape, ht::rotary(tape, leaf, table, options), weights));
        for (extent i = 0; i < heads.size(); ++i) REQUIRE(tape.gradient(leaf).data()[i] == want[i]);
        // Twice: a second contribution adds.
        const auto again = tape.leaf(x.view(heads));
        const auto one = ht::dot(tape, ht::rotary(tape, again, table, options), weights);
        tape.backward(ht::add(tape, one, ht::dot(tape, ht::rotary(tape, again, table, options), weights)));
        for (extent i = 0; i < heads.size(); ++i) {
            REQUIRE(static_cast<double>(tape.gradient(again).data()[i]) ==
                    doctest::Approx(2 * static_cast<double>(want[i])).epsilon(1e-6));
        }
    }
}

TEST_CASE("rotary: in packed documents positions start at 0 in each") {
    ht::cpu device{{.threads = 1}};
    support::random data(2);
    const ht::shape<4> row{1, 5, 2, 4}, first{1, 3, 2, 4}, second{1, 2, 2, 4};
    const guarded<float> x(data.normals<float>(row.size()));
    const auto table = ht::rotary_table(device, 3, 4);
    const std::int32_t offsets[] = {0, 3, 5};
    ht::inference eval{device};
    const auto at = ht::documents_to_device(eval, ht::packed{{offsets, {3}}}, {1, 5}, 3);
    const auto packed = ht::rotary(eval, eval.constant(x.view(row)), table, {}, at.positions);
    const auto a = ht::rotary(eval, eval.constant(ht::view<float, 4>(x.data(), first)), table);
    const auto b = ht::rotary(eval, eval.constant(ht::view<float, 4>(x.data() + 24, second)), table);
    for (extent i = 0; i < row.size(); ++i)
        CHECK(packed.view().data()[i] == (i < 24 ? a.view().data()[i] : b.view().data()[i - 24]));
    CHECK_THROWS_AS(ht::rotary(eval, eval.constant(x.view(row)), table), ht::shape_error);
}

TEST_CASE("rotary: keeps its input's type in any region") {
    using tape = ht::tape<ht::cpu>;
    using x = ht::variable<bfloat16, 4>;
    static_assert(std::is_same_v<decltype(ht::rotary(std::declval<tape&>(), std::declval<x>(), ht::const_view<float, 2>())), x>);
    static_assert(std::is_same_v<decltype(ht::rotary(std::declval<ht::region<ht::full_fp32, tape>>(), std::declval<x>(),
                                                     ht::const_view<float, 2>())),
                                 x>);
}

// (batch, time, (4 + 2 * 2) * 8): queries, keys and values fused in one tensor, or separate.
TEST_CASE("self_attention: fused grouped heads have the bits of separate ones, forward and backward") {
    ht::cpu device{{.threads = 1}};
    support::random data(3);
    using roles = ht::roles<float, float, float>;
    const ht::shape<3> together{2, 7, 64};
    const guarded<float> x(data.normals<float>(together.size())), w(data.normals<float>(2 * 7 * 32));
    const ht::attention_heads shared{4, 2};
    const ht::attention_options options{.mask = ht::attention_mask::causal};
    std::vector<float> parts[3];
    for (int which = 0; which < 3; ++which) {
        const auto part = ht::detail::slice_of_qkv(x.data(), together, shared, which);
        for (extent b = 0; b < 2; ++b)
            for (extent t = 0; t < 7; ++t)
                for (extent h = 0; h < part.extent_of(2); ++h)
                    for (extent i = 0; i < 8; ++i) parts[which].push_back(part(b, t, h, i));
    }
    ht::tape tape{device};
    const auto all = tape.leaf(x.view(together));
    const auto y = ht::self_attention<roles>(tape, all, shared, options);
    REQUIRE(y.shape() == ht::shape<3>{2, 7, 32});
    const auto q = tape.leaf(ht::view<float, 4>(parts[0].data(), {2, 7, 4, 8})),
               k = tape.leaf(ht::view<float, 4>(parts[1].data(), {2, 7, 2, 8})),
               v = tape.leaf(ht::view<float, 4>(parts[2].data(), {2, 7, 2, 8}));
    const auto z = ht::attention<roles>(tape, q, k, v, options, ht::detail::device_sequences{});
    for (extent i = 0; i < y.size(); ++i) REQUIRE(y.view().data()[i] == z.view().data()[i]);
    tape.backward(ht::add(tape, ht::dot(tape, y, tape.constant(w.view(y.shape()))),
                          ht::dot(tape, z, tape.constant(w.view(z.shape())))));
    std::vector<float> gradient(tape.gradient(all).data(), tape.gradient(all).data() + together.size());
    const ht::variable<float, 4> apart[] = {q, k, v};
    for (int which = 0; which < 3; ++which) {
        const auto part = ht::detail::slice_of_qkv(gradient.data(), together, shared, which);
        extent at = 0;
        for (extent b = 0; b < 2; ++b)
            for (extent t = 0; t < 7; ++t)
                for (extent h = 0; h < part.extent_of(2); ++h)
                    for (extent i = 0; i < 8; ++i) REQUIRE(part(b, t, h, i) == tape.gradient(apart[which]).data()[at++]);
    }
    CHECK_THROWS_WITH_AS(ht::self_attention<roles>(tape, all, {3, 2}),
                         "self_attention: qkv is (2, 7, 64); its last extent is not a multiple of 3 query heads and twice 2 key "
                         "heads",
                         ht::shape_error);
}

}  // namespace autodiff_rotary_tests
