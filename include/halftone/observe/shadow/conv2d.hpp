// SPDX-License-Identifier: MIT
/// \file
/// Error bounds of convolutions, for shadow runs: those of products (products.hpp), times the same convolution of
/// magnitudes, which the definition computes on the host.
#pragma once

#include <halftone/autodiff/op/conv2d.hpp>
#include <halftone/kernel/conv2d/reference.hpp>
#include <halftone/observe/shadow/products.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The magnitudes of a tensor of rank 4 as a product reads it, and how far each of them as read may be from what is stored,
/// relative to it.
struct shadow_images {
    std::vector<double> magnitudes;
    halftone::shape<4> shape;
    double error;

    shadow_images(const std::vector<float>& values, const halftone::shape<4>& s, double relative)
        : shape(s), error(relative) {
        for (const float v : values) magnitudes.push_back(std::fabs(static_cast<double>(v)));
    }
    const_view<double, 4> view() const { return {magnitudes.data(), shape}; }
};

/// The factor of the products of magnitudes in the bound of a convolution's error: the errors of both operands, and of
/// the sums of what is read.
inline double conv2d_factor(const shadow_images& a, const shadow_images& b, double of_sums) {
    return a.error + b.error + 2 * a.error * b.error + of_sums * (1 + a.error) * (1 + b.error);
}

template <class Roles, class X, class Y, class Weight, class Bias>
struct conv2d_bounds<conv2d_record<Roles, X, Y, Weight, Bias>> {
    using record = conv2d_record<Roles, X, Y, Weight, Bias>;
    using compute = typename Roles::compute;
    using input_grad = typename Roles::input_grad;
    using weight_grad = typename Roles::weight_grad;

    template <class Notes>
    static void forward(Notes& notes, const record& r) {
        using device = std::remove_cvref_t<decltype(notes.device())>;
        const auto p = r.problem();
        const shadow_images x(notes.read(const_view<X, 4>(notes.value_of(r.dx), p.input())), p.input(),
                                read_error<compute, X>);
        const shadow_images w(weight_magnitudes<compute>(notes, r.weight), p.weight(), weight_error<compute>(r.weight));
        std::vector<double> bound(static_cast<std::size_t>(p.result().size()));
        reference::conv2d(x.view(), w.view(), r.options, view<double, 4>(bound.data(), p.result()));
        const double own = conv2d_factor(x, w, sum_error<compute, device>(p.depth() + 3));
        for (double& b : bound) b *= own;
        if constexpr (!is_absent<Bias>) {
            const auto beta = notes.read(values_for<compute>(r.bias));
            const auto errors = bias_errors<compute>(r.bias, beta);
            for (std::size_t i = 0; i < bound.size(); ++i) {
                const std::size_t channel = i / static_cast<std::size_t>(p.positions()) % beta.size();
                bound[i] += errors[channel] +
                            4 * shadow_gamma(3, unit_roundoff<float>) * std::fabs(static_cast<double>(beta[channel]));
            }
        }
        notes.bound_value(notes.value_of(r.dy), std::move(bound));
    }

    template <class Notes>
    static auto backward(Notes& notes, const record& r) {
        std::vector<double> of_x, of_weight, of_bias;
        if (r.dy.is_there()) {
            const auto p = r.problem();
            const auto values = notes.read(r.dy.view());
            of_x = of_input(notes, r, p, values);
            if (!r.x.is_empty()) of_weight = of_filter(notes, r, p, values);
            of_bias.resize(static_cast<std::size_t>(p.outputs));
            for (std::size_t i = 0; i < values.size(); ++i)
                of_bias[i / static_cast<std::size_t>(p.positions()) % of_bias.size()] +=
                    std::fabs(static_cast<double>(values[i]));
            of_bias = times(of_bias, column_sum_error(p.images * p.positions()));
        }
        return [&notes, &r, of_x, of_weight, of_bias] {
            if (of_x.empty()) return;
            notes.bound_gradient(r.dx, of_x);
            if (!of_weight.empty()) notes.bound_gradient(r.weight, of_weight);
            if constexpr (!is_absent<Bias>) notes.bound_gradient(r.bias, of_bias);
        };
    }

  private:
    template <class Notes>
    static std::vector<double> of_input(Notes& notes, const record& r, const conv2d_problem& p,
                                        const std::vector<float>& dy) {
        using device = std::remove_cvref_t<decltype(notes.device())>;
        using W = typename decltype(values_for<compute>(r.weight))::value_type;
        const shadow_images g(dy, p.result(), read_error<input_grad, Y>);
        const shadow_images w(weight_magnitudes<compute>(notes, r.weight), p.weight(),
                                both(weight_error<compute>(r.weight), read_error<input_grad, W>));
        std::vector<double> bound(static_cast<std::size_t>(p.input().size()));
        reference::conv2d_input(w.view(), g.view(), r.options, view<double, 4>(bound.data(), p.input()));
        return times(std::move(bound),
                     conv2d_factor(g, w, sum_error<input_grad, device>(p.group_outputs() + p.window.taps())));
    }
    template <class Notes>
    static std::vector<double> of_filter(Notes& notes, const record& r, const conv2d_problem& p,
                                         const std::vector<float>& dy) {
        using device = std::remove_cvref_t<decltype(notes.device())>;
        const shadow_images g(dy, p.result(), read_error<weight_grad, Y>);
        const shadow_images x(notes.read(r.x.view()), p.input(), read_error<weight_grad, X>);
        std::vector<double> bound(static_cast<std::size_t>(p.weight().size()));
        reference::conv2d_weight(x.view(), g.view(), r.options, view<double, 4>(bound.data(), p.weight()));
        const extent terms = p.images * (p.positions() + p.window.down.positions);  // and sums of pieces
        return times(std::move(bound), conv2d_factor(g, x, sum_error<weight_grad, device>(terms)));
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
