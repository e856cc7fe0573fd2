// SPDX-License-Identifier: MIT
/// \file
/// One step of Adafactor (Shazeer and Stern 2018) for one parameter, as torch.optim.Adafactor computes it. Where AdamW
/// stores two moments per element, Adafactor stores one variance for each row and each column of a matrix, and one for
/// each element of a vector.
///
///     kernel::adafactor_step<cpu>::run<rounding::nearest_even, rounding::nearest_even>(
///         device, kernel::adafactor_arguments<float, bfloat16, float>{
///             .step = {.master = w, .copy = w16, .gradient = g, .rule = {.d = 1}, .factors = &factors, .step = &steps},
///             .shape = {768, 3072}, .rows = r, .columns = c, .record = &record});
///
/// With the unscaled and clipped gradient G, in step number t:
///
///     R = R + t^beta2_decay (means of G^2 along rows - R),  C in the same way along columns
///     V = max(R Cᵀ / max(mean R, epsilon1), epsilon1^2),    U = G / sqrt(V)
///     w = w (1 - lr weight_decay) - max(epsilon2, rms w) min(lr, 1 / sqrt t) U / max(1, rms U / d)
///
/// Numeric contract: squares are summed in float within a tile of `height` by `width` elements (adafactor_tiles), and
/// the sums of tiles in double. The variances are rounded to float once per step. R is divided by max(mean R, epsilon1)
/// before it is multiplied by C, so that no product leaves float's range. The tiles depend only on the shape, so the
/// bits do not depend on the number of threads. Parameters, copies and averages are rounded as in any step
/// (optimizer_step.hpp). The step reads the gradient three times and the parameter twice: 26 bytes per parameter with
/// an fp32 gradient and master and a 16-bit copy.
#pragma once

#include <halftone/kernel/optimizer_step/optimizer_step.hpp>
#include <halftone/kernel/optimizer_step/rule/adafactor.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <class Param, class Copy, class Accumulate>
struct adafactor_arguments {
    /// The operands that all optimizers have; without moments.
    optimizer_step_arguments<adafactor_rule, Param, Copy, Accumulate, float> step;
    halftone::shape<2> shape;            ///< of the parameter; (1, length) for a vector
    view<float, 1> rows{};               ///< (rows), the variances of rows; without data for a vector
    view<float, 1> columns{};            ///< (columns), the variances of columns, or of a vector's elements
    adafactor_record* record = nullptr;  ///< in the device's memory; only used during the step
};

/// run<Rounding, CopyRounding>(device, arguments), as optimizer_step's run. Changes nothing if step->skips. Throws
/// shape_error, and argument_error for a random index that is not a multiple of 4.
template <class Device>
struct adafactor_step {
    static_assert(sizeof(Device) == 0,
                  "halftone: adafactor: the kernels of this device are not included: include <halftone/kernel.hpp> for "
                  "ht::cpu, <halftone/cuda.cuh> for ht::cuda");
};

/// The division of a matrix into tiles for sums: tiles of at most `height` by `width` elements, in `down` rows of
/// `across` tiles.
struct adafactor_tiles {
    extent rows, columns, height, width, down, across;

    static adafactor_tiles of(const shape<2>& s, extent height, extent width) {
        return {s[0], s[1], height, width, detail::ceil_div(s[0], height), detail::ceil_div(s[1], width)};
    }
    HALFTONE_HD extent count() const { return down * across; }
    /// The number of rows and of columns of the tile in row `y` and column `x` of tiles.
    HALFTONE_HD extent rows_of(extent y) const { return height < rows - y * height ? height : rows - y * height; }
    HALFTONE_HD extent columns_of(extent x) const { return width < columns - x * width ? width : columns - x * width; }
};

template <class Param, class Copy, class Accumulate>
void check(const adafactor_arguments<Param, Copy, Accumulate>& a) {
    check(a.step);
    const extent count = a.step.master.size();
    if (a.shape[0] * a.shape[1] != count)
        fail<shape_error>("adafactor: a parameter of ", count, " elements, whose shape is ", a.shape);
    expect_optional("adafactor", "rows", a.rows, {a.shape[0]});
    expect("adafactor", "columns", a.columns, {a.shape[1]});
    if (a.rows.data() == nullptr && a.shape[0] != 1)
        fail<shape_error>("adafactor: ", a.shape, " without variances of rows; expected these, or a vector (1, n)");
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
