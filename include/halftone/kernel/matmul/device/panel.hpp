// SPDX-License-Identifier: MIT
/// \file
/// A panel of one operand in shared memory, for matrix units: how it is loaded, and how fragments are read from it.
///
///     panel_fetch<panel, threads, passage::direct, T> fetch(simt, operand, first_outer);
///     fetch.begin(simt, slot);                                         // the next panel; … other work …
///     fetch.end(simt, slot);
///     const word mine = panel::place_of_lane<operand_of_mma::a>(simt, first);
///     vec<word, 4> x = panel::fragment<operand_of_mma::a>(simt, slot, mine, 16, 0);      // after a wait and a barrier
///
/// A panel has the layout of its operand in global memory, whichever axis is contiguous. If the outer axis is, ldmatrix
/// transposes 16-bit elements; floats are loaded lane by lane; for bytes, ldmatrix transposes pairs, which lanes then
/// separate. Swizzles avoid bank conflicts in all cases.
#pragma once

#include <halftone/kernel/matmul/device/operand.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// A fragment is 16 of the outer axis by 32 bytes of the depth: four matrices of 8 by 16 bytes. Fragments of a are
/// ordered with the outer half changing first, as mma takes them; those of b with the depth changing first: words 0 and
/// 1 are one operand b of mma, words 2 and 3 the next. The halves of the outer axis are its first and last eight; in a
/// panel that is_interleaved, its even and odd ones.
enum class operand_of_mma { a, b };

/// Outer x Depth elements of 8 or 16 bits or floats, contiguous along Axis. Places are byte offsets from the panel's
/// first element.
template <class T, int Outer, int Depth, along Axis,
          simt::swizzle Mode = simt::swizzle_for((Axis == along::depth ? Depth : Outer) * sizeof(T))>
struct matrix_panel {
    using element = T;
    static constexpr along axis = Axis;
    static constexpr int outer = Outer, depth = Depth;
    static constexpr int lines = Axis == along::depth ? Outer : Depth, length = Axis == along::depth ? Depth : Outer;
    using tile = simt::shared_tile<T, lines, length, Mode>;
    static constexpr int in_chunk = 16 / static_cast<int>(sizeof(T)), fragment_depth = 2 * in_chunk;
    /// Lanes load single elements: eight consecutive ones, two chunks, of each of four lines at a time. So chunks are
    /// swizzled in pairs, such that four consecutive lines are in different banks.
    static constexpr bool by_elements = sizeof(T) == 4 && Axis == along::outer;
    /// A pair of bytes that ldmatrix moves consists of two consecutive elements of the outer axis.
    static constexpr bool is_interleaved = sizeof(T) == 1 && Axis == along::outer;
    /// The swizzle's period, in bytes.
    static constexpr word period = by_elements ? 512 : 1024;
    static_assert(!by_elements || tile::row_bytes == 128);

    HALFTONE_HD HALFTONE_INLINE static word place(int line, int column) {
        if constexpr (by_elements) {
            const word byte = static_cast<word>(column) * 4,
                       straight = (byte / 128 * lines + static_cast<word>(line)) * 128 + byte % 128;
            return straight ^ ((straight >> 7 & 3) << 5);
        } else {
            return tile{0}.at(static_cast<word>(line), static_cast<word>(column)).offset;
        }
    }

    /// The address that a lane passes for the fragment at (first, 0).
    HALFTONE_KERNEL template <operand_of_mma Side, class Simt>
    HALFTONE_HD HALFTONE_INLINE static word place_of_lane(Simt simt, int first) {
        if constexpr (by_elements) return place(simt.lane() % 4, first + simt.lane() / 4);
        if constexpr (is_interleaved) return place(line_of_bytes(simt.lane()), first);
        const int row = simt.lane() % 8, fast = simt.lane() / 8 % 2, slow = simt.lane() / 16;
        const int at_outer = 8 * (Side == operand_of_mma::a ? fast : slow),
                  at_depth = in_chunk * (Side == operand_of_mma::a ? slow : fast);
        return Axis == along::depth ? place(first + at_outer + row, at_depth) : place(at_depth + row, first + at_outer);
    }
    /// The fragment at distance (outer, depth), in whole fragments, from the one at `mine`. Either the swizzle is
    /// unchanged over that distance, or the distance's bits are zeros in `mine`; so most of the address is computed at
    /// compile time.
    HALFTONE_KERNEL template <operand_of_mma Side, class Simt>
    HALFTONE_HD HALFTONE_INLINE static vec<word, 4> fragment(Simt simt, word slot, word mine, int outer, int depth) {
        const int line = Axis == along::depth ? outer : depth,
                  byte = (Axis == along::depth ? depth : outer) * static_cast<int>(sizeof(T));
        const int row_bytes = tile::row_bytes, panels = byte / row_bytes;
        const word far = static_cast<word>((panels * lines + line) * row_bytes),
                   near = static_cast<word>(byte % row_bytes);
        if constexpr (by_elements) {
            vec<word, 4> elements;
            HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                const int outer_half = Side == operand_of_mma::a ? e % 2 : e / 2,
                          depth_half = Side == operand_of_mma::a ? e / 2 : e % 2;
                elements[e] = simt.load(shared_span<word>{slot + (mine ^ near ^ static_cast<word>(32 * outer_half)) +
                                                              far + static_cast<word>(512 * depth_half),
                                                          1},
                                        0);
            }
            return elements;
        } else if constexpr (is_interleaved) {
            return halves_of_bytes<Side>(
                simt, simt.ldmatrix_x4_trans(shared_span<simt::chunk<T>>{slot + (mine ^ near) + far, 1}));
        } else {
            const shared_span<simt::chunk<T>> row{slot + (mine ^ near) + far, 1};
            if constexpr (Axis == along::depth) {
                return simt.ldmatrix_x4(row);
            } else {
                return simt.ldmatrix_x4_trans(row);
            }
        }
    }

  private:
    // For bytes, a lane with t = lane % 4 needs depths 4t to 4t + 3 of each sixteen. A transposed matrix gives it two
    // consecutive lines: one matrix has 4t and 4t + 1, the next the other two. For t of 2 or 3 the two are exchanged:
    // then a matrix's eight lines differ modulo 8, and are in different banks.

    /// The line of depth whose address a lane passes.
    HALFTONE_HD HALFTONE_INLINE static int line_of_bytes(int lane) {
        const int row = lane % 8, t = row / 2, matrix = lane / 8;
        return 16 * (matrix / 2) + 4 * t + row % 2 + 2 * ((matrix % 2) ^ (t / 2));
    }
    /// Separates each pair of words into the four bytes of the even and those of the odd outer line.
    HALFTONE_KERNEL template <operand_of_mma Side, class Simt>
    HALFTONE_HD HALFTONE_INLINE static vec<word, 4> halves_of_bytes(Simt simt, const vec<word, 4>& pairs) {
        const word even = simt.lane() % 4 < 2 ? 0x6420 : 0x2064, odd = even + 0x1111;
        vec<word, 4> x;
        HALFTONE_UNROLL for (int half = 0; half < 2; ++half) {
            x[Side == operand_of_mma::a ? 2 * half : half] =
                simt.select_bytes(pairs[2 * half], pairs[2 * half + 1], even);
            x[Side == operand_of_mma::a ? 2 * half + 1 : half + 2] =
                simt.select_bytes(pairs[2 * half], pairs[2 * half + 1], odd);
        }
        return x;
    }
};

/// How an operand is loaded into shared memory: by asynchronous copies of 16-byte chunks, or through registers, which
/// works for any type and alignment.
enum class panel_load { direct, through_registers };

/// A thread's part in loading panels: a column of chunks. Zeros beyond the operand's end.
template <class Panel, int Threads, panel_load Load, class T>
class panel_fetch {
    using element = typename Panel::element;
    static constexpr bool by_depth = Panel::axis == along::depth;
    static constexpr int in_chunk = Panel::in_chunk, chunks_in_line = Panel::length / in_chunk,
                         line_stride = Threads / chunks_in_line, count = Panel::lines / line_stride;
    static constexpr word bytes_apart = line_stride * Panel::tile::row_bytes;
    static_assert(Threads % chunks_in_line == 0 && Panel::lines % line_stride == 0);
    static_assert(count == 1 || bytes_apart % Panel::period == 0,
                  "chunks of a column have the same place in the swizzle's period");
    static_assert(Load == panel_load::through_registers || std::is_same_v<T, element>);

  public:
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE panel_fetch(Simt simt, const product_operand<T>& from, int first_outer,
                                            int first_depth = 0)
        : leading_(from.leading), access_(from.access) {
        const int line = simt.thread() / chunks_in_line, column = simt.thread() % chunks_in_line * in_chunk;
        const int at_outer = first_outer + (by_depth ? line : column),
                  at_depth = first_depth + (by_depth ? column : line);
        next_ = from.elements.data + (by_depth ? at_outer * leading_ + at_depth : at_depth * leading_ + at_outer);
        lines_left_ = by_depth ? from.outer - at_outer : from.depth - at_depth;
        elements_left_ = by_depth ? from.depth - at_depth : from.outer - at_outer;
        place_ = Panel::place(line, column);
    }

    /// `is_whole`: the panel is completely inside of the operand; the same for all threads. Copies that may add zeros
    /// take more instructions. They are in a loop, because the compiler would otherwise issue both versions'
    /// instructions with predicates.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void begin(Simt simt, word slot, bool is_whole) {
        if constexpr (Load == panel_load::through_registers) {
            HALFTONE_UNROLL for (int i = 0; i < count; ++i) {
                const global_span<const T> from = chunk(i);
                if constexpr (std::is_same_v<T, element>) {
                    held_[i] = load_as_they_are<in_chunk>(simt, from, access_);
                } else {
                    held_[i] = round_to<element>(load_some<in_chunk>(simt, from, access_));
                }
            }
        } else if (is_whole) {
            HALFTONE_UNROLL for (int i = 0; i < count; ++i)
                simt.async_copy16(target(slot, i), {next_ + i * line_stride * leading_, in_chunk}, in_chunk);
        } else {
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
            for (int i = 0; i < count; ++i) {
                const global_span<const T> from = chunk(i);
                simt.async_copy16(target(slot, i), from, static_cast<int>(from.count));
            }
        }
        next_ += Panel::depth * (by_depth ? 1 : leading_);
        (by_depth ? elements_left_ : lines_left_) -= Panel::depth;
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void end(Simt simt, word slot) const {
        if constexpr (Load == panel_load::through_registers) {
            HALFTONE_UNROLL for (int i = 0; i < count; ++i) simt.store(target(slot, i), 0, held_[i]);
        }
    }

  private:
    /// The existing part of the thread's chunk number i.
    HALFTONE_HD HALFTONE_INLINE global_span<const T> chunk(int i) const {
        const int in_line = elements_left_ < 0 ? 0 : elements_left_ < in_chunk ? elements_left_ : in_chunk;
        return {next_ + i * line_stride * leading_, i * line_stride < lines_left_ ? in_line : 0};
    }
    HALFTONE_HD HALFTONE_INLINE shared_span<simt::chunk<element>> target(word slot, int i) const {
        return {slot + place_ + static_cast<word>(i) * bytes_apart, 1};
    }

    const T* next_;
    extent leading_;
    int lines_left_, elements_left_;  // counted from the thread's first line and chunk
    word place_;
    row_access access_;
    simt::chunk<element> held_[Load == panel_load::direct ? 1 : count];
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
