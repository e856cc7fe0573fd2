// SPDX-License-Identifier: MIT
/// \file
/// How a matrix product on the CPU is cut into tasks, and what each keeps near.
#pragma once

#include <algorithm>

#include <halftone/kernel/matmul/cpu/product.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled has what follows and is no template
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// What stays in the second-level cache while the rest passes by.
enum class stationary {
    b,        ///< panels, which all threads share
    b_per_thread,    ///< all panels, which are few: each thread packs them for itself
    rows,     ///< of a, all of them, or their sums by some columns: who uses a panel packs it
    small_m  ///< of a, and their sums: hardly any, and b is read where it lies
};

/// How a product is cut. Any cut gives the same bits, so it may follow the number of threads.
struct blocked_plan {
    stationary kept = stationary::b;
    bool a_is_packed_once = false;  ///< all of it, else what meets a panel; where it is packed
    extent depth;          ///< k of what is packed at a time
    extent piece;          ///< k of what is multiplied at a time: even pieces, so many or fewer as the unit likes
    extent rows;           ///< of a block of c, and of a packed block of a
    extent columns;        ///< of a block of c, or those whose panels a task packs for itself
    extent slice_columns;  ///< columns of b that are packed at a time

    /// `largest_small_m`: of up to so many rows of a the unit multiplies a few at a time by b where it lies.
    blocked_plan(extent m, extent n, extent k, const detail::product_unit& unit, extent largest_small_m, int threads)
        : depth(std::max<extent>(k, 1)),
          piece(even_piece(depth, unit)),
          rows(std::min<extent>(96, round_up_to(m, unit.rows))),
          slice_columns(n) {
        constexpr extent cached_bytes = extent{384} << 10, most_depth = extent{1} << 14, sums_bytes = extent{384} << 10,
                         near_sums_bytes = extent{12} << 20, sum_bytes = sizeof(float);
        // Processors with narrow vectors have small second-level caches.
        const bool is_wide = unit.columns >= 32;
        // Few rows by b where it lies. Each thread has some of their columns; or of their rows, where b is one panel at most and
        // stays near; or one has all, where that is soon done. So are more rows by half a panel of floats, where tiles of a
        // whole one leave half of their sums idle.
        const extent work = m * n * depth;
        const bool is_little = work < extent{1} << 15;
        const bool is_narrow =
            largest_small_m > detail::small_m && n <= unit.columns && depth * n * unit.element <= cached_bytes &&
            work >= extent{1} << 17 &&
            (m <= 64 || (is_wide && unit.element == 4 && n <= unit.columns / 2 && m <= 1024 && depth >= 512));
        const bool is_small_m = m <= largest_small_m && (m <= detail::small_m || is_little || n >= unit.columns * threads);
        if (depth <= most_depth && (is_small_m || is_narrow)) {
            kept = stationary::small_m;
            columns = std::clamp<extent>(round_up_to(ceil_div(n, 4 * threads), unit.columns), 64, 1024);
            if (!is_little) columns = std::min(columns, round_up_to(ceil_div(n, threads), unit.columns));
            rows = is_narrow ? std::min<extent>(round_up_to(ceil_div(m, 2 * threads), unit.rows), 96)
                             : round_up_to(m, unit.rows);
            return;
        }
        // Multiplications with panels so shallow are over before what they would ask for arrives.
        const bool is_shallow = depth <= 128 && m >= 128 && n >= 256, can_keep = !is_shallow && (is_wide || m <= 128);
        if (can_keep && depth <= most_depth && m * row_bytes(unit) <= cached_bytes) {
            kept = stationary::rows;
            a_is_packed_once = true;
            // Results of few rows wait to be stored while the next rows are multiplied.
            if (depth <= piece) rows = std::min(rows, round_up_to(48, unit.rows));
            columns = 2 * unit.columns;
            if (ceil_div(n, columns) < wanted(threads)) columns = unit.columns;
            return;
        }
        if (can_keep && (m <= 256 || keeps_sums_of(m, unit)) && n >= 128 * threads) {
            kept = stationary::rows;
            a_is_packed_once = m * row_bytes(unit) <= slice_bytes;
            const extent room = sums_bytes / sum_bytes / m / unit.columns * unit.columns;
            columns = std::clamp<extent>(round_up_to(ceil_div(n, 2 * threads), unit.columns), 64, std::min<extent>(room, 128));
            return;
        }
        // Little of b is packed sooner than another thread's share of it has come over; rows are dealt.
        constexpr extent own_bytes = extent{256} << 10, own_rows = 96, most_own_rows = 1024, most_own_columns = 128;
        if (depth > 32 && depth <= most_depth && m >= own_rows * threads && m <= most_own_rows && n <= most_own_columns &&
            round_up_to(n, unit.columns) * row_bytes(unit) <= own_bytes) {
            kept = stationary::b_per_thread;
            columns = round_up_to(n, unit.columns);
            for (extent turns = 2, least = m * columns + 1; turns <= 6; ++turns) {
                const extent high = std::min<extent>(96, round_up_to(ceil_div(m, turns * threads), unit.rows)),
                             here = of_busiest(m, n, high, columns, threads);
                if (here < least) least = here, rows = high;
            }
            return;
        }
        // What is packed stays near if it is little, where sums that wait for the rest of k do, too.
        const extent at_once = !is_wide ? 768 : m * n * sum_bytes <= near_sums_bytes ? 4096 / unit.element : most_depth;
        const extent chunks = ceil_div(depth, at_once);
        if (chunks > 1) {
            depth = round_up_to(ceil_div(depth, chunks), unit.depth);
            piece = even_piece(depth, unit);
        }
        columns = 1024;
        // Hardly more is done than results stored, which wide tiles do along their rows; narrow ones gain nothing.
        if (depth <= 32 && n >= columns && is_wide) rows = std::min(rows, round_up_to(12, unit.rows));
        const auto tasks = [&] { return ceil_div(m, rows) * ceil_div(n, columns); };
        while (tasks() < wanted(threads) && columns > 128) columns /= 2;
        while (tasks() < wanted(threads) && rows > 48) rows = round_up_to(rows / 2, unit.rows);
        if (tasks() < wanted(threads)) deal_evenly(m, n, unit, threads);
        columns = round_up_to(ceil_div(n, ceil_div(n, columns)), unit.columns);  // even, so that no thread waits for the other
        slice_columns = std::max<extent>(1, slice_bytes / row_bytes(unit) / columns) * columns;
    }

    static extent ceil_div(extent all, extent each) { return (all + each - 1) / each; }
    static extent round_up_to(extent value, extent step) { return ceil_div(value, step) * step; }

    static constexpr extent slice_bytes = extent{16} << 20;  ///< of an operand, packed

  private:
    static extent even_piece(extent depth, const detail::product_unit& unit) {
        constexpr extent step = 32;  // whole lines of all types
        return round_up_to(ceil_div(depth, ceil_div(depth, unit.depth)), step);
    }
    /// Whether sums of so many rows, which come and go with every piece of k, cost less than all threads' waiting until all
    /// of b is packed. Rows that are packed again for all columns had better be short.
    bool keeps_sums_of(extent m, const detail::product_unit& unit) const {
        return m <= (unit.element == 2 ? 1024 : 768) &&
               (ceil_div(depth, piece) <= 8 || m * row_bytes(unit) <= slice_bytes);
    }
    /// Deals columns, rows or both in as many parts as threads, whole panels and tiles, if the busiest has less to do then.
    void deal_evenly(extent m, extent n, const detail::product_unit& unit, int threads) {
        constexpr extent most_rows = 192;
        const extent panels = ceil_div(n, unit.columns), high = round_up_to(ceil_div(m, threads), unit.rows),
                     all_columns = panels * unit.columns, some_columns = ceil_div(panels, threads) * unit.columns,
                     some_rows = round_up_to(ceil_div(high, ceil_div(high, most_rows)), unit.rows);
        extent least = of_busiest(m, n, rows, columns, threads);
        const auto take_if_less = [&](extent high_as, extent wide_as) {
            const extent here = of_busiest(m, n, high_as, wide_as, threads);
            if (here < least) least = here, rows = high_as, columns = wide_as;
        };
        take_if_less(rows, some_columns);
        take_if_less(some_rows, all_columns);
        take_if_less(some_rows, some_columns);
    }
    /// Results of the thread that has most, where each in turn takes a block: all whole ones, then the rows that are left.
    static extent of_busiest(extent m, extent n, extent high, extent wide, int threads) {
        const extent groups = ceil_div(n, wide), whole = m / high * groups, turns = ceil_div(whole, threads),
                     idle = turns * threads - whole, last_turns = ceil_div(std::max<extent>(0, groups - idle), threads);
        return (turns * high + last_turns * (m % high)) * wide;
    }
    /// Few tasks leave a thread idle at the end.
    static extent wanted(int threads) { return threads > 1 ? 8 * threads : 1; }
    /// Of a row of a, or a column of b, as packed.
    extent row_bytes(const detail::product_unit& unit) const { return unit.element * round_up_to(depth, piece); }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
