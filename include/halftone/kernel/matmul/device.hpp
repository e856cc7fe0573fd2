// SPDX-License-Identifier: MIT
/// \file
/// The matrix product on a GPU; matmul.hpp has its arguments, its contract and an example.
#pragma once

#include <halftone/kernel/matmul/matmul.hpp>
#include <halftone/kernel/matmul/multiply_add.hpp>

namespace halftone::inline HALFTONE_ABI::kernel {

template <simt_device Device>
struct matmul<Device> {
    template <class Compute, class A, class B, class Operands, class Results>
    static void run(Device& device, const view<A, 2>& a, const view<B, 2>& b, const matmul_epilogue<Operands, Results>& epilogue) {
        using namespace on_device;
        const extent m = a.extent_of(0), n = b.extent_of(1);
        if (m == 0 || n == 0) return;
        const auto x = make_operand(a);
        const auto y = make_operand(transpose(b));
        const row_access access = access_to(epilogue, m);
        const auto launch = [&]<class Tiling>(Tiling) {
            device.launch(multiply_add_kernel<Compute, Tiling, std::remove_const_t<A>, std::remove_const_t<B>, Operands, Results>{x, y, epilogue, access});
        };
        if (prefers_large_tiles(m, n)) {
            launch(multiply_add_tiling<128, 128>{});
        } else {
            launch(multiply_add_tiling<64, 64>{});
        }
    }

  private:
    /// Tiles of 128x128 where there are enough of them to keep a GPU busy. The bits of c do not depend on it.
    static bool prefers_large_tiles(extent m, extent n) { return ((m + 127) / 128) * ((n + 127) / 128) >= 96; }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel
