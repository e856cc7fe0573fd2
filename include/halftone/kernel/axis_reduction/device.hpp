// SPDX-License-Identifier: MIT
/// \file
/// Reductions along axes on a GPU; axis_reduction.hpp has their arguments, their contract and an example.
///
/// A pass computes one float for each piece of each output: a block reduces one piece of one output's elements, or, if
/// outputs have adjacent elements, one piece of the elements of 32 * N outputs, N per lane. A second kernel combines
/// the pieces in double and computes from them the parameter of the next pass, or the result.
#pragma once

#include <cmath>

#include <halftone/kernel/axis_reduction/axis_reduction.hpp>
#include <halftone/kernel/axis_reduction/device/deviation.hpp>
#include <halftone/kernel/axis_reduction/device/gradient.hpp>
#include <halftone/kernel/axis_reduction/device/passes.hpp>
#include <halftone/kernel/axis_reduction/fp64.hpp>
#include <halftone/kernel/common/fp64/device.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// All passes of a reduction; the outputs of the last one are written to y, if it has memory.
template <class Device, class X, class Y>
void reduce_along(Device& device, const reduction<X, Y>& a) {
    using enum axis_operation;
    const axis_layout& l = a.layout;
    if (l.outputs == 0) return;
    const axis_cut cut = axis_cut::of(l);
    if (!l.is_columns() && cut.pieces == 1) {
        if (a.operation == sum) return reduce_whole_rows<sum>(device, a, a.factor, a.kept, nullptr);
        if (a.operation == var) return reduce_whole_rows<var>(device, a, a.factor, nullptr, a.kept);
        if (a.operation == std_dev) return reduce_whole_rows<std_dev>(device, a, a.factor, nullptr, a.kept);
        if (a.operation == logsumexp) return reduce_whole_rows<logsumexp>(device, a, 1, a.kept, nullptr);
    }
    const workspace::lease partial(device.scratch(), static_cast<std::size_t>(cut.pieces * l.outputs) * sizeof(float));
    const workspace::lease between(device.scratch(), static_cast<std::size_t>(l.outputs) * sizeof(float));
    const global_span<float> sums{partial.template as<float>(), cut.pieces * l.outputs};
    const global_span<float> parameters{between.template as<float>(), l.outputs};
    const global_span<const float> read{parameters.data, l.outputs};
    const double share = 1.0 / static_cast<double>(l.reduced_size);
    const auto pass = [&]<axis_term Term>(axis_constant<Term>) {
        run_axis_pass<Term>(device, a.x, l, cut, read, sums);
    };
    const auto finish = [&]<axis_term Term, axis_step Step, class To>(axis_constant<Term>, axis_constant<Step>,
                                                                      double factor, To* to, float* kept,
                                                                      float* kept_parameter, write_mode mode) {
        device.launch(axis_finish_kernel<Term, Step, To>{{sums.data, sums.count},
                                                         cut.pieces,
                                                         read,
                                                         {factor,
                                                          {to, l.outputs},
                                                          {kept, l.outputs},
                                                          {kept_parameter, l.outputs},
                                                          mode}});
    };
    constexpr axis_constant<axis_term::value> value;
    constexpr axis_constant<axis_term::maximum> maximum;
    constexpr axis_constant<axis_term::minimum> minimum;
    constexpr auto over = write_mode::overwrite;
    if (a.operation == sum) {
        pass(value);
        finish(value, axis_constant<axis_step::scale>{}, a.factor, a.y, a.kept, nullptr, a.mode);
    } else if (a.operation == var || a.operation == std_dev) {
        constexpr axis_constant<axis_term::square> square;
        pass(value);
        finish(value, axis_constant<axis_step::scale>{}, share, parameters.data, nullptr, nullptr, over);
        pass(square);
        if (a.operation == var) {
            finish(square, axis_constant<axis_step::scale>{}, a.factor, a.y, nullptr, a.kept, a.mode);
        } else {
            finish(square, axis_constant<axis_step::root>{}, a.factor, a.y, nullptr, a.kept, a.mode);
        }
    } else if (a.operation == logsumexp) {
        constexpr axis_constant<axis_term::exponential> exponential;
        pass(maximum);
        finish(maximum, axis_constant<axis_step::shift>{}, 1, parameters.data, nullptr, nullptr, over);
        pass(exponential);
        finish(exponential, axis_constant<axis_step::logarithm>{}, 1, a.y, a.kept, nullptr, a.mode);
    } else if (a.operation == amax) {
        pass(maximum);
        finish(maximum, axis_constant<axis_step::scale>{}, 1, a.y, a.kept, nullptr, a.mode);
    } else if (a.operation == prod) {
        constexpr axis_constant<axis_term::product> product;
        device.fill(parameters.data, l.outputs, 0.0f);  // zeros are multiplied as zeros
        pass(product);
        finish(product, axis_constant<axis_step::scale>{}, 1, a.y, a.kept, nullptr, a.mode);
    } else {
        pass(minimum);
        finish(minimum, axis_constant<axis_step::scale>{}, 1, a.y, a.kept, nullptr, a.mode);
    }
}

/// Variances and standard deviations; of the latter those in float are kept.
template <class Device, class X, class Y>
void reduce_deviations(Device& device, const reduction<X, Y>& a) {
    const axis_layout& l = a.layout;
    const bool are_kept = a.kept != nullptr && a.operation == axis_operation::std_dev;
    const workspace::lease memory(device.scratch(), are_kept ? 0 : static_cast<std::size_t>(l.outputs) * sizeof(float));
    float* const results = are_kept ? a.kept + l.outputs : memory.template as<float>();
    reduce_along(device, reduction<X, float>{a.x, l, results, a.operation, a.factor, a.kept});
    finish_deviations(device, a, results);
}

/// One pass over the elements of each output with the given parameters, into `to`; for example, the number of elements
/// that equal the parameter.
template <axis_term Term, class Device, class X>
void reduce_by(Device& device, const X* x, const axis_layout& l, const float* parameters, float* to) {
    const axis_cut cut = axis_cut::of(l);
    const workspace::lease partial(device.scratch(), static_cast<std::size_t>(cut.pieces * l.outputs) * sizeof(float));
    const global_span<float> sums{partial.template as<float>(), cut.pieces * l.outputs};
    const global_span<const float> of{parameters, l.outputs};
    run_axis_pass<Term>(device, x, l, cut, of, sums);
    device.launch(axis_finish_kernel<Term, axis_step::scale, float>{
        {sums.data, sums.count}, cut.pieces, of, {1.0, {to, l.outputs}, {}, {}, write_mode::overwrite}});
}

/// The gradient of a product, from the number of its zeros and the product of all other elements.
template <class Device, class X, class Y>
void share_product(Device& device, reduction_gradient<X, Y> a) {
    const axis_layout& l = a.layout;
    const auto bytes = static_cast<std::size_t>(l.outputs) * sizeof(float);
    const workspace::lease counts(device.scratch(), bytes), others(device.scratch(), bytes), read(device.scratch(), bytes);
    float* const parameters = read.template as<float>();
    device.fill(parameters, l.outputs, 0.0f);
    reduce_by<axis_term::equal>(device, a.x, l, parameters, counts.template as<float>());
    device.fill(parameters, l.outputs, 1.0f);
    reduce_by<axis_term::product>(device, a.x, l, parameters, others.template as<float>());
    a.kept = others.template as<float>();
    share_out<axis_operation::prod>(device, a, 1, counts.template as<float>());
    fp64::gradient_of_some(device, a, fp64::products_beyond_float{{others.template as<float>(), l.outputs}});
}

}  // namespace on_device

template <simt_device Device>
struct axis_reduction<Device> {
    template <class X, class Y>
    static void run(Device& device, const reduction<X, Y>& a) {
        if constexpr (in_double<X, Y>) {
            fp64::reduce(device, a);
        } else if (a.operation == axis_operation::var || a.operation == axis_operation::std_dev) {
            on_device::reduce_deviations(device, a);
        } else {
            on_device::reduce_along(device, a);
        }
    }

    template <class X, class Y>
    static void backward(Device& device, const reduction_gradient<X, Y>& a) {
        if constexpr (in_double<X, Y>) {
            fp64::reduce_gradient(device, a);
        } else {
            using enum axis_operation;
            using namespace on_device;
            const axis_layout& l = a.layout;
            if (l.outputs == 0 || l.reduced_size == 0) return;
            if (a.operation == sum) return share_out<sum>(device, a, a.factor, nullptr);
            if (a.operation == var) return share_out<var>(device, a, 2 * a.factor, nullptr);
            if (a.operation == std_dev) {
                share_out<std_dev>(device, a, a.factor, nullptr);
                return share_deviations_beyond_float(device, a);
            }
            if (a.operation == logsumexp) return share_out<logsumexp>(device, a, 1, nullptr);
            if (a.operation == prod) return share_product(device, a);
            const workspace::lease counts(device.scratch(), static_cast<std::size_t>(l.outputs) * sizeof(float));
            reduce_by<axis_term::equal>(device, a.x, l, a.kept, counts.template as<float>());
            share_out<amax>(device, a, 1, counts.template as<float>());
        }
    }

    template <class X>
    static void index(Device& device, const reduction_index<X>& a) {
        if constexpr (in_double<X>) {
            fp64::index(device, a);
        } else {
            using namespace on_device;
            const axis_layout& l = a.layout;
            if (l.outputs == 0) return;
            const workspace::lease values(device.scratch(), static_cast<std::size_t>(l.outputs) * sizeof(float));
            reduce_along(device, reduction<X, float>{a.x, l, values.template as<float>(), a.operation});
            device.launch(first_equal_kernel<X>{
                fp64::span_of_layout(a.x, l), l, {values.template as<float>(), l.outputs}, {a.y, l.outputs}});
        }
    }

    template <class X, class Y>
    static void accumulate(Device& device, const running_sum<X, Y>& a) {
        if (a.extents.size() == 0) return;
        if (in_double<X, Y> || a.extents[2] != 1) {
            fp64::accumulate(device, a);
        } else if constexpr (!in_double<X, Y>) {
            const auto launch = [&]<int N>(on_device::constant<N>) {
                const extent size = a.extents.size();
                device.launch(on_device::running_sum_kernel<X, Y, N>{
                    {a.x, size}, {a.y, size}, a.extents[0], a.extents[1], a.is_reversed, a.mode});
            };
            constexpr int n = on_device::longest<X, Y>;
            on_device::can_use_vectors(n, a.extents[1], a.x, a.y) ? launch(on_device::constant<n>{})
                                                                  : launch(on_device::constant<1>{});
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
