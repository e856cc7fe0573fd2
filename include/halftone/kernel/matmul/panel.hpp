// SPDX-License-Identifier: MIT
/// \file
/// A panel of one operand in shared memory, for matrix units: how it comes there and how fragments of it come out.
///
///     panel_fetch<panel, threads, passage::direct> fetch;
///     fetch.begin(simt, operand, first_outer, first_depth, to);       // … other work …
///     fetch.end(simt, to);
///     simt::vec<word, 4> x = to.fragment(simt, outer, depth);         // after a wait and a barrier
///
/// A panel lies as its operand does in global memory, whichever axis is contiguous; ldmatrix transposes where that is the
/// outer one. Its swizzle keeps both ways free of bank conflicts.
#pragma once

#include <halftone/kernel/matmul/operand.hpp>

namespace halftone::inline HALFTONE_ABI::kernel::on_device {

/// Outer x Depth elements of a 16-bit type, contiguous along Axis.
template <class T, int Outer, int Depth, along Axis, simt::swizzle Mode = simt::swizzle_for((Axis == along::depth ? Depth : Outer) * 2)>
struct matrix_panel {
    using element = T;
    static constexpr along axis = Axis;
    static constexpr int lines = Axis == along::depth ? Outer : Depth, length = Axis == along::depth ? Depth : Outer;
    static constexpr word bytes = Outer * Depth * 2;

    simt::shared_tile<T, lines, length, Mode> tile;

    /// 16 of the outer axis by 16 of the depth, as mma takes an a; of b it is two blocks, words 0 and 2, and words 1 and 3.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE vec<word, 4> fragment(Simt simt, int outer, int depth) const {
        const int row = simt.lane() % 8, second = simt.lane() / 8 % 2 * 8, fourth = simt.lane() / 16 * 8;
        if constexpr (Axis == along::depth) {
            return simt.ldmatrix_x4(tile.at(static_cast<word>(outer + second + row), static_cast<word>(depth + fourth)));
        } else {
            return simt.ldmatrix_x4_trans(tile.at(static_cast<word>(depth + fourth + row), static_cast<word>(outer + second)));
        }
    }
};

/// How an operand comes into shared memory: copied as it is, in chunks and asynchronously, or through registers, which suits
/// any type and alignment.
enum class passage { direct, through_registers };

/// A thread's share of bringing panels: some chunks under each other.
template <class Panel, int Threads, passage Passage>
class panel_fetch {
    using element = typename Panel::element;
    static constexpr int chunks_in_line = Panel::length / 8, lines_apart = Threads / chunks_in_line, count = Panel::lines / lines_apart;
    static_assert(Threads % chunks_in_line == 0 && Panel::lines % lines_apart == 0);

  public:
    /// The panel whose first element is (first_outer, first_depth) of the operand; zeros where that ends.
    HALFTONE_KERNEL template <class Simt, class T>
    HALFTONE_HD HALFTONE_INLINE void begin(Simt simt, const product_operand<T>& from, int first_outer, int first_depth, const Panel& to) {
        HALFTONE_UNROLL for (int i = 0; i < count; ++i) {
            const int line = line_of(simt, i), column = column_of(simt);
            const global_span<const T> rest = Panel::axis == along::depth ? from.rest(Panel::axis, first_outer + line, first_depth + column)
                                                                          : from.rest(Panel::axis, first_outer + column, first_depth + line);
            if constexpr (Passage == passage::direct) {
                static_assert(std::is_same_v<T, element>);
                simt.async_copy16(to.tile.at(static_cast<word>(line), static_cast<word>(column)), rest, rest.count < 8 ? static_cast<int>(rest.count) : 8);
            } else {
                held_[i] = round_to<element>(load_some<8>(simt, rest, from.access));
            }
        }
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void end(Simt simt, const Panel& to) const {
        if constexpr (Passage == passage::through_registers) {
            HALFTONE_UNROLL for (int i = 0; i < count; ++i) simt.store(to.tile.at(static_cast<word>(line_of(simt, i)), static_cast<word>(column_of(simt))), 0, held_[i]);
        }
    }

  private:
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static int line_of(Simt simt, int i) {
        return simt.thread() / chunks_in_line + i * lines_apart;
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static int column_of(Simt simt) {
        return simt.thread() % chunks_in_line * 8;
    }

    simt::chunk<element> held_[Passage == passage::direct ? 1 : count];
};

}  // namespace halftone::inline HALFTONE_ABI::kernel::on_device
