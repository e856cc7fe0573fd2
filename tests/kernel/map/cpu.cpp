// SPDX-License-Identifier: MIT
/// \file
/// Maps and their gradients on every instruction set, against the definition, within computed bounds.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/map/cpu.hpp>

#include "kernel/map/checks.hpp"
#include "support/each_set.hpp"

namespace kernel_map_cpu_tests {

using namespace map_checks;

/// Calls test(device with one thread, device with two) for every instruction set.
template <class Test>
void on_every_set(const Test& test) {
    support::for_each_set([&](ht::isa set) {
        ht::cpu single{{.threads = 1, .instruction_set = set}}, both{{.threads = 2, .instruction_set = set}};
        test(single, both);
    });
}

/// Sizes around vectors, primes, and more than one piece.
const extent sizes[] = {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 1009, 70001};

template <class X, class Y, class T>
void check_types() {
    on_every_set([](ht::cpu& single, ht::cpu& both) {
        for (const extent size : sizes) types_within_bounds<X, Y, T>(single, both, size, size, 1);
    });
}

TEST_CASE("map: functions") {
    on_every_set([](ht::cpu& device, ht::cpu&) {
        functions_within_bounds(device);
        short_forms_within_bounds<ht::bfloat16>(device);
        short_forms_within_bounds<ht::float16>(device);
        functions_of_cmath(device);
    });
}

TEST_CASE("map: types, sizes, tails, threads") {
    check_types<float, float, float>();
    check_types<ht::bfloat16, ht::bfloat16, ht::bfloat16>();
    check_types<ht::float16, float, ht::float16>();
    check_types<float, ht::bfloat16, float>();
}

TEST_CASE("map: comparisons, min, max and relu treat NaN and zeros as the definition does") {
    on_every_set([](ht::cpu& device, ht::cpu&) { nan_and_zeros(device); });
}

TEST_CASE("map: rows with a stride, columns, scalars") {
    on_every_set([](ht::cpu&, ht::cpu& device) {
        rows_columns_scalars(device);
        long_rows(device);  // rows of several pieces
    });
}

TEST_CASE("map: opaque functors, constants, tensors, several results") {
    on_every_set([](ht::cpu& device, ht::cpu&) { functors_constants_tensors(device); });
}

TEST_CASE("map: shapes that do not fit") {
    ht::cpu device{{.threads = 1}};
    refuses(device);
}

TEST_CASE("map: gradients of elements, columns and scalars in one pass") {
    on_every_set([](ht::cpu& single, ht::cpu& both) {
        for (const ht::shape<2>& shape : {ht::shape<2>{1, 1}, {5, 17}, {113, 31}, {700, 67}, {3, 40009}})
            gradients_within_bounds(single, both, shape);
    });
}

TEST_CASE("map: the definition's gradient is the derivative of its sum") {
    const extent rows = 3, columns = 2;
    support::random data{7};
    std::vector<double> x = {0.5, -1.5, 2.5, 0.25, -0.75, 1.0}, b = {0.3, -0.2}, s = {1.25},
                        dz = {1, 2, 3, -1, -2, 0.5};
    const ht::shape<2> shape{rows, columns};
    const auto e = ht::make_pack(ht::trace<3>([](auto p, auto q, auto r) { return ht::tanh(p * r) * q; }));
    const auto inputs = ht::make_pack(ht::view<double, 2>(x.data(), shape), ht::view<double, 1>(b.data(), {columns}),
                                      ht::view<double, 0>(s.data(), {}));
    const auto outputs = ht::make_pack(ht::view<double, 2>(dz.data(), shape));
    const auto loss = [&] {
        std::vector<double> z(dz.size());
        ht::reference::map(e, ht::make_pack(ht::view<double, 2>(z.data(), shape)), inputs);
        double total = 0;
        for (std::size_t i = 0; i < z.size(); ++i) total += z[i] * dz[i];
        return total;
    };
    const auto check = [&](std::vector<double>& input, const std::vector<double>& gradient) {
        REQUIRE(gradient.size() == input.size());
        for (std::size_t i = 0; i < input.size(); ++i) {
            const double at = input[i], h = 1e-5;
            input[i] = at + h;
            const double above = loss();
            input[i] = at - h;
            const double below = loss();
            input[i] = at;
            CHECK(gradient[i] == doctest::Approx((above - below) / (2 * h)).epsilon(1e-8));
        }
    };
    check(x, ht::reference::map_gradient<0>(e, outputs, inputs));
    check(b, ht::reference::map_gradient<1>(e, outputs, inputs));
    check(s, ht::reference::map_gradient<2>(e, outputs, inputs));
}

TEST_CASE("map: gradients that are absent, dropped or share memory; inputs that are not read; several results") {
    on_every_set([](ht::cpu& device, ht::cpu&) {
        absent_gradients(device);
        bias_gradient(device);
        gradients_in_one_place(device);
    });
}

TEST_CASE("map: repeated calls allocate nothing") {
    ht::cpu device{{.threads = 2}};
    steady_step_allocates_nothing(device);
}

}  // namespace kernel_map_cpu_tests
