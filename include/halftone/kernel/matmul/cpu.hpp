// SPDX-License-Identifier: MIT
/// \file
/// The matrix product on the CPU; matmul.hpp has its contract and an example.
///
/// Types are left behind here. What follows (cpu/strategy/) is compiled once in a program, whatever the types of
/// operands and the epilogue's expressions are:
///
///     run            operands and epilogue become addresses, strides and functions (cpu/untyped.hpp); the unit is the one
///                    for the instruction set and the compute type (cpu/unit/choose.hpp, cpu/unit/split.hpp)
///     multiply       a strategy is chosen from shape, layouts, threads and caches (cpu/plan.hpp)
///     run_strategy   and carried out (cpu/strategy/), by the unit's functions (cpu/unit.hpp)
///     finish_block   sends finished sums through the epilogue (cpu.simd.hpp)
#pragma once

#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/map/evaluate.hpp>
#include <halftone/kernel/matmul/cpu/unit/split.hpp>
#include <halftone/kernel/matmul/cpu/untyped.hpp>
#include <halftone/kernel/matmul/fp64.hpp>
#include <halftone/kernel/matmul/matmul.hpp>

#define HALFTONE_BODY <halftone/kernel/matmul/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

void run_strategy(const product_task& task);

}  // namespace detail

namespace kernel {

template <>
struct decode_matrix<cpu> {
    template <class Format, class T>
    static void run(cpu& device, const coded_matrix<Format>& m, const view<T, 2>& to) {
        const detail::coded_rows rows = detail::rows_of_codes<T>(device, m);
        device.parallel_for(m.stored_rows(),
                            [&](extent row) { rows.decode(rows, row, 1, 0, rows.width, &to(row, 0), rows.width); });
    }
};

template <>
struct matmul<cpu> {
    template <class Compute, class A, class B, class Operands, class Results>
        requires fp64::product_in_double<Compute, A, B, Results>
    static void run(cpu& device, const view<A, 2>& a, const view<B, 2>& b,
                    const detail::matmul_epilogue<Operands, Results>& epilogue, square_sum* = nullptr) {
        fp64::multiply<Compute>(device, a, b, epilogue);
    }
    /// If `squares` is not null and the result is float, also sums the squares of the result.
    template <class Compute, class A, class B, class Operands, class Results>
    static void run(cpu& device, const view<A, 2>& a, const view<B, 2>& b,
                    const detail::matmul_epilogue<Operands, Results>& epilogue, square_sum* squares = nullptr) {
        run_with<Compute>(device, a, b, untyped(device, epilogue, squares));
    }

    /// A coded b: its pieces are decoded as they are packed, or, for a product in double, all of it before.
    template <class Compute, class A, class Format, class Operands, class Results>
    static void run(cpu& device, const view<A, 2>& a, const coded_matrix<Format>& b,
                    const detail::matmul_epilogue<Operands, Results>& epilogue, square_sum* squares = nullptr) {
        if constexpr (fp64::product_in_double<Compute, A, float, Results>) {
            detail::multiply_decoded<Compute>(device, a, b, epilogue);
        } else {
            run_coded<Compute>(device, a, b, untyped(device, epilogue, squares));
        }
    }

    /// A product with its epilogue by the unit and the packing given.
    template <class A, class B, class Operands, class Results>
    static void run_by(const detail::product_unit& unit, const detail::a_packing<std::remove_const_t<A>>& of_a,
                       const detail::b_packing<std::remove_const_t<B>>& of_b, cpu& device, const view<A, 2>& a,
                       const view<B, 2>& b, const detail::matmul_epilogue<Operands, Results>& epilogue,
                       square_sum* squares = nullptr) {
        multiply(unit, device, {a, of_a}, {b, of_b}, untyped(device, epilogue, squares));
    }

  private:
    template <class Operands, class Results>
    static detail::untyped_epilogue untyped(const cpu& device,
                                            const detail::matmul_epilogue<Operands, Results>& epilogue,
                                            square_sum* squares) {
        using functions = detail::epilogue_functions<Operands, Results>;
        return {.epilogue = &epilogue,
                .finish = device.select(HALFTONE_EACH_SET(finish_block<Operands, Results>)),
                .stores_non_temporal = &functions::stores_non_temporal,
                .reads_memory = &functions::reads_memory,
                .prefetch_block = &functions::prefetch_block,
                .prefetch_operands = &functions::prefetch_operands,
                .plain = functions::template plain_result_of<float>(epilogue),
                .plain_rounded = functions::template plain_result_of<bfloat16>(epilogue),
                .floats = functions::floats_of(epilogue),
                .squares = squares};
    }

    // Once for the types of a and b, whatever becomes of their products.
    template <class Compute, class A, class B>
    static void run_with(cpu& device, const view<A, 2>& a, const view<B, 2>& b,
                         const detail::untyped_epilogue& epilogue) {
        const auto of_a = detail::matmul_packing_of_a<Compute, std::remove_const_t<A>>(device);
        const auto of_b = detail::matmul_packing_of_b<Compute, std::remove_const_t<B>>(device);
        multiply(detail::matmul_unit_for<Compute>(device), device, {a, of_a}, {b, of_b}, epilogue);
    }

    template <class Compute, class A, class Format>
    static void run_coded(cpu& device, const view<A, 2>& a, const coded_matrix<Format>& b,
                          const detail::untyped_epilogue& epilogue) {
        using decoded = detail::decoded_type<Compute>;
        const auto of_a = detail::matmul_packing_of_a<Compute, std::remove_const_t<A>>(device);
        const auto of_b = detail::matmul_packing_of_b<Compute, decoded>(device);
        detail::coded_rows rows = detail::rows_of_codes<decoded>(device, b);
        rows.multiply_few = detail::coded_small_m_for<Compute, Format>(device);
        multiply(detail::matmul_unit_for<Compute>(device), device, {a, of_a}, {b, of_b, rows}, epilogue);
    }

    static void multiply(const detail::product_unit& unit, cpu& device, const detail::untyped_a& a,
                         const detail::untyped_b& b, const detail::untyped_epilogue& epilogue);
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/matmul/cpu.body.hpp>
#endif
