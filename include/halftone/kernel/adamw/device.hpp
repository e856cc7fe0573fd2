// SPDX-License-Identifier: MIT
/// \file
/// A step of AdamW on a GPU; adamw.hpp has its arguments, its contract and an example.
///
/// Where multiplication and addition are one operation on the CPU too (AVX2 and later), the bits are the CPU's, random
/// roundings included.
#pragma once

#include <cmath>

#include <halftone/kernel/adamw/adamw.hpp>
#include <halftone/kernel/common/update/device.hpp>
#include <halftone/kernel/common/update/rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

template <rounding Rounding, rounding CopyRounding, class Param, class Copy, class Accumulate, class State,
          run_access Access>
struct adamw_kernel {
    static constexpr int threads = 256;
    static constexpr int n = update_run;
    using present = present_step<adamw_scalars>;
    static constexpr word shared_bytes = sizeof(present);

    global_span<Param> master;
    global_span<Copy> copy;
    global_span<const Accumulate> gradient;
    global_span<State> first, second;
    adamw_decays decays;
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

    HALFTONE_HD HALFTONE_INLINE adamw_kernel part(extent i, extent n_elements,
                                                  const global_span<const Accumulate>& g) const {
        return {part_of(master, i, n_elements), part_of(copy, i, n_elements), g, part_of(first, i, n_elements), part_of(second, i, n_elements),
                decays, rates, factors, step, part_of(key, i), blocks};
    }
    HALFTONE_HD HALFTONE_INLINE adamw_scalars scalars(const step_record& record) const {
        return scalars_of(decays, rates, record);
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void update(Simt simt, const present& p, extent i) const {
        const adamw_scalars& s = p.scalars;
        const int here = master.count - i * n < n ? static_cast<int>(master.count - i * n) : n;
        const vec<float, n> g = load_run<n, Access>(simt, gradient, i, here);
        vec<float, n> m = load_run<n, Access>(simt, first, i, here), v = load_run<n, Access>(simt, second, i, here);
        vec<float, n> w = load_master<Access>(simt, master, copy, i, here);
        HALFTONE_UNROLL for (int e = 0; e < n; ++e) {
            const float read = read_gradient(g[e], p.factors);
            m[e] = std::fma(read - m[e], s.first_weight, m[e]);
            v[e] = std::fma(read * s.second_weight, read, v[e] * s.second_decay);
            const float denominator = std::fma(std::sqrt(v[e]), s.root_scale, s.epsilon);
            w[e] = std::fma(w[e], s.decay, m[e] * -s.step_size / denominator);
        }
        store_run<Access>(simt, first, i, here, round_run<State, rounding::stochastic, Access>(m, key, 1, p.step, i));
        store_run<Access>(simt, second, i, here, round_run<State, rounding::stochastic, Access>(v, key, 2, p.step, i));
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
struct adamw<Device> {
    template <rounding Rounding, class Param, class Copy, class Accumulate, class State,
              rounding CopyRounding = rounding::nearest_even>
    static void run(Device& device, const adamw_arguments<Param, Copy, Accumulate, State>& a) {
        check(a);
        using namespace on_device;
        using kernel = adamw_kernel<Rounding, CopyRounding, Param, Copy, Accumulate, State, run_access::elements>;
        const int blocks = update_blocks(a.master.size(), kernel::threads);
        const auto launch = [&]<run_access Access>(std::integral_constant<run_access, Access>) {
            device.launch(adamw_kernel<Rounding, CopyRounding, Param, Copy, Accumulate, State, Access>{
                simt::span_of(a.master), simt::span_of(a.copy), simt::span_of(a.gradient), simt::span_of(a.first),
                simt::span_of(a.second), a.decays, a.rates, {a.factors, 1}, {a.step, 1}, a.key, blocks});
        };
        launch_with_access<update_run>(launch, a.master.data(), a.copy.data(), a.gradient.data(), a.first.data(),
                                       a.second.data());
    }

    template <rounding Rounding, class Param, class Copy, class Accumulate, class State,
              rounding CopyRounding = rounding::nearest_even>
    static void run_rows(Device& device, const adamw_arguments<Param, Copy, Accumulate, State>& a,
                         const gradient_rows<Accumulate>& rows) {
        check_rows("adamw", a, rows);
        using namespace on_device;
        const auto launch = [&]<run_access Access>(std::integral_constant<run_access, Access>) {
            using kernel = adamw_kernel<Rounding, CopyRounding, Param, Copy, Accumulate, State, Access>;
            const int blocks = update_blocks(rows.values.size(), kernel::threads);
            device.launch(step_rows_kernel<kernel, Accumulate>{
                {simt::span_of(a.master), simt::span_of(a.copy), {}, simt::span_of(a.first), simt::span_of(a.second), a.decays,
                 a.rates, {a.factors, 1}, {a.step, 1}, a.key, blocks},
                {rows.indices.data(), rows.indices.size()}, {rows.count, 1}, {rows.values.data(), rows.values.size()},
                rows.values.extent_of(1)});
        };
        launch_with_row_access<update_run>(rows.values.extent_of(1), launch, a.master.data(), a.copy.data(),
                                           rows.values.data(), a.first.data(), a.second.data());
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
