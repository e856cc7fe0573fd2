// SPDX-License-Identifier: MIT
/// \file
/// Dropout on devices that run GPU kernels; dropout.hpp has its contract and an example. A thread processes a run of
/// elements, with one block of Philox for every four.
#pragma once

#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/common/update/device.hpp>
#include <halftone/kernel/dropout/dropout.hpp>
#include <halftone/kernel/dropout/fp64.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

template <int N, run_access Access, class X, class Y>
struct dropout_kernel {
    static constexpr int threads = 256;
    static constexpr word shared_bytes = 0;
    static_assert(N % 4 == 0);

    global_span<const X> x;
    global_span<const Y> base;
    global_span<Y> y;
    global_span<const random_record> record;
    dropout_draw draw;

    grid_shape grid() const { return simt::blocks_for(detail::ceil_div(x.count, N), threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent i = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (i * N >= x.count) return;
        const int n = x.count - i * N < N ? static_cast<int>(x.count - i * N) : N;
        const bool drops = draw.kept_from != 0;
        const random_record now = drops ? simt.load(record, 0) : random_record{};
        vec<float, N> v = load_run<N, Access>(simt, x, i, n), sum{};
        if (base.is_there()) sum = load_run<N, Access>(simt, base, i, n);
        HALFTONE_UNROLL for (int block = 0; block < N / 4; ++block) {
            philox::block random{};
            if (drops)
                random = random_block(now.seed, now.pass, draw.tensor, static_cast<std::uint64_t>(i) * (N / 4) + block);
            HALFTONE_UNROLL for (int e = 0; e < 4; ++e) {
                const float kept = random.word[e] >= draw.kept_from ? v[4 * block + e] * draw.scale : 0.0f;
                v[4 * block + e] = base.is_there() ? sum[4 * block + e] + kept : kept;
            }
        }
        store_run<Access>(simt, y, i, n, round_to<Y>(v));
    }
};

}  // namespace on_device

template <simt_device Device>
struct dropout<Device> {
    template <class X, class Y>
        requires in_double<X, Y>
    static void run(Device& device, const view<const X, 1>& x, const view<const Y, 1>& base, const view<Y, 1>& y,
                    const dropout_draw& draw) {
        fp64::drop(device, x, base, y, draw);
    }
    template <class X, class Y>
    static void run(Device& device, const view<const X, 1>& x, const view<const Y, 1>& base, const view<Y, 1>& y,
                    const dropout_draw& draw) {
        check_dropout(x, base, y);
        constexpr int n = std::max(4, std::min(8, on_device::widest<X, Y>));  // more would take too many registers
        const auto launch = [&]<on_device::run_access Access>(std::integral_constant<on_device::run_access, Access>) {
            device.launch(on_device::dropout_kernel<n, Access, X, Y>{
                simt::span_of(x), simt::span_of(base), simt::span_of(y), {draw.record, 1}, draw});
        };
        on_device::launch_with_access<n>(launch, x.data(), base.data(), y.data());
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
