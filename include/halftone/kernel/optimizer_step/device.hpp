// SPDX-License-Identifier: MIT
/// \file
/// An optimizer's step on a GPU; optimizer_step.hpp has its arguments, its contract and an example.
///
/// The bits are those of the CPU's sets with fused multiply-add (AVX2 and later), random roundings included.
#pragma once

#include <halftone/kernel/common/update/device.hpp>
#include <halftone/kernel/optimizer_step/device/floats.hpp>
#include <halftone/kernel/optimizer_step/optimizer_step.hpp>
#include <halftone/kernel/optimizer_step/rule/in_double.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

template <class Rule, class Real>
struct step_scalars {
    step_scalars_of<Rule, Real> rule;
    float average_weight;
};

template <class Rule, rounding Rounding, rounding CopyRounding, class Param, class Copy, class Accumulate, class State,
          run_access Access>
struct optimizer_step_kernel {
    static constexpr int threads = 256;
    static constexpr int n = update_run, kinds = Rule::moments;
    using real = step_real_of<Param>;
    using present = step_context<step_scalars<Rule, real>>;
    static constexpr word shared_bytes = sizeof(present);

    global_span<Param> master;
    global_span<Copy> copy;
    global_span<const Accumulate> gradient;
    global_span<State> moments[kinds];  // empty if the rule stores none
    Rule rule;
    group_rates rates;
    global_span<const gradient_factors> factors;
    global_span<const step_record> step;
    rounding_key key;
    global_span<float> average;  // empty if there is none
    double average_decay;
    int blocks;

    optimizer_step_kernel(const optimizer_step_arguments<Rule, Param, Copy, Accumulate, State>& a, int block_count)
        : master(simt::span_of(a.master)),
          copy(simt::span_of(a.copy)),
          gradient(simt::span_of(a.gradient)),
          rule(a.rule),
          rates(a.rates),
          factors{a.factors, 1},
          step{a.step, 1},
          key(a.key),
          average(simt::span_of(a.average)),
          average_decay(a.average_decay),
          blocks(block_count) {
        for (int k = 0; k < kinds; ++k) moments[k] = rule.keeps() ? simt::span_of(a.moments[k]) : global_span<State>{};
    }

    grid_shape grid() const { return {blocks, 1, 1}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        take_step<present>(simt, *this);
    }

    // ---- called by take_step and step_rows_kernel

    HALFTONE_HD HALFTONE_INLINE optimizer_step_kernel part(extent i, extent n_elements,
                                                           const global_span<const Accumulate>& g) const {
        optimizer_step_kernel some = *this;
        some.master = part_of(master, i, n_elements), some.copy = part_of(copy, i, n_elements), some.gradient = g;
        HALFTONE_UNROLL for (int k = 0; k < kinds; ++k) some.moments[k] = part_of(moments[k], i, n_elements);
        some.key = part_of(key, i);
        return some;
    }
    HALFTONE_HD HALFTONE_INLINE step_scalars<Rule, real> scalars(const step_record& record) const {
        return {scalars_in_real<real>(rule, rates, record), average_weight_of(average_decay, record)};
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void update(Simt simt, const present& p, extent i) const {
        const int here = master.count - i * n < n ? static_cast<int>(master.count - i * n) : n;
        const bool keeps = Rule::always_keeps || moments[0].is_there();
        const vec<float, n> g = load_run<n, Access>(simt, gradient, i, here);
        vec<float, n> m[kinds] = {};
        if (keeps) {
            HALFTONE_UNROLL for (int k = 0; k < kinds; ++k) m[k] = load_run<n, Access>(simt, moments[k], i, here);
        }
        const vec<real, n> w = updated(simt, p, i, here, g, keeps, m);
        if (keeps && !only_reads_moments<Rule>) {
            HALFTONE_UNROLL for (int k = 0; k < kinds; ++k) {
                const word stream = static_cast<word>(1 + k);
                store_run<Access>(simt, moments[k], i, here,
                                  round_run<State, rounding::stochastic, Access>(m[k], key, stream, p.step, i));
            }
        }
        store_parameters(simt, p, i, here, w);
    }

    // ---- the same in parts, for moments in another layout (eight_bit/device.hpp)

    /// The new parameters of a run; updates the moments in place.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE vec<real, n> updated(Simt simt, const present& p, extent i, int here,
                                                     const vec<float, n>& g, bool keeps,
                                                     vec<float, n> (&m)[kinds]) const {
        if constexpr (wide_number<Param>) {
            return updated_in_double(p, load_bits<Access>(simt, master, i, here), g, keeps, m);
        } else {
            return updated_in_float(p, load_master<Access>(simt, master, copy, i, here), g, keeps, m);
        }
    }
    /// Stores the parameters of a run, their copies and averages.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void store_parameters(Simt simt, const present& p, extent i, int here,
                                                      const vec<real, n>& w) const {
        if constexpr (wide_number<Param>) {
            store_wide(simt, p, i, here, w);
        } else if constexpr (std::is_same_v<Param, bfloat16_remainder>) {
            store_halves<Access>(simt, master, copy, i, here, w);
            if (average.is_there()) add_to_average(simt, p, i, here, w);
        } else {
            const vec<Param, n> rounded = round_run<Param, Rounding, Access>(w, key, 0, p.step, i);
            store_run<Access>(simt, master, i, here, rounded);
            if (copy.is_there())
                store_run<Access>(simt, copy, i, here, round_copy<Copy, CopyRounding>(to_float(rounded)));
            if (average.is_there()) add_to_average(simt, p, i, here, to_float(rounded));
        }
    }

  private:
    HALFTONE_HD HALFTONE_INLINE vec<float, n> updated_in_float(const present& p, vec<float, n> w,
                                                               const vec<float, n>& g, bool keeps,
                                                               vec<float, n> (&m)[kinds]) const {
        HALFTONE_UNROLL for (int e = 0; e < n; ++e) {
            float of[kinds];
            HALFTONE_UNROLL for (int k = 0; k < kinds; ++k) of[k] = m[k][e];
            w[e] = floats::updated_by_rule(p.scalars.rule, w[e], read_gradient(g[e], p.factors), of, keeps);
            HALFTONE_UNROLL for (int k = 0; k < kinds; ++k) m[k][e] = of[k];
        }
        return w;
    }
    HALFTONE_HD HALFTONE_INLINE vec<double, n> updated_in_double(const present& p, const vec<Param, n>& before,
                                                                 const vec<float, n>& g, bool keeps,
                                                                 vec<float, n> (&m)[kinds]) const {
        vec<double, n> w;
        HALFTONE_UNROLL for (int e = 0; e < n; ++e) {
            double of[kinds];
            HALFTONE_UNROLL for (int k = 0; k < kinds; ++k) of[k] = static_cast<double>(m[k][e]);
            w[e] = doubles::updated_by_rule(p.scalars.rule, static_cast<double>(before[e]),
                                            read_gradient_in_double(g[e], p.factors), of, keeps);
            HALFTONE_UNROLL for (int k = 0; k < kinds; ++k) m[k][e] = static_cast<float>(of[k]);
        }
        return w;
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void store_wide(Simt simt, const present& p, extent i, int here,
                                                const vec<double, n>& w) const {
        vec<Param, n> rounded;
        vec<Copy, n> rounded_copy;
        vec<float, n> narrow;
        HALFTONE_UNROLL for (int e = 0; e < n; ++e) {
            rounded[e] = Param(w[e]);
            rounded_copy[e] = halftone::detail::round_double<Copy, CopyRounding>(static_cast<double>(rounded[e]));
            narrow[e] = static_cast<float>(static_cast<double>(rounded[e]));
        }
        store_run<Access>(simt, master, i, here, rounded);
        if (copy.is_there()) store_run<Access>(simt, copy, i, here, rounded_copy);
        if (average.is_there()) add_to_average(simt, p, i, here, narrow);
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void add_to_average(Simt simt, const present& p, extent i, int here,
                                                    const vec<float, n>& w) const {
        vec<float, n> mean = load_run<n, Access>(simt, average, i, here);
        HALFTONE_UNROLL for (int e = 0; e < n; ++e)
            mean[e] = floats::fma(w[e] - mean[e], p.scalars.average_weight, mean[e]);
        store_run<Access>(simt, average, i, here, mean);
    }
};

}  // namespace on_device

template <simt_device Device>
struct optimizer_step<Device> {
    template <rounding Rounding, class Rule, class Param, class Copy, class Accumulate, class State,
              rounding CopyRounding = rounding::nearest_even>
    static void run(Device& device, const optimizer_step_arguments<Rule, Param, Copy, Accumulate, State>& a) {
        check(a);
        using namespace on_device;
        const auto launch = [&]<run_access Access>(std::integral_constant<run_access, Access>) {
            using kernel = optimizer_step_kernel<Rule, Rounding, CopyRounding, Param, Copy, Accumulate, State, Access>;
            device.launch(kernel(a, update_blocks(a.master.size(), kernel::threads)));
        };
        with_moments(a, [&](const auto*... moments) {
            launch_with_access<update_run>(launch, a.master.data(), a.copy.data(), a.gradient.data(),
                                           a.average.data(), moments...);
        });
    }

    template <rounding Rounding, class Rule, class Param, class Copy, class Accumulate, class State,
              rounding CopyRounding = rounding::nearest_even>
    static void run_rows(Device& device, const optimizer_step_arguments<Rule, Param, Copy, Accumulate, State>& a,
                         const gradient_rows<Accumulate>& rows) {
        check_rows(a, rows);
        using namespace on_device;
        const auto launch = [&]<run_access Access>(std::integral_constant<run_access, Access>) {
            using kernel = optimizer_step_kernel<Rule, Rounding, CopyRounding, Param, Copy, Accumulate, State, Access>;
            device.launch(
                step_rows_kernel<kernel, Accumulate>{kernel(a, update_blocks(rows.values.size(), kernel::threads)),
                                                     {rows.indices.data(), rows.indices.size()},
                                                     {rows.count, 1},
                                                     {rows.values.data(), rows.values.size()},
                                                     rows.values.extent_of(1)});
        };
        with_moments(a, [&](const auto*... moments) {
            launch_with_row_access<update_run>(rows.values.extent_of(1), launch, a.master.data(), a.copy.data(),
                                               rows.values.data(), moments...);
        });
    }

  private:
    /// Calls f with pointers to the moments, null for those that are not stored.
    template <class Arguments, class F>
    static void with_moments(const Arguments& a, const F& f) {
        [&]<std::size_t... K>(std::index_sequence<K...>) { f((a.rule.keeps() ? a.moments[K].data() : nullptr)...); }
        (std::make_index_sequence<std::extent_v<decltype(a.moments)>>{});
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
