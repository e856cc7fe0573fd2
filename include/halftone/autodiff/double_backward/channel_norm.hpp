// SPDX-License-Identifier: MIT
/// \file
/// Batch norm and group norm out of operations that can be differentiated twice: means and variances along axes, and
/// maps that broadcast.
#pragma once

#include <halftone/autodiff/double_backward/axis_rules.hpp>
#include <halftone/autodiff/op/channel_norm.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

struct channel_composition {
    /// x, normalised by its own statistics, or by those that are given.
    template <class Y, class Root, class X, class S, class Gain, class Bias>
    static variable<Y, 4> run(Root& root, const variable<X, 4>& x, const kernel::channel_sets& sets, bool are_given,
                              double epsilon, const variable<S, 1>& mean, const variable<S, 1>& rstd, const Gain& gain,
                              const Bias& bias) {
        const shape<3> parts{sets.images, sets.channels, sets.area}, each{1, sets.channels, 1};
        const auto images = reshaped(x, parts);
        variable<float, 3> normal;
        if (are_given) {
            normal = halftone::map<float>(
                root, [](auto a, auto m, auto r) { return (a - m) * r; }, images, reshaped(mean, each),
                reshaped(rstd, each));
        } else if (sets.groups == 0) {
            normal = normalised(root, images, axis_list<0, 2>{}, epsilon);
        } else {
            normal = reshaped(
                normalised(root, reshaped(x, shape<2>{sets.sets(), sets.set_size()}), axis_list<1>{}, epsilon), parts);
        }
        if constexpr (!is_absent<Gain>)
            normal = halftone::map<float>(
                root, [](auto a, auto g) { return a * g; }, normal, reshaped(as_read(root, gain), each));
        if constexpr (is_absent<Bias>) {
            return reshaped(halftone::map<Y>(
                                root, [](auto a) { return a + 0.0f; }, normal),
                            x.shape());
        } else {
            return reshaped(
                halftone::map<Y>(
                    root, [](auto a, auto b) { return a + b; }, normal, reshaped(as_read(root, bias), each)),
                x.shape());
        }
    }

  private:
    template <class Root, class X, int Rank, int... Axes>
    static variable<float, Rank> normalised(Root& root, const variable<X, Rank>& x, axis_list<Axes...> along,
                                            double epsilon) {
        const auto mean = halftone::mean<float>(root, x, along, keepdim);
        const auto var = halftone::var<float>(root, x, along, keepdim, {.correction = 0});
        return halftone::map<float>(
            root,
            [e = static_cast<float>(epsilon)](auto a, auto m, auto v) { return (a - m) * halftone::rsqrt(v + e); }, x,
            mean, var);
    }
    template <class Root, class Storage>
    static auto as_read(Root& root, const parameter<Storage, 1>& p) {
        return halftone::as_variable(root, p);
    }
    template <class Root, class T>
    static variable<T, 1> as_read(Root&, const variable_weight<T, 1>& w) {
        return w.value;
    }
};

template <>
struct composition<op::batch_norm, void> : channel_composition {};
template <>
struct composition<op::group_norm, void> : channel_composition {};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
