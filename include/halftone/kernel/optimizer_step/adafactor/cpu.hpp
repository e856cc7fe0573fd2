// SPDX-License-Identifier: MIT
/// \file
/// A step of Adafactor on the CPU; adafactor.hpp has its arguments, its contract and an example.
#pragma once

#include <algorithm>

#include <halftone/kernel/optimizer_step/adafactor/adafactor.hpp>
#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/number/integer.hpp>

#define HALFTONE_BODY <halftone/kernel/optimizer_step/adafactor/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct adafactor_step<cpu> {
    /// The size of tiles (128 KiB of floats), and the largest number of additions in float that a square passes through
    /// in a tile.
    static constexpr extent tile_rows = 64, tile_columns = 512, depth = tile_columns / 4 + 8;

    template <rounding Rounding, rounding CopyRounding = rounding::nearest_even, class Param, class Copy, class Accumulate>
    static void run(cpu& device, const adafactor_arguments<Param, Copy, Accumulate>& a) {
        check(a);
        if (a.shape.size() == 0) return;
        const adafactor_tiles tiles = adafactor_tiles::of(a.shape, tile_rows, tile_columns);
        const workspace::lease squares(device.scratch(), static_cast<std::size_t>(tiles.across * tiles.rows +
                                                                                  tiles.down * tiles.columns) * sizeof(float));
        const workspace::lease measured(device.scratch(), static_cast<std::size_t>(tiles.count()) * sizeof(two_sums));
        device.run([&] {
            if (a.step.step->skips != 0) return;
            float* const of_rows = squares.as<float>();
            find_squares(device, a, tiles, of_rows, of_rows + tiles.across * tiles.rows);
            find_variances(device, a, tiles, of_rows, of_rows + tiles.across * tiles.rows);
            measure(device, a, tiles, measured.as<two_sums>());
            update<Rounding, CopyRounding>(device, a);
        });
    }

  private:
    struct two_sums {
        double updates, parameters;
    };

    template <class Arguments>
    static float row_share(const Arguments& a, extent row) {
        return a.rows.data() == nullptr ? 1.0f : a.rows(row) / a.record->row_mean;
    }

    /// Calls work(y, x) for each tile, in tasks of several tiles.
    template <class Work>
    static void for_each_tile(cpu& device, const adafactor_tiles& tiles, const Work& work) {
        const extent full = std::min(tiles.rows, tiles.height) * std::min(tiles.columns, tiles.width);
        const extent each = std::max<extent>(1, tile_rows * tile_columns / full);
        device.parallel_for(detail::ceil_div(tiles.count(), each), [&](extent task) {
            for (extent i = task * each; i < std::min(tiles.count(), (task + 1) * each); ++i)
                work(i / tiles.across, i % tiles.across);
        });
    }

    /// Computes the sums of each tile: of_rows (across, rows), of_columns (down, columns).
    template <class Param, class Copy, class G>
    static void find_squares(cpu& device, const adafactor_arguments<Param, Copy, G>& a, const adafactor_tiles& tiles,
                             float* of_rows, float* of_columns) {
        const auto body = device.select(HALFTONE_EACH_SET(adafactor_squares<G>));
        for_each_tile(device, tiles, [&](extent y, extent x) {
            const extent row = y * tiles.height, column = x * tiles.width;
            body(tiles.rows_of(y), tiles.columns_of(x), a.step.gradient.data() + row * tiles.columns + column, tiles.columns,
                 *a.step.factors, of_rows + x * tiles.rows + row, of_columns + y * tiles.columns + column);
        });
    }

    /// Updates the variances, and computes the mean of those of rows.
    template <class Arguments>
    static void find_variances(cpu& device, const Arguments& a, const adafactor_tiles& tiles, const float* of_rows,
                               const float* of_columns) {
        const double weight = a.step.rule.variance_weight(*a.step.step);
        move(device, a.columns, of_columns, tiles.down, weight, tiles.rows);
        a.record->row_mean = 1;
        if (a.rows.data() == nullptr) return;
        move(device, a.rows, of_rows, tiles.across, weight, tiles.columns);
        double sum = 0;
        for (extent i = 0; i < tiles.rows; ++i) sum += static_cast<double>(a.rows(i));
        const auto least = static_cast<float>(a.step.rule.epsilon1);
        a.record->row_mean = std::max(static_cast<float>(sum / static_cast<double>(tiles.rows)), least);
    }
    /// variance += weight (mean of squares - variance); sums: (tiles, variances), each of `count` squares.
    static void move(cpu& device, const view<float, 1>& variances, const float* sums, extent tiles, double weight,
                     extent count) {
        constexpr extent each = 1024;
        const extent size = variances.size();
        device.parallel_for(detail::ceil_div(size, each), [&](extent piece) {
            double total[each] = {};
            const extent first = piece * each, n = std::min(each, size - first);
            for (extent t = 0; t < tiles; ++t) {
                for (extent i = 0; i < n; ++i) total[i] += static_cast<double>(sums[t * size + first + i]);
            }
            for (extent i = 0; i < n; ++i) {
                const auto old = static_cast<double>(variances(first + i));
                variances(first + i) = static_cast<float>(old + weight * (total[i] / static_cast<double>(count) - old));
            }
        });
    }

    template <class Param, class Copy, class G>
    static void measure(cpu& device, const adafactor_arguments<Param, Copy, G>& a, const adafactor_tiles& tiles,
                        two_sums* found) {
        const auto body = device.select(HALFTONE_EACH_SET(adafactor_measure<Param, Copy, G>));
        for_each_tile(device, tiles, [&](extent y, extent x) {
            two_sums here{};
            for (extent i = 0; i < tiles.rows_of(y); ++i) {
                const extent row = y * tiles.height + i, column = x * tiles.width, at = row * tiles.columns + column;
                float updates, parameters;
                body(a.step, {at, tiles.columns_of(x), a.step.gradient.data() + at}, a.columns.data() + column,
                     row_share(a, row), &updates, &parameters);
                here.updates += static_cast<double>(updates), here.parameters += static_cast<double>(parameters);
            }
            found[y * tiles.across + x] = here;
        });
        two_sums all{};
        for (extent i = 0; i < tiles.count(); ++i) all.updates += found[i].updates, all.parameters += found[i].parameters;
        a.record->update_squares = all.updates, a.record->parameter_squares = all.parameters;
    }

    /// The last pass, which updates the parameters, over parts of rows.
    template <rounding Rounding, rounding CopyRounding, class Param, class Copy, class G>
    static void update(cpu& device, const adafactor_arguments<Param, Copy, G>& a) {
        using rule = adafactor_rule;
        const auto body = device.select(
            HALFTONE_EACH_SET(optimizer_step_elements<rule, true, Rounding, CopyRounding, Param, Copy, G, float>));
        const auto& s = a.step;
        const rule::scalars all = s.rule.scalars_of(s.rates, *s.step, *a.record, static_cast<double>(a.shape.size()));
        const extent width = a.shape[1], across = detail::ceil_div(width, update_chunk), parts = a.shape[0] * across;
        const extent each = std::max<extent>(1, update_chunk / width);
        device.parallel_for(detail::ceil_div(parts, each), [&](extent task) {
            for (extent part = task * each; part < std::min(parts, (task + 1) * each); ++part) {
                const extent row = part / across, column = part % across * update_chunk, at = row * width + column;
                rule::scalars of_row = all;
                of_row.row = row_share(a, row);
                float* const moments[] = {a.columns.data() + column};
                body(s, {at, std::min(update_chunk, width - column), s.gradient.data() + at}, moments, of_row,
                     streams_copies<Param>(s.copy, at));
            }
        });
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
