// SPDX-License-Identifier: MIT
/// \file
/// Orthogonalisation, as Muon applies it to its directions: computes matrices with the same singular vectors and
/// singular values near 1, with the iteration of Newton and Schulz, which consists of matrix products. Matrices of the
/// same shape are multiplied together as a batch.
///
///     detail::orthogonalize<amp_bf16>(device, x, others, squares, {.steps = 5}, records);    // the results are in x or others
///
/// Numeric contract: x / max(|x|, epsilon), with |x| the Frobenius norm, is rounded to x's type. With G the smaller of the Gram
/// matrices X Xᵀ and Xᵀ X, and with the coefficients a, b, c of an odd polynomial, an iteration computes
///
///     H = b G + c G G,    X becomes a X + H X    (X H if there are fewer columns than rows)
///
/// with sums in float, and rounds G, H and X once each. The definition is that of torch.optim.Muon (Jordan). Five steps
/// with these coefficients in bf16 give singular values between about 0.7 and 1.2.
#pragma once

#include <algorithm>
#include <utility>

#include <halftone/kernel/gradient_norm/gradient_norm.hpp>
#include <halftone/kernel/matmul/matmul.hpp>
#include <halftone/kernel/optimizer_step/optimizer_step.hpp>
#include <halftone/kernel/optimizer_step/rule/assign.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Options of the orthogonalisation.
struct newton_schulz_options {
    double a = 3.4445, b = -4.7750, c = 2.0315;  ///< coefficients of the polynomial (Jordan), with a large slope at zero
    int steps = 5;
    double epsilon = 1e-7;  ///< the lower limit of the norm by which the matrix is divided
};

namespace detail {

/// The records that the passes read, in device memory.
struct orthogonal_records {
    kernel::gradient_record norm{};
    kernel::gradient_factors to_unit{}, none{};
    kernel::step_record step{.steps = 1};
};

struct divide_by_norm {
    orthogonal_records* records;
    float epsilon;
    HALFTONE_HD void operator()() const {
        const float norm = records->norm.norm;
        records->to_unit.inv_scale = 1.0f / (norm > epsilon ? norm : epsilon);
    }
};

/// One iteration for each matrix of x, into y; g and h are memory for Gram matrices. Coefficients and sums are floats.
template <class P, class Device, class T>
void newton_schulz_step(Device& device, const view<T, 3>& x, const view<T, 3>& y, const view<T, 3>& g, const view<T, 3>& h,
                        const newton_schulz_options& o) {
    const float a = static_cast<float>(o.a), b = static_cast<float>(o.b), c = static_cast<float>(o.c);
    const bool is_wide = x.extent_of(1) <= x.extent_of(2);
    const auto polynomial = [b, c](auto sum, auto gram) { return c * sum + b * gram; };
    const auto next = [a](auto sum, auto before) { return sum + a * before; };
    if (is_wide) {
        halftone::batched_matmul<P>(device, x, transpose(x), g);                          // (r, c) (c, r)
    } else {
        halftone::batched_matmul<P>(device, transpose(x), x, g);                          // (c, r) (r, c)
    }
    halftone::batched_matmul<P>(device, g, g, h, then{polynomial, g});
    if (is_wide) {
        halftone::batched_matmul<P>(device, h, x, y, then{next, x});                      // (r, r) (r, c)
    } else {
        halftone::batched_matmul<P>(device, x, h, y, then{next, x});                      // (r, c) (c, c)
    }
}

/// Orthogonalises the matrices in `directions`. `others` has the same shape and is used as memory, as is `grams`, which
/// holds for each matrix two matrices of the size of the smaller Gram matrix. Returns the one of `directions` and
/// `others` in which the results are. The bits of a matrix do not depend on the other matrices.
template <class P, class Device, class T>
view<T, 3> orthogonalize(Device& device, const view<T, 3>& directions, const view<T, 3>& others, T* grams,
                         const newton_schulz_options& o, orthogonal_records* records) {
    const extent count = directions.extent_of(0), least = std::min(directions.extent_of(1), directions.extent_of(2));
    const shape<3> gram_shape{count, least, least};
    const view<T, 3> g(grams, gram_shape), h(grams + gram_shape.size(), gram_shape);
    for (extent i = 0; i < count; ++i) {
        const view<T, 1> from = flatten(matrix(directions, i)), to = flatten(matrix(others, i));
        halftone::gradient_norm(device, &records->norm, from);
        device.run(divide_by_norm{records, static_cast<float>(o.epsilon)});
        kernel::optimizer_step<Device>::template run<rounding::nearest_even>(
            device, kernel::optimizer_step_arguments<kernel::assign_rule, T, T, T, float>{
                        .master = to, .gradient = from, .factors = &records->to_unit, .step = &records->step});
    }
    view<T, 3> x = others, y = directions;
    for (int i = 0; i < o.steps; ++i) {
        newton_schulz_step<P>(device, x, y, g, h, o);
        std::swap(x, y);
    }
    return x;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
