// SPDX-License-Identifier: MIT
/// \file
/// The GPU kernels of reductions along axes on the emulated GPU.
#include <doctest/doctest.h>

#include <halftone/kernel/axis_reduction/device.hpp>
#include <halftone/kernel/map/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/axis_reduction/checks.hpp"

namespace emulator_kernel_axis_reduction_tests {

using namespace axis_checks;
namespace emulator = ht::emulator;
using kernel = ht::kernel::axis_reduction<emulator::device>;

TEST_CASE_TEMPLATE("axis_reduction on a GPU: within its bound of the definition", X, float, bfloat16) {
    emulator::device device;
    using ht::axes, ht::shape;
    for (const extent apart : {0, 1}) {
        for (const extent n : {1, 5, 67, 264}) {
            CAPTURE(n);
            all_operations<X, X>(device, shape<1>{n}, axes<0>, apart);
            all_operations<X, X>(device, shape<2>{3, n}, axes<-1>, apart);
            all_operations<X, X>(device, shape<2>{7, n}, axes<0>, apart);
            all_operations<X, X>(device, shape<3>{2, n, 9}, axes<1>, apart);
            all_operations<X, X>(device, shape<3>{3, 4, n}, axes<0, 2>, apart);
            products<X, X>(device, shape<2>{23, n}, axes<1>, apart);
            products<X, X>(device, shape<3>{2, n, 9}, axes<1>, apart);
        }
        all_operations<X, X>(device, shape<4>{3, 2, 5, 16}, axes<0, 2>, apart);
        all_operations<X, X>(device, shape<4>{3, 2, 5, 4}, axes<1, 3>, apart);
    }
}

TEST_CASE("axis_reduction on a GPU: results of another type, and long rows and columns") {
    emulator::device device;
    all_operations<float16, float>(device, ht::shape<2>{5, 1300}, ht::axes<1>);
    all_operations<float, bfloat16>(device, ht::shape<2>{1030, 7}, ht::axes<0>);
    all_operations<bfloat16, float>(device, ht::shape<1>{33001}, ht::axes<0>);
    products<bfloat16, float>(device, ht::shape<1>{33001}, ht::axes<0>);
    products<float, bfloat16>(device, ht::shape<2>{1030, 7}, ht::axes<0>);
}

TEST_CASE("axis_reduction on a GPU: many rows, each by one warp, and reduced axes that are apart, in vectors") {
    emulator::device device;
    support::random data(19);
    const ht::shape<2> many{2048, 1048};
    const guarded<bfloat16> x(data.normals<bfloat16>(many.size(), 1, 0.75), 0);
    for (const auto operation : {axis_operation::sum, axis_operation::logsumexp})
        forward<bfloat16, float>(device, x.const_view(many), ht::axes<1>, operation);
    const ht::shape<3> between{33, 2, 1056};
    const guarded<bfloat16> y(data.normals<bfloat16>(between.size(), 1, 0.75), 0);
    for (const auto operation : {axis_operation::sum, axis_operation::var, axis_operation::amin})
        forward<bfloat16, float>(device, y.const_view(between), ht::axes<0, 2>, operation);
}

TEST_CASE("axis_reduction on a GPU: strides, axes that are kept, infinities, NaNs, empty tensors") {
    emulator::device device;
    free_functions(device);
    what_is_special(device);
    special_products<float>(device);
    special_products<bfloat16>(device);
}

TEST_CASE("axis_reduction on a GPU: standard deviations whose squares float does not hold, and their gradients") {
    emulator::device device;
    deviations_of_every_size<float>(device);
    deviations_of_every_size<bfloat16>(device);
}

TEST_CASE("axis_reduction on a GPU: variances whose sums or squares float does not hold, and those divided by 0") {
    emulator::device device;
    variances_beyond_float<float>(device);
    variances_beyond_float<bfloat16>(device);
}

TEST_CASE("axis_reduction on a GPU: running sums along an axis") {
    emulator::device device;
    every_running_sum<float, float>(device);
    every_running_sum<bfloat16, float>(device);
}

/// Whole numbers, whose sums are exact in any order. The index of the largest differs from output to output.
template <int Rank, int... Axes>
void right_in_every_schedule(const ht::shape<Rank>& s, ht::axis_list<Axes...> along) {
    support::random data(5);
    const guarded<bfloat16> x(data.integers<bfloat16>(s.size(), 100), 0);
    const axis_layout l = ht::kernel::axis_layout_of(x.const_view(s), along);
    std::vector<double> sums(static_cast<std::size_t>(l.outputs)), largest(sums.size());
    ht::reference::reduce(x.const_view(s), along, axis_operation::sum, 1.0,
                          ht::view<double, 1>(sums.data(), {l.outputs}));
    ht::reference::reduce(x.const_view(s), along, axis_operation::amax, 1.0,
                          ht::view<double, 1>(largest.data(), {l.outputs}));
    const guarded<float> y(l.outputs);
    const guarded<std::int32_t> at(l.outputs);
    emulator::check_kernels([&](emulator::device& device) {
        kernel::run(device, ht::kernel::reduction<bfloat16, float>{x.data(), l, y.data(), axis_operation::sum, 1.0});
        bool right = true;
        for (extent o = 0; o < l.outputs; ++o)
            right = right && static_cast<double>(y[o]) == sums[static_cast<std::size_t>(o)];
        return right;
    });
    emulator::check_kernels([&](emulator::device& device) {
        kernel::index(device, ht::kernel::reduction_index<bfloat16>{x.data(), l, at.data(), axis_operation::amax});
        bool right = true;
        for (extent o = 0; o < l.outputs; ++o) {
            const auto elements = elements_of(x.data(), l, o);
            right = right &&
                    at[o] == ht::reference::index_of_most(
                                 l.reduced_size, [&](extent i) { return elements[static_cast<std::size_t>(i)]; }, true);
        }
        return right;
    });
}
TEST_CASE("axis_reduction on a GPU: right in every schedule, and every damage is found") {
    right_in_every_schedule(ht::shape<2>{3, 1100}, ht::axes<1>);
    right_in_every_schedule(ht::shape<2>{37, 40}, ht::axes<0>);
    right_in_every_schedule(ht::shape<2>{16, 75}, ht::axes<1>);
}
TEST_CASE("axis_reduction on a GPU: sums along rows in every schedule, and every damage is found") {
    support::random data(5);
    const ht::shape<3> s{3, 75, 1};
    const guarded<bfloat16> x(data.integers<bfloat16>(s.size(), 50), 0);
    std::vector<double> want(static_cast<std::size_t>(s.size()));
    ht::reference::running_sum(x.const_view(s), false, ht::view<double, 3>(want.data(), s));
    const guarded<float> y(s.size());
    emulator::check_kernels([&](emulator::device& device) {
        kernel::accumulate(device, ht::kernel::running_sum<bfloat16, float>{x.data(), s, y.data()});
        bool right = true;
        for (extent i = 0; i < s.size(); ++i)
            right = right && static_cast<double>(y[i]) == want[static_cast<std::size_t>(i)];
        return right;
    });
}

}  // namespace emulator_kernel_axis_reduction_tests
