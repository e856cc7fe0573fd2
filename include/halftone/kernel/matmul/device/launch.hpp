// SPDX-License-Identifier: MIT
/// \file
/// Launches the kernels that a product's plan (plan.hpp) names. Only kernels that the types and this compilation's architectures can
/// need are instantiated.
///
///     on_device::multiply_by_plan<bfloat16>(device, a, b, epilogue, one_matrix{});
#pragma once

#include <halftone/kernel/matmul/device/aligned_copy.hpp>
#include <halftone/kernel/matmul/device/batch.hpp>
#include <halftone/kernel/matmul/device/by_warpgroups.hpp>
#include <halftone/kernel/matmul/device/matrix_unit.hpp>
#include <halftone/kernel/matmul/device/multiply_add.hpp>
#include <halftone/kernel/matmul/device/plan.hpp>
#include <halftone/kernel/matmul/device/widened_copy.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// Types that matrix units multiply.
template <class Compute>
inline constexpr bool has_matrix_unit =
    std::is_same_v<Compute, bfloat16> || std::is_same_v<Compute, float16> || std::is_same_v<Compute, tfloat32>;

/// A kernel without its epilogue.
template <class Compute, class Tiling, panel_load Load, class A, class B>
struct by_matrix_units {
    template <class Operands, class Results>
    using kernel = matrix_unit_kernel<Compute, Tiling, Load, A, B, Operands, Results>;
};
template <class Compute, class Tiling, class A, class B>
struct by_multiply_adds {
    template <class Operands, class Results>
    using kernel = multiply_add_kernel<Compute, Tiling, A, B, Operands, Results>;
};

/// Computes parts of k in parallel, then adds their sums in order by a second kernel (split-k).
template <class Way, class Device, class A, class B, class Operands, class Results, class Batch>
void multiply_in_parts(Device& device, const product_operand<A>& a, const product_operand<B>& b,
                       const detail::matmul_epilogue<Operands, Results>& epilogue, row_access access, int parts,
                       const Batch& batch) {
    using kernel = typename Way::template kernel<pack<>, partial_results>;
    const extent leading = detail::round_up(b.outer, 8), elements = a.outer * leading;
    const workspace::lease sums(device.scratch(),
                                static_cast<std::size_t>(batch.count * parts * elements) * sizeof(float));
    kernel partial{a, b, {{}, {{{}, sums.as<float>(), leading}, {}}}, row_access::chunks};
    partial.part = {detail::ceil_div(partial.panels(), parts), elements};
    const int count = partial.grid().z;
    const finish_kernel<Operands, Results> finish{
        {sums.as<float>(), count * elements}, leading, epilogue, access, 0, a.outer, b.outer, count, elements};
    launch_each(device, partial, batch.with(batch.a, batch.b, count * elements));
    launch_each(device, finish, batch.with(count * elements, 0, batch.c));
}

/// Computes all of k in one kernel, or parts of it. A batch is processed in groups of matrices, so that their partial sums
/// take a limited number of bytes.
template <class Way, class Device, class A, class B, class Operands, class Results, class Batch = one_matrix>
void multiply(Device& device, const product_operand<A>& a, const product_operand<B>& b,
              const detail::matmul_epilogue<Operands, Results>& epilogue, row_access access, int parts,
              const Batch& batch = {}, extent most_bytes = extent{32} << 20) {
    if (parts == 1)
        return launch_each(device, typename Way::template kernel<Operands, Results>{a, b, epilogue, access}, batch);
    if constexpr (std::is_same_v<Batch, one_matrix>) {
        multiply_in_parts<Way>(device, a, b, epilogue, access, parts, batch);
    } else {
        const extent bytes = parts * a.outer * detail::round_up(b.outer, 8) * static_cast<extent>(sizeof(float));
        const extent at_once = std::max<extent>(1, most_bytes / bytes);
        for (extent i = 0; i < batch.count; i += at_once) {
            matrix_batch some = batch;
            some.count = std::min(at_once, batch.count - i);
            multiply_in_parts<Way>(device, offset_by(a, i * batch.a), offset_by(b, i * batch.b),
                                   offset_by(epilogue, i * batch.c), access, parts, some);
        }
    }
}

/// What the operands of a product in Compute are.
template <class Compute, class A, class B>
constexpr matmul_elements elements_of() {
    if (!has_matrix_unit<Compute>) return matmul_elements::others;
    if (std::is_same_v<A, storage_of<Compute>> && std::is_same_v<B, storage_of<Compute>>)
        return matmul_elements::as_multiplied;
    const bool are_bytes = eight_bit<A> && eight_bit<B> && !own_number<A> && !own_number<B>;
    return are_bytes ? matmul_elements::eight_bits : matmul_elements::others;
}
template <class Compute>
constexpr matmul_arithmetic arithmetic_of() {
    if (!has_matrix_unit<Compute>) return matmul_arithmetic::floats;
    return sizeof(storage_of<Compute>) == 2 ? matmul_arithmetic::sixteen_bits : matmul_arithmetic::tfloat32;
}
template <class Results>
matmul_problem::result result_of(const Results& results) {
    if constexpr (is_copied_in_bulk<Results>) {
        using result = typename only_result<Results>::type;
        return {static_cast<int>(sizeof(result)), true, needs_sets<result>(results.first.stride),
                offset_in_chunk(results.first.data)};
    } else {
        return {.fits_bulk = false};
    }
}

/// Tiles of mma.sync for 8-bit operands. Twice as many warps as for 16 bits in a large one, since a warp holds more sums: those of the
/// current mma and the totals.
using large_8bit_tiling = matrix_unit_tiling<128, 128, 64, 2, 4, 3>;
using small_8bit_tiling = matrix_unit_tiling<64, 64, 64, 2, 2, 4>;

/// A product, or a batch of them, and how it is launched.
template <class Compute, class Device, class A, class B, class Operands, class Results, class Batch>
struct product_launch {
    static constexpr matmul_elements elements = elements_of<Compute, A, B>();
    static constexpr int depth = planning::panel_bytes / sizeof(storage_of<Compute>);

    Device& device;
    const product_operand<A>& a;
    const product_operand<B>& b;
    const detail::matmul_epilogue<Operands, Results>& epilogue;
    const Batch& batch;

    matmul_problem problem() const {
        return {.m = a.outer,
                .n = b.outer,
                .k = a.depth,
                .arithmetic = arithmetic_of<Compute>(),
                .elements = elements,
                .a = {a.axis, a.access},
                .b = {b.axis, b.access},
                .c = result_of(epilogue.results),
                .matrices = batch.count,
                .gpu = device.architecture(),
                .with = {has_warpgroups<Compute>(device), has_eight_bit_code(), simt::code_of_this_file()}};
    }

    void run() const {
        const matmul_plan plan = plan_matmul(problem());
        const planned_matmul& best = plan.best();
        // A family is compiled for the operands that it takes; plans name no other.
        switch (best.family) {
            case matmul_family::mma_sync_8bit:
                if constexpr (elements == matmul_elements::eight_bits) by_8bit_units(best);
                break;
            case matmul_family::wgmma_widened:
                if constexpr (elements == matmul_elements::eight_bits) by_widened_warpgroups(best);
                break;
            case matmul_family::mma_sync:
            case matmul_family::wgmma:
                if constexpr (elements == matmul_elements::as_multiplied) by_aligned_rows(best);
                break;
            case matmul_family::mma_sync_registers:
                if constexpr (has_matrix_unit<Compute>) by_registers(best);
                break;
            case matmul_family::fma:
                if constexpr (!has_matrix_unit<Compute>) by_fma(best);
                break;
        }
    }

  private:
    template <class Tiling, panel_load Load>
    void by_mma_sync(const product_operand<A>& of_a, const product_operand<B>& of_b, const planned_matmul& best) const {
        multiply<by_matrix_units<Compute, Tiling, Load, A, B>>(device, of_a, of_b, epilogue, access_to(epilogue),
                                                               best.cut.parts, batch);
    }
    void by_registers(const planned_matmul& best) const {
        by_mma_sync<matrix_unit_tiling<64, 64, depth, 2, 2, 2>, panel_load::through_registers>(a, b, best);
    }
    void by_aligned_rows(const planned_matmul& best) const {
        const aligned_copy<A> of_a(device, a);
        const aligned_copy<B> of_b(device, b);
        if constexpr (can_have_warpgroups<Compute, Device>) {
            if (best.family == matmul_family::wgmma)
                return multiply_by_warpgroups<Compute>(device, of_a.operand, of_b.operand, epilogue,
                                                       access_to(epilogue), best.cut, best.storing);
        }
        if (best.cut.tile == matmul_tile::large) return by_large_tiles(of_a.operand, of_b.operand, best);
        by_mma_sync<matrix_unit_tiling<64, 64, depth, 2, 2, 4>, panel_load::direct>(of_a.operand, of_b.operand, best);
    }
    /// With panels as deep as the plan says.
    void by_large_tiles(const product_operand<A>& of_a, const product_operand<B>& of_b,
                        const planned_matmul& best) const {
        constexpr simt::compiled_code code = simt::code_of_this_file();
        if constexpr (code.with_228_kb) {
            constexpr panel_load direct = panel_load::direct;
            using deep = matrix_unit_tiling<128, 128, 2 * depth, 2, 2, 3>;
            using kernel = typename by_matrix_units<Compute, deep, direct, A, B>::template kernel<Operands, Results>;
            static_assert(kernel::shared_bytes == planning::deep_block_bytes);
            if (best.panel_bytes == planning::deep_panel_bytes) return by_mma_sync<deep, direct>(of_a, of_b, best);
        }
        if constexpr (code.without_228_kb)
            by_mma_sync<matrix_unit_tiling<128, 128, depth, 2, 2, 3>, panel_load::direct>(of_a, of_b, best);
    }

    template <class Tiling>
    using of_8bit = by_matrix_units<eight_bits, Tiling, panel_load::direct, A, B>;
    /// Whether the code for this GPU has 8-bit matrix instructions; asked where the GPU has them.
    bool has_eight_bit_code() const {
        if constexpr (elements == matmul_elements::eight_bits) {
            using kernel = typename of_8bit<small_8bit_tiling>::template kernel<Operands, Results>;
            const bool gpu_has =
                matmul_row_of(device.architecture().version).eight_bits == eight_bit_operands::as_they_are;
            return gpu_has && device.template has_eight_bit_code<launched<kernel, Batch>>();
        } else {
            return false;
        }
    }
    void by_8bit_units(const planned_matmul& best) const {
        const int parts = best.cut.parts;
        if (best.cut.tile == matmul_tile::large)
            return multiply<of_8bit<large_8bit_tiling>>(device, a, b, epilogue, access_to(epilogue), parts, batch);
        multiply<of_8bit<small_8bit_tiling>>(device, a, b, epilogue, access_to(epilogue), parts, batch);
    }
    void by_widened_warpgroups(const planned_matmul& best) const {
        if constexpr (can_have_warpgroups<Compute, Device>) {
            const widened_copy<Compute> wide_a(device, a), wide_b(device, b);
            multiply_by_warpgroups<Compute>(device, wide_a.operand, wide_b.operand, epilogue, access_to(epilogue),
                                            best.cut, best.storing);
        }
    }

    template <class Tiling>
    void by_multiply_adds_of(const planned_matmul& best) const {
        multiply<by_multiply_adds<Compute, Tiling, A, B>>(device, a, b, epilogue, access_to(epilogue), best.cut.parts,
                                                          batch);
    }
    void by_fma(const planned_matmul& best) const {
        if (best.cut.tile == matmul_tile::large) return by_multiply_adds_of<multiply_add_tiling<128, 128>>(best);
        by_multiply_adds_of<multiply_add_tiling<64, 64>>(best);
    }
};

/// What decides how c = epilogue(ab) is computed, for each matrix of a batch.
template <class Compute, class Device, class A, class B, class Operands, class Results, class Batch>
matmul_problem describe_product(Device& device, const product_operand<A>& a, const product_operand<B>& b,
                                const detail::matmul_epilogue<Operands, Results>& epilogue, const Batch& batch) {
    return product_launch<Compute, Device, A, B, Operands, Results, Batch>{device, a, b, epilogue, batch}.problem();
}
/// c = epilogue(ab) by the kernels that its plan names.
template <class Compute, class Device, class A, class B, class Operands, class Results, class Batch>
void multiply_by_plan(Device& device, const product_operand<A>& a, const product_operand<B>& b,
                      const detail::matmul_epilogue<Operands, Results>& epilogue, const Batch& batch) {
    product_launch<Compute, Device, A, B, Operands, Results, Batch>{device, a, b, epilogue, batch}.run();
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
