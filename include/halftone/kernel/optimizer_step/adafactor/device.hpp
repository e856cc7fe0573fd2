// SPDX-License-Identifier: MIT
/// \file
/// A step of Adafactor on a GPU; adafactor.hpp has its arguments, its contract and an example.
///
/// Six kernels: the sums of squares over tiles, the variances, the mean of the rows' variances, the sums of squares of
/// updates and of the parameter, the values that follow from these sums, and the update, which applies the kernel of
/// all optimizers to each row (optimizer_step/device.hpp).
#pragma once

#include <cmath>

#include <halftone/kernel/optimizer_step/adafactor/adafactor.hpp>
#include <halftone/kernel/optimizer_step/device.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// The sums of squares along the rows and columns of a tile. A block has eight warps; each of them processes every
/// eighth row.
template <class G, int N>
struct adafactor_squares_kernel {
    using team = column_team<N, 1>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    global_span<const G> gradient;
    global_span<const gradient_factors> factors;
    global_span<float> of_rows;     // (across, rows)
    global_span<float> of_columns;  // (down, columns)
    adafactor_tiles tiles;

    grid_shape grid() const { return simt::folded(simt::blocks_for(tiles.columns, team::columns), tiles.down); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent y = simt::folded_row(simt.block()), x = simt.block().x, j = team::column(simt);
        if (y >= tiles.down) return;
        const gradient_factors f = simt.load(factors, 0);
        vec<float, N> of_column{};
        for (extent i = simt.warp(); i < tiles.rows_of(y); i += team::warps) {
            const extent row = y * tiles.height + i;
            float of_row = 0;
            if (j < tiles.columns) {
                const vec<float, N> g = load_floats<N>(simt, gradient.from(row * tiles.columns + j), 0);
                HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
                    const float v = read_gradient(g[e], f), square = v * v;
                    of_column[e] += square, of_row += square;
                }
            }
            of_row = simt::warp_sum(simt, of_row);
            if (simt.lane() == 0) simt.store(of_rows, x * tiles.rows + row, of_row);
        }
        team::leave(simt, 0, of_column);
        simt.barrier();
        const extent first = x * team::columns;
        for (int c = simt.thread(); c < team::columns; c += threads) {
            if (first + c < tiles.columns)
                simt.store(of_columns, y * tiles.columns + first + c, team::total(simt, 0, c));
        }
    }
};

/// Updates the variances of rows and columns, with one thread per variance.
struct adafactor_variances_kernel {
    static constexpr int threads = 128;
    static constexpr word shared_bytes = 0;

    global_span<const float> of_rows, of_columns;
    global_span<float> rows, columns;  // rows is empty for a vector
    global_span<const step_record> step;
    adafactor_rule rule;
    adafactor_tiles tiles;

    grid_shape grid() const { return simt::blocks_for((rows.is_there() ? tiles.rows : 0) + tiles.columns, threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent o = static_cast<extent>(simt.block().x) * threads + simt.thread();
        const extent j = rows.is_there() ? o - tiles.rows : o;
        const step_record record = simt.load(step, 0);
        if (record.skips != 0 || j >= tiles.columns) return;
        const double weight = rule.variance_weight(record);
        if (j >= 0) {
            move(simt, columns, j, of_columns, tiles.down, weight, tiles.rows);
        } else {
            move(simt, rows, o, of_rows, tiles.across, weight, tiles.columns);
        }
    }

  private:
    /// variance i from sums, (pieces, variances), which together are of `count` squares.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void move(Simt simt, const global_span<float>& variances, extent i,
                                                 const global_span<const float>& sums, extent pieces, double weight,
                                                 extent count) {
        double total = 0;
        for (extent p = 0; p < pieces; ++p) total += static_cast<double>(simt.load(sums, p * variances.count + i));
        const auto old = static_cast<double>(simt.load(variances, i));
        simt.store(variances, i, static_cast<float>(old + weight * (total / static_cast<double>(count) - old)));
    }
};

/// Computes the mean of the rows' variances (1 for a vector) in one block, and writes a new record.
struct adafactor_mean_kernel {
    static constexpr int threads = 256;
    static constexpr word shared_bytes = threads / 32 * sizeof(double);

    global_span<const float> rows;  // empty for a vector
    global_span<adafactor_record> record;
    float least;

    grid_shape grid() const { return {}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        double sum = 0;
        for (extent i = simt.thread(); rows.is_there() && i < rows.count; i += threads)
            sum += static_cast<double>(simt.load(rows, i));
        const shared_span<double> of_warps{0, threads / 32};
        sum = simt::warp_sum(simt, sum);
        if (simt.lane() == 0) simt.store(of_warps, simt.warp(), sum);
        simt.barrier();
        if (simt.thread() != 0) return;
        adafactor_record found;
        if (rows.is_there()) {
            for (int w = 1; w < threads / 32; ++w) sum += simt.load(of_warps, w);
            const auto mean = static_cast<float>(sum / static_cast<double>(rows.count));
            found.row_mean = mean > least ? mean : least;
        }
        simt.store(record, 0, found);
    }
};

/// One block's sums of squares of updates and of a parameter.
struct adafactor_sums {
    double updates, parameters;
};

/// The part that the last two passes share: runs of elements along rows, which are assigned to threads with the grid's
/// number of threads as stride.
struct adafactor_runs {
    extent rows, width;

    HALFTONE_HD extent of_row() const { return detail::ceil_div(width, update_run); }
    HALFTONE_HD extent count() const { return rows * of_row(); }
};

/// The factor of a row in the variances of its elements; 1 for a vector.
HALFTONE_KERNEL template <class Simt>
HALFTONE_HD HALFTONE_INLINE float adafactor_row_share(Simt simt, const global_span<const float>& rows, extent row,
                                                      const adafactor_record& found) {
    return rows.is_there() ? simt.load(rows, row) / found.row_mean : 1.0f;
}

template <class Param, class Copy, class G, run_access Access>
struct adafactor_measure_kernel {
    static constexpr int threads = 256, n = update_run;
    static constexpr word shared_bytes = threads / 32 * sizeof(double);

    global_span<Param> master;
    global_span<Copy> copy;
    global_span<const G> gradient;
    global_span<const gradient_factors> factors;
    global_span<const float> rows, columns;
    global_span<const adafactor_record> record;
    global_span<adafactor_sums> sums;  // one per block
    adafactor_runs runs;
    float least;

    grid_shape grid() const { return simt::blocks_along_x(sums.count); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const gradient_factors f = simt.load(factors, 0);
        const adafactor_record found = simt.load(record, 0);
        adafactor_sums mine{};
        const extent of_row = runs.of_row(), first = static_cast<extent>(simt.block().x) * threads + simt.thread();
        for (extent i = first; i < runs.count(); i += sums.count * threads) {
            const extent row = i / of_row, k = i - row * of_row, left = runs.width - k * n, at = row * runs.width;
            const int here = left < n ? static_cast<int>(left) : n;
            const float share = adafactor_row_share(simt, rows, row, found);
            const vec<float, n> g = load_run<n, Access>(simt, gradient.part(at, runs.width), k, here);
            const vec<float, n> c = load_run<n, Access>(simt, columns, k, here);
            const vec<float, n> w =
                load_master<Access>(simt, part_of(master, at, runs.width), part_of(copy, at, runs.width), k, here);
            float updates = 0, parameters = 0;
            HALFTONE_UNROLL for (int e = 0; e < n; ++e) {
                const float v = read_gradient(g[e], f);
                updates += v * v / floats::adafactor_variance(share, c[e], least);
                parameters = std::fma(w[e], w[e], parameters);
            }
            mine.updates += static_cast<double>(updates), mine.parameters += static_cast<double>(parameters);
        }
        const shared_span<double> scratch{0, threads / 32};
        mine.updates = simt::block_sum<threads>(simt, mine.updates, scratch);
        mine.parameters = simt::block_sum<threads>(simt, mine.parameters, scratch);
        if (simt.thread() == 0) simt.store(sums, simt.block().x, mine);
    }
};

/// Adds the sums of all blocks in one block, and writes the totals to the record.
struct adafactor_finish_kernel {
    static constexpr int threads = 256;
    static constexpr word shared_bytes = threads / 32 * sizeof(double);

    global_span<const adafactor_sums> sums;
    global_span<adafactor_record> record;

    grid_shape grid() const { return {}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        adafactor_sums all{};
        for (extent i = simt.thread(); i < sums.count; i += threads) {
            const adafactor_sums some = simt.load(sums, i);
            all.updates += some.updates, all.parameters += some.parameters;
        }
        const shared_span<double> scratch{0, threads / 32};
        all.updates = simt::block_sum<threads>(simt, all.updates, scratch);
        all.parameters = simt::block_sum<threads>(simt, all.parameters, scratch);
        if (simt.thread() != 0) return;
        adafactor_record found = simt.load(record, 0);
        found.update_squares = all.updates, found.parameter_squares = all.parameters;
        simt.store(record, 0, found);
    }
};

/// The last pass: an optimizer's step for each row, whose moments are the variances of the columns.
template <class Step>
struct adafactor_update_kernel {
    using present = typename Step::present;
    static constexpr int threads = Step::threads;
    static constexpr word shared_bytes = Step::shared_bytes;

    Step all;  // for the whole parameter, without moments
    global_span<const float> rows;
    global_span<float> columns;
    global_span<const adafactor_record> record;
    adafactor_runs runs;

    grid_shape grid() const { return {all.blocks, 1, 1}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const adafactor_record found = simt.load(record, 0);
        present p = find_present<present>(simt, of_record{all.step, all.factors, *this, found});
        if (p.skips != 0) return;
        const extent of_row = runs.of_row(), first = static_cast<extent>(simt.block().x) * threads + simt.thread();
        for (extent i = first; i < runs.count(); i += static_cast<extent>(all.blocks) * threads) {
            const extent row = i / of_row, at = row * runs.width;
            p.scalars.rule.row = adafactor_row_share(simt, rows, row, found);
            Step some = all.part(at, runs.width, all.gradient.part(at, runs.width));
            some.moments[0] = columns, some.average = part_of(all.average, at, runs.width);
            some.update(simt, p, i - row * of_row);
        }
    }

  private:
    /// Gives find_present the step's records and the scalars of the rule.
    struct of_record {
        global_span<const step_record> step;
        global_span<const gradient_factors> factors;
        const adafactor_update_kernel& kernel;
        const adafactor_record& found;

        HALFTONE_HD HALFTONE_INLINE auto scalars(const step_record& r) const {
            const Step& s = kernel.all;
            return step_scalars<adafactor_rule, float>{
                s.rule.scalars_of(s.rates, r, found, static_cast<double>(kernel.runs.rows * kernel.runs.width)),
                average_weight_of(s.average_decay, r)};
        }
    };
};

}  // namespace on_device

template <simt_device Device>
struct adafactor_step<Device> {
    static constexpr extent tile_rows = 64;
    /// The largest number of additions in float that a square passes through in a tile: in a lane, within a warp, or
    /// over the warps.
    static constexpr extent depth = tile_rows / 8 + 13;

    template <rounding Rounding, rounding CopyRounding = rounding::nearest_even, class Param, class Copy, class Accumulate>
    static void run(Device& device, const adafactor_arguments<Param, Copy, Accumulate>& a) {
        check(a);
        if (a.shape.size() == 0) return;
        find_variances(device, a);
        const auto launch = [&]<on_device::run_access Access>(std::integral_constant<on_device::run_access, Access>) {
            measure_and_update<Rounding, CopyRounding, Access>(device, a);
        };
        const auto& s = a.step;
        on_device::launch_with_row_access<on_device::update_run>(a.shape[1], launch, s.master.data(), s.copy.data(),
                                                                 s.gradient.data(), s.average.data(), a.columns.data());
    }

  private:
    template <class Param, class Copy, class G>
    static void find_variances(Device& device, const adafactor_arguments<Param, Copy, G>& a) {
        using namespace on_device;
        constexpr int n = longest<G>;
        const bool in_vectors = can_use_vectors(n, a.shape[1], a.step.gradient.data());
        const adafactor_tiles tiles = adafactor_tiles::of(a.shape, tile_rows, 32 * (in_vectors ? n : 1));
        const extent row_sums = tiles.across * tiles.rows, column_sums = tiles.down * tiles.columns;
        const workspace::lease memory(device.scratch(), static_cast<std::size_t>(row_sums + column_sums) * sizeof(float));
        float* const sums = memory.template as<float>();
        const auto launch = [&]<int N>(constant<N>) {
            device.launch(adafactor_squares_kernel<G, N>{simt::span_of(a.step.gradient),
                                                         {a.step.factors, 1},
                                                         {sums, row_sums},
                                                         {sums + row_sums, column_sums},
                                                         tiles});
        };
        in_vectors ? launch(constant<n>{}) : launch(constant<1>{});
        device.launch(adafactor_variances_kernel{{sums, row_sums},
                                                 {sums + row_sums, column_sums},
                                                 simt::span_of(a.rows),
                                                 simt::span_of(a.columns),
                                                 {a.step.step, 1},
                                                 a.step.rule,
                                                 tiles});
        device.launch(adafactor_mean_kernel{
            {a.rows.data(), a.rows.size()}, {a.record, 1}, static_cast<float>(a.step.rule.epsilon1)});
    }

    template <rounding Rounding, rounding CopyRounding, on_device::run_access Access, class Param, class Copy, class G>
    static void measure_and_update(Device& device, const adafactor_arguments<Param, Copy, G>& a) {
        using namespace on_device;
        using step_kernel = optimizer_step_kernel<adafactor_rule, Rounding, CopyRounding, Param, Copy, G, float, Access>;
        const auto& s = a.step;
        const int blocks = update_blocks(a.shape.size(), step_kernel::threads);
        const workspace::lease memory(device.scratch(), static_cast<std::size_t>(blocks) * sizeof(adafactor_sums));
        auto* const sums = memory.template as<adafactor_sums>();
        const global_span<const float> rows{a.rows.data(), a.rows.size()};
        const adafactor_runs runs{a.shape[0], a.shape[1]};
        device.launch(adafactor_measure_kernel<Param, Copy, G, Access>{simt::span_of(s.master),
                                                                       simt::span_of(s.copy),
                                                                       simt::span_of(s.gradient),
                                                                       {s.factors, 1},
                                                                       rows,
                                                                       {a.columns.data(), a.columns.size()},
                                                                       {a.record, 1},
                                                                       {sums, blocks},
                                                                       runs,
                                                                       s.rule.least_variance()});
        device.launch(adafactor_finish_kernel{{sums, blocks}, {a.record, 1}});
        device.launch(adafactor_update_kernel<step_kernel>{
            step_kernel(s, blocks), rows, simt::span_of(a.columns), {a.record, 1}, runs});
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
