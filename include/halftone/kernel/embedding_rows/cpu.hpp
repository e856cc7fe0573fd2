// SPDX-License-Identifier: MIT
/// \file
/// The sparse gradient of an embedding's table on the CPU; embedding_rows.hpp has its arguments, its contract and an
/// example.
///
/// Once each token has a row, the sums are computed by the code of a dense gradient, with these rows as tokens.
#pragma once

#include <cstring>

#include <halftone/kernel/embedding/cpu.hpp>
#include <halftone/kernel/embedding_rows/embedding_rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct embedding_rows<cpu> {
    template <class Y, class G>
    static void add(cpu& device, const embedding_rows_backward<Y, G>& a) {
        check(a);
        device.run([&] { embedding<cpu>::check_tokens(a.vocabulary, a.tokens); });
        const extent lookups = a.tokens.extent_of(0);
        const workspace::lease memory(device.scratch(),
                                      static_cast<std::size_t>(2 * lookups + a.vocabulary + 1) * sizeof(std::int32_t));
        auto* const order = memory.as<std::int32_t>();
        auto *const row_of = order + lookups, *const first = row_of + lookups;
        extent counted = lookups;
        device.run([&] {
            embedding<cpu>::sort(a.tokens, a.vocabulary, order, first);
            make_rows(a, order, first, row_of);
            counted -= leave_out_padding(a, order, first);
        });
        embedding<cpu>::add_sorted<Y, G>(device, {row_of, {counted}}, order, a.dy, a.rows.values.data(),
                                         a.before == 0 ? write_mode::overwrite : write_mode::add);
    }

  private:
    /// Inserts the tokens that have no row yet, each at its place in the order, and sets each lookup's row. From the
    /// last row to the first, since rows only move up.
    template <class Y, class G>
    static void make_rows(const embedding_rows_backward<Y, G>& a, const std::int32_t* order, const std::int32_t* end,
                          std::int32_t* row_of) {
        const std::size_t row_bytes = static_cast<std::size_t>(a.dy.extent_of(1)) * sizeof(G);
        std::int32_t* const indices = a.rows.indices.data();
        G* const values = a.rows.values.data();
        const auto row = [&](extent r) { return values + r * a.dy.extent_of(1); };
        const auto begin_of = [&](extent t) { return t == a.padding ? end[t] : t == 0 ? 0 : end[t - 1]; };
        const extent old = a.before == 0 ? 0 : *a.rows.count;
        extent all = old;
        for (extent t = 0, i = 0; t < a.vocabulary; ++t) {
            while (i < old && indices[i] < t) ++i;
            all += begin_of(t) < end[t] && (i == old || indices[i] != t) ? 1 : 0;
        }
        *a.rows.count = static_cast<std::int32_t>(all);
        extent from = old - 1, to = all - 1;
        for (extent t = a.vocabulary - 1; t >= 0 && to >= 0; --t) {
            const bool is_old = from >= 0 && indices[from] == t, is_looked_up = begin_of(t) < end[t];
            if (!is_old && !is_looked_up) continue;
            if (is_old && from != to) std::memcpy(static_cast<void*>(row(to)), row(from), row_bytes);
            // Zeros to add to; in the first call of a window sums overwrite instead.
            if (!is_old && a.before != 0) std::memset(static_cast<void*>(row(to)), 0, row_bytes);
            indices[to] = static_cast<std::int32_t>(t);
            for (std::int32_t place = begin_of(t); place < end[t]; ++place)
                row_of[order[place]] = static_cast<std::int32_t>(to);
            from -= is_old ? 1 : 0;
            --to;
        }
    }

    /// Takes the lookups of padding out of the order. Returns how many they are.
    template <class Y, class G>
    static extent leave_out_padding(const embedding_rows_backward<Y, G>& a, std::int32_t* order, const std::int32_t* end) {
        if (a.padding < 0 || a.padding >= a.vocabulary) return 0;
        const extent begin = a.padding == 0 ? 0 : end[a.padding - 1], behind = end[a.padding];
        std::memmove(order + begin, order + behind, static_cast<std::size_t>(a.tokens.extent_of(0) - behind) * sizeof *order);
        return behind - begin;
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
