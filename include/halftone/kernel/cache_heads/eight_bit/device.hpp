// SPDX-License-Identifier: MIT
/// \file
/// Keys and values in eight bits on devices that run GPU kernels: a warp for each vector that is stored, a thread for each
/// element that is read; eight_bit.hpp has the contract and an example.
#pragma once

#include <halftone/exec/simt/reduce.hpp>
#include <halftone/kernel/cache_heads/eight_bit/eight_bit.hpp>
#include <halftone/number/in_float.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

template <class T>
struct quantize_heads_kernel {
    static constexpr int warps = 8, threads = 32 * warps;
    static constexpr simt::word shared_bytes = 0;

    simt::global_span<const T> rows;
    simt::global_span<const std::int32_t> slots;
    simt::global_span<std::int8_t> codes;
    simt::global_span<float> scales;
    extent first_column, heads, head_size, cache_slots, count;  // count: vectors of all tokens

    simt::grid_shape grid() const { return simt::blocks_for(count, warps); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent vector = static_cast<extent>(simt.block().x) * warps + simt.warp();
        if (vector >= count) return;
        const extent token = vector / heads, head = vector - token * heads, slot = simt.load(slots, token);
        if (slot < 0 || slot >= cache_slots) return;
        const extent from = token * (first_column + heads * head_size) + first_column + head * head_size,
                     to = head * cache_slots + slot;
        const simt::global_span<const T> x = rows.part(from, head_size);
        const simt::global_span<std::int8_t> out = codes.part(to * head_size, head_size);
        const int size = static_cast<int>(head_size);
        // Magnitudes as bits: those of numbers that are not finite are the largest.
        simt::word most = 0;
        for (int d = simt.lane(); d < size; d += 32) {
            const float value = detail::in_float(simt.load(x, d));
            const simt::word magnitude = halftone::bit_cast<simt::word>(value) & 0x7fffffffu;
            most = most < magnitude ? magnitude : most;
        }
        const float scale = scale_of_heads(halftone::bit_cast<float>(simt::warp_max(simt, most)));
        if (simt.lane() == 0) simt.store(scales, to, scale);
        for (int d = simt.lane(); d < size; d += 32)
            simt.store(out, d, code_of(detail::in_float(simt.load(x, d)), scale));
    }

  private:
    HALFTONE_HD HALFTONE_INLINE static std::int8_t code_of(float x, float scale) {
        if (!(scale > 0)) return 0;
        const float quotient = x / scale, above = quotient < -most_code ? -most_code : quotient,
                    code = above > most_code ? most_code : above;
        // In the sum with 1.5 2^23 an integer is in the lowest bits, as two's complement; the addition rounds to it.
        return static_cast<std::int8_t>(halftone::bit_cast<simt::word>(code + 0x1.8p23f) & 0xffu);
    }
};

template <class T>
struct dequantize_heads_kernel {
    static constexpr int threads = 256;
    static constexpr simt::word shared_bytes = 0;

    simt::global_span<const std::int8_t> codes;
    simt::global_span<const float> scales;
    simt::global_span<const std::int32_t> query_offsets, key_offsets;
    simt::global_span<T> to;
    extent head_size, cache_slots, capacity;

    simt::grid_shape grid() const { return simt::blocks_for(codes.count, threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent i = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (i >= codes.count) return;
        const extent vector = i / head_size, slot = vector % cache_slots, sequence = slot / capacity;
        if (slot >= simt.load(key_offsets, 2 * sequence + 1)) return;
        if (simt.load(query_offsets, 2 * sequence + 1) == simt.load(query_offsets, 2 * sequence)) return;
        simt.store(to, i, T(static_cast<float>(simt.load(codes, i)) * simt.load(scales, vector)));
    }
};

}  // namespace on_device

template <simt_device Device>
struct eight_bit_heads<Device> {
    template <class T>
    static void quantize(Device& device, const quantize_heads_arguments<T>& a) {
        check_eight_bit_heads(a);
        const extent heads = a.codes.extent_of(0), count = a.rows.extent_of(0) * heads;
        if (count == 0) return;
        device.launch(on_device::quantize_heads_kernel<T>{
            simt::span_of(a.rows), simt::span_of(a.slots), simt::span_of(a.codes), simt::span_of(a.scales),
            a.first_column, heads, a.codes.extent_of(2), a.codes.extent_of(1), count});
    }
    template <class T>
    static void dequantize(Device& device, const dequantize_heads_arguments<T>& a) {
        check_eight_bit_heads(a);
        if (a.codes.size() == 0) return;
        device.launch(on_device::dequantize_heads_kernel<T>{
            simt::span_of(a.codes), simt::span_of(a.scales), simt::span_of(a.query_offsets), simt::span_of(a.key_offsets),
            simt::span_of(a.heads), a.codes.extent_of(2), a.codes.extent_of(1), a.capacity});
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
