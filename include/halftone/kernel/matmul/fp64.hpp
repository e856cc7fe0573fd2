// SPDX-License-Identifier: MIT
/// \file
/// Matrix products in double, one thread an element: matmul.hpp has the rules, common/fp64/each.hpp the contract.
/// Operands are rounded to the compute type if that is narrower; a sum adds its k products in order.
#pragma once

#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/kernel/map/expression/scalar.hpp>
#include <halftone/kernel/matmul/epilogue.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

template <class Results>
inline constexpr bool gives_double = false;
template <class... E, class... T>
inline constexpr bool gives_double<pack<detail::matmul_result<E, T>...>> = in_double<T...>;

/// Whether an operand or result of the product is a double.
template <class Compute, class A, class B, class Results>
concept product_in_double = in_double<Compute, A, B> || gives_double<Results>;

template <class Operands>
inline constexpr bool are_plain = false;
template <class... Operand>
inline constexpr bool are_plain<pack<Operand...>> = true;

template <class Compute, class A, class B, class Operands, class Results>
struct product_element {
    global_span<const A> a;
    global_span<const B> b;
    extent a_row, a_column, b_row, b_column, rows, columns, depth;
    detail::matmul_epilogue<Operands, Results> epilogue;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const extent row = i / columns, column = i % columns;
        double sum = 0;
        for (extent k = 0; k < depth; ++k) {
            sum += rounded(thread.load(a, row * a_row + k * a_column)) *
                   rounded(thread.load(b, k * b_row + column * b_column));
        }
        finish(thread, row, column, sum, std::make_index_sequence<Operands::count>{},
               std::make_index_sequence<Results::count>{});
    }

  private:
    template <class T>
    HALFTONE_HD static double rounded(const T& x) {
        if constexpr (std::is_same_v<Compute, double>) {
            return static_cast<double>(x);
        } else {
            return static_cast<double>(static_cast<float>(Compute(static_cast<double>(x))));
        }
    }
    template <class T>
    HALFTONE_HD global_span<T> matrix(T* data, extent stride) const {
        return {data, (rows - 1) * stride + columns};
    }
    HALFTONE_KERNEL template <class Thread, class T>
    HALFTONE_HD double load(Thread thread, const detail::column_operand<T>& o, extent, extent column) const {
        return static_cast<double>(thread.load(global_span<const T>{o.data, columns}, column));
    }
    HALFTONE_KERNEL template <class Thread, class T>
    HALFTONE_HD double load(Thread thread, const detail::row_operand<T>& o, extent row, extent) const {
        return static_cast<double>(thread.load(global_span<const T>{o.data, rows}, row));
    }
    HALFTONE_KERNEL template <class Thread, class T>
    HALFTONE_HD double load(Thread thread, const detail::matrix_operand<T>& o, extent row, extent column) const {
        return static_cast<double>(thread.load(matrix(o.data, o.stride), row * o.stride + column));
    }
    HALFTONE_KERNEL template <class Thread, std::size_t... I, std::size_t... K>
    HALFTONE_HD void finish(Thread thread, extent row, extent column, double sum, std::index_sequence<I...>,
                            std::index_sequence<K...>) const {
        const double x[] = {sum, load(thread, epilogue.operands.template at<I>(), row, column)...};
        const double y[] = {scalar::evaluate(epilogue.results.template at<K>().expression, x)...};
        (store(thread, epilogue.results.template at<K>(), row, column, y[K]), ...);
    }
    HALFTONE_KERNEL template <class Thread, class E, class T>
    HALFTONE_HD void store(Thread thread, const detail::matmul_result<E, T>& to, extent row, extent column,
                           double value) const {
        thread.store(matrix(to.data, to.stride), row * to.stride + column, static_cast<T>(value));
    }
};

template <class Compute, class Device, class A, class B, class Operands, class Results>
void multiply(Device& device, const view<A, 2>& a, const view<B, 2>& b,
              const detail::matmul_epilogue<Operands, Results>& epilogue) {
    static_assert(are_plain<Operands> && (std::is_same_v<Compute, double> || sizeof(Compute) > 1),
                  "halftone: matmul: operands of eight bits do not meet doubles: cast the doubles, "
                  "ht::cast<float>(ctx, x), or take a policy that computes in 16 bits or more");
    using work = product_element<Compute, std::remove_const_t<A>, std::remove_const_t<B>, Operands, Results>;
    const extent m = a.extent_of(0), n = b.extent_of(1), k = a.extent_of(1);
    for_each(device, m * n, 2 * k,
             work{{a.data(), a.bounding_size()},
                  {b.data(), b.bounding_size()},
                  a.stride_of(0),
                  a.stride_of(1),
                  b.stride_of(0),
                  b.stride_of(1),
                  m,
                  n,
                  k,
                  epilogue});
}

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
