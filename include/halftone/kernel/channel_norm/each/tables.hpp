// SPDX-License-Identifier: MIT
/// \file
/// The values of normalisation by channels that are computed once per set, per channel or per segment, on every device
/// with one thread for each of these. S is float, or double if a view has doubles. channel_norm.hpp has the contract.
#pragma once

#include <cmath>

#include <halftone/kernel/axis_reduction/fp64.hpp>
#include <halftone/kernel/channel_norm/channel_norm.hpp>
#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/in_float.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace channel_each {

using simt::global_span;

/// The normalised elements of a segment are (x - mean) scale + shift.
template <class S>
struct segment_line {
    S mean, scale, shift;
};
/// The gradient of a segment's elements is by_dy dy + by_x (x - mean) + rest.
template <class S>
struct segment_slope {
    S mean, by_dy, by_x, rest;
};
/// rest * v; 0 also for an infinite v if there is no rest.
HALFTONE_HD constexpr double by_rest(double rest, double v) { return rest == 0 ? 0.0 : rest * v; }
/// The sums of a segment: of dy, and of dy (x - mean).
template <class S>
struct segment_sums {
    S dy, dy_x;

    /// The sum of dy (x - (mean + rest)).
    HALFTONE_HD double about(double rest) const {
        return static_cast<double>(dy_x) - by_rest(rest, static_cast<double>(dy));
    }
};

/// What a float mean lacks, for sets whose mean is far from zero, compared with their deviation. If variances are given,
/// they and the means are replaced by what double gives; else rstd is. The rest of the mean, 0 for all other sets, is
/// written if there is memory for it.
template <class X, class S>
struct far_mean {
    global_span<const X> x;
    axis_layout layout;  // a set's elements are reduced
    global_span<const S> mean, rstd;
    global_span<S> better_mean, var, rest;
    double epsilon;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD bool is_far(Thread thread, extent set) const {
        const auto m = static_cast<double>(thread.load(mean, set));
        const double scale = rstd.is_there() ? static_cast<double>(thread.load(rstd, set))
                                             : 1 / std::sqrt(static_cast<double>(thread.load(var, set)) + epsilon);
        return is_finite(m) && std::fabs(m) * scale > 256;
    }
    /// `by`: the variance of the set's elements, and the mean of their differences from the float mean.
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void put(Thread thread, extent set, const reference::reduced& by) const {
        double lacking = by.kept;
        if (var.is_there()) {
            const double exact = static_cast<double>(thread.load(mean, set)) + by.kept;
            thread.store(var, set, static_cast<S>(by.value));
            thread.store(better_mean, set, static_cast<S>(exact));
            lacking = exact - static_cast<double>(static_cast<S>(exact));
        }
        if (rest.is_there()) thread.store(rest, set, static_cast<S>(lacking));
    }
    /// Computes a set's statistics again with one thread per set.
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent set) const {
        if (!is_far(thread, set)) return put_nothing(thread, set);
        const auto m = static_cast<double>(thread.load(mean, set));
        const auto elements = fp64::axis_elements_of(thread, x, layout, set);
        const auto difference = [&](extent i) { return elements(i) - m; };
        put(thread, set,
            reference::variance_of(layout.reduced_size, difference, 1.0 / static_cast<double>(layout.reduced_size)));
    }
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void put_nothing(Thread thread, extent set) const {
        if (rest.is_there()) thread.store(rest, set, S(0));
    }
};

/// Computes 1 / sqrt(variance + epsilon) from the variances, and updates the running statistics.
template <class S, class R>
struct finish_statistics {
    global_span<const S> mean, var;
    global_span<S> rstd;
    global_span<R> running_mean, running_var;
    double epsilon, momentum, unbiased;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent set) const {
        const auto m = static_cast<double>(thread.load(mean, set)), v = static_cast<double>(thread.load(var, set));
        thread.store(rstd, set, static_cast<S>(1 / std::sqrt(v + epsilon)));
        if (!running_mean.is_there() || !is_finite(m) || !is_finite(v)) return;
        update(thread, running_mean, set, m);
        update(thread, running_var, set, v * unbiased);
    }

  private:
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void update(Thread thread, const global_span<R>& running, extent set, double now) const {
        const auto before = static_cast<double>(thread.load(running, set));
        thread.store(running, set, static_cast<R>(before + momentum * (now - before)));
    }
};
/// Computes 1 / sqrt(variance + epsilon) from the running variances, and converts the means to the type of sums.
template <class S, class R>
struct given_statistics {
    global_span<const R> running_mean, running_var;
    global_span<S> mean, rstd;
    double epsilon;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent c) const {
        thread.store(mean, c, detail::in_type<S>(thread.load(running_mean, c)));
        thread.store(rstd, c,
                     static_cast<S>(1 / std::sqrt(static_cast<double>(thread.load(running_var, c)) + epsilon)));
    }
};

HALFTONE_KERNEL template <class S, class Thread, class W>
HALFTONE_HD S load_or(Thread thread, const global_span<const W>& s, extent i, S otherwise) {
    return s.is_there() ? detail::in_type<S>(thread.load(s, i)) : otherwise;
}

template <class S, class W>
struct make_line {
    channel_sets sets;
    global_span<const S> mean, rest, rstd;  // what the means lack is optional
    global_span<const W> gain, bias;
    global_span<segment_line<S>> table;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent segment) const {
        const extent c = sets.channel_of(segment), set = sets.set_of(segment);
        const S scale = thread.load(rstd, set) * load_or<S>(thread, gain, c, S(1));
        const double shift = load_or<double>(thread, bias, c, 0.0) -
                             by_rest(fp64::load_or_zero(thread, rest, set), static_cast<double>(scale));
        thread.store(table, segment, segment_line<S>{thread.load(mean, set), scale, static_cast<S>(shift)});
    }
};

/// The gradients of the gain and the bias of a channel.
template <class S, class G>
struct sum_channel {
    channel_sets sets;
    global_span<const segment_sums<S>> sums;
    global_span<const S> rest, rstd;
    global_span<G> dgain, dbias;
    write_mode gain_mode, bias_mode;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent c) const {
        double by_gain = 0, by_bias = 0;
        for (extent n = 0; n < sets.images; ++n) {
            const extent segment = n * sets.channels + c;
            const segment_sums<S> of = thread.load(sums, segment);
            const extent set = sets.set_of(segment);
            by_gain += of.about(fp64::load_or_zero(thread, rest, set)) * static_cast<double>(thread.load(rstd, set));
            by_bias += static_cast<double>(of.dy);
        }
        if (dgain.is_there()) put(thread, dgain, c, by_gain, gain_mode);
        if (dbias.is_there()) put(thread, dbias, c, by_bias, bias_mode);
    }

  private:
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void put(Thread thread, const global_span<G>& to, extent c, double value, write_mode mode) const {
        if (mode == write_mode::add) value += static_cast<double>(thread.load(to, c));
        thread.store(to, c, static_cast<G>(value));
    }
};

/// Computes the slopes of all segments of a set. The sums over h = dy gain, which all elements of the set share, are
/// computed from the sums of the set's segments.
template <class S, class W>
struct make_slopes {
    channel_sets sets;
    global_span<const segment_sums<S>> sums;
    global_span<const S> mean, rest, rstd;
    global_span<const W> gain;
    global_span<segment_slope<S>> table;
    bool are_given;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent set) const {
        const S average = thread.load(mean, set);
        const auto scale = static_cast<double>(thread.load(rstd, set));
        const double off = fp64::load_or_zero(thread, rest, set);
        const auto count = static_cast<double>(sets.set_size());
        double sum_h = 0, sum_hx = 0;
        for (extent i = 0; !are_given && i < sets.in_set(); ++i) {
            const extent segment = sets.segment_of(set, i);
            const double by = gain_of(thread, segment);
            const segment_sums<S> of = thread.load(sums, segment);
            sum_h += by * static_cast<double>(of.dy);
            sum_hx += by * of.about(off);
        }
        const double by_x = -scale * scale * scale * sum_hx / count,
                     constant = -scale * sum_h / count - by_rest(off, by_x);
        for (extent i = 0; i < sets.in_set(); ++i) {
            const extent segment = sets.segment_of(set, i);
            thread.store(table, segment,
                         segment_slope<S>{average, static_cast<S>(scale * gain_of(thread, segment)),
                                          static_cast<S>(by_x), static_cast<S>(constant)});
        }
    }

  private:
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD double gain_of(Thread thread, extent segment) const {
        return load_or<double>(thread, gain, sets.channel_of(segment), 1.0);
    }
};

// ---- elements with one thread each, for GPUs, and for doubles on all devices

template <class S, class X, class Y>
struct apply_line {
    extent area;
    global_span<const X> x;
    global_span<const segment_line<S>> table;
    global_span<Y> y;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const segment_line<S> with = thread.load(table, i / area);
        thread.store(y, i,
                     static_cast<Y>((detail::in_type<S>(thread.load(x, i)) - with.mean) * with.scale + with.shift));
    }
};
template <class S, class X, class Y>
struct apply_slope {
    extent area;
    global_span<const X> x;
    global_span<const Y> dy;
    global_span<const segment_slope<S>> table;
    global_span<X> dx;
    write_mode mode;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const segment_slope<S> with = thread.load(table, i / area);
        const S deviation = detail::in_type<S>(thread.load(x, i)) - with.mean;
        S value = with.by_dy * detail::in_type<S>(thread.load(dy, i)) + (with.by_x * deviation + with.rest);
        if (mode == write_mode::add) value = detail::in_type<S>(thread.load(dx, i)) + value;
        thread.store(dx, i, static_cast<X>(value));
    }
};
/// The sums of a segment, with one thread per segment, for doubles.
template <class X, class Y>
struct sum_segment {
    channel_sets sets;
    global_span<const X> x;
    global_span<const Y> dy;
    global_span<const double> mean;
    global_span<segment_sums<double>> sums;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent segment) const {
        const double average = thread.load(mean, sets.set_of(segment));
        segment_sums<double> of{0, 0};
        for (extent i = segment * sets.area; i < (segment + 1) * sets.area; ++i) {
            const auto d = static_cast<double>(thread.load(dy, i));
            of.dy += d;
            of.dy_x += d * (static_cast<double>(thread.load(x, i)) - average);
        }
        thread.store(sums, segment, of);
    }
};

}  // namespace channel_each

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
