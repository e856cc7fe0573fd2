// SPDX-License-Identifier: MIT
/// \file
/// The matrix product on a GPU; matmul.hpp has its arguments, its contract and an example.
///
/// bfloat16, float16 and tfloat32 go to the matrix units, operands of that type (floats for tfloat32) in aligned rows by
/// asynchronous copies, others by way of registers. Any other compute type is multiplied in float, exactly as its contract says. A device that holds an engine
/// (exec/matmul_engine.hpp) gives it what it is better at.
#pragma once

#include <halftone/kernel/matmul/by_engine.hpp>
#include <halftone/kernel/matmul/matmul.hpp>
#include <halftone/kernel/matmul/matrix_unit.hpp>
#include <halftone/kernel/matmul/multiply_add.hpp>

namespace halftone::inline HALFTONE_ABI::kernel {

namespace on_device {

/// Types that matrix units multiply.
template <class Compute>
inline constexpr bool has_matrix_unit = std::is_same_v<Compute, bfloat16> || std::is_same_v<Compute, float16> || std::is_same_v<Compute, tfloat32>;

/// Tiles of 128x128 where there are enough of them to keep a GPU busy. The bits of c do not depend on it.
inline bool prefers_large_tiles(extent m, extent n) { return ((m + 127) / 128) * ((n + 127) / 128) >= 96; }

}  // namespace on_device

template <simt_device Device>
struct matmul<Device> {
    template <class Compute, class A, class B, class Operands, class Results>
    static void run(Device& device, const view<A, 2>& a, const view<B, 2>& b, const matmul_epilogue<Operands, Results>& epilogue) {
        using namespace on_device;
        using a_type = std::remove_const_t<A>;
        using b_type = std::remove_const_t<B>;
        const extent m = a.extent_of(0), n = b.extent_of(1);
        if (m == 0 || n == 0) return;
        const product_operand<a_type> x = make_operand(a);
        const product_operand<b_type> y = make_operand(transpose(b));
        const row_access access = access_to(epilogue);
        if constexpr (engine_holder<Device> && has_element_type<Compute> && std::is_same_v<a_type, storage_of<Compute>> && std::is_same_v<b_type, storage_of<Compute>>) {
            if (multiply_by_engine<Compute>(device, x, y, epilogue, access)) return;
        }
        if constexpr (has_matrix_unit<Compute>) {
            const auto launch = [&]<class Tiling, passage Passage>(Tiling, std::integral_constant<passage, Passage>) {
                device.launch(matrix_unit_kernel<Compute, Tiling, Passage, a_type, b_type, Operands, Results>{x, y, epilogue, access});
            };
            constexpr std::integral_constant<passage, passage::direct> direct{};
            using stored = storage_of<Compute>;
            constexpr int depth = 64 / sizeof(stored);
            if constexpr (std::is_same_v<a_type, stored> && std::is_same_v<b_type, stored>) {
                if ((x.access & y.access) == row_access::chunks) {
                    if (prefers_large_tiles(m, n)) return launch(matrix_unit_tiling<128, 128, depth, 2, 2, 3>{}, direct);
                    return launch(matrix_unit_tiling<64, 64, depth, 2, 2, 4>{}, direct);
                }
            }
            launch(matrix_unit_tiling<64, 64, depth, 2, 2, 2>{}, std::integral_constant<passage, passage::through_registers>{});
        } else {
            const auto launch = [&]<class Tiling>(Tiling) {
                device.launch(multiply_add_kernel<Compute, Tiling, a_type, b_type, Operands, Results>{x, y, epilogue, access});
            };
            if (prefers_large_tiles(m, n)) return launch(multiply_add_tiling<128, 128>{});
            launch(multiply_add_tiling<64, 64>{});
        }
    }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel
