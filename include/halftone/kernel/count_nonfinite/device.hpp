// SPDX-License-Identifier: MIT
/// \file
/// Counts of numbers that are not finite, on a GPU; count_nonfinite.hpp has the contract and an example.
///
/// Each block counts a chunk and stores its result; one more block adds the results.
#pragma once

#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/common/update/device.hpp>
#include <halftone/kernel/count_nonfinite/count_nonfinite.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// The sum of the counts of a block's threads, computed by each of them.
HALFTONE_KERNEL template <int Threads, class Simt>
HALFTONE_HD HALFTONE_INLINE nonfinite_counts counts_of_block(Simt simt, const nonfinite_counts& mine) {
    const simt::shared_span<extent> counts{0, Threads / 32};
    nonfinite_counts all;
    all.positive_infinities = simt::block_sum<Threads>(simt, mine.positive_infinities, counts);
    all.negative_infinities = simt::block_sum<Threads>(simt, mine.negative_infinities, counts);
    all.nans = simt::block_sum<Threads>(simt, mine.nans, counts);
    all.largest = simt::block_max<Threads>(simt, mine.largest, shared_span<float>{0, Threads / 32});
    return all;
}

template <class T, run_access Access>
struct count_nonfinite_kernel {
    static constexpr int threads = 256;
    static constexpr int n = widest<T>;
    static constexpr extent chunk = 16384;
    static constexpr word shared_bytes = threads / 32 * sizeof(extent);

    global_span<const T> values;
    global_span<nonfinite_counts> results;  // one for each chunk

    grid_shape grid() const { return simt::blocks_along_x(results.count); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent index = simt.block().x, first = index * chunk;
        const extent count = values.count - first < chunk ? values.count - first : chunk;
        const auto here = values.part(first, count);
        nonfinite_counts mine;
        for (extent i = simt.thread(); i * n < count; i += threads) {
            const int valid = count - i * n < n ? static_cast<int>(count - i * n) : n;
            const vec<float, n> x = load_run<n, Access>(simt, here, i, valid);
            HALFTONE_UNROLL for (int e = 0; e < n; ++e) look_at(mine, x[e]);
        }
        const nonfinite_counts all = counts_of_block<threads>(simt, mine);
        if (simt.thread() == 0) simt.store(results, index, all);
    }

  private:
    HALFTONE_HD HALFTONE_INLINE static void look_at(nonfinite_counts& t, float x) {
        const word bits = bit_cast<word>(x), magnitude = bits & 0x7fffffffu;
        if (magnitude > 0x7f800000u) {
            ++t.nans;
        } else if (magnitude == 0x7f800000u) {
            ++(bits == magnitude ? t.positive_infinities : t.negative_infinities);
        } else {
            const float size = bit_cast<float>(magnitude);
            t.largest = size < t.largest ? t.largest : size;
        }
    }
};

struct join_nonfinite_counts_kernel {
    static constexpr int threads = 256;
    static constexpr word shared_bytes = threads / 32 * sizeof(extent);

    global_span<const nonfinite_counts> parts;
    global_span<nonfinite_counts> result;

    grid_shape grid() const { return {}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        nonfinite_counts mine;
        for (extent i = simt.thread(); i < parts.count; i += threads) mine.add(simt.load(parts, i));
        const nonfinite_counts all = counts_of_block<threads>(simt, mine);
        if (simt.thread() == 0) simt.store(result, 0, all);
    }
};

}  // namespace on_device

template <simt_device Device>
struct count_nonfinite<Device> {
    static constexpr extent chunk = 16384;

    template <class T>
    static void run(Device& device, const const_view<T, 1>& values, nonfinite_counts* result) {
        expect("count_nonfinite", "values", values, values.shape());
        using namespace on_device;
        const extent chunks = detail::ceil_div(values.size(), chunk);
        const workspace::lease memory(device.scratch(), static_cast<std::size_t>(chunks) * sizeof(nonfinite_counts));
        const global_span<nonfinite_counts> parts{memory.as<nonfinite_counts>(), chunks};
        if (chunks != 0) {
            const auto launch = [&]<run_access Access>(std::integral_constant<run_access, Access>) {
                device.launch(count_nonfinite_kernel<T, Access>{simt::span_of(values), parts});
            };
            launch_with_access<widest<T>>(launch, values.data());
        }
        device.launch(join_nonfinite_counts_kernel{{parts.data, chunks}, {result, 1}});
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
