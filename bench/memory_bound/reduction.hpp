// SPDX-License-Identifier: MIT
/// \file
/// Reductions along the last and along the first axis of a matrix, and along both ends of three axes.
#pragma once

#include <memory_bound/family.hpp>

#include <halftone/kernel/axis_reduction/along/function.hpp>
#include <halftone/kernel/axis_reduction/cpu.hpp>
#include <halftone/kernel/map/cpu.hpp>

namespace bench {

inline const matrix_case reduction_cases[] = {{8192, 3072}, {512, 1024, true}};

/// run(device, x, axes, y), of x (rows, width), or (rows / 16, 16, width) along the first and the last.
template <class T, class Run>
void reduction(const memory_bound& b, const char* name, const Run& run) {
    namespace ht = halftone;
    for (const matrix_case& c : reduction_cases) {
        const auto along = [&](const char* axes, const auto& shape, auto list, const auto& outputs) {
            b.run(name, c.text(axes), c.size() * sizeof(T),
                  [&, shape, list, outputs](int n) {
                      return [&, shape, list, outputs, x = operands<T>(b.device, n, shape.size()),
                              y = operands<T>(b.device, 1, outputs.size())](int k) {
                          run(b.device, ht::view(static_cast<const T*>(x(k)), shape), list, ht::view(y(0), outputs));
                      };
                  },
                  {{"op", "reduction"}, {"name", name}, {"axes", axes}, {"rows", c.rows}, {"width", c.width}});
        };
        along("last", ht::shape<2>{c.rows, c.width}, ht::axes<1>, ht::shape<1>{c.rows});
        along("first", ht::shape<2>{c.rows, c.width}, ht::axes<0>, ht::shape<1>{c.width});
        along("ends", ht::shape<3>{c.rows / 16, 16, c.width}, ht::axes<0, 2>, ht::shape<1>{16});
    }
}

template <class T>
void reductions(const memory_bound& b) {
    namespace ht = halftone;
    reduction<T>(b, "sum", [](auto& d, const auto& x, auto along, const auto& y) { ht::sum(d, x, along, y); });
    reduction<T>(b, "amax", [](auto& d, const auto& x, auto along, const auto& y) { ht::amax(d, x, along, y); });
    reduction<T>(b, "var", [](auto& d, const auto& x, auto along, const auto& y) { ht::var(d, x, along, y); });
    reduction<T>(b, "logsumexp",
                 [](auto& d, const auto& x, auto along, const auto& y) { ht::logsumexp(d, x, along, y); });
}

}  // namespace bench
