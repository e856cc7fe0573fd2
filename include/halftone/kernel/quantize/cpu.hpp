// SPDX-License-Identifier: MIT
/// \file
/// Quantisation to eight bits on the CPU; quantize.hpp has its contract and an example.
#pragma once

#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/quantize/quantize.hpp>

#define HALFTONE_BODY <halftone/kernel/quantize/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct quantize<cpu> {
    template <class X, class Y, int Rank>
    static void current(cpu& device, const view<X, Rank>& x, const view<Y, Rank>& y, tensor_scale* scale,
                        const scaling_rule& rule) {
        using T = std::remove_const_t<X>;
        check_quantize(x, y);
        const auto body = device.select(HALFTONE_EACH_SET(largest_magnitude<T>));
        over_pieces(
            device, x.size(), [&](extent first, extent count) { return body(count, x.data() + first); },
            [&](std::uint32_t amax) {
                *scale = scale_of(amax, static_cast<float>(number_traits<Y>::max), rule, 1.0f);
            });
        again(device, x, y, scale);
    }
    template <class X, class Y, int Rank>
    static void delayed(cpu& device, const view<X, Rank>& x, const view<Y, Rank>& y, tensor_scale* scale,
                        amax_record* record, gathering gathers) {
        check_quantize(x, y);
        device.run([&] { *scale = record->now; });
        convert(device, x, y, scale, [&](std::uint32_t amax) {
            if (gathers == gathering::on && amax < infinite_magnitude && record->amax < amax) record->amax = amax;
        });
    }
    template <class X, class Y, int Rank>
    static void again(cpu& device, const view<X, Rank>& x, const view<Y, Rank>& y, const tensor_scale* scale) {
        check_quantize(x, y);
        convert(device, x, y, scale, [](std::uint32_t) {});
    }

    /// Ends a window of all records, whose histories are `windows` words; if *skips is not 0, the window's amaxes are
    /// discarded. A record whose tensor did not occur keeps its history.
    static void roll(cpu& device, amax_record* records, extent count, std::uint32_t* history, extent,
                     const std::int32_t* skips) {
        device.run([&] {
            for (extent i = 0; i < count; ++i) {
                amax_record& r = records[i];
                if (!is_remembered(r, *skips)) {
                    r.amax = 0;
                    continue;
                }
                std::uint32_t* const mine = history + r.first;
                mine[r.next] = r.amax;
                std::uint32_t amax = r.amax;
                for (int w = 0; w < r.rule.history && r.rule.rule == amax_rule::max; ++w)
                    amax = amax < mine[w] ? mine[w] : amax;
                next_window(r, amax);
            }
        });
    }

  private:
    template <class X, class Y, int Rank, class Finish>
    static void convert(cpu& device, const view<X, Rank>& x, const view<Y, Rank>& y, const tensor_scale* scale,
                        const Finish& finish) {
        using T = std::remove_const_t<X>;
        const auto body = device.select(HALFTONE_EACH_SET(quantize_piece<T, Y>));
        over_pieces(
            device, x.size(),
            [&](extent first, extent count) { return body(count, x.data() + first, scale->scale, y.data() + first); },
            finish);
    }
    /// Calls `finish` with the maximum over the pieces of a tensor.
    template <class Body, class Finish>
    static void over_pieces(cpu& device, extent size, const Body& body, const Finish& finish) {
        const row_partition partition = partition_rows(size, 1, 4 * piece_elements);
        const workspace::lease lease(device.scratch(), static_cast<std::size_t>(partition.count) * sizeof(std::uint32_t));
        auto* const amaxes = lease.as<std::uint32_t>();
        device.parallel_for(partition.count, [&](extent piece) {
            amaxes[piece] = halftone::bit_cast<std::uint32_t>(body(partition.begin(piece), partition.rows_of(piece)));
        });
        device.run([&] {
            std::uint32_t amax = 0;
            for (extent piece = 0; piece < partition.count; ++piece) amax = amax < amaxes[piece] ? amaxes[piece] : amax;
            finish(amax);
        });
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
