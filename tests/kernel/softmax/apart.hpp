// SPDX-License-Identifier: MIT
/// \file
/// Softmax and its logarithm of rows with a stride: they have the bits of contiguous rows, and the gaps are unchanged. On a GPU
/// only for rows of whole, aligned vectors: in other rows the first vector depends on the address.
///
///     softmax_checks::rows_apart<ht::kernel::softmax<ht::cpu>, float, float>(device, rows, width);
#pragma once

#include <doctest/doctest.h>

#include <halftone/kernel/softmax/softmax.hpp>

#include "kernel/norm/hard_rows.hpp"

namespace softmax_checks {

template <class Softmax, class X, class Y, class Device>
void rows_apart(Device& device, halftone::extent rows, halftone::extent width) {
    using hard_rows::matrix, hard_rows::same, halftone::extent, halftone::write_mode;
    CAPTURE(width);
    matrix<X> x(rows, width, 0), dx(rows, width, 0);
    matrix<Y> y(rows, width, 0), dy(rows, width, 0);
    x.values = support::random(1).normals<X>(rows * width), dy.values = support::random(2).normals<Y>(rows * width);
    dx.values = support::random(3).normals<X>(rows * width);
    const matrix<X> old = dx;
    Softmax::template forward<X, Y>(device, {.x = std::as_const(x).view(), .y = y.view(), .scale = 2});
    const auto backward = [&](const matrix<Y>& of_y, const matrix<Y>& of_dy, matrix<X>& to) {
        Softmax::template backward<X, Y>(
            device, {.y = of_y.view(), .dy = of_dy.view(), .dx = to.view(), .scale = 2, .mode = write_mode::add});
    };
    backward(y, dy, dx);
    for (const extent gap : {1, 3, 8, 24}) {
        if (gap % 8 != 0 && !support::is_on_cpu<Device>) continue;
        CAPTURE(gap);
        const auto spaced = [&](const auto& of, extent by) {
            auto m = of;
            m = {rows, width, by};
            for (extent i = 0; i < rows; ++i)
                for (extent j = 0; j < width; ++j) m(i, j) = of.at(i, j);
            return m;
        };
        const matrix<X> x_apart = spaced(x, gap);
        matrix<Y> y_apart(rows, width, gap + 8);
        Softmax::template forward<X, Y>(device, {.x = x_apart.view(), .y = y_apart.view(), .scale = 2});
        CHECK(same(y_apart, y));
        CHECK(y_apart.gaps_intact());
        matrix<X> dx_apart = spaced(old, 2 * gap);
        backward(y_apart, spaced(dy, gap), dx_apart);
        CHECK(same(dx_apart, dx));
        CHECK(dx_apart.gaps_intact());
    }
}

}  // namespace softmax_checks
