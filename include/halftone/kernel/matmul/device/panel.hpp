// SPDX-License-Identifier: MIT
/// \file
/// A panel of one operand in shared memory, for matrix units: how it comes there and how fragments of it come out.
///
///     panel_fetch<panel, threads, passage::direct, T> fetch(simt, operand, first_outer);
///     fetch.begin(simt, slot);                                         // the next panel; … other work …
///     fetch.end(simt, slot);
///     const word mine = panel::place_of_lane<operand_of_mma::a>(simt, first);
///     vec<word, 4> x = panel::fragment<operand_of_mma::a>(simt, slot, mine, 16, 0);      // after a wait and a barrier
///
/// A panel lies as its operand does in global memory, whichever axis is contiguous. Where that is the outer one,
/// ldmatrix transposes 16-bit elements; of floats, lanes load their own; of bytes, ldmatrix transposes pairs, which
/// lanes then take apart. Swizzles keep all ways free of bank conflicts.
#pragma once

#include <halftone/kernel/matmul/device/operand.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// A fragment is 16 of the outer axis by 32 bytes of the depth, four matrices of 8 by 16 bytes. An a has the outer half
/// change first, as mma takes it; a b has the depth change first: its words 0 and 1 are one b of mma, words 2 and 3 the
/// next. The halves of the outer axis are its first and its last eight, but of a panel that is_interleaved its even and
/// its odd ones.
enum class operand_of_mma { a, b };

/// Outer x Depth elements of 8 or 16 bits or floats, contiguous along Axis. Places are bytes from the panel's first
/// on.
template <class T, int Outer, int Depth, along Axis,
          simt::swizzle Mode = simt::swizzle_for((Axis == along::depth ? Depth : Outer) * sizeof(T))>
struct matrix_panel {
    using element = T;
    static constexpr along axis = Axis;
    static constexpr int outer = Outer, depth = Depth;
    static constexpr int lines = Axis == along::depth ? Outer : Depth, length = Axis == along::depth ? Depth : Outer;
    using tile = simt::shared_tile<T, lines, length, Mode>;
    static constexpr int in_chunk = 16 / static_cast<int>(sizeof(T)), fragment_depth = 2 * in_chunk;
    /// Lanes load element by element: eight neighbours, two chunks, of each of four lines at once. So a line's chunks
    /// are swapped with others by pairs, and four lines under each other lie in different banks.
    static constexpr bool by_elements = sizeof(T) == 4 && Axis == along::outer;
    /// A pair of bytes that ldmatrix moves is of two neighbours of the outer axis.
    static constexpr bool is_interleaved = sizeof(T) == 1 && Axis == along::outer;
    /// Bytes after which places repeat their swizzle.
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

    /// What a lane names of the fragment at (first, 0).
    HALFTONE_KERNEL template <operand_of_mma Side, class Simt>
    HALFTONE_HD HALFTONE_INLINE static word place_of_lane(Simt simt, int first) {
        if constexpr (by_elements) return place(simt.lane() % 4, first + simt.lane() / 4);
        if constexpr (is_interleaved) return place(line_of_bytes(simt.lane()), first);
        const int row = simt.lane() % 8, fast = simt.lane() / 8 % 2, slow = simt.lane() / 16;
        const int at_outer = 8 * (Side == operand_of_mma::a ? fast : slow),
                  at_depth = in_chunk * (Side == operand_of_mma::a ? slow : fast);
        return Axis == along::depth ? place(first + at_outer + row, at_depth) : place(at_depth + row, first + at_outer);
    }
    /// The fragment that lies (outer, depth) behind the one at `mine`, whole fragments. Either the swizzle does not
    /// change over that distance, or the bits of the distance are zeros in `mine`: so most of the address is known when
    /// compiled.
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
    // Of bytes, a lane with t = lane % 4 needs the depths 4t to 4t + 3 of each sixteen. A transposed matrix gives it
    // two of its lines, next to each other: so one matrix has 4t and 4t + 1, and the next one the other two. Where t is
    // 2 or 3 the two change places: then a matrix's eight lines differ modulo 8, and lie in different banks.

    /// The line of depth that a lane names.
    HALFTONE_HD HALFTONE_INLINE static int line_of_bytes(int lane) {
        const int row = lane % 8, t = row / 2, matrix = lane / 8;
        return 16 * (matrix / 2) + 4 * t + row % 2 + 2 * ((matrix % 2) ^ (t / 2));
    }
    /// Of each pair of words, the four bytes of the even and those of the odd outer line.
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

/// How an operand comes into shared memory: copied as it is, in chunks and asynchronously, or through registers, which
/// suits any type and alignment.
enum class panel_load { direct, through_registers };

/// A thread's share of bringing one panel after another: some chunks under each other. Zeros where the operand ends.
template <class Panel, int Threads, panel_load Load, class T>
class panel_fetch {
    using element = typename Panel::element;
    static constexpr bool by_depth = Panel::axis == along::depth;
    static constexpr int in_chunk = Panel::in_chunk, chunks_in_line = Panel::length / in_chunk,
                         line_stride = Threads / chunks_in_line, count = Panel::lines / line_stride;
    static constexpr word bytes_apart = line_stride * Panel::tile::row_bytes;
    static_assert(Threads % chunks_in_line == 0 && Panel::lines % line_stride == 0);
    static_assert(count == 1 || bytes_apart % Panel::period == 0,
                  "chunks under each other lie alike in the swizzle's period");
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

    /// `is_whole` says that all of the panel is there, the same to all threads. A copy that may add zeros takes more
    /// instructions; it is a loop, because two straight pieces of code would both be issued, one of them for nothing.
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
    /// What there is of the thread's chunk number i.
    HALFTONE_HD HALFTONE_INLINE global_span<const T> chunk(int i) const {
        const int in_line = elements_left_ < 0 ? 0 : elements_left_ < in_chunk ? elements_left_ : in_chunk;
        return {next_ + i * line_stride * leading_, i * line_stride < lines_left_ ? in_line : 0};
    }
    HALFTONE_HD HALFTONE_INLINE shared_span<simt::chunk<element>> target(word slot, int i) const {
        return {slot + place_ + static_cast<word>(i) * bytes_apart, 1};
    }

    const T* next_;
    extent leading_;
    int lines_left_, elements_left_;  // from my first line and chunk on
    word place_;
    row_access access_;
    simt::chunk<element> held_[Load == panel_load::direct ? 1 : count];
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
