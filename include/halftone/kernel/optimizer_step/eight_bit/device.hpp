// SPDX-License-Identifier: MIT
/// \file
/// A step of an optimizer with 8-bit moments on a GPU; eight_bit.hpp has its arguments, its contract and an example.
///
/// A warp processes a block of 256 elements. Each lane has two runs of four, so that a block's largest magnitude needs
/// only shuffles. The maps are in shared memory: one look-up gives the value of a code, another the code of a value.
/// The bits are those of the CPU's sets with fused multiply-add (AVX2 and later).
#pragma once

#include <halftone/kernel/optimizer_step/device.hpp>
#include <halftone/kernel/optimizer_step/eight_bit/eight_bit.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

template <class Rule, rounding Rounding, rounding CopyRounding, class Param, class Copy, class Accumulate, run_access Access>
struct eight_bit_step_kernel {
    using floats_step = optimizer_step_kernel<Rule, Rounding, CopyRounding, Param, Copy, Accumulate, float, Access>;
    using present = typename floats_step::present;
    static constexpr int threads = 256, warps = threads / 32;
    static constexpr int n = update_run, kinds = Rule::moments;
    static constexpr int runs = static_cast<int>(eight_bit_block) / (32 * n);  // runs of a lane in a block of elements
    static constexpr word map_words = sizeof(dynamic_map) / sizeof(word), maps_words = 2 * map_words;
    static constexpr word shared_begin = round_up(sizeof(present), 16u);
    static constexpr word shared_bytes = shared_begin + maps_words * sizeof(word);

    floats_step step;
    global_span<std::uint8_t> codes[kinds];
    global_span<float> absmax[kinds];
    global_span<const word> maps;
    int blocks;

    eight_bit_step_kernel(const eight_bit_step_arguments<Rule, Param, Copy, Accumulate>& a, int block_count)
        : step(a.step, block_count), maps{reinterpret_cast<const word*>(a.maps), maps_words}, blocks(block_count) {
        for (int k = 0; k < kinds; ++k) codes[k] = simt::span_of(a.codes[k]), absmax[k] = simt::span_of(a.absmax[k]);
    }

    grid_shape grid() const { return {blocks, 1, 1}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const present p = find_present<present>(simt, step);
        if (p.skips != 0) return;
        const shared_span<word> shared{shared_begin, maps_words};
        for (word i = static_cast<word>(simt.thread()); i < maps_words; i += threads)
            simt.store(shared, i, simt.load(maps, i));
        simt.barrier();
        for (extent b = static_cast<extent>(simt.block().x) * warps + simt.warp(); b < absmax[0].count;
             b += static_cast<extent>(blocks) * warps)
            update_block(simt, p, b);
    }

  private:
    /// A map in shared memory: the values and the cells that the kernel reads.
    struct shared_map {
        shared_span<word> values, cells;
        word zero;
    };
    template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static shared_map map_of(Simt, int k) {
        const bool has_sign = moment_has_sign<Rule>(k);
        const shared_span<word> all{shared_begin + (has_sign ? 0 : map_words * static_cast<word>(sizeof(word))), map_words};
        // The number of negative codes, which make_dynamic_map stores as dynamic_map::zero.
        return {all.part(0, dynamic_map::codes), all.part(dynamic_map::codes, dynamic_map::cell_count),
                has_sign ? (1u << dynamic_map::decades) - 1 : 0u};
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static std::uint8_t code_of(Simt simt, const shared_map& map, float x) {
        const word bits = bit_cast<word>(x), magnitude = bits & 0x7fffffffu;
        const word clamped = magnitude < dynamic_map::least ? dynamic_map::least : magnitude;
        const word cell = simt.load(map.cells, (clamped - dynamic_map::least) >> 16);
        return static_cast<std::uint8_t>(dynamic_code((cell + (clamped & 0xffffu)) >> 16, x < 0, map.zero));
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void update_block(Simt simt, const present& p, extent b) const {
        float most[kinds];
        // Each absmax is read and written by the same single lane.
        HALFTONE_UNROLL for (int k = 0; k < kinds; ++k)
            most[k] = simt.shuffle(simt.lane() == 0 ? simt.load(absmax[k], b) : 0.0f, 0);
        vec<float, n> m[runs][kinds];
        HALFTONE_UNROLL for (int r = 0; r < runs; ++r) {
            const extent i = run_of(simt, b, r);
            const int here = elements_of_run(i);
            const vec<float, n> g = load_run<n, Access>(simt, step.gradient, i, here);
            HALFTONE_UNROLL for (int k = 0; k < kinds; ++k) {
                const shared_map map = map_of(simt, k);
                const vec<std::uint8_t, n> code = load_bits<Access>(simt, codes[k], i, here);
                HALFTONE_UNROLL for (int e = 0; e < n; ++e) {
                    const float value = bit_cast<float>(simt.load(map.values, code[e]));
                    m[r][k][e] = e < here ? value * most[k] : 0.0f;
                }
            }
            const vec<float, n> w = step.updated(simt, p, i, here, g, true, m[r]);
            step.store_parameters(simt, p, i, here, w);
        }
        HALFTONE_UNROLL for (int k = 0; k < kinds; ++k) {
            const shared_map map = map_of(simt, k);
            float largest = 0;
            HALFTONE_UNROLL for (int r = 0; r < runs; ++r) {
                HALFTONE_UNROLL for (int e = 0; e < n; ++e) {
                    const float magnitude = m[r][k][e] < 0 ? -m[r][k][e] : m[r][k][e];
                    largest = largest < magnitude ? magnitude : largest;
                }
            }
            largest = simt::warp_max(simt, largest);
            const float divisor = largest > 0 ? largest : 1.0f;
            HALFTONE_UNROLL for (int r = 0; r < runs; ++r) {
                const extent i = run_of(simt, b, r);
                vec<std::uint8_t, n> code;
                HALFTONE_UNROLL for (int e = 0; e < n; ++e) {
                    code[e] = code_of(simt, map, m[r][k][e] / divisor);
                    const bool is_zero = m[r][0][e] == 0 && m[r][k][e] == 0;
                    if (moment_divides<Rule>(k) && code[e] == 0 && !is_zero) code[e] = 1;
                }
                store_run<Access>(simt, codes[k], i, elements_of_run(i), code);
            }
            if (simt.lane() == 0) simt.store(absmax[k], b, largest);
        }
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static extent run_of(Simt simt, extent b, int r) {
        return (b * runs + r) * 32 + simt.lane();
    }
    /// The number of elements in a run; 0 after the last parameter.
    HALFTONE_HD HALFTONE_INLINE int elements_of_run(extent i) const {
        const extent left = step.master.count - i * n;
        return left < 0 ? 0 : left < n ? static_cast<int>(left) : n;
    }
};

/// Enough blocks to occupy any GPU, but not more, because each block reads the maps.
inline int eight_bit_update_blocks(extent blocks_of_elements) {
    constexpr extent most = 1024, warps = 8;
    const extent blocks = detail::ceil_div(blocks_of_elements, warps);
    return static_cast<int>(blocks < most ? blocks : most);
}

}  // namespace on_device

template <simt_device Device>
struct eight_bit_step<Device> {
    template <rounding Rounding, class Rule, class Param, class Copy, class Accumulate,
              rounding CopyRounding = rounding::nearest_even>
    static void run(Device& device, const eight_bit_step_arguments<Rule, Param, Copy, Accumulate>& a) {
        check(a);
        using namespace on_device;
        const extent blocks = eight_bit_blocks(a.step.master.size());
        const auto launch = [&]<run_access Access>(std::integral_constant<run_access, Access>) {
            using kernel = eight_bit_step_kernel<Rule, Rounding, CopyRounding, Param, Copy, Accumulate, Access>;
            device.launch(kernel(a, eight_bit_update_blocks(blocks)));
        };
        [&]<std::size_t... K>(std::index_sequence<K...>) {
            launch_with_access<update_run>(launch, a.step.master.data(), a.step.copy.data(), a.step.gradient.data(),
                                           a.step.average.data(), a.codes[K].data()...);
        }
        (std::make_index_sequence<std::size_t{Rule::moments}>{});
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
