// SPDX-License-Identifier: MIT
/// \file
/// What the tests of optimizers' steps share: factors and records, the call of a step, and skipped steps.
#pragma once

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/optimizer_step/reference.hpp>
#include <halftone/number/round_to.hpp>

#include "support/guarded.hpp"

namespace step_checks {

namespace ht = halftone;
namespace kernel = ht::kernel;
using support::guarded;

/// Numbers of parameters around vectors, and more than one piece.
inline constexpr ht::extent sizes[] = {1, 3, 5, 15, 17, 67, 1009, 16384 + 33};
inline const kernel::gradient_factors factors{1.0f / 128, 0.75f, 1.5f};
inline const kernel::step_record third{.steps = 3, .lr = 0.01};

enum class placement { aligned, unaligned };

template <ht::rounding Rounding = ht::rounding::nearest_even, class Device, class Arguments>
void run(Device& device, const Arguments& a) {
    kernel::optimizer_step<Device>::template run<Rounding>(device, a);
}

template <class T>
std::vector<double> doubles(const guarded<T>& g) {
    std::vector<double> d;
    for (ht::extent i = 0; i < g.size(); ++i) d.push_back(static_cast<double>(g[i]));
    return d;
}
inline ht::view<double, 1> view_of(std::vector<double>& d) { return {d.data(), {static_cast<ht::extent>(d.size())}}; }

/// A skipped step changes nothing, and the copy is optional. step(record, has_copy) runs a step over s, which begins with the
/// bits of `untouched`; `steps`: the number of earlier steps in the record of the skipped one.
template <class S, class Step>
void check_skips(const S& s, const S& untouched, const Step& step, std::int64_t steps = 0) {
    const kernel::step_record skipping{.steps = steps, .lr = 0.01, .skips = 1};
    step(skipping, true);
    CHECK(s.same_bits(untouched));
    step(third, false);
    CHECK(s.copy.same_bits(untouched.copy));
    CHECK_FALSE(s.master.same_bits(untouched.master));
}

}  // namespace step_checks
