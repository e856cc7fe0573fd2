// SPDX-License-Identifier: MIT
/// \file
/// Embedding on the CPU; embedding.hpp has its arguments, its contract and an example.
#pragma once

#include <cstring>
#include <numeric>

#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/common/squares/cpu.hpp>
#include <halftone/kernel/embedding/embedding.hpp>
#include <halftone/kernel/embedding/fp64.hpp>
#include <halftone/number/integer.hpp>

#define HALFTONE_BODY <halftone/kernel/embedding/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct embedding<cpu> {
    template <class T, class Y>
        requires in_double<T, Y>
    static void forward(cpu& device, const embedding_forward<T, Y>& a) {
        device.run([&] { check_ids(a); });
        fp64::embed(device, a);
    }
    template <class Y, class G>
        requires in_double<Y, G>
    static void backward(cpu& device, const embedding_backward<Y, G>& a) {
        if (a.dtable.data() != nullptr) device.run([&] { check_tokens(a.dtable.extent_of(0), a.tokens); });
        fp64::embed(device, a);
    }
    /// Throws argument_error for the first token outside the vocabulary.
    static void check_tokens(extent vocabulary, const const_view<std::int32_t, 1>& tokens, const char* what = "token") {
        for (extent r = 0; r < tokens.extent_of(0); ++r) {
            if (tokens(r) < 0 || tokens(r) >= vocabulary) {
                fail<argument_error>("embedding: the ", what, " of row ", r, " is ", tokens(r), "; expected 0 to ",
                                     vocabulary - 1);
            }
        }
    }

    template <class T, class Y>
    static void forward(cpu& device, const embedding_forward<T, Y>& a) {
        check(a);
        device.run([&] { check_ids(a); });
        const auto body = device.select(HALFTONE_EACH_SET(embedding_rows<T, Y>));
        const extent width = a.table.extent_of(1);
        const row_partition partition = partition_rows(a.tokens.extent_of(0), width);
        device.parallel_for(partition.count, [&](extent piece) {
            body(partition.begin(piece), partition.rows_of(piece), width, a.tokens.data(), a.table.data(), a.positions.data(),
                 a.positions.extent_of(0), a.position_of.data(), a.out.data());
        });
    }

    template <class Y, class G>
    static void backward(cpu& device, const embedding_backward<Y, G>& a) {
        check(a);
        if (a.dtable.data() != nullptr) {
            device.run([&] { check_tokens(a.dtable.extent_of(0), a.tokens); });
            backward_tokens(device, a);
        }
        if (a.dpositions.data() != nullptr) backward_positions(device, a);
    }

    template <class T, class Y>
    static void check_ids(const embedding_forward<T, Y>& a) {
        check_tokens(a.table.extent_of(0), a.tokens);
        if (a.position_of.data() != nullptr) check_tokens(a.positions.extent_of(0), a.position_of, "position");
    }

    // ---- also used by embedding_rows

    /// A stable counting sort: `order` lists the rows by token; first[t] becomes the end of token t's rows in it.
    static void sort(const const_view<std::int32_t, 1>& tokens, extent vocabulary, std::int32_t* order,
                     std::int32_t* first) {
        std::memset(first, 0, static_cast<std::size_t>(vocabulary + 1) * sizeof *first);
        for (extent r = 0; r < tokens.extent_of(0); ++r) ++first[tokens(r) + 1];
        for (extent t = 0; t < vocabulary; ++t) first[t + 1] += first[t];
        for (extent r = 0; r < tokens.extent_of(0); ++r) order[first[tokens(r)]++] = static_cast<std::int32_t>(r);
    }

    /// table[tokens[r]] = (or +=) the sum of the rows r of dy with this token. `order` lists the rows by token. If
    /// requested, returns the change of the sum of squares of the table's rows (if overwritten, their sum).
    template <class Y, class G>
    static double add_sorted(cpu& device, const const_view<std::int32_t, 1>& tokens, const std::int32_t* order,
                             const const_view<Y, 2>& dy, G* table, write_mode mode, bool asks_for_squares = false) {
        const auto body = device.select(HALFTONE_EACH_SET(embedding_backward_tokens<Y, G>));
        const extent rows = tokens.extent_of(0), width = dy.extent_of(1);
        // One frequent token may be most of the work, so columns are partitioned, too.
        constexpr extent columns = 256, places = piece_elements / columns;
        const extent blocks = detail::ceil_div(width, columns), pieces = detail::ceil_div(rows, places);
        const extent tasks = blocks * pieces;
        const workspace::lease memory(device.scratch(),
                                      asks_for_squares ? static_cast<std::size_t>(tasks) * sizeof(double) : 0);
        double* const changes = asks_for_squares ? memory.as<double>() : nullptr;
        device.parallel_for(tasks, [&](extent index) {
            const extent begin = index / blocks * places, j = index % blocks * columns;
            body(begin, begin + places < rows ? begin + places : rows, rows, tokens.data(), order, dy.data() + j, width,
                 j + columns < width ? columns : width - j, table + j, mode,
                 changes == nullptr ? nullptr : changes + index);
        });
        double change = 0;
        if (changes != nullptr) device.run([&] { change = std::accumulate(changes, changes + tasks, 0.0); });
        return change;
    }

  private:
    template <class Y, class G>
    static void backward_tokens(cpu& device, const embedding_backward<Y, G>& a) {
        const extent rows = a.tokens.extent_of(0), vocabulary = a.dtable.extent_of(0), width = a.dy.extent_of(1);
        const workspace::lease memory(device.scratch(),
                                      static_cast<std::size_t>(rows + vocabulary + 1) * sizeof(std::int32_t));
        auto* const order = memory.as<std::int32_t>();
        auto* const first = order + rows;
        device.run([&] { sort(a.tokens, vocabulary, order, first); });

        // After the sort, first[t] is the end of token t's rows; those of token 0 begin at 0.
        if (a.mode == write_mode::overwrite) {
            const row_partition partition = partition_rows(vocabulary, width);
            device.parallel_for(partition.count, [&](extent piece) {
                for (extent t = partition.begin(piece); t < partition.begin(piece) + partition.rows_of(piece); ++t) {
                    const bool absent = first[t] == (t == 0 ? 0 : first[t - 1]);
                    if (absent)
                        std::memset(static_cast<void*>(a.dtable.data() + t * width), 0,
                                    static_cast<std::size_t>(width) * sizeof(G));
                }
            });
        }

        const square_sum all_before = a.mode == write_mode::add ? a.squares_before : square_sum{0, a.dtable.size()};
        const bool asks_for_squares = a.squares != nullptr && std::is_same_v<G, float> &&
                                      (a.mode == write_mode::overwrite || all_before.is_known(a.dtable.size()));
        const double sum =
            all_before.sum + add_sorted(device, a.tokens, order, a.dy, a.dtable.data(), a.mode, asks_for_squares);
        // If the sum has become much smaller, rounding errors of the old squares would dominate: it then counts as
        // unknown.
        if (asks_for_squares && sum >= all_before.sum / 4) *a.squares = {sum, a.dtable.size()};
    }

    template <class Y, class G>
    static void backward_positions(cpu& device, const embedding_backward<Y, G>& a) {
        const auto body = device.select(HALFTONE_EACH_SET(embedding_backward_positions<Y, G>));
        const extent rows = a.tokens.extent_of(0), width = a.dy.extent_of(1), period = a.dpositions.extent_of(0);
        if (period == 0) return;
        const row_partition partition = partition_rows(period, width * detail::ceil_div(rows, period));
        device.parallel_for(partition.count, [&](extent piece) {
            const extent p = partition.begin(piece);
            body(p, p + partition.rows_of(piece), period, rows, a.dy.data(), width, a.dpositions.data(), a.mode);
        });
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
