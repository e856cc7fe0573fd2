// SPDX-License-Identifier: MIT
/// \file
/// On every device, a step for the rows of a sparse gradient has in these rows the bits of the step with a dense gradient,
/// including random numbers, and changes no other byte.
///
///     rows_checks::equals_dense<float, float>(device, 67);
#pragma once

#include <cstring>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/optimizer_step/optimizer_step.hpp>
#include <halftone/kernel/optimizer_step/rule/all.hpp>
#include <halftone/number/bfloat16.hpp>

#include "support/guarded.hpp"
#include "support/random.hpp"

namespace rows_checks {

namespace ht = halftone;
namespace kernel = ht::kernel;
using ht::bfloat16, ht::extent;
using support::guarded;

enum class rule { adamw, lion, sgd };
inline constexpr rule rules[] = {rule::adamw, rule::lion, rule::sgd};

inline const kernel::gradient_factors factors{1.0f / 128, 0.75f, 1.5f};

/// The values that a step changes: parameters of type Param, moments of type State. 16-bit ones are rounded stochastically.
template <class Param, class State>
struct table {
    static constexpr ht::rounding rounding = sizeof(Param) < 4 ? ht::rounding::stochastic : ht::rounding::nearest_even;
    extent rows, width;
    guarded<Param> master;
    guarded<bfloat16> copy;
    guarded<State> first, second;

    table(extent r, extent w, extent offset)
        : rows(r),
          width(w),
          master(support::random(1).normals<Param>(r * w), offset),
          copy(support::random(2).normals<bfloat16>(r * w), 3 * offset),
          first(support::random(3).normals<State>(r * w, 0.1), 5 * offset),
          second(r * w, 7 * offset) {
        for (extent i = 0; i < r * w; ++i) second[i] = State(0.01f);
    }
    template <class Arguments>
    Arguments fill(Arguments a, const kernel::step_record& record) const {
        a.master = master.view(), a.copy = copy.view();
        a.rates = kernel::group_rates{.weight_decay = 0.1};
        a.factors = &factors, a.step = &record, a.key = kernel::rounding_key{.seed = 5, .tensor = 8, .first = 64};
        return a;
    }
    template <class Rule>
    using arguments = kernel::optimizer_step_arguments<Rule, Param, bfloat16, float, State>;

    arguments<kernel::adamw_rule> adamw(const kernel::step_record& record) const {
        auto a = fill(arguments<kernel::adamw_rule>{}, record);
        a.moments[0] = first.view(), a.moments[1] = second.view(), a.rule = kernel::adamw_rule{0.9, 0.99, 1e-6};
        return a;
    }
    arguments<kernel::lion_rule> lion(const kernel::step_record& record) const {
        auto a = fill(arguments<kernel::lion_rule>{}, record);
        a.moments[0] = first.view();
        return a;
    }
    arguments<kernel::sgd_rule> sgd(const kernel::step_record& record) const {
        auto a = fill(arguments<kernel::sgd_rule>{}, record);
        a.moments[0] = first.view();
        a.rule = kernel::sgd_rule{.momentum = 0.9, .kind = kernel::momentum_kind::nesterov};
        return a;
    }
    /// All bytes of one row.
    std::vector<char> row(extent r) const {
        std::vector<char> all;
        const auto add = [&](const auto& g) {
            const auto* from = reinterpret_cast<const char*>(g.data() + r * width);
            all.insert(all.end(), from, from + width * static_cast<extent>(sizeof g[0]));
        };
        add(master), add(copy), add(first), add(second);
        return all;
    }
    bool intact() const { return master.intact() && copy.intact() && first.intact() && second.intact(); }
};

/// A sparse gradient with unused rows, which have other indices and contain infinities.
struct gradient {
    guarded<std::int32_t> indices, count{1};
    guarded<float> values, dense;
    extent width;

    gradient(extent rows, extent w, const std::vector<std::int32_t>& touched, extent offset)
        : indices(static_cast<extent>(touched.size()) + 3),
          values((static_cast<extent>(touched.size()) + 3) * w, offset),
          dense(support::random(4).normals<float>(rows * w, 100), 3 * offset),
          width(w) {
        count[0] = static_cast<std::int32_t>(touched.size());
        for (extent r = 0; r < indices.size(); ++r) {
            const bool is_there = r < count[0];
            indices[r] = is_there ? touched[static_cast<std::size_t>(r)] : static_cast<std::int32_t>(r % rows);
            for (extent j = 0; j < w; ++j)
                values[r * w + j] = is_there ? dense[indices[r] * w + j] : std::numeric_limits<float>::infinity();
        }
    }
    ht::gradient_rows<float> rows() const {
        return {indices.view(), values.view(ht::shape<2>{indices.size(), width}), count.data()};
    }
};

template <class T, class Device>
void step_rows(Device& device, rule which, const T& t, const ht::gradient_rows<float>& g,
               const kernel::step_record& record) {
    if (which == rule::adamw) {
        kernel::optimizer_step<Device>::template run_rows<T::rounding>(device, t.adamw(record), g);
    } else if (which == rule::lion) {
        kernel::optimizer_step<Device>::template run_rows<T::rounding>(device, t.lion(record), g);
    } else {
        kernel::optimizer_step<Device>::template run_rows<T::rounding>(device, t.sgd(record), g);
    }
}
template <class T, class Device>
void step_dense(Device& device, rule which, const T& t, const gradient& g, const kernel::step_record& record) {
    const auto step = [&](auto a) {
        a.gradient = g.dense.const_view();
        kernel::optimizer_step<Device>::template run<T::rounding>(device, a);
    };
    if (which == rule::adamw) {
        step(t.adamw(record));
    } else if (which == rule::lion) {
        step(t.lion(record));
    } else {
        step(t.sgd(record));
    }
}

/// Whether a step over these rows is right.
template <class Param, class State, class Device>
bool step_is_right(Device& device, rule which, extent rows, extent width, const std::vector<std::int32_t>& touched,
                   extent offset = 1) {
    const kernel::step_record third{.steps = 3, .lr = 0.01};
    using type = table<Param, State>;
    const type before(rows, width, offset), here(rows, width, offset), there(rows, width, offset);
    const gradient g(rows, width, touched, offset);
    step_rows(device, which, here, g.rows(), third);
    step_dense(device, which, there, g, third);
    bool right = here.intact() && g.indices.intact() && g.values.intact() && g.count.intact();
    std::size_t next = 0;
    for (extent r = 0; r < rows; ++r) {
        const bool is_touched = next < touched.size() && touched[next] == r;
        next += is_touched ? 1 : 0;
        right = right && here.row(r) == (is_touched ? there : before).row(r) && there.row(r) != before.row(r);
    }
    return right;
}

template <class Param, class State, class Device>
void equals_dense(Device& device, extent width, extent offset = 1) {
    CAPTURE(width);
    std::vector<std::int32_t> many;
    for (std::int32_t r = 1; r < 90; r += 1 + r % 3) many.push_back(r);
    for (const rule which : rules) {
        CHECK(step_is_right<Param, State>(device, which, 90, width, many, offset));
        CHECK(step_is_right<Param, State>(device, which, 5, width, {0, 4}, offset));
        CHECK(step_is_right<Param, State>(device, which, 1, width, {0}, offset));
        CHECK(step_is_right<Param, State>(device, which, 3, width, {}, offset));
    }
}

/// A skipped step changes nothing; shapes that do not fit throw.
template <class Device>
void skips_and_refuses(Device& device) {
    const gradient g(9, 4, {1, 2}, 1);
    const kernel::step_record skipped{.steps = 3, .lr = 0.01, .skips = 1}, taken{.steps = 3, .lr = 0.01};
    const table<float, float> t(9, 4, 1), before(9, 4, 1);
    for (const rule which : rules) {
        step_rows(device, which, t, g.rows(), skipped);
        for (extent r = 0; r < 9; ++r) CHECK(t.row(r) == before.row(r));
        const table<float, float> other(10, 5, 1);
        CHECK_THROWS_AS(step_rows(device, which, other, g.rows(), taken), ht::shape_error);
    }
}

}  // namespace rows_checks
