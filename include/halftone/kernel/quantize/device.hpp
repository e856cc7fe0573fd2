// SPDX-License-Identifier: MIT
/// \file
/// Quantisation to eight bits on a GPU; quantize.hpp has its contract and an example.
///
/// Each block processes a chunk and stores its largest magnitude; one more block computes the maximum of all, and a
/// scale from it, or updates a record.
#pragma once

#include <halftone/kernel/common/update/device.hpp>
#include <halftone/kernel/quantize/quantize.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// The elements of a tensor that a block processes.
struct tensor_chunk {
    static constexpr extent elements = 16384;
    static extent count(extent size) { return detail::ceil_div(size, elements); }

    extent first, count_;

    HALFTONE_HD HALFTONE_INLINE static tensor_chunk at(extent index, extent size) {
        const extent first = index * elements;
        return {first, size - first < elements ? size - first : elements};
    }
    /// The number of elements of run number i.
    HALFTONE_HD HALFTONE_INLINE int run(extent i, int n) const {
        return count_ - i * n < n ? static_cast<int>(count_ - i * n) : n;
    }
};

/// The maximum of `largest` and the magnitudes, compared as bits; those of NaNs are the largest.
template <int N>
HALFTONE_HD HALFTONE_INLINE word larger_magnitude(word largest, const vec<float, N>& x) {
    HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
        const word magnitude = halftone::bit_cast<word>(x[e]) & 0x7fffffffu;
        largest = largest < magnitude ? magnitude : largest;
    }
    return largest;
}

/// The maximum of a block's magnitudes, as bits; infinity if one is not finite.
using amax_team = row_team<256, 1>;
HALFTONE_KERNEL template <class Simt>
HALFTONE_HD HALFTONE_INLINE word block_amax(Simt simt, word mine) {
    if (mine > infinite_magnitude) mine = infinite_magnitude;
    return halftone::bit_cast<word>(
        amax_team::max(simt, halftone::bit_cast<float>(mine), constant<0>{}));
}

template <class X, run_access Access>
struct amax_kernel {
    static constexpr int threads = amax_team::block_threads;
    static constexpr int n = widest<X>;
    static constexpr word shared_bytes = amax_team::shared_bytes;

    global_span<const X> x;
    global_span<word> amaxes;  // one for each chunk

    grid_shape grid() const { return simt::blocks_along_x(amaxes.count); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const tensor_chunk c = tensor_chunk::at(simt.block().x, x.count);
        const global_span<const X> here = x.part(c.first, c.count_);
        word largest = 0;
        for (extent i = simt.thread(); i * n < c.count_; i += threads)
            largest = larger_magnitude(largest, load_run<n, Access>(simt, here, i, c.run(i, n)));
        largest = block_amax(simt, largest);
        if (simt.thread() == 0) simt.store(amaxes, simt.block().x, largest);
    }
};

template <class X, class Y, run_access Access>
struct quantize_kernel {
    static constexpr int threads = amax_team::block_threads;
    static constexpr int n = widest<X>;
    static constexpr word shared_bytes = amax_team::shared_bytes;

    global_span<const X> x;
    global_span<Y> y;
    global_span<const tensor_scale> by;
    global_span<tensor_scale> used;  // optional: receives a copy of the scale
    global_span<word> amaxes;        // one for each chunk, or empty if not wanted

    grid_shape grid() const {
        const extent chunks = tensor_chunk::count(x.count);
        return simt::blocks_along_x(chunks < 1 ? 1 : chunks);
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const tensor_scale scale = simt.load(by, 0);
        if (used.is_there() && simt.block().x == 0 && simt.thread() == 0) simt.store(used, 0, scale);
        const tensor_chunk c = tensor_chunk::at(simt.block().x, x.count);
        const global_span<const X> here = x.part(c.first, c.count_);
        word largest = 0;
        for (extent i = simt.thread(); i * n < c.count_; i += threads) {
            const vec<float, n> v = load_run<n, Access>(simt, here, i, c.run(i, n));
            largest = larger_magnitude(largest, v);
            vec<Y, n> q;
            HALFTONE_UNROLL for (int e = 0; e < n; ++e) q[e] = quantized<Y>(v[e], scale.scale);
            store_run<Access>(simt, y.part(c.first, c.count_), i, c.run(i, n), q);
        }
        if (amaxes.count == 0) return;
        largest = block_amax(simt, largest);
        if (simt.thread() == 0) simt.store(amaxes, simt.block().x, largest);
    }
};

/// One block: turns the maximum of all chunks into a scale, or stores it in a record.
struct largest_amax_kernel {
    static constexpr int threads = amax_team::block_threads;
    static constexpr word shared_bytes = amax_team::shared_bytes;

    global_span<const word> amaxes;
    float largest;
    scaling_rule rule;
    global_span<tensor_scale> scale;
    global_span<amax_record> record;

    grid_shape grid() const { return {}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        word amax = 0;
        for (extent i = simt.thread(); i < amaxes.count; i += threads) {
            const word one = simt.load(amaxes, i);
            amax = amax < one ? one : amax;
        }
        amax = block_amax(simt, amax);
        if (simt.thread() != 0) return;
        if (scale.is_there()) simt.store(scale, 0, scale_of(amax, largest, rule, 1.0f));
        if (record.is_there()) {
            amax_record r = simt.load(record, 0);
            if (amax >= infinite_magnitude || r.amax >= amax) return;
            r.amax = amax;
            simt.store(record, 0, r);
        }
    }
};

/// Ends a window: one thread a record.
struct roll_kernel {
    static constexpr int threads = 128;
    static constexpr word shared_bytes = 0;

    global_span<amax_record> records;
    global_span<word> history;
    global_span<const std::int32_t> skips;

    grid_shape grid() const { return simt::blocks_for(records.count, threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent i = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (i >= records.count) return;
        amax_record r = simt.load(records, i);
        if (!is_remembered(r, simt.load(skips, 0))) {
            r.amax = 0;
        } else {
            const global_span<word> mine = history.part(r.first, r.rule.history);
            simt.store(mine, r.next, r.amax);
            word amax = r.amax;
            if (r.rule.rule == amax_rule::max) {
                for (int w = 0; w < r.rule.history; ++w) {
                    const word one = w == r.next ? r.amax : simt.load(mine, w);
                    amax = amax < one ? one : amax;
                }
            }
            next_window(r, amax);
        }
        simt.store(records, i, r);
    }
};

}  // namespace on_device

template <simt_device Device>
struct quantize<Device> {
    template <class X, class Y, int Rank>
    static void current(Device& device, const view<X, Rank>& x, const view<Y, Rank>& y, tensor_scale* scale,
                        const scaling_rule& rule) {
        using namespace on_device;
        using T = std::remove_const_t<X>;
        check_quantize(x, y);
        const global_span<const T> from{x.data(), x.size()};
        const chunk_amaxes amaxes(device, x.size());
        const auto launch = [&]<run_access Access>(std::integral_constant<run_access, Access>) {
            device.launch(amax_kernel<T, Access>{from, amaxes.span});
        };
        launch_with_access<widest<T>>(launch, x.data());
        device.launch(largest_amax_kernel{
            {amaxes.span.data, amaxes.span.count}, static_cast<float>(number_traits<Y>::max), rule, {scale, 1}, {}});
        convert(device, x, y, scale, {}, {});
    }
    template <class X, class Y, int Rank>
    static void delayed(Device& device, const view<X, Rank>& x, const view<Y, Rank>& y, tensor_scale* scale,
                        amax_record* record, gathering gathers) {
        using namespace on_device;
        check_quantize(x, y);
        if (gathers == gathering::off) return convert(device, x, y, &record->now, {scale, 1}, {});
        const chunk_amaxes amaxes(device, x.size());
        convert(device, x, y, &record->now, {scale, 1}, amaxes.span);
        device.launch(largest_amax_kernel{{amaxes.span.data, amaxes.span.count}, 0.0f, {}, {}, {record, 1}});
    }
    template <class X, class Y, int Rank>
    static void again(Device& device, const view<X, Rank>& x, const view<Y, Rank>& y, const tensor_scale* scale) {
        check_quantize(x, y);
        convert(device, x, y, scale, {}, {});
    }
    static void roll(Device& device, amax_record* records, extent count, std::uint32_t* history, extent windows,
                     const std::int32_t* skips) {
        device.launch(on_device::roll_kernel{{records, count}, {history, windows}, {skips, 1}});
    }

  private:
    struct chunk_amaxes {
        workspace::lease lease;
        on_device::global_span<on_device::word> span;

        chunk_amaxes(Device& device, extent size)
            : lease(device.scratch(),
                    static_cast<std::size_t>(on_device::tensor_chunk::count(size)) * sizeof(on_device::word)),
              span{lease.template as<on_device::word>(), on_device::tensor_chunk::count(size)} {}
    };

    template <class X, class Y, int Rank>
    static void convert(Device& device, const view<X, Rank>& x, const view<Y, Rank>& y, const tensor_scale* by,
                        const on_device::global_span<tensor_scale>& used,
                        const on_device::global_span<on_device::word>& amaxes) {
        using namespace on_device;
        using T = std::remove_const_t<X>;
        const auto launch = [&]<run_access Access>(std::integral_constant<run_access, Access>) {
            device.launch(
                quantize_kernel<T, Y, Access>{{x.data(), x.size()}, {y.data(), y.size()}, {by, 1}, used, amaxes});
        };
        if (simt::is_aligned(x.data(), 16) && simt::is_aligned(y.data(), widest<T>)) {
            launch(std::integral_constant<run_access, run_access::vectors>{});
        } else {
            launch(std::integral_constant<run_access, run_access::elements>{});
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
