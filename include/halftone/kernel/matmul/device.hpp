// SPDX-License-Identifier: MIT
/// \file
/// The matrix product on a GPU; matmul.hpp has its arguments, its contract and an example.
///
/// bfloat16, float16 and tfloat32 go to the matrix units, operands of that type (floats for tfloat32) in aligned rows
/// by asynchronous copies, unaligned ones after a copy where that pays (aligned_copy.hpp), others by way of registers.
/// Any other compute type is multiplied in float, exactly as its contract says, split<bfloat16, N> among them. tiles.hpp
/// says how c and k are cut. A device that holds an engine (exec/matmul_engine.hpp) gives it what it is better at.
///
/// Operands of eight bits that such a type multiplies exactly go to the matrix units as they are where the GPU has
/// some for them, in whichever layouts: a linear layer's forward product, the gradient of its input and that of its
/// weight have each a pair of their own. Unaligned ones are widened on their way through registers, as on any other.
#pragma once

#include <halftone/kernel/fp64/device.hpp>
#include <halftone/kernel/matmul/aligned_copy.hpp>
#include <halftone/kernel/matmul/by_engine.hpp>
#include <halftone/kernel/matmul/fp64.hpp>
#include <halftone/kernel/matmul/matmul.hpp>
#include <halftone/kernel/matmul/matrix_unit.hpp>
#include <halftone/kernel/matmul/multiply_add.hpp>
#include <halftone/kernel/matmul/tiles.hpp>
#include <halftone/number/split.hpp>

namespace halftone::inline HALFTONE_ABI::kernel {

namespace on_device {

/// Types that matrix units multiply.
template <class Compute>
inline constexpr bool has_matrix_unit =
    std::is_same_v<Compute, bfloat16> || std::is_same_v<Compute, float16> || std::is_same_v<Compute, tfloat32>;

/// A kernel but for its epilogue.
template <class Compute, class Tiling, passage Passage, class A, class B>
struct by_matrix_units {
    template <class Operands, class Results>
    using kernel = matrix_unit_kernel<Compute, Tiling, Passage, A, B, Operands, Results>;
};
template <class Compute, class Tiling, class A, class B>
struct by_multiply_adds {
    template <class Operands, class Results>
    using kernel = multiply_add_kernel<Compute, Tiling, A, B, Operands, Results>;
};

/// All of k in one kernel, or its parts beside each other and a second kernel that adds their sums in order.
template <class Way, class Device, class A, class B, class Operands, class Results>
void multiply(Device& device, const product_operand<A>& a, const product_operand<B>& b,
              const matmul_epilogue<Operands, Results>& epilogue, row_access access, int parts) {
    if (parts == 1) return device.launch(typename Way::template kernel<Operands, Results>{a, b, epilogue, access});
    using kernel = typename Way::template kernel<pack<>, partial_results>;
    const extent leading = (b.outer + 7) / 8 * 8, elements = a.outer * leading;
    const workspace::lease sums(device.scratch(), static_cast<std::size_t>(parts * elements) * sizeof(float));
    kernel partial{a, b, {{}, {{{}, sums.as<float>(), leading}, {}}}, row_access::chunks};
    partial.part = {(partial.panels() + parts - 1) / parts, elements};
    const int count = partial.grid().z;
    device.launch(partial);
    device.launch(finish_kernel<Operands, Results>{
        {sums.as<float>(), count * elements}, leading, epilogue, access, 0, a.outer, b.outer, count, elements});
}

/// True where matrix units have multiplied operands of eight bits as they are.
template <class Device, class A, class B, class Operands, class Results>
bool multiply_bytes(Device& device, const product_operand<A>& a, const product_operand<B>& b,
                    const matmul_epilogue<Operands, Results>& epilogue, row_access access) {
    const simt::architecture gpu = device.architecture();
    if ((a.access & b.access) != row_access::chunks ||
        matmul_row_of(gpu.version).eight_bits != eight_bit_operands::as_they_are)
        return false;
    const auto run_as = [&]<class Tiling>(Tiling, int parts) {
        using way = by_matrix_units<eight_bits, Tiling, passage::direct, A, B>;
        if (!device.template has_eight_bit_code<typename way::template kernel<Operands, Results>>()) return false;
        multiply<way>(device, a, b, epilogue, access, parts);
        return true;
    };
    const matmul_cut cut = cut_matmul(gpu, a.outer, b.outer, a.depth);
    // Twice as many warps as of 16 bits: a warp holds more sums, those of an mma beside those of all.
    if (cut.tile == matmul_tile::large) return run_as(matrix_unit_tiling<128, 128, 64, 2, 4, 3>{}, cut.parts);
    return run_as(matrix_unit_tiling<64, 64, 64, 2, 2, 4>{}, cut.parts);
}

}  // namespace on_device

template <simt_device Device>
struct matmul<Device> {
    template <class Compute, class A, class B, class Operands, class Results>
        requires fp64::product_in_double<Compute, A, B, Results>
    static void run(Device& device, const view<A, 2>& a, const view<B, 2>& b,
                    const matmul_epilogue<Operands, Results>& epilogue) {
        fp64::multiply<Compute>(device, a, b, epilogue);
    }
    template <class Compute, class A, class B, class Operands, class Results>
        requires(!std::is_same_v<unsplit<Compute>, Compute> && !fp64::product_in_double<Compute, A, B, Results>)
    static void run(Device& device, const view<A, 2>& a, const view<B, 2>& b,
                    const matmul_epilogue<Operands, Results>& epilogue) {
        run<unsplit<Compute>>(device, a, b, epilogue);
    }
    template <class Compute, class A, class B, class Operands, class Results>
    static void run(Device& device, const view<A, 2>& a, const view<B, 2>& b,
                    const matmul_epilogue<Operands, Results>& epilogue) {
        using namespace on_device;
        using a_type = std::remove_const_t<A>;
        using b_type = std::remove_const_t<B>;
        using stored = storage_of<Compute>;
        constexpr bool as_stored = std::is_same_v<a_type, stored> && std::is_same_v<b_type, stored>;
        const extent m = a.extent_of(0), n = b.extent_of(1), k = a.extent_of(1);
        if (m == 0 || n == 0) return;
        const product_operand<a_type> x = make_operand(a);
        const product_operand<b_type> y = make_operand(transpose(b));
        const row_access access = access_to(epilogue);
        if constexpr (engine_holder<Device> && engines_multiply<Compute, a_type, b_type>) {
            if (multiply_by_engine<Compute>(device, x, y, epilogue, access)) return;
        }
        if constexpr (has_matrix_unit<Compute> && eight_bit<a_type> && eight_bit<b_type>) {
            if (multiply_bytes(device, x, y, epilogue, access)) return;
        }
        if constexpr (has_matrix_unit<Compute>) {
            constexpr int depth = 64 / sizeof(stored);
            const auto run_as = [&]<class Tiling, passage Passage>(
                                    const product_operand<a_type>& of_a, const product_operand<b_type>& of_b, Tiling,
                                    std::integral_constant<passage, Passage>, int parts) {
                multiply<by_matrix_units<Compute, Tiling, Passage, a_type, b_type>>(device, of_a, of_b, epilogue,
                                                                                    access, parts);
            };
            if constexpr (as_stored) {
                const extent unaligned = aligned_copy<a_type>::elements(x) + aligned_copy<b_type>::elements(y);
                if (unaligned == 0 || pays_to_align(device.architecture(), m, n, k, unaligned)) {
                    const aligned_copy<a_type> of_x(device, x);
                    const aligned_copy<b_type> of_y(device, y);
                    constexpr std::integral_constant<passage, passage::direct> direct{};
                    const matmul_cut cut = cut_matmul(device.architecture(), m, n, k);
                    if (cut.tile == matmul_tile::large)
                        return run_as(of_x.operand, of_y.operand, matrix_unit_tiling<128, 128, depth, 2, 2, 3>{},
                                      direct, cut.parts);
                    return run_as(of_x.operand, of_y.operand, matrix_unit_tiling<64, 64, depth, 2, 2, 4>{}, direct,
                                  cut.parts);
                }
            }
            run_as(x, y, matrix_unit_tiling<64, 64, depth, 2, 2, 2>{},
                   std::integral_constant<passage, passage::through_registers>{},
                   cut_matmul(device.architecture(), m, n, k, matmul_tile::small).parts);
        } else {
            const matmul_cut cut = cut_matmul(device.architecture(), m, n, k);
            const auto run_as = [&]<class Tiling>(Tiling) {
                multiply<by_multiply_adds<Compute, Tiling, a_type, b_type>>(device, x, y, epilogue, access, cut.parts);
            };
            if (cut.tile == matmul_tile::large) return run_as(multiply_add_tiling<128, 128>{});
            run_as(multiply_add_tiling<64, 64>{});
        }
    }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel
