// SPDX-License-Identifier: MIT
/// \file
/// A copy of an operand of one-byte elements that is contiguous along the outer axis, made contiguous along depth (k):
/// on many GPUs 8-bit engines read no other layout.
///
///     on_device::depth_copy<float8_e4m3> w(device, make_operand(view));   // leases the memory; does not copy yet
///     w.make(device);                                                     // w.operand is the same matrix
///
/// Numeric contract: a copy. Rows are aligned to 16 bytes and padded to multiples of 16 bytes with zeros.
#pragma once

#include <halftone/kernel/matmul/device/operand.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// A warp transposes 32 x 32 elements, each lane 8 rows of 4: it reads and writes 32 contiguous bytes, without shared
/// memory.
template <class T>
struct along_depth_kernel {
    static_assert(sizeof(T) == 1);
    static constexpr int threads = 128, some = 4, lines = 8;
    static constexpr int outer_tile = 8 * some, depth_tile = threads / 8 * lines;
    static constexpr word shared_bytes = 0;

    product_operand<T> from;  // contiguous along the outer axis
    global_span<T> to;
    extent leading;
    bool has_vectors;

    grid_shape grid() const { return simt::blocks_along_x(tiles_across() * detail::ceil_div(leading, depth_tile)); }
    HALFTONE_HD HALFTONE_INLINE int tiles_across() const { return detail::ceil_div(from.outer, outer_tile); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const int row = simt.block().x / tiles_across(), tile = simt.block().x - row * tiles_across();
        const int outer = tile * outer_tile + simt.thread() % 8 * some;
        const int depth = row * depth_tile + simt.thread() / 8 * lines;
        if (outer >= from.outer || depth >= leading) return;
        vec<T, some> read[lines];
        HALFTONE_UNROLL for (int i = 0; i < lines; ++i) {
            read[i] = {};
            const global_span<const T> line = from.rest(outer, depth + i);
            if (has_vectors && line.count >= some) {
                read[i] = simt.load(simt::as_vectors<some>(line), 0);
            } else {
                HALFTONE_UNROLL for (int e = 0; e < some; ++e) {
                    if (e < line.count) read[i][e] = simt.load(line, e);
                }
            }
        }
        HALFTONE_UNROLL for (int e = 0; e < some; ++e) {
            if (outer + e >= from.outer) return;
            vec<T, lines> column;
            HALFTONE_UNROLL for (int i = 0; i < lines; ++i) column[i] = read[i][e];
            simt.store(simt::as_vectors<lines>(to.part((outer + e) * leading + depth, lines)), 0, column);
        }
    }
};

/// If the operand is contiguous along depth already, `operand` is the original.
template <class T>
class depth_copy {
  public:
    static constexpr extent alignment = 16;

    product_operand<T> operand;

    template <class Device>
    depth_copy(Device& device, const product_operand<T>& from)
        : operand(from),
          from_(from),
          leading_(round_up(from.depth, alignment)),
          lease_(device.scratch(), is_needed() ? static_cast<std::size_t>(from.outer * leading_) : 0) {
        if (!is_needed()) return;
        operand.elements = {lease_.template as<T>(), from.outer * leading_};
        operand.leading = leading_;
        operand.axis = along::depth;
        operand.access = row_access::chunks;
    }
    bool is_needed() const { return from_.axis != along::depth; }
    /// Extends depth over the zeros of the padding.
    void fill_up() { operand.depth = static_cast<int>(leading_); }

    template <class Device>
    void make(Device& device) const {
        if (!is_needed()) return;
        constexpr int some = along_depth_kernel<T>::some;
        const bool has_vectors = simt::is_aligned(from_.elements.data, some) && from_.leading % some == 0;
        device.launch(
            along_depth_kernel<T>{from_, {lease_.template as<T>(), from_.outer * leading_}, leading_, has_vectors});
    }

  private:
    product_operand<T> from_;
    extent leading_;
    workspace::lease lease_;
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
