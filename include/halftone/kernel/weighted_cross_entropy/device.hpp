// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy with label smoothing, class weights and a z-loss on a GPU: the kernel of kernel/cross_entropy,
/// followed, with label smoothing, by another pass over the rows. weighted_cross_entropy.hpp has the arguments and the
/// contract.
#pragma once

#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/cross_entropy/device.hpp>
#include <halftone/kernel/exponential.hpp>
#include <halftone/kernel/sum/device.hpp>
#include <halftone/kernel/weighted_cross_entropy/fp64.hpp>
#include <halftone/kernel/weighted_cross_entropy/weighted_cross_entropy.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// The operands that both passes read.
template <class X>
struct weighted_logits {
    global_span<const X> logits;
    global_span<const std::int32_t> targets;
    global_span<const float> maximum, sum, weight, weight_sum;
    extent rows, classes, stride;
    std::int32_t ignored;
    float label_smoothing, z_loss;

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE float weight_of(Simt simt, std::int32_t target) const {
        if (target < 0 || target >= classes) return 0;
        return weight.is_there() ? simt.load(weight, target) : 1.0f;
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE float all_weights(Simt simt) const {
        return weight.is_there() ? simt.load(weight_sum, 0) : static_cast<float>(classes);
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE weighted_row<float> row(Simt simt, float w, float log_sum_exp) const {
        return weighted_row<float>::of(label_smoothing, z_loss, w, all_weights(simt), classes, log_sum_exp);
    }
};

template <class X, int N, int Threads>
struct weighted_cross_entropy_kernel {
    using team = row_team<Threads, 1>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    weighted_logits<X> in;
    global_span<float> losses, row_weights;  // row_weights may be without data

    grid_shape grid() const { return team::grid(in.rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt);
        if (row >= in.rows) return;
        const int me = team::member(simt);
        const std::int32_t target = simt.load(in.targets, row);
        const float w = target == in.ignored ? 0.0f : in.weight_of(simt, target);
        if (me == 0 && row_weights.is_there()) simt.store(row_weights, row, w);
        if (target == in.ignored || target < 0 || target >= in.classes) return;  // the loss is already 0 or NaN
        const float largest = simt.load(in.maximum, row), log_sum = std::log(simt.load(in.sum, row));
        float below = 0;
        if (in.label_smoothing != 0) {
            const auto x = in.logits.part(row * in.stride, in.classes);
            const auto steps = row_steps<N, Threads, 0>::over(me, in.classes, x.data, in.weight.data);
            // Two loops: a single one that tests for weights in each step spills a register on sm_80.
            if (in.weight.is_there()) {
                steps.each([&]<int M>(const row_place<M>& place) {
                    const vec<float, M> v = place.load(simt, x), weights = place.load(simt, in.weight);
                    HALFTONE_UNROLL for (int e = 0; e < M; ++e) below += weights[e] * (largest - v[e]);
                });
            } else {
                steps.each([&]<int M>(const row_place<M>& place) {
                    const vec<float, M> v = place.load(simt, x);
                    HALFTONE_UNROLL for (int e = 0; e < M; ++e) below += largest - v[e];
                });
            }
            below = team::sum(simt, below, constant<0>{});
        }
        if (me != 0) return;
        const weighted_row<float> c = in.row(simt, w, largest + log_sum);
        float loss = c.of_target * simt.load(losses, row) + c.extra;
        if (in.label_smoothing != 0) loss += c.of_each * (below + in.all_weights(simt) * log_sum);
        simt.store(losses, row, loss);
    }
};

/// dlogits = (of_target (p - onehot(target)) + of_sum p - of_each weight) gradient / count. The gradients of
/// consecutive rows are `step` floats apart.
template <class X, class D, int N, int Threads>
struct weighted_cross_entropy_backward_kernel {
    using team = row_team<Threads>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = 0;

    weighted_logits<X> in;
    global_span<const float> gradient, count;
    global_span<D> dlogits;
    extent step, dstride;

    grid_shape grid() const { return team::grid(in.rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt);
        if (row >= in.rows) return;
        const auto x = in.logits.part(row * in.stride, in.classes);
        const auto to = dlogits.part(row * dstride, in.classes);
        const std::int32_t target = simt.load(in.targets, row);
        const bool counts = target != in.ignored;
        const float largest = simt.load(in.maximum, row), total = simt.load(in.sum, row);
        float slope = simt.load(gradient, row * step);
        if (count.is_there()) slope = over_count(slope, simt.load(count, 0));
        if (target < 0 || target >= in.classes) slope = not_a_number;
        const weighted_row<float> c = in.row(simt, in.weight_of(simt, target), largest + std::log(total));
        const float of_target = slope * c.of_target / total, of_sum = slope * c.of_sum / total, each = slope * c.of_each;
        const bool smooths = in.label_smoothing != 0 && in.weight.is_there();

        const auto steps = row_steps<N, Threads, 0>::over(team::member(simt), in.classes, to.data, x.data, in.weight.data);
        steps.each([&]<int M>(const row_place<M>& place) {
            const extent first = place.head + place.index * M;
            vec<float, M> v{};
            if (counts) {
                v = place.load(simt, x);
                vec<float, M> weights;
                HALFTONE_UNROLL for (int e = 0; e < M; ++e) weights[e] = 1;
                if (smooths) weights = place.load(simt, in.weight);
                HALFTONE_UNROLL for (int e = 0; e < M; ++e) {
                    const float power = exponential<D>(v[e] - largest);
                    const float hit = first + e == target ? power - total : power;
                    v[e] = hit * of_target + power * of_sum - each * weights[e];
                }
            }
            place.store(simt, to, v);
        });
    }
};

}  // namespace on_device

template <simt_device Device>
struct weighted_cross_entropy<Device> {
    template <class X>
    static void forward_rows(Device& device, const cross_entropy_forward<X>& a,
                             const cross_entropy_terms<statistic<X>>& terms, const view<statistic<X>, 1>& row_weights) {
        cross_entropy<Device>::forward_rows(device, a);
        check(terms, a.logits.extent_of(1));
        if constexpr (in_double<X>) {
            fp64::weighted_cross_entropy_rows(device, a, terms, row_weights);
        } else {
            using namespace on_device;
            const auto in = logits_of<X>(a.logits, a.targets, a.maximum, a.sum, terms, a.ignore_index);
            const auto launch = [&]<int Threads>(constant<Threads>) {
                device.launch(weighted_cross_entropy_kernel<X, longest<X>, Threads>{in, simt::span_of(a.losses),
                                                                                    simt::span_of(row_weights)});
            };
            in.classes <= held_by_warp ? launch(constant<32>{}) : launch(constant<256>{});
        }
    }

    template <class X, class D>
    static void backward(Device& device, const cross_entropy_backward<X, D>& a,
                         const cross_entropy_terms<statistic<X, D>>& terms) {
        check(a);
        check(terms, a.logits.extent_of(1));
        if constexpr (in_double<X, D>) {
            fp64::weighted_cross_entropy_rows(device, a, terms);
        } else {
            using namespace on_device;
            const auto in = logits_of<X>(a.logits, a.targets, a.maximum, a.sum, terms, a.ignore_index);
            const auto launch = [&]<int Threads>(constant<Threads>) {
                device.launch(weighted_cross_entropy_backward_kernel<X, D, longest<X, D>, Threads>{
                    in,
                    simt::span_of(a.gradient),
                    {a.count.data(), 1},
                    simt::bounding_span_of(a.dlogits),
                    a.gradient.extent_of(0) == 1 ? 0 : 1,
                    a.dlogits.stride_of(0)});
            };
            in.classes <= held_by_warp ? launch(constant<32>{}) : launch(constant<256>{});
        }
    }

  private:
    template <class X>
    static on_device::weighted_logits<X> logits_of(const const_view<X, 2>& logits, const const_view<std::int32_t, 1>& targets,
                                                   const const_view<float, 1>& maximum, const const_view<float, 1>& sum,
                                                   const cross_entropy_terms<float>& terms, std::int32_t ignored) {
        return {simt::bounding_span_of(logits), simt::span_of(targets),      simt::span_of(maximum),
                simt::span_of(sum),             simt::span_of(terms.weight), {terms.weight_sum.data(), 1},
                logits.extent_of(0),            logits.extent_of(1),         logits.stride_of(0),
                ignored,                        terms.label_smoothing,       terms.z_loss};
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
