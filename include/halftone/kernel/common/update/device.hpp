// SPDX-License-Identifier: MIT
/// \file
/// What the GPU kernels of optimizer steps share: a thread's run of elements, the factors of a gradient, stochastic
/// rounding with the random numbers of an element's index, and the scalars of a step, which the device computes by
/// itself.
///
/// A run is what a thread processes at a time: some consecutive elements, four of them in an optimizer's step, since
/// the generator gives four random numbers at a time. Where a pointer is not aligned, and at the end of an array,
/// elements are accessed one by one.
#pragma once

#include <type_traits>

#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/common/update/records.hpp>
#include <halftone/number/integer.hpp>
#include <halftone/number/philox.hpp>
#include <halftone/number/remainder.hpp>
#include <halftone/number/round_to.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

enum class run_access { vectors, elements };

/// The elements of a run of an optimizer's step: 16 bytes of floats.
inline constexpr int update_run = 4;

/// Calls launch(std::integral_constant<run_access, ...>{}) with the kind of access that these pointers allow. Null
/// pointers are ignored.
template <int N, class Launch, class... Ts>
void launch_with_access(const Launch& launch, const Ts*... pointers) {
    if ((simt::is_aligned(pointers, N * sizeof(Ts)) && ...)) {
        launch(std::integral_constant<run_access, run_access::vectors>{});
    } else {
        launch(std::integral_constant<run_access, run_access::elements>{});
    }
}

/// Calls launch(std::integral_constant<run_access, ...>{}) with the kind of access that rows of this width allow, each
/// of which must be aligned.
template <int N, class Launch, class... Ts>
void launch_with_row_access(extent width, const Launch& launch, const Ts*... pointers) {
    if (width % N == 0) {
        launch_with_access<N>(launch, pointers...);
    } else {
        launch(std::integral_constant<run_access, run_access::elements>{});
    }
}

/// Elements i * N to i * N + n - 1 of a run; zeros for the rest of it.
HALFTONE_KERNEL template <int N, run_access Access, class Simt, class T>
HALFTONE_HD HALFTONE_INLINE vec<float, N> load_run(Simt simt, const global_span<T>& s, extent i, int n) {
    if constexpr (Access == run_access::vectors) {
        if (n == N) return load_floats<N>(simt, s, i);
    }
    vec<float, N> v;
    HALFTONE_UNROLL for (int e = 0; e < N; ++e) v[e] = e < n ? detail::in_float(simt.load(s, i * N + e)) : 0.0f;
    return v;
}
HALFTONE_KERNEL template <run_access Access, class Simt, class T, int N>
HALFTONE_HD HALFTONE_INLINE void store_run(Simt simt, const global_span<T>& s, extent i, int n, const vec<T, N>& v) {
    if constexpr (Access == run_access::vectors) {
        if (n == N) {
            simt.store(simt::as_vectors<N>(s), i, v);
            return;
        }
    }
    HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
        if (e < n) simt.store(s, i * N + e, v[e]);
    }
}

/// A gradient with its factors applied; a NaN stays a NaN.
HALFTONE_HD HALFTONE_INLINE float read_gradient(float g, const gradient_factors& f) {
    const float v = g * f.inv_scale * f.clip;
    return v > f.limit ? f.limit : v < -f.limit ? -f.limit : v;
}

/// Four random numbers from index key.first + 4 * i on. The generator gives blocks of four, and a run may begin inside
/// of one (rows of any width are contiguous): it then takes the end of one block and the beginning of the next.
template <run_access Access>
HALFTONE_HD HALFTONE_INLINE philox::block random_run(const rounding_key& key, word stream, word step, extent i) {
    const std::uint64_t four = key.first / 4 + static_cast<std::uint64_t>(i);
    philox::block random = random_block(key.seed, step, key.tensor + stream, four);
    if constexpr (Access == run_access::elements) {
        const word lead = static_cast<word>(key.first % 4);
        if (lead != 0) {
            const philox::block next = random_block(key.seed, step, key.tensor + stream, four + 1);
            word both[7] = {random[0], random[1], random[2], random[3], next[0], next[1], next[2]};
            HALFTONE_UNROLL for (int e = 0; e < 6; ++e) both[e] = (lead & 1) != 0 ? both[e + 1] : both[e];
            HALFTONE_UNROLL for (int e = 0; e < 4; ++e) random.word[e] = (lead & 2) != 0 ? both[e + 2] : both[e];
        }
    }
    return random;
}

/// Run number i of a step in T, rounded to nearest, or stochastically by random_bits(key.seed, step, key.tensor +
/// stream, index). Floats are unchanged.
template <class T, rounding Rounding, run_access Access>
HALFTONE_HD HALFTONE_INLINE vec<T, update_run> round_run(const vec<float, update_run>& v, const rounding_key& key,
                                                         word stream, word step, extent i) {
    if constexpr (std::is_same_v<T, float>) {
        return v;
    } else if constexpr (Rounding == rounding::stochastic) {
        static_assert(update_run == 4);
        const philox::block random = random_run<Access>(key, stream, step, i);
        vec<T, update_run> rounded;
        HALFTONE_UNROLL for (int e = 0; e < update_run; ++e) rounded[e] = round_stochastic<T>(v[e], random.word[e]);
        return rounded;
    } else {
        return round_to<T>(v);
    }
}

/// Copies of a run, rounded by CopyRounding.
template <class Copy, rounding CopyRounding>
HALFTONE_HD HALFTONE_INLINE vec<Copy, update_run> round_copy(const vec<float, update_run>& v) {
    vec<Copy, update_run> rounded;
    HALFTONE_UNROLL for (int e = 0; e < update_run; ++e) rounded[e] = halftone::round_to<Copy, CopyRounding>(v[e]);
    return rounded;
}

/// Elements i * update_run to i * update_run + n - 1, unconverted; zeros for the rest.
HALFTONE_KERNEL template <run_access Access, class Simt, class T>
HALFTONE_HD HALFTONE_INLINE vec<T, update_run> load_bits(Simt simt, const global_span<T>& s, extent i, int n) {
    if constexpr (Access == run_access::vectors) {
        if (n == update_run) return simt.load(simt::as_vectors<update_run>(s), i);
    }
    vec<T, update_run> v{};
    HALFTONE_UNROLL for (int e = 0; e < update_run; ++e) {
        if (e < n) v[e] = simt.load(s, i * update_run + e);
    }
    return v;
}

/// A run of masters; the halves of split ones are joined.
HALFTONE_KERNEL template <run_access Access, class Simt, class T, class Copy>
HALFTONE_HD HALFTONE_INLINE vec<float, update_run> load_master(Simt simt, const global_span<T>& master,
                                                               const global_span<Copy>& copy, extent i, int n) {
    if constexpr (std::is_same_v<T, bfloat16_remainder>) {
        const vec<bfloat16, update_run> nearest = load_bits<Access>(simt, copy, i, n);
        const vec<bfloat16_remainder, update_run> rest = load_bits<Access>(simt, master, i, n);
        vec<float, update_run> v;
        HALFTONE_UNROLL for (int e = 0; e < update_run; ++e) v[e] = join({nearest[e], rest[e]});
        return v;
    } else {
        return load_run<update_run, Access>(simt, master, i, n);
    }
}
HALFTONE_KERNEL template <run_access Access, class Simt>
HALFTONE_HD HALFTONE_INLINE void store_halves(Simt simt, const global_span<bfloat16_remainder>& master,
                                              const global_span<bfloat16>& copy, extent i, int n,
                                              const vec<float, update_run>& v) {
    vec<bfloat16, update_run> nearest;
    vec<bfloat16_remainder, update_run> rest;
    HALFTONE_UNROLL for (int e = 0; e < update_run; ++e) {
        const float_halves h = halves_of(v[e]);
        nearest[e] = h.nearest, rest[e] = h.rest;
    }
    store_run<Access>(simt, copy, i, n, nearest);
    store_run<Access>(simt, master, i, n, rest);
}

/// What every thread of a step needs; one thread of each block reads and computes it.
template <class Scalars>
struct step_context {
    Scalars scalars;
    gradient_factors factors;
    word step;  // the step's number, part of the random numbers' key
    std::int32_t skips;
};

/// The first thread of a block reads the records and computes the scalars, kernel.scalars(record), for all threads.
HALFTONE_KERNEL template <class Present, class Simt, class Kernel>
HALFTONE_HD HALFTONE_INLINE Present find_present(Simt simt, const Kernel& kernel) {
    const shared_span<Present> shared{0, 1};
    if (simt.thread() == 0) {
        const step_record record = simt.load(kernel.step, 0);
        Present p{};
        p.skips = record.skips;
        p.step = static_cast<word>(record.steps);
        p.factors = simt.load(kernel.factors, 0);
        if (p.skips == 0) p.scalars = kernel.scalars(record);
        simt.store(shared, 0, p);
    }
    simt.barrier();
    return simt.load(shared, 0);
}

/// One thread's part of a step: unless the step is skipped, calls kernel.update(simt, present, i) for its runs. A
/// kernel also has threads, master, factors, step and blocks.
HALFTONE_KERNEL template <class Present, class Simt, class Kernel>
HALFTONE_HD HALFTONE_INLINE void take_step(Simt simt, const Kernel& kernel) {
    const Present p = find_present<Present>(simt, kernel);
    if (p.skips != 0) return;
    const extent runs = detail::ceil_div(kernel.master.count, update_run);
    const extent first_run = static_cast<extent>(simt.block().x) * Kernel::threads + simt.thread();
    for (extent i = first_run; i < runs; i += static_cast<extent>(kernel.blocks) * Kernel::threads)
        kernel.update(simt, p, i);
}

/// A step over the rows of a sparse gradient: applies the step of a whole table to the parts that the rows name,
/// kernel.part(first, count, gradient). The grid is for the largest possible number of rows; the actual number is read
/// from memory.
template <class Kernel, class Accumulate>
struct step_rows_kernel {
    using present = typename Kernel::present;
    static constexpr int threads = Kernel::threads;
    static constexpr word shared_bytes = Kernel::shared_bytes;

    Kernel step;  // the table's step, without a gradient
    global_span<const std::int32_t> indices, count;
    global_span<const Accumulate> values;
    extent width;

    grid_shape grid() const { return {step.blocks, 1, 1}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const present p = find_present<present>(simt, step);
        if (p.skips != 0) return;
        const extent runs_of_row = detail::ceil_div(width, update_run), runs = simt.load(count, 0) * runs_of_row;
        const extent first_run = static_cast<extent>(simt.block().x) * threads + simt.thread();
        for (extent i = first_run; i < runs; i += static_cast<extent>(step.blocks) * threads) {
            const extent row = i / runs_of_row;
            step.part(simt.load(indices, row) * width, width, values.part(row * width, width))
                .update(simt, p, i - row * runs_of_row);
        }
    }
};

/// A part of a span; empty for an empty span.
template <class T>
HALFTONE_HD HALFTONE_INLINE global_span<T> part_of(const global_span<T>& s, extent first, extent count) {
    return s.is_there() ? s.part(first, count) : s;
}
HALFTONE_HD HALFTONE_INLINE rounding_key part_of(rounding_key key, extent first) {
    key.first += static_cast<std::uint64_t>(first);
    return key;
}

/// The number of blocks for an array, over which threads iterate with a stride of the grid: enough to fill any GPU a
/// few times, and no more, since each block computes the scalars of the step.
inline int update_blocks(extent count, int threads) {
    constexpr extent most = 2048;
    const extent each = extent{threads} * update_run, blocks = detail::ceil_div(count, each);
    return static_cast<int>(blocks < most ? blocks : most);
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
