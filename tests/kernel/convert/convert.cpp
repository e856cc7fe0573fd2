// SPDX-License-Identifier: MIT
/// \file
/// Array conversions, element by element, against the number types' own, which are tested on every bit pattern.
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/convert/cpu.hpp>
#include <halftone/kernel/convert/reference.hpp>
#include <halftone/number/classify.hpp>

#include "support/each_set.hpp"
#include "support/gradient_check.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using convert = ht::kernel::convert<ht::cpu>;
using support::guarded;

template <class X_, class Y_>
struct types {
    using X = X_;
    using Y = Y_;
};
using down_bf16 = types<float, bfloat16>;
using down_f16 = types<float, float16>;
using up_bf16 = types<bfloat16, float>;
using up_f16 = types<float16, float>;
using across = types<float16, bfloat16>;
using back = types<bfloat16, float16>;
using copy = types<float, float>;

template <class T>
T any_bits(support::random& data) {
    const std::uint32_t bits = data.bits();
    T value;
    std::memcpy(static_cast<void*>(&value), &bits, sizeof value);
    return value;
}

/// The same bits, or two NaNs: kernels may return any.
template <class T>
bool same(T a, T b) {
    return std::memcmp(&a, &b, sizeof a) == 0 || (ht::is_nan(a) && ht::is_nan(b));
}

TEST_CASE_TEMPLATE("convert: every element as its own conversion", M, down_bf16, down_f16, up_bf16, up_f16, across,
                   back, copy) {
    using X = typename M::X;
    using Y = typename M::Y;
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        support::random data(5);
        std::vector<extent> counts(std::begin(support::widths), std::end(support::widths));
        counts.push_back(399'999);  // several pieces, of rows too; more than all 16-bit patterns
        for (const extent count : counts) {
            CAPTURE(count);
            const guarded<X> from(count, 1);
            for (extent i = 0; i < count; ++i) from[i] = any_bits<X>(data);
            if constexpr (sizeof(X) == 2) {
                for (extent i = 0; i < count && i < 65536; ++i) from[i] = X::from_bits(static_cast<std::uint16_t>(i));
            }
            const guarded<Y> to(count, 3), scaled(count, 5), apart(2 * count, 7);
            convert::run(device, from.const_view(), to.view());
            convert::run(device, from.const_view(), scaled.view(), 1.25f);
            extent wrong = 0, wrong_scaled = 0;
            for (extent i = 0; i < count; ++i) {
                const float value = static_cast<float>(from[i]);
                wrong += same(to[i], static_cast<Y>(value)) ? 0 : 1;
                wrong_scaled += same(scaled[i], static_cast<Y>(value * 1.25f)) ? 0 : 1;
            }
            CHECK(wrong == 0);
            CHECK(wrong_scaled == 0);
            CHECK(to.intact());
            CHECK(scaled.intact());

            // Rows that lie apart; what is between them stays.
            if (count % 3 == 0) {
                const extent width = count / 3, stride = width + 2;
                const guarded<Y> padded(3 * stride);
                const auto before = padded[0];
                convert::run(device, from.const_view(ht::shape<2>{3, width}),
                             ht::view<Y, 2>(padded.data(), {3, width}, {stride, 1}));
                extent wrong_rows = 0;
                for (extent i = 0; i < 3; ++i) {
                    for (extent j = 0; j < stride; ++j) {
                        wrong_rows += same(padded[i * stride + j], j < width ? to[i * width + j] : before) ? 0 : 1;
                    }
                }
                CHECK(wrong_rows == 0);
                CHECK(padded.intact());
            }
        }
    });
}

TEST_CASE("convert: in place with a factor, and its gradient") {
    ht::cpu device{{.threads = 1}};
    support::random data(3);
    const auto values = data.normals<float>(37);
    const guarded<float> x(values);
    convert::run(device, x.const_view(), x.view(), 0.5f);
    for (extent i = 0; i < x.size(); ++i) CHECK(x[i] == 0.5f * values[static_cast<std::size_t>(i)]);

    std::vector<double> at = data.normals<double>(3), to(3);
    support::check_gradient(
        [&](const std::vector<double>& from) {
            ht::reference::convert(ht::const_view<double, 1>(from.data(), {3}), ht::view<double, 1>(to.data(), {3}),
                                   0.3);
            return to[0] + 2 * to[1] + 3 * to[2];
        },
        at, {0.3, 0.6, 0.9});
}

TEST_CASE("convert: wrong arguments, and none") {
    ht::cpu device{{.threads = 1}};
    const guarded<float> x(12), y(12);
    CHECK_THROWS_WITH_AS((convert::run(device, x.const_view(ht::shape<2>{3, 4}), y.view(ht::shape<2>{4, 3}))),
                         "convert: to is (4, 3); expected (3, 4)", ht::shape_error);
    CHECK_THROWS_WITH_AS(
        (convert::run(device, x.const_view(ht::shape<2>{3, 4}), ht::view<float, 2>(y.data(), {3, 4}, {1, 3}))),
        "convert: to (3, 4) has gaps within its rows; its strides are (1, 3)", ht::shape_error);
    CHECK_THROWS_WITH_AS((convert::run(device, x.const_view(ht::shape<3>{1, 3, 4}),
                                       ht::view<float, 3>(y.data(), {1, 3, 4}, {12, 1, 3}))),
                         "convert: to (1, 3, 4) is not contiguous; its strides are (12, 1, 3)", ht::shape_error);
    convert::run(device, ht::const_view<float, 1>(nullptr, {0}), ht::view<float, 1>(nullptr, {0}));
}

}  // namespace
