// SPDX-License-Identifier: MIT
/// \file
/// Rows in the order of their tokens, rows of one token as they were: a stable radix sort without atomic additions.
///
///     const on_device::token_order<Device> order(device, tokens, vocabulary);     // on the device's scratch memory
///     order.order()[i], order.sorted()[i]                                         // a row, and its token
///
/// A pass sorts by six bits of the token, least ones first. Every thread counts the digits of its own stretch of rows; the
/// counts, digit by digit and thread by thread, added up in this order are the places where each thread puts its rows
/// (Zagha and Blelloch, "Radix sort for vector multiprocessors", 1991).
#pragma once

#include <cstdint>

#include <halftone/exec/simt/simt.hpp>
#include <halftone/exec/workspace.hpp>

namespace halftone::inline HALFTONE_ABI::kernel::on_device {

/// What the counting and the placing kernel share.
struct token_pass {
    static constexpr int threads = 64, digit_bits = 6, digits = 1 << digit_bits;

    simt::global_span<const std::int32_t> tokens;  // (rows)
    simt::global_span<const std::int32_t> order;   // (rows), of the pass before; none before the first
    simt::global_span<std::int32_t> counts;        // (digits, all threads)
    extent rows, each;                             // rows in a thread's stretch
    std::int32_t vocabulary;
    int shift;

    simt::grid_shape grid() const { return simt::blocks_for((rows + each - 1) / each, threads); }
    extent all_threads() const { return static_cast<extent>(grid().x) * threads; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static extent thread(Simt simt) {
        return static_cast<extent>(simt.block().x) * threads + simt.thread();
    }
    HALFTONE_HD extent begin(extent thread) const { return thread * each < rows ? thread * each : rows; }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE std::int32_t row(Simt simt, extent place) const {
        return order.is_there() ? simt.load(order, place) : static_cast<std::int32_t>(place);
    }
    /// What is no token counts as one beyond all others.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE std::int32_t token(Simt simt, std::int32_t row) const {
        const std::int32_t t = simt.load(tokens, row);
        return 0 <= t && t < vocabulary ? t : vocabulary;
    }
    /// A thread's own counter of a digit; all threads of a warp reach different banks.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static simt::shared_span<std::int32_t> counter(Simt simt, int digit) {
        return simt::shared_span<std::int32_t>{0, digits * threads}.part(
            static_cast<simt::word>(digit * threads + simt.thread()), 1);
    }
    HALFTONE_HD int digit(std::int32_t token) const { return token >> shift & (digits - 1); }
};

struct count_tokens_kernel {
    static constexpr int threads = token_pass::threads;
    static constexpr simt::word shared_bytes = token_pass::digits * threads * sizeof(std::int32_t);

    token_pass pass;
    extent all_threads;

    simt::grid_shape grid() const { return pass.grid(); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent me = pass.thread(simt);
        for (int d = 0; d < pass.digits; ++d) simt.store(pass.counter(simt, d), 0, 0);
        for (extent i = pass.begin(me); i < pass.begin(me + 1); ++i) {
            const auto counter = pass.counter(simt, pass.digit(pass.token(simt, pass.row(simt, i))));
            simt.store(counter, 0, simt.load(counter, 0) + 1);
        }
        for (int d = 0; d < pass.digits; ++d)
            simt.store(pass.counts, d * all_threads + me, simt.load(pass.counter(simt, d), 0));
    }
};

struct place_tokens_kernel {
    static constexpr int threads = token_pass::threads;
    static constexpr simt::word shared_bytes = token_pass::digits * threads * sizeof(std::int32_t);

    token_pass pass;
    extent all_threads;
    simt::global_span<std::int32_t> order;   // (rows)
    simt::global_span<std::int32_t> sorted;  // (rows), the tokens themselves; none but in the last pass

    simt::grid_shape grid() const { return pass.grid(); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent me = pass.thread(simt);
        for (int d = 0; d < pass.digits; ++d)
            simt.store(pass.counter(simt, d), 0, simt.load(pass.counts, d * all_threads + me));
        for (extent i = pass.begin(me); i < pass.begin(me + 1); ++i) {
            const std::int32_t row = pass.row(simt, i), token = pass.token(simt, row);
            const auto counter = pass.counter(simt, pass.digit(token));
            const std::int32_t place = simt.load(counter, 0);
            simt.store(counter, 0, place + 1);
            simt.store(order, place, row);
            if (sorted.is_there()) simt.store(sorted, place, token);
        }
    }
};

/// values[i] = the sum of the values before i, by one block.
struct running_sum_kernel {
    static constexpr int threads = 256, warps = threads / 32, each = 4;
    static constexpr simt::word shared_bytes = warps * sizeof(std::int32_t);

    simt::global_span<std::int32_t> values;

    simt::grid_shape grid() const { return {values.count == 0 ? 0 : 1, 1, 1}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const simt::shared_span<std::int32_t> totals{0, warps};
        const int lane = simt.lane(), warp = simt.warp();
        std::int32_t before = 0;
        for (extent tile = 0; tile < values.count; tile += threads * each) {
            const extent first = tile + simt.thread() * each;
            std::int32_t mine[each], sum = 0;
            HALFTONE_UNROLL for (int e = 0; e < each; ++e) {
                mine[e] = first + e < values.count ? simt.load(values, first + e) : 0;
                sum += mine[e];
            }
            std::int32_t through = sum;  // of this warp's threads up to this one
            HALFTONE_UNROLL for (int step = 1; step < 32; step *= 2) {
                const std::int32_t other = simt.shuffle(through, lane >= step ? lane - step : lane);
                through += lane >= step ? other : 0;
            }
            simt.barrier();
            if (lane == 31) simt.store(totals, warp, through);
            simt.barrier();
            std::int32_t next = before + through - sum;
            HALFTONE_UNROLL for (int w = 0; w < warps; ++w) {
                const std::int32_t total = simt.load(totals, w);
                next += w < warp ? total : 0;
                before += total;
            }
            HALFTONE_UNROLL for (int e = 0; e < each; ++e) {
                if (first + e < values.count) simt.store(values, first + e, next);
                next += mine[e];
            }
        }
    }
};

template <simt_device Device>
class token_order {
  public:
    /// tokens: (rows), at least one; those outside 0 to vocabulary - 1 come last, as `vocabulary`.
    token_order(Device& device, const const_view<std::int32_t, 1>& tokens, extent vocabulary)
        : rows_(tokens.extent_of(0)),
          memory_(device.scratch(), static_cast<std::size_t>(3 * rows_ + counts()) * sizeof(std::int32_t)) {
        std::int32_t *const all = memory_.template as<std::int32_t>(), *const counted = all + 3 * rows_;
        std::int32_t *from = nullptr, *to = all;
        for (int shift = 0;; shift += token_pass::digit_bits) {
            const bool is_last = vocabulary >> shift >> token_pass::digit_bits == 0;
            token_pass pass{simt::span_of(tokens),
                            {from, rows_},
                            {counted, counts()},
                            rows_,
                            stretch(),
                            static_cast<std::int32_t>(vocabulary),
                            shift};
            device.launch(count_tokens_kernel{pass, pass.all_threads()});
            device.launch(running_sum_kernel{pass.counts});
            device.launch(place_tokens_kernel{
                pass, pass.all_threads(), {to, rows_}, {is_last ? all + 2 * rows_ : nullptr, rows_}});
            order_ = to;
            if (is_last) break;
            from = to, to = to == all ? all + rows_ : all;
        }
    }

    simt::global_span<const std::int32_t> order() const { return {order_, rows_}; }
    simt::global_span<const std::int32_t> sorted() const {
        return {memory_.template as<std::int32_t>() + 2 * rows_, rows_};
    }

  private:
    /// Few rows a thread while there are few; at most 8192 threads, whose counts one block adds up.
    extent stretch() const { return rows_ <= 32 * 8192 ? 32 : (rows_ + 8191) / 8192; }
    extent counts() const { return token_pass::digits * token_pass{{}, {}, {}, rows_, stretch(), 0, 0}.all_threads(); }

    extent rows_;
    workspace::lease memory_;
    std::int32_t* order_ = nullptr;
};

}  // namespace halftone::inline HALFTONE_ABI::kernel::on_device
