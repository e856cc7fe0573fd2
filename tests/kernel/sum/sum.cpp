// SPDX-License-Identifier: MIT
/// \file
/// Sums over all elements against their definition.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/sum/cpu.hpp>
#include <halftone/kernel/sum/reference.hpp>
#include <halftone/number/classify.hpp>

#include "support/bounds.hpp"
#include "support/each_set.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using sum = ht::kernel::sum<ht::cpu>;
using support::guarded;

constexpr auto squared_error = [](auto x, auto y) { return ht::square(x - y); };

template <class Y>
ht::view<Y, 0> scalar(const guarded<Y>& memory) {
    return {memory.data(), ht::shape<0>{}};
}

template <class X, class T, class Y>
void within_bounds(ht::isa set, extent count) {
    CAPTURE(count);
    ht::cpu device{{.threads = 2, .instruction_set = set}};
    support::random data(static_cast<std::uint64_t>(count));
    const guarded<X> x(data.normals<X>(count, 1, 0.5), 3);
    const guarded<T> t(data.normals<T>(count), 1);
    const guarded<Y> out(1);
    const auto e = ht::trace<2>(squared_error);
    const double factor = 1.0 / static_cast<double>(count);
    sum::run(device, e, ht::make_pack(x.const_view(), t.const_view()), factor, scalar(out));

    double want = 0;
    ht::reference::sum(e, ht::make_pack(x.const_view(), t.const_view()), factor, ht::view<double, 0>(&want, {}));
    // A term is rounded twice, in the difference, which is squared, and in the square; all terms are positive.
    const extent longest = count < ht::kernel::sum_piece ? count : ht::kernel::sum_piece;
    const double roundings = static_cast<double>(3 + ht::kernel::sum_depth(longest));
    support::comparison c;
    c.expect(static_cast<double>(out[0]), want, support::rounded<Y>(want, support::gamma(roundings) * want));
    CHECK_WITHIN(c);
    CHECK(out.intact());
}

TEST_CASE("sum: within its bound of the definition") {
    support::for_each_set([](ht::isa set) {
        for (const extent count : support::widths) within_bounds<float, float, float>(set, count);
        for (const extent count : {1, 5, 100, 16384, 16385, 70001}) {
            within_bounds<float, float, float>(set, count);
            within_bounds<bfloat16, float, float>(set, count);
            within_bounds<float16, float16, float>(set, count);
            within_bounds<bfloat16, bfloat16, bfloat16>(set, count);
        }
    });
}

TEST_CASE("sum: lanes beyond the end do not count") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        const auto e = ht::trace<1>([](auto x) { return x + 1; });
        for (const extent count : support::widths) {
            const guarded<float> x(std::vector<float>(static_cast<std::size_t>(count), 2.0f)), out(1);
            sum::run(device, e, ht::make_pack(x.const_view()), 1.0, scalar(out));
            CHECK(out[0] == static_cast<float>(3 * count));
        }
    });
}

TEST_CASE("sum: integers exactly, and the same bits at one and at two threads") {
    support::for_each_set([](ht::isa set) {
        constexpr extent count = 100003;
        support::random data(5);
        const guarded<bfloat16> integers(data.integers<bfloat16>(count, 100)), x(data.normals<bfloat16>(count));
        ht::cpu one{{.threads = 1, .instruction_set = set}}, two{{.threads = 2, .instruction_set = set}};
        const auto e = ht::trace<1>([](auto v) { return v; });
        const guarded<float> out(1), other(1);
        double want = 0;
        ht::reference::sum(e, ht::make_pack(integers.const_view()), 1.0, ht::view<double, 0>(&want, {}));
        sum::run(two, e, ht::make_pack(integers.const_view()), 1.0, scalar(out));
        CHECK(static_cast<double>(out[0]) == want);
        sum::run(one, e, ht::make_pack(x.const_view()), 1.0, scalar(out));
        sum::run(two, e, ht::make_pack(x.const_view()), 1.0, scalar(other));
        CHECK(out.same_bits(other));
    });
}

TEST_CASE("sum: of nothing, of a NaN, of wrong arguments") {
    ht::cpu device{{.threads = 1}};
    const guarded<float> out(1), x(4), y(3);
    const auto e = ht::trace<2>(squared_error);
    const ht::const_view<float, 1> nothing(nullptr, {0});
    sum::run(device, e, ht::make_pack(nothing, nothing), 1.0, scalar(out));
    CHECK(out[0] == 0);
    sum::run(device, e, ht::make_pack(y.const_view(), y.const_view()), 1.0,
             scalar(out));  // guarded memory begins as NaN
    CHECK(ht::is_nan(out[0]));
    CHECK_THROWS_WITH_AS(sum::run(device, e, ht::make_pack(x.const_view(), y.const_view()), 1.0, scalar(out)),
                         "sum: an input is (3); expected (4)", ht::shape_error);
}

}  // namespace
