// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy on a GPU; cross_entropy.hpp has its arguments, its contract and an example.
///
/// The forward pass reads a row once: a warp holds a short row in registers, a block streams a long one, of any
/// alignment. The backward pass is one pass over the logits. The mean is computed by one block.
#pragma once

#include <cmath>
#include <limits>

#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/common/rows/online.hpp>
#include <halftone/kernel/cross_entropy/cross_entropy.hpp>
#include <halftone/kernel/cross_entropy/fp64.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

/// One row for `Threads` threads, in vectors of N; a thread holds `Held` vectors in registers, 0: none.
template <class X, int N, int Threads, int Held>
struct cross_entropy_kernel {
    using team = row_team<Threads>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    global_span<const X> logits;
    global_span<const std::int32_t> targets;
    global_span<float> losses, maximum, sum;
    extent rows, classes, stride;
    std::int32_t ignored;

    grid_shape grid() const { return team::grid(rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt);
        if (row >= rows) return;
        const int me = team::member(simt);
        const std::int32_t target = simt.load(targets, row);
        if (target == ignored) {
            if (me == 0) leave(simt, row, 0, {0, 1});
            return;
        }
        const auto x = logits.part(row * stride, classes);
        exponential_sum<X> mine;
        if constexpr (Held > 0) {
            const int vectors = static_cast<int>(classes / N) - me;  // from this thread's on
            vec<X, N> held[Held];
            hold<Threads>(simt, x.from(me * N), 0, vectors, held);
            HALFTONE_UNROLL for (int i = 0; i < Held; ++i) {
                if (i * Threads < vectors) mine.largest = largest_of(mine.largest, to_float(held[i]));
            }
            const float below = mine.largest == minus_infinity ? 0.0f : mine.largest;
            HALFTONE_UNROLL for (int i = 0; i < Held; ++i) {
                if (i * Threads < vectors) {
                    const vec<float, N> v = to_float(held[i]);
                    HALFTONE_UNROLL for (int e = 0; e < N; ++e) mine.sum += exponential<X>(v[e] - below);
                }
            }
        } else {
            const auto steps = row_steps<N, Threads, 0>::over(me, classes, x.data);
            steps.each([&](const auto& place) { mine.add(place.load(simt, x)); });
        }
        const exponential_sum<X> whole = mine.template over<team>(simt);
        if (me != 0) return;
        const float excess = std::log(whole.sum);
        float loss = not_a_number;
        // The target's logit is subtracted from the maximum before the logarithm is added: exact if it is the maximum.
        if (target >= 0 && target < classes) loss = excess + (whole.largest - detail::in_float(simt.load(x, target)));
        leave(simt, row, loss, whole);
    }

  private:
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void leave(Simt simt, extent row, float loss, const exponential_sum<X>& of_row) const {
        simt.store(losses, row, loss);
        simt.store(maximum, row, of_row.largest);
        simt.store(sum, row, of_row.sum);
    }
};

/// dlogits = (softmax(x) - onehot(target)) gradient / count, with a gradient every `step` floats.
template <class X, class D, int N, int Threads>
struct cross_entropy_backward_kernel {
    using team = row_team<Threads>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = 0;

    global_span<const X> logits;
    global_span<const std::int32_t> targets;
    global_span<const float> maximum, sum, gradient, count;
    global_span<D> dlogits;
    extent rows, classes, stride, step, dstride;
    std::int32_t ignored;

    grid_shape grid() const { return team::grid(rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt);
        if (row >= rows) return;
        const auto x = logits.part(row * stride, classes);
        const auto to = dlogits.part(row * dstride, classes);
        const std::int32_t target = simt.load(targets, row);
        const bool counts = target != ignored;
        const float largest = simt.load(maximum, row), total = simt.load(sum, row);
        const float slope = simt.load(gradient, row * step);
        float factor = (count.is_there() ? slope / simt.load(count, 0) : slope) / total;
        if (target < 0 || target >= classes) factor = not_a_number;

        const auto steps = row_steps<N, Threads, 0>::over(team::member(simt), classes, to.data, x.data);
        steps.each([&]<int M>(const row_place<M>& place) {
            const extent first = place.head + place.index * M;
            vec<float, M> v{};
            if (counts) {
                v = place.load(simt, x);
                HALFTONE_UNROLL for (int e = 0; e < M; ++e) {
                    const float power = exponential<D>(v[e] - largest);
                    v[e] = (first + e == target ? power - total : power) * factor;
                }
            }
            place.store(simt, to, v);
        });
    }
};

/// The mean of the losses of rows that count, and their number.
struct mean_loss_kernel {
    static constexpr int threads = 256;
    static constexpr word shared_bytes = threads / 32 * sizeof(double);

    global_span<const float> losses;
    global_span<const std::int32_t> targets;
    global_span<float> loss, count;  // or empty
    std::int32_t ignored;

    grid_shape grid() const { return {1, 1, 1}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const shared_span<double> scratch{0, threads / 32};
        double sum = 0, counted = 0;
        for (extent i = simt.thread(); i < losses.count; i += threads) {
            sum += static_cast<double>(simt.load(losses, i));
            counted += simt.load(targets, i) == ignored ? 0 : 1;
        }
        sum = simt::block_sum<threads>(simt, sum, scratch);
        counted = simt::block_sum<threads>(simt, counted, scratch);
        if (simt.thread() != 0) return;
        if (loss.is_there()) simt.store(loss, 0, static_cast<float>(sum / counted));
        if (count.is_there()) simt.store(count, 0, static_cast<float>(counted));
    }
};

}  // namespace on_device

template <simt_device Device>
struct cross_entropy<Device> {
    /// Does nothing: the host cannot read the targets. A row with an invalid target gets a loss and a gradient of NaN,
    /// which every check for overflow finds.
    static void check_targets(Device&, extent, const const_view<std::int32_t, 1>&, std::int32_t = -100) {}

    template <class X>
    static void forward_rows(Device& device, const cross_entropy_forward<X>& a) {
        check(a);
        using namespace on_device;
        constexpr int n = longest<X>;
        const extent rows = a.logits.extent_of(0), classes = a.logits.extent_of(1), stride = a.logits.stride_of(0);
        const auto launch = [&]<int Threads, int Held>(constant<Threads>, constant<Held>) {
            device.launch(cross_entropy_kernel<X, n, Threads, Held>{
                simt::bounding_span_of(a.logits), simt::span_of(a.targets), simt::span_of(a.losses), simt::span_of(a.maximum),
                simt::span_of(a.sum), rows, classes, stride, a.ignore_index});
        };
        if (classes <= held_by_warp && stride % n == 0 && can_use_vectors(n, classes, a.logits.data())) {
            launch(constant<32>{}, constant<held_vectors<n>>{});
        } else {
            launch(constant<256>{}, constant<0>{});
        }
    }

    static void mean(Device& device, const const_view<double, 1>& losses, const const_view<std::int32_t, 1>& targets,
                     const view<double, 1>& loss, const view<double, 1>& count, std::int32_t ignore_index = -100) {
        fp64::mean_loss(device, losses, targets, loss, count, ignore_index);
    }
    static void mean(Device& device, const const_view<float, 1>& losses, const const_view<std::int32_t, 1>& targets,
                     const view<float, 1>& loss, const view<float, 1>& count, std::int32_t ignore_index = -100) {
        device.launch(on_device::mean_loss_kernel{
            simt::span_of(losses), simt::span_of(targets), {loss.data(), 1}, {count.data(), 1}, ignore_index});
    }

    template <class X>
        requires in_double<X>
    static void forward_rows(Device& device, const cross_entropy_forward<X>& a) { fp64::cross_entropy_rows(device, a); }
    template <class X, class D>
        requires in_double<X, D>
    static void backward(Device& device, const cross_entropy_backward<X, D>& a) { fp64::cross_entropy_rows(device, a); }

    template <class X>
    static void forward(Device& device, const cross_entropy_forward<X>& a) {
        forward_rows(device, a);
        if (a.loss.data() != nullptr || a.count.data() != nullptr)
            mean(device, a.losses, a.targets, a.loss, a.count, a.ignore_index);
    }

    template <class X, class D>
    static void backward(Device& device, const cross_entropy_backward<X, D>& a) {
        check(a);
        using namespace on_device;
        const extent rows = a.logits.extent_of(0), classes = a.logits.extent_of(1);
        const auto launch = [&]<int Threads>(constant<Threads>) {
            device.launch(
                cross_entropy_backward_kernel<X, D, longest<X, D>, Threads>{simt::bounding_span_of(a.logits),
                                                                            simt::span_of(a.targets),
                                                                            simt::span_of(a.maximum),
                                                                            simt::span_of(a.sum),
                                                                            simt::span_of(a.gradient),
                                                                            {a.count.data(), 1},
                                                                            simt::bounding_span_of(a.dlogits),
                                                                            rows,
                                                                            classes,
                                                                            a.logits.stride_of(0),
                                                                            a.gradient.extent_of(0) == 1 ? 0 : 1,
                                                                            a.dlogits.stride_of(0),
                                                                            a.ignore_index});
        };
        classes <= held_by_warp ? launch(constant<32>{}) : launch(constant<256>{});
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
