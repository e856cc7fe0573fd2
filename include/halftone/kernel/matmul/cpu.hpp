// SPDX-License-Identifier: MIT
/// \file
/// The matrix product on the CPU; matmul.hpp has its contract and an example.
///
/// Types are left behind here: the loops (blocked_product.hpp) are compiled once in a program, whatever the types of
/// operands and the epilogue's expressions are.
#pragma once

#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/map/evaluate.hpp>
#include <halftone/kernel/matmul/cpu/blocked_product.hpp>
#include <halftone/kernel/matmul/cpu/split.hpp>
#include <halftone/kernel/matmul/cpu/tile_product.hpp>
#include <halftone/kernel/matmul/fp64.hpp>
#include <halftone/kernel/matmul/matmul.hpp>

#define HALFTONE_BODY <halftone/kernel/matmul/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled has what follows and is no template
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct matmul<cpu> {
    template <class Compute, class A, class B, class Operands, class Results>
        requires fp64::product_in_double<Compute, A, B, Results>
    static void run(cpu& device, const view<A, 2>& a, const view<B, 2>& b,
                    const detail::matmul_epilogue<Operands, Results>& epilogue, square_sum* = nullptr) {
        fp64::multiply<Compute>(device, a, b, epilogue);
    }
    /// Where somebody asks for the `squares` of the result, and it is one of floats, they are summed.
    template <class Compute, class A, class B, class Operands, class Results>
    static void run(cpu& device, const view<A, 2>& a, const view<B, 2>& b,
                    const detail::matmul_epilogue<Operands, Results>& epilogue, square_sum* squares = nullptr) {
        run_with<Compute>(device, a, b, untyped(device, epilogue, squares));
    }

    /// The same by the unit and the packing given.
    template <class A, class B, class Operands, class Results>
    static void run_by(const detail::product_unit& unit, const detail::product_packing<std::remove_const_t<A>>& of_a,
                       const detail::product_packing<std::remove_const_t<B>>& of_b, cpu& device, const view<A, 2>& a,
                       const view<B, 2>& b, const detail::matmul_epilogue<Operands, Results>& epilogue,
                       square_sum* squares = nullptr) {
        multiply(unit, device, blocked_operand(a, of_a), blocked_operand(b, of_b), untyped(device, epilogue, squares));
    }

  private:
    template <class Operands, class Results>
    static blocked_epilogue untyped(const cpu& device, const detail::matmul_epilogue<Operands, Results>& epilogue,
                                    square_sum* squares) {
        return {&epilogue,
                device.select(&portable::finish_block<Operands, Results>, &avx2::finish_block<Operands, Results>,
                              &avx512::finish_block<Operands, Results>),
                &results_non_temporal<Operands, Results>,
                &expect_block<Operands, Results>,
                &reads_memory<Operands, Results>,
                &expect_operands<Operands, Results>,
                plain_result_of<float>(epilogue),
                plain_result_of<bfloat16>(epilogue),
                floats_of(epilogue.results),
                squares};
    }
    template <class T, class Epilogue>
    static plain_result<T> plain_result_of(const Epilogue& epilogue) {
        using plain = detail::matmul_epilogue<pack<>, pack<detail::matmul_result<symbolic::argument<0>, T>>>;
        if constexpr (std::is_same_v<Epilogue, plain>) {
            return {epilogue.results.first.data, epilogue.results.first.stride};
        } else {
            return {};
        }
    }
    template <class Results>
    static plain_result<const float> floats_of(const Results&) {
        return {};
    }
    template <class Expression>
    static plain_result<const float> floats_of(const pack<detail::matmul_result<Expression, float>>& results) {
        return {results.first.data, results.first.stride};
    }

    // Once for the types of a and b, whatever becomes of their products.
    template <class Compute, class A, class B>
    static void run_with(cpu& device, const view<A, 2>& a, const view<B, 2>& b, const blocked_epilogue& epilogue) {
        const auto of_a = detail::matmul_packing_of_a<Compute, std::remove_const_t<A>>(device);
        const auto of_b = detail::matmul_packing_of_b<Compute, std::remove_const_t<B>>(device);
        multiply(detail::matmul_unit_for<Compute>(device), device, blocked_operand(a, of_a), blocked_operand(b, of_b),
                 epilogue);
    }

    static void multiply(const detail::product_unit& unit, cpu& device, const blocked_operand& a, const blocked_operand& b,
                         const blocked_epilogue& epilogue) {
        if (a.rows == 0 || b.columns == 0) return;
        const auto run = [&](const written_squares* squares) {
            if (unit.multiply_through != nullptr) return tile_product(unit, device, a, b, epilogue, squares).run();
            blocked_product(unit, device, a, b, epilogue, squares).run();
        };
        if (epilogue.squares == nullptr || epilogue.floats.data == nullptr) return run(nullptr);
        const written_squares squares(device, epilogue.floats.data, epilogue.floats.stride, {a.rows, b.columns},
                                      {unit.rows, unit.columns});
        run(&squares);
        device.run([&] { *epilogue.squares = squares.total(); });
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
