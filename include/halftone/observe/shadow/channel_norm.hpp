// SPDX-License-Identifier: MIT
/// \file
/// Error bounds of batch norm and group norm for shadow runs: those of a norm of rows (rows.hpp), where a row is a set
/// of elements that are normalised together.
#pragma once

#include <halftone/autodiff/op/channel_norm.hpp>
#include <halftone/observe/shadow/rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

template <class Op, class X, class Y, class Gain, class Bias>
struct norm_bounds<channel_norm_record<Op, X, Y, Gain, Bias>> {
    using record = channel_norm_record<Op, X, Y, Gain, Bias>;

    template <class Notes>
    static void forward(Notes& notes, const record& r) {
        std::vector<double> by_sets, mean, rstd;
        of(notes, r).forward(by_sets, mean, rstd);
        const std::vector<float> bias = values(notes, r.bias, r.sets.channels, 0.0f);
        std::vector<double> y(by_sets.size());
        for_each(r.sets, [&](std::size_t at, std::size_t i, std::size_t channel) {
            y[i] = by_sets[at] + 4 * unit_roundoff<float> * std::fabs(static_cast<double>(bias[channel]));
        });
        notes.bound_value(notes.value_of(r.dy), std::move(y));
        notes.bound_value(r.mean.view().data(), std::move(mean));
        notes.bound_value(r.rstd.view().data(), std::move(rstd));
    }
    template <class Notes>
    static auto backward(Notes& notes, const record& r) {
        std::vector<double> dx, dgain, dbias;
        if (r.dy.is_there()) gradients(notes, r, dx, dgain, dbias);
        return [&notes, &r, dx, dgain, dbias] {
            if (dx.empty()) return;
            notes.bound_gradient(r.dx, dx);
            notes.bound_gradient(r.gain, dgain);
            notes.bound_gradient(r.bias, dbias);
        };
    }

  private:
    /// Calls f(place in the order of sets, place in x, channel).
    template <class F>
    static void for_each(const kernel::channel_sets& sets, const F& f) {
        std::size_t at = 0;
        for (extent set = 0; set < sets.sets(); ++set) {
            for (extent k = 0; k < sets.in_set(); ++k) {
                const extent segment = sets.segment_of(set, k);
                for (extent i = 0; i < sets.area; ++i)
                    f(at++, static_cast<std::size_t>(segment * sets.area + i),
                      static_cast<std::size_t>(sets.channel_of(segment)));
            }
        }
    }
    template <class Notes, class Weight>
    static std::vector<float> values(const Notes& notes, const Weight& weight, extent channels, float otherwise) {
        if constexpr (is_absent<Weight>) {
            return std::vector<float>(static_cast<std::size_t>(channels), otherwise);
        } else {
            return notes.read(weight.values());
        }
    }
    /// x and the gain of each element, in the order of sets.
    template <class Notes>
    static shadow_norm of(const Notes& notes, const record& r) {
        const std::vector<float> x = notes.read(r.x.view()), gain = values(notes, r.gain, r.sets.channels, 1.0f);
        shadow_norm norm{r.sets.set_size(),         std::vector<float>(x.size()), std::vector<float>(x.size()), {},
                         notes.read(r.mean.view()), notes.read(r.rstd.view())};
        for_each(r.sets, [&](std::size_t at, std::size_t i, std::size_t channel) {
            norm.x[at] = x[i];
            norm.gain[at] = gain[channel];
        });
        return norm;
    }
    template <class Notes>
    static void gradients(const Notes& notes, const record& r, std::vector<double>& dx, std::vector<double>& dgain,
                          std::vector<double>& dbias) {
        const shadow_norm norm = of(notes, r);
        const std::vector<float> dy = notes.read(r.dy.view());
        std::vector<float> slopes(dy.size());
        for_each(r.sets, [&](std::size_t at, std::size_t i, std::size_t) { slopes[at] = dy[i]; });
        std::vector<double> by_sets, of_columns, others;
        norm.backward(slopes, by_sets, of_columns, others);
        const auto channels = static_cast<std::size_t>(r.sets.channels);
        dx.resize(dy.size()), dgain.assign(channels, 0), dbias.assign(channels, 0);
        const double down =
            2 * shadow_gamma(static_cast<double>(r.sets.images * r.sets.area) + 8, unit_roundoff<float>);
        for_each(r.sets, [&](std::size_t at, std::size_t i, std::size_t channel) {
            const double d = std::fabs(static_cast<double>(slopes[at]));
            dx[i] = by_sets[at];
            dgain[channel] += down * d * std::fabs(norm.standard(at));
            dbias[channel] += down * d;
        });
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
