// SPDX-License-Identifier: MIT
/// \file
/// A copy of an operand whose rows are not aligned to 16 bytes into rows that are: then asynchronous copies of 16 bytes
/// can load it, where it would otherwise be loaded through registers, one element at a time.
///
///     const on_device::aligned_copy<bfloat16> b(device, make_operand(view));   // b.operand is the same matrix
///
/// Numeric contract: a copy. pays_to_align (tiles.hpp) decides for which products the extra pass over memory pays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <halftone/kernel/matmul/device/operand.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// A thread copies two chunks of 16 bytes of a row: it reads the two aligned chunks that contain each of them, and stores
/// the part of both that it needs, so that memory is read and written in whole chunks. Chunks at the ends are read element
/// by element. Bits: an integer type, so that one kernel serves all numbers of 16 bits.
template <class Bits>
struct aligned_copy_kernel {
    static constexpr int threads = 256, each = 2, in_chunk = 16 / static_cast<int>(sizeof(Bits));
    static constexpr word shared_bytes = 0;
    using chunk = vec<Bits, in_chunk>;

    global_span<const Bits> from;
    global_span<Bits> to;
    extent from_leading, to_leading;
    int lines, length;
    int across;        // threads for each row: a power of two
    int to_chunk = 0;  // how many elements after the first one the first aligned chunk begins

    grid_shape grid() const {
        const int chunks = each * across;
        return simt::blocks_along_x(extent{parts_of_line()} * detail::ceil_div(chunks_of_line(), chunks));
    }
    HALFTONE_HD HALFTONE_INLINE int chunks_of_line() const { return detail::ceil_div(length, in_chunk); }
    /// The number of parts of a row that blocks copy.
    HALFTONE_HD HALFTONE_INLINE int parts_of_line() const {
        const int lines_of_block = threads / across;
        return detail::ceil_div(lines, lines_of_block);
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const int piece = simt.block().x / parts_of_line(), band = simt.block().x - piece * parts_of_line();
        const int line = band * (threads / across) + simt.thread() / across;
        const int first = piece * (each * across) + simt.thread() % across;
        if (line >= lines) return;
        // Where the row begins, in chunks from the first aligned one on.
        const extent start = line * from_leading - to_chunk + in_chunk, number = start / in_chunk - 1;
        const int past = static_cast<int>(start % in_chunk);
        chunk held[each];
        HALFTONE_UNROLL for (int i = 0; i < each; ++i) {
            if (first + i * across < chunks_of_line())
                held[i] = read(simt, line * from_leading + (first + i * across) * extent{in_chunk}, number + first + i * across, past);
        }
        HALFTONE_UNROLL for (int i = 0; i < each; ++i) {
            const int mine = first + i * across;
            if (mine < chunks_of_line()) simt.store(simt::as_vectors<in_chunk>(to), line * (to_leading / in_chunk) + mine, held[i]);
        }
    }

  private:
    /// A chunk from element number `element` on, which is element `past` of aligned chunk number `low`.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE chunk read(Simt simt, extent element, extent low, int past) const {
        const auto chunks = simt::as_vectors<in_chunk>(from.part(to_chunk, from.count - to_chunk));
        if (low >= 0 && low + 1 < chunks.count) {
            const chunk one = simt.load(chunks, low), next = simt.load(chunks, low + (past > 0 ? 1 : 0));
            return joined<0>(one, next, past);
        }
        chunk all{};
        HALFTONE_UNROLL for (int e = 0; e < in_chunk; ++e) {
            if (element + e < from.count) all[e] = simt.load(from, element + e);
        }
        return all;
    }
    /// Elements `past` and following of two consecutive chunks: a choice among constants, so that chunks stay in registers.
    template <int Past>
    HALFTONE_HD HALFTONE_INLINE static chunk joined(const chunk& one, const chunk& next, int past) {
        if constexpr (Past + 1 < in_chunk) {
            if (past != Past) return joined<Past + 1>(one, next, past);
        }
        chunk all;
        HALFTONE_UNROLL for (int e = 0; e < in_chunk; ++e) all[e] = e + Past < in_chunk ? one[(e + Past) % in_chunk] : next[(e + Past) % in_chunk];
        return all;
    }
};

/// If the rows are aligned already, `operand` is the original.
template <class T>
class aligned_copy {
  public:
    product_operand<T> operand;

    template <class Device>
    aligned_copy(Device& device, const product_operand<T>& from)
        : operand(from), lease_(device.scratch(), is_needed(from) ? bytes_of(from) : 0) {
        if (!is_needed(from)) return;
        const extent leading = leading_of(from), count = from.lines() * leading;
        using kernel = aligned_copy_kernel<bits>;
        int across = kernel::threads;
        while (across > 32 && across * kernel::each * kernel::in_chunk / 2 >= from.length()) across /= 2;
        // A matrix that ends before its first aligned chunk has none.
        const auto past = static_cast<int>(reinterpret_cast<std::uintptr_t>(from.elements.data) % 16 / sizeof(T));
        const int to_chunk = static_cast<int>(std::min<extent>((kernel::in_chunk - past) % kernel::in_chunk, from.elements.count));
        device.launch(kernel{{reinterpret_cast<const bits*>(from.elements.data), from.elements.count},
                             {lease_.template as<bits>(), count},
                             from.leading,
                             leading,
                             from.lines(),
                             from.length(),
                             across,
                             to_chunk});
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
        return round_up(o.length(), in_chunk);
    }
    static std::size_t bytes_of(const product_operand<T>& o) {
        return static_cast<std::size_t>(o.lines() * leading_of(o)) * sizeof(T);
    }

    workspace::lease lease_;
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
