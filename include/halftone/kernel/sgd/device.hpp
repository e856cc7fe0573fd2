// SPDX-License-Identifier: MIT
/// \file
/// A step of stochastic gradient descent on a GPU; sgd.hpp has its arguments, its contract and an example. Its bits are
/// the CPU's where adamw/device.hpp's are.
#pragma once

#include <cmath>

#include <halftone/kernel/common/update/device.hpp>
#include <halftone/kernel/common/update/rows.hpp>
#include <halftone/kernel/sgd/sgd.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

template <rounding Rounding, rounding CopyRounding, class Param, class Copy, class Accumulate, class State,
          run_access Access>
struct sgd_kernel {
    static constexpr int threads = 256;
    static constexpr int n = update_run;
    using present = present_step<sgd_scalars>;
    static constexpr word shared_bytes = sizeof(present);

    global_span<Param> master;
    global_span<Copy> copy;
    global_span<const Accumulate> gradient;
    global_span<State> momentum;  // or none
    sgd_coefficients coefficients;
    float nesterov;  // the coefficient of Nesterov's momentum, or 0
    group_rates rates;
    global_span<const gradient_factors> factors;
    global_span<const step_record> step;
    rounding_key key;
    int blocks;

    grid_shape grid() const { return {blocks, 1, 1}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        take_step<present>(simt, *this);
    }

    // ---- for take_step and step_rows_kernel

    HALFTONE_HD HALFTONE_INLINE sgd_kernel part(extent i, extent n_elements,
                                                const global_span<const Accumulate>& g) const {
        return {part_of(master, i, n_elements), part_of(copy, i, n_elements), g, part_of(momentum, i, n_elements), coefficients,
                nesterov, rates, factors, step, part_of(key, i), blocks};
    }
    HALFTONE_HD HALFTONE_INLINE sgd_scalars scalars(const step_record& record) const {
        return scalars_of(coefficients, rates, record);
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void update(Simt simt, const present& p, extent i) const {
        const sgd_scalars& s = p.scalars;
        const int here = master.count - i * n < n ? static_cast<int>(master.count - i * n) : n;
        const vec<float, n> g = load_run<n, Access>(simt, gradient, i, here);
        vec<float, n> w = load_master<Access>(simt, master, copy, i, here), d;
        HALFTONE_UNROLL for (int e = 0; e < n; ++e) d[e] = std::fma(w[e], s.decay, read_gradient(g[e], p.factors));
        if (momentum.is_there()) {
            // In the first step the old momentum is multiplied by zero: it was set to zero when it was made.
            vec<float, n> m = load_run<n, Access>(simt, momentum, i, here);
            HALFTONE_UNROLL for (int e = 0; e < n; ++e) {
                m[e] = std::fma(m[e], s.momentum, d[e] * s.gradient_weight);
                d[e] = nesterov != 0.0f ? std::fma(m[e], nesterov, d[e]) : m[e];
            }
            store_run<Access>(simt, momentum, i, here,
                              round_run<State, rounding::stochastic, Access>(m, key, 1, p.step, i));
        }
        HALFTONE_UNROLL for (int e = 0; e < n; ++e) w[e] = std::fma(d[e], -s.lr, w[e]);
        if constexpr (std::is_same_v<Param, bfloat16_remainder>) {
            store_halves<Access>(simt, master, copy, i, here, w);
        } else {
            const vec<Param, n> rounded = round_run<Param, Rounding, Access>(w, key, 0, p.step, i);
            store_run<Access>(simt, master, i, here, rounded);
            if (copy.is_there())
                store_run<Access>(simt, copy, i, here, round_copy<Copy, CopyRounding>(to_float(rounded)));
        }
    }
};

}  // namespace on_device

template <simt_device Device>
struct sgd<Device> {
    template <rounding Rounding, class Param, class Copy, class Accumulate, class State,
              rounding CopyRounding = rounding::nearest_even>
    static void run(Device& device, const sgd_arguments<Param, Copy, Accumulate, State>& a) {
        check(a);
        using namespace on_device;
        using kernel = sgd_kernel<Rounding, CopyRounding, Param, Copy, Accumulate, State, run_access::elements>;
        const int blocks = update_blocks(a.master.size(), kernel::threads);
        const float nesterov =
            a.coefficients.kind == momentum_kind::nesterov ? static_cast<float>(a.coefficients.momentum) : 0.0f;
        const global_span<State> momentum =
            a.coefficients.momentum == 0 ? global_span<State>{} : simt::span_of(a.momentum);
        const auto launch = [&]<run_access Access>(std::integral_constant<run_access, Access>) {
            device.launch(sgd_kernel<Rounding, CopyRounding, Param, Copy, Accumulate, State, Access>{
                simt::span_of(a.master), simt::span_of(a.copy), simt::span_of(a.gradient), momentum, a.coefficients, nesterov,
                a.rates, {a.factors, 1}, {a.step, 1}, a.key, blocks});
        };
        launch_with_access<update_run>(launch, a.master.data(), a.copy.data(), a.gradient.data(), momentum.data);
    }

    template <rounding Rounding, class Param, class Copy, class Accumulate, class State,
              rounding CopyRounding = rounding::nearest_even>
    static void run_rows(Device& device, const sgd_arguments<Param, Copy, Accumulate, State>& a,
                         const gradient_rows<Accumulate>& rows) {
        check_rows("sgd", a, rows);
        using namespace on_device;
        const float nesterov =
            a.coefficients.kind == momentum_kind::nesterov ? static_cast<float>(a.coefficients.momentum) : 0.0f;
        const global_span<State> momentum =
            a.coefficients.momentum == 0 ? global_span<State>{} : simt::span_of(a.momentum);
        const auto launch = [&]<run_access Access>(std::integral_constant<run_access, Access>) {
            using kernel = sgd_kernel<Rounding, CopyRounding, Param, Copy, Accumulate, State, Access>;
            const int blocks = update_blocks(rows.values.size(), kernel::threads);
            device.launch(step_rows_kernel<kernel, Accumulate>{
                {simt::span_of(a.master), simt::span_of(a.copy), {}, momentum, a.coefficients, nesterov, a.rates, {a.factors, 1},
                 {a.step, 1}, a.key, blocks},
                {rows.indices.data(), rows.indices.size()}, {rows.count, 1}, {rows.values.data(), rows.values.size()},
                rows.values.extent_of(1)});
        };
        launch_with_row_access<update_run>(rows.values.extent_of(1), launch, a.master.data(), a.copy.data(),
                                           rows.values.data(), momentum.data);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
