// SPDX-License-Identifier: MIT
/// \file
/// A copy of an operand whose rows are not aligned to 16 bytes into rows that are: then asynchronous copies of 16 bytes
/// can load it, where it would otherwise be loaded through registers, one element at a time.
///
///     const on_device::aligned_copy<bfloat16> b(device, make_operand(view));   // b.operand is the same matrix
///
/// Numeric contract: a copy. pays_to_align (tiles.hpp) decides for which products the extra pass over memory pays.
#pragma once

#include <cstdint>
#include <type_traits>

#include <halftone/kernel/matmul/device/operand.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// A block copies whole rows, or 1,024 elements of one: consecutive lanes read and write consecutive elements. Bits: an
/// integer type, so that one kernel serves all numbers of 16 bits.
template <class Bits>
struct aligned_copy_kernel {
    static constexpr int threads = 256, each = 4;
    static constexpr word shared_bytes = 0;

    global_span<const Bits> from;
    global_span<Bits> to;
    extent from_leading, to_leading;
    int lines, length;
    int across;  // threads for each row: a power of two

    grid_shape grid() const {
        const int elements = each * across;
        return simt::blocks_along_x(extent{parts_of_line()} * ((length + elements - 1) / elements));
    }
    /// The number of parts of a row that blocks copy.
    HALFTONE_HD HALFTONE_INLINE int parts_of_line() const {
        const int lines_of_block = threads / across;
        return (lines + lines_of_block - 1) / lines_of_block;
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const int piece = simt.block().x / parts_of_line(), band = simt.block().x - piece * parts_of_line();
        const int line = band * (threads / across) + simt.thread() / across;
        const int first = piece * (each * across) + simt.thread() % across;
        if (line >= lines) return;
        vec<Bits, each> held;
        HALFTONE_UNROLL for (int e = 0; e < each; ++e) {
            const int column = first + e * across;
            if (column < length) held[e] = simt.load(from, line * from_leading + column);
        }
        HALFTONE_UNROLL for (int e = 0; e < each; ++e) {
            const int column = first + e * across;
            if (column < length) simt.store(to, line * to_leading + column, held[e]);
        }
    }
};

/// If the rows are aligned already, or no copy is wanted, `operand` is the original.
template <class T>
class aligned_copy {
  public:
    product_operand<T> operand;

    template <class Device>
    aligned_copy(Device& device, const product_operand<T>& from, bool is_wanted = true)
        : operand(from), lease_(device.scratch(), is_wanted && is_needed(from) ? bytes_of(from) : 0) {
        if (!is_wanted || !is_needed(from)) return;
        const extent leading = leading_of(from), count = from.lines() * leading;
        using kernel = aligned_copy_kernel<bits>;
        int across = kernel::threads;
        while (across > 32 && across * kernel::each / 2 >= from.length()) across /= 2;
        device.launch(kernel{{reinterpret_cast<const bits*>(from.elements.data), from.elements.count},
                             {lease_.template as<bits>(), count},
                             from.leading,
                             leading,
                             from.lines(),
                             from.length(),
                             across});
        operand.elements = {lease_.template as<T>(), count};
        operand.leading = leading;
        operand.access = row_access::chunks;
    }
    /// The number of elements that a copy would move.
    static extent elements(const product_operand<T>& from) {
        return is_needed(from) ? extent{from.outer} * from.depth : 0;
    }

  private:
    using bits = std::conditional_t<sizeof(T) == 2, std::uint16_t, T>;

    static bool is_needed(const product_operand<T>& o) { return o.access != row_access::chunks; }
    static extent leading_of(const product_operand<T>& o) {
        constexpr extent in_chunk = 16 / static_cast<extent>(sizeof(T));
        return (o.length() + in_chunk - 1) / in_chunk * in_chunk;
    }
    static std::size_t bytes_of(const product_operand<T>& o) {
        return static_cast<std::size_t>(o.lines() * leading_of(o)) * sizeof(T);
    }

    workspace::lease lease_;
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
