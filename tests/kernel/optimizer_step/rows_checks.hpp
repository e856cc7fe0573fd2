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

#include "kernel/optimizer_step/step_checks.hpp"

namespace rows_checks {

using namespace step_checks;
using ht::bfloat16, ht::extent;

/// A table's parameters of type Param and moments of type State, with copies that a step changes.
template <class Rule, class Param, class State>
struct table : slabs<Rule, Param, bfloat16, float, State> {
    extent width;

    table(extent rows, extent w, placement where) : table(support::random(1), rows, w, where) {}
    table(support::random data, extent rows, extent w, placement where)
        : slabs<Rule, Param, bfloat16, float, State>(data, rows * w, where), width(w) {
        for (extent i = 0; i < rows * w; ++i) this->copy[i] = bfloat16(static_cast<float>(i));
    }
    /// All bytes of one row that a step may change.
    std::vector<char> row(extent r) const {
        std::vector<char> all;
        const auto add = [&](const auto& g) {
            const auto* from = reinterpret_cast<const char*>(g.data() + r * width);
            all.insert(all.end(), from, from + width * static_cast<extent>(sizeof g[0]));
        };
        add(this->master), add(this->copy);
        for (const auto& m : this->moments) add(m);
        return all;
    }
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
void step_rows(Device& device, const T& t, const gradient& g, const kernel::step_record& record = third) {
    auto a = t.arguments(record);
    a.gradient = {};
    kernel::optimizer_step<Device>::template run_rows<T::rounding>(device, a, g.rows());
}
template <class T, class Device>
void step_dense(Device& device, const T& t, const gradient& g) {
    auto a = t.arguments(third);
    a.gradient = g.dense.const_view();
    run<T::rounding>(device, a);
}

/// Whether a step over these rows is right.
template <class T, class Device>
bool step_is_right(Device& device, extent rows, extent width, const std::vector<std::int32_t>& touched,
                   placement where) {
    const T before(rows, width, where), here(rows, width, where), there(rows, width, where);
    const gradient g(rows, width, touched, where == placement::aligned ? 16 : 1);
    step_rows(device, here, g);
    step_dense(device, there, g);
    bool right = here.intact() && g.indices.intact() && g.values.intact() && g.count.intact();
    std::size_t next = 0;
    for (extent r = 0; r < rows; ++r) {
        const bool is_touched = next < touched.size() && touched[next] == r;
        next += is_touched ? 1 : 0;
        right = right && here.row(r) == (is_touched ? there : before).row(r) && there.row(r) != before.row(r);
    }
    return right;
}

/// Calls check(table) for each rule, with a table<Rule, Param, State>'s type.
template <class Param, class State, class Check>
void for_each_rule(const Check& check) {
    check(std::type_identity<table<adamw_rule, Param, State>>{});
    check(std::type_identity<table<lion_rule, Param, State>>{});
    check(std::type_identity<table<sgd_rule, Param, State>>{});
}

template <class Param, class State, class Device>
void equals_dense(Device& device, extent width, placement where = placement::unaligned) {
    CAPTURE(width);
    std::vector<std::int32_t> many;
    for (std::int32_t r = 1; r < 90; r += 1 + r % 3) many.push_back(r);
    for_each_rule<Param, State>([&]<class T>(std::type_identity<T>) {
        CHECK(step_is_right<T>(device, 90, width, many, where));
        CHECK(step_is_right<T>(device, 5, width, {0, 4}, where));
        CHECK(step_is_right<T>(device, 1, width, {0}, where));
        CHECK(step_is_right<T>(device, 3, width, {}, where));
    });
}

/// A skipped step changes nothing; shapes that do not fit throw.
template <class Device>
void skips_and_refuses(Device& device) {
    const gradient g(9, 4, {1, 2}, 1);
    const kernel::step_record skipped{.steps = 3, .lr = 0.01, .skips = 1};
    for_each_rule<float, float>([&]<class T>(std::type_identity<T>) {
        const T t(9, 4, placement::unaligned), before(9, 4, placement::unaligned), other(10, 5, placement::unaligned);
        step_rows(device, t, g, skipped);
        for (extent r = 0; r < 9; ++r) CHECK(t.row(r) == before.row(r));
        CHECK_THROWS_AS(step_rows(device, other, g), ht::shape_error);
    });
}

}  // namespace rows_checks
