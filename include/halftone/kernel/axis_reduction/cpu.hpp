// SPDX-License-Identifier: MIT
/// \file
/// Reductions along axes on the CPU, their gradients, indices and cumulative sums; axis_reduction.hpp has their arguments,
/// their contract and an example, cpu/forward.hpp the forward pass.
#pragma once

#include <algorithm>
#include <cmath>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/axis_reduction/axis_reduction.hpp>
#include <halftone/kernel/axis_reduction/cpu/forward.hpp>
#include <halftone/kernel/axis_reduction/fp64.hpp>
#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace axis_cpu {

/// A function that computes the gradients of a block of elements of a task's outputs.
using sharing = void (*)(const float* x, extent count, const float* p, const float* q, bool is_row, float* to);
template <axis_operation Operation>
sharing sharing_of(const cpu& device) {
    return device.select(HALFTONE_EACH_SET(share_block<Operation>));
}
sharing sharing_of(const cpu& device, axis_operation operation);

/// dx = (or +=) with(x, kept, slopes); x is not read if reads_x is false.
void give(cpu& device, const source& x, bool reads_x, const axis_layout& l, sharing with, const float* kept,
          const float* slopes, const sink& dx, write_mode mode);

/// The gradients of outputs as floats, times a factor, and divided by the number of elements that share each of them.
void scale_slopes(cpu& device, const source& dy, extent outputs, float factor, const float* shared_by, float* slopes);

/// The coefficients of a standard deviation's gradients (deviation_slope): `slopes` has the outputs' gradients, which
/// are replaced by them.
void scale_by_deviations(cpu& device, extent outputs, const deviation_range& range, const float* deviations,
                         float factor, float* slopes);

/// The coefficients p and q of a product's gradients (product_shares): `slopes` has the outputs' gradients, which are
/// replaced by q; `p` is written. `others`, (outputs), receives the products of the elements that are not zero.
void share_products(cpu& device, const source& x, const axis_layout& l, float* others, float* p, float* slopes);

/// The index of the first float that is `value`; `count` if there is none.
extent find(const float* x, extent count, float value);

/// The index of the first of each output's elements that is its value in `values`.
void find_each(cpu& device, const source& x, const axis_layout& l, const float* values, std::int32_t* y);

/// Cumulative sums along an axis, in double: for rows of `inner` columns, or for one row after another.
void accumulate(cpu& device, const source& x, const shape<3>& s, const sink& y, bool is_reversed, write_mode mode);

/// Variances and standard deviations; of the latter those in float are kept.
template <class X, class Y>
void reduce_deviations(cpu& device, const reduction<X, Y>& a) {
    const extent outputs = a.layout.outputs;
    const bool are_kept = a.kept != nullptr && a.operation == axis_operation::std_dev;
    const workspace::lease memory(device.scratch(), are_kept ? 0 : static_cast<std::size_t>(outputs) * sizeof(float));
    float* const results = are_kept ? a.kept + outputs : memory.as<float>();
    const sink to = sink_of(device, results);
    reduce(device, source_of(device, a.x), a.layout, method::of(device, a.operation, a.layout.reduced_size, a.factor),
           nullptr, &to, a.kept);
    fp64::for_each(device, outputs, 1, fp64::deviation_output<X, Y>(a, results));
}

}  // namespace axis_cpu

template <>
struct axis_reduction<cpu> {
    template <class X, class Y>
    static void run(cpu& device, const reduction<X, Y>& a) {
        if constexpr (in_double<X, Y>) {
            fp64::reduce(device, a);
        } else {
            using namespace axis_cpu;
            if (a.operation == axis_operation::var || a.operation == axis_operation::std_dev)
                return reduce_deviations(device, a);
            const sink y = sink_of(device, a.y);
            reduce(device, source_of(device, a.x), a.layout,
                   method::of(device, a.operation, a.layout.reduced_size, a.factor), nullptr, &y, a.kept, a.mode);
        }
    }

    template <class X, class Y>
    static void backward(cpu& device, const reduction_gradient<X, Y>& a) {
        if constexpr (in_double<X, Y>) {
            fp64::reduce_gradient(device, a);
        } else {
            using namespace axis_cpu;
            using enum axis_operation;
            const axis_layout& l = a.layout;
            const source x = source_of(device, a.x);
            const auto bytes = static_cast<std::size_t>(l.outputs) * sizeof(float);
            const workspace::lease memory(device.scratch(), bytes);
            auto* const slopes = memory.as<float>();
            if (a.operation == amax || a.operation == amin) {
                const workspace::lease counted(device.scratch(), bytes);
                reduce(device, x, l, method::of(device, pass_of<axis_term::equal>(device)), a.kept, nullptr,
                       counted.as<float>());
                scale_slopes(device, source_of(device, a.dy), l.outputs, 1, counted.as<float>(), slopes);
            } else {
                const double factor = a.operation == var ? 2 * a.factor : a.operation == sum ? a.factor : 1;
                scale_slopes(device, source_of(device, a.dy), l.outputs, static_cast<float>(factor), nullptr, slopes);
            }
            const workspace::lease products(device.scratch(), a.operation == prod ? bytes : 0),
                others(device.scratch(), a.operation == prod ? bytes : 0);
            if (a.operation == std_dev)
                scale_by_deviations(device, l.outputs, deviation_range::of(std_dev, l.reduced_size, a.factor),
                                    a.kept + l.outputs, static_cast<float>(a.factor), slopes);
            if (a.operation == prod) share_products(device, x, l, others.as<float>(), products.as<float>(), slopes);
            give(device, x, a.operation != sum, l, sharing_of(device, a.operation),
                 a.operation == sum    ? slopes
                 : a.operation == prod ? products.as<float>()
                                       : a.kept,
                 slopes, sink_of(device, a.dx), a.mode);
            if (a.operation == prod)
                fp64::gradient_of_some(device, a, fp64::products_beyond_float{{others.as<float>(), l.outputs}});
            if (a.operation == std_dev) fp64::gradient_of_some(device, a, fp64::slopes_beyond_float<Y>(a));
        }
    }

    template <class X>
    static void index(cpu& device, const reduction_index<X>& a) {
        if constexpr (in_double<X>) {
            fp64::index(device, a);
        } else {
            using namespace axis_cpu;
            const workspace::lease values(device.scratch(), static_cast<std::size_t>(a.layout.outputs) * sizeof(float));
            const source x = source_of(device, a.x);
            reduce(device, x, a.layout, method::of(device, a.operation, a.layout.reduced_size, 1), nullptr, nullptr,
                   values.as<float>());
            find_each(device, x, a.layout, values.as<float>(), a.y);
        }
    }

    template <class X, class Y>
    static void accumulate(cpu& device, const running_sum<X, Y>& a) {
        if constexpr (in_double<X, Y>) {
            fp64::accumulate(device, a);
        } else {
            axis_cpu::accumulate(device, axis_cpu::source_of(device, a.x), a.extents, axis_cpu::sink_of(device, a.y),
                                 a.is_reversed, a.mode);
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/axis_reduction/cpu.body.hpp>
#endif
