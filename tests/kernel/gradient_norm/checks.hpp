// SPDX-License-Identifier: MIT
/// \file
/// Tests of the read pass over gradients, for every device.
///
///     gradient_norm_checks::equals_definition<ht::bfloat16>(device);
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/gradient_norm/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace gradient_norm_checks {

namespace ht = halftone;
namespace kernel = ht::kernel;

inline constexpr ht::extent sizes[] = {0, 1, 3, 5, 15, 17, 67, 16383, 16385, 3 * 16384 + 11};
inline constexpr float infinity = std::numeric_limits<float>::infinity();

struct pass {
    kernel::gradient_record record;
    std::int32_t found = 0;
};

template <class Device, class G>
pass run(Device& device, const support::guarded<G>& g, const kernel::gradient_factors& factors = {}) {
    pass p;
    p.record.factors = factors;
    ht::gradient_norm(device, &p.record, g.const_view());
    p.found = p.record.found_inf;
    return p;
}

/// The relative error of a norm. A square contains four roundings of its factors and is rounded; a term passes through at
/// most `depth` additions within a chunk; the root halves the relative error, and is rounded.
template <class Device>
double relative_error() {
    return support::gamma(static_cast<double>(kernel::gradient_norm<Device>::depth) + 5) / 2 + 2 * support::u;
}

template <class G, class Device>
void equals_definition(Device& device) {
    support::random data{1};
    support::comparison c;
    for (const ht::extent n : sizes) {
        for (const ht::extent offset : {ht::extent{0}, 1 + n % 3}) {
            const support::guarded<G> g(data.normals<G>(n, 3), offset);
            for (const kernel::gradient_factors& f :
                 {kernel::gradient_factors{}, kernel::gradient_factors{1.0f / 1024, 0.7f, 1e-3f}}) {
                const double want = std::sqrt(ht::reference::sum_of_squares(g.const_view(), f));
                const pass p = run(device, g, f);
                if (n != 0) c.expect(static_cast<double>(p.record.norm), want, relative_error<Device>() * want);
                CHECK(p.record.found_inf == 0);
                CHECK(p.found == 0);
            }
            CHECK(g.intact());
        }
    }
    CHECK_WITHIN(c);
}

/// Squares outside of float's range.
template <class Device>
void knows_all_magnitudes(Device& device) {
    support::random data{2};
    support::comparison c;
    for (const double magnitude : {1e-38, 1e-30, 1e-20, 1e-13, 1e-10, 1e10, 1e16, 1e18, 1e25, 1e35}) {
        const support::guarded<float> g(data.normals<float>(20000, magnitude), 1);
        const double want = std::sqrt(ht::reference::sum_of_squares(g.const_view(), {}));
        c.expect(static_cast<double>(run(device, g).record.norm), want, relative_error<Device>() * want);
    }
    // A large value in one chunk does not hide the small ones of another.
    std::vector<float> mixed(2 * 16384, 1e-25f);
    mixed[5] = 3e-25f;
    const double want = static_cast<double>(1e-25f) * std::sqrt(2 * 16384 + 8);
    c.expect(static_cast<double>(run(device, support::guarded<float>(mixed)).record.norm), want,
             relative_error<Device>() * want);
    CHECK_WITHIN(c);
    CHECK(run(device, support::guarded<float>(std::vector<float>(1000, 0.0f))).record.norm == 0);
}

/// Whether the norm is that of gradients of which the worst is `found`: NaN or infinity.
inline bool has_norm_of(const kernel::gradient_record& r, std::int32_t found) {
    return found == kernel::found_nan ? ht::is_nan(r.norm) : r.norm == infinity;
}

/// One value that is not finite is found at any position.
template <class G, class Device>
void finds_one(Device& device) {
    const ht::extent n = 16384 + 83;
    const support::guarded<G> g(std::vector<G>(static_cast<std::size_t>(n), G(0.5f)), 1);
    for (ht::extent i = n - 200; i < n; ++i) {
        for (const float odd : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
            g[i] = G(odd);
            // Clamped, it is finite; in memory it is not.
            const pass p = run(device, g, {1.0f, 1.0f, 2.0f});
            const std::int32_t want = odd == odd ? kernel::found_infinity : kernel::found_nan;
            CHECK(p.record.found_inf == want);
            CHECK(p.found == want);
            CHECK(has_norm_of(p.record, want));
        }
        g[i] = G(0.5f);
    }
    g[7] = static_cast<G>(static_cast<float>(ht::number_traits<G>::max));
    CHECK(run(device, g).found == 0);
    CHECK(ht::reference::all_finite(g.const_view()));
}

/// Passes over several runs of gradients add up, and each has its own flag.
template <class Device>
void adds_up(Device& device) {
    const std::vector<float> three{3, 0}, four{0, 4}, odd{infinity};
    const support::guarded<float> a(three), b(four), c(odd);
    kernel::gradient_record record;
    std::int32_t found[3] = {};
    const auto add = [&](const support::guarded<float>& g, int which) {
        kernel::gradient_norm<Device>::add(device, g.const_view(), &record, &found[which]);
    };
    kernel::begin_pass(record);
    add(a, 0);
    add(b, 1);
    kernel::end_pass(record);
    CHECK(record.norm == 5);
    add(c, 2);
    kernel::end_pass(record);
    CHECK(record.norm == infinity);
    CHECK((found[0] == 0 && found[1] == 0 && found[2] == 1));
    add(a, 2);
    CHECK(record.found_inf == 1);
    CHECK(found[2] == 1);
    // NaN has precedence over infinity, whichever comes first.
    const std::vector<float> worst{std::numeric_limits<float>::quiet_NaN(), infinity},
        turned{infinity, std::numeric_limits<float>::quiet_NaN()};
    const support::guarded<float> d(worst), e(turned);
    add(d, 2), add(c, 2), add(e, 1);
    CHECK(record.found_inf == kernel::found_nan);
    CHECK(found[2] == kernel::found_nan);
    CHECK(found[1] == kernel::found_nan);
    CHECK(found[0] == 0);
    kernel::end_pass(record);
    CHECK(ht::is_nan(record.norm));
}

/// Finite gradients whose norm, after unscaling, exceeds the largest float.
template <class Device>
void finds_what_unscaling_overflows(Device& device) {
    const support::guarded<float> one(std::vector<float>{0, 0x1p100f, 0}), many(std::vector<float>(64, 0x1p125f));
    const float largest = kernel::gradient_factors::no_limit;
    CHECK(run(device, one, {0x1p27f, 1.0f, largest}).record.norm == 0x1p127f);
    const pass p = run(device, one, {0x1p28f, 1.0f, largest});
    CHECK(p.found == kernel::found_infinity);
    CHECK(p.record.norm == infinity);
    CHECK(run(device, one, {0x1p28f, 1.0f, 2.0f}).record.norm == 2);  // clamped
    CHECK(run(device, many).found == kernel::found_infinity);           // 8 * 2^125
    CHECK(run(device, many, {0.5f, 1.0f, largest}).record.norm == 0x1p127f);
    CHECK(run(device, support::guarded<float>(std::vector<float>{largest})).record.norm == largest);
    // Two runs, each within float's range but not together: the norm is the largest float.
    kernel::gradient_record record;
    std::int32_t found = 0;
    for (int i = 0; i < 2; ++i) {
        const support::guarded<float> half(std::vector<float>{0.75f * largest});
        kernel::gradient_norm<Device>::add(device, half.const_view(), &record, &found);
    }
    kernel::end_pass(record);
    CHECK(record.norm == largest);
    CHECK(found == 0);
}

/// Gradients that are not contiguous throw.
template <class Device>
void refuses(Device& device) {
    const support::guarded<float> g(std::vector<float>(10, 1.0f));
    kernel::gradient_record record;
    std::int32_t found = 0;
    CHECK_THROWS_AS(
        kernel::gradient_norm<Device>::add(device, ht::const_view<float, 1>(g.data(), {5}, {2}), &record, &found),
        ht::shape_error);
}

}  // namespace gradient_norm_checks
