// SPDX-License-Identifier: MIT
/// \file
/// Operands of one byte an element whose neighbours lie along the outer axis, copied so that they lie along depth:
/// engines for eight bits on many GPUs read no others.
///
///     on_device::depth_copy<float8_e4m3> w(device, make_operand(view));   // leases the memory, copies nothing yet
///     w.make(device);                                                     // w.operand is the same matrix
///
/// Numeric contract: a copy. Lines begin on multiples of 16 bytes and are filled up to one with zeros.
#pragma once

#include <halftone/kernel/matmul/device/operand.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// A warp takes 32 x 32 elements, each lane 8 lines of 4: 32 bytes side by side, both where it reads and where it
/// writes, without shared memory.
template <class T>
struct along_depth_kernel {
    static_assert(sizeof(T) == 1);
    static constexpr int threads = 128, some = 4, lines = 8;
    static constexpr int outer_tile = 8 * some, depth_tile = threads / 8 * lines;
    static constexpr word shared_bytes = 0;

    product_operand<T> from;  // along the outer axis
    global_span<T> to;
    extent leading;
    bool has_vectors;

    grid_shape grid() const {
        return simt::blocks_along_x(tiles_across() * ((leading + depth_tile - 1) / depth_tile));
    }
    HALFTONE_HD HALFTONE_INLINE int tiles_across() const { return (from.outer + outer_tile - 1) / outer_tile; }

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

/// Where an operand lies along depth already, it is the operand itself.
template <class T>
class depth_copy {
  public:
    static constexpr extent alignment = 16;

    product_operand<T> operand;

    template <class Device>
    depth_copy(Device& device, const product_operand<T>& from)
        : operand(from),
          from_(from),
          leading_((from.depth + alignment - 1) / alignment * alignment),
          lease_(device.scratch(), is_needed() ? static_cast<std::size_t>(from.outer * leading_) : 0) {
        if (!is_needed()) return;
        operand.elements = {lease_.template as<T>(), from.outer * leading_};
        operand.leading = leading_;
        operand.axis = along::depth;
        operand.access = row_access::chunks;
    }
    bool is_needed() const { return from_.axis != along::depth; }
    /// Lets depth end where the zeros do.
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
