// SPDX-License-Identifier: MIT
/// \file
/// Maps and their gradients on the emulated GPU.
#include <vector>

#include <emulator/damage.hpp>

#include <halftone/kernel/map/device.hpp>

#include "kernel/map/checks.hpp"

namespace emulator_kernel_map_tests {

using namespace map_checks;
namespace emulator = ht::emulator;
using map = ht::kernel::map<emulator::device>;

TEST_CASE("map on a GPU: functions") {
    emulator::device device;
    functions_within_bounds(device);
    short_forms_within_bounds<ht::bfloat16>(device);
    short_forms_within_bounds<ht::float16>(device);
    functions_of_cmath(device);
}

template <class X, class Y, class T>
void check_types() {
    emulator::device one{{.seed = 1}}, other{{.seed = 1000, .resident_blocks = 7}};
    for (const extent size : {1, 3, 4, 7, 8, 9, 31, 1009, 4096}) {
        types_within_bounds<X, Y, T>(one, other, size, 0, 0);  // the second result is at an address that is not aligned for vectors
        types_within_bounds<X, Y, T>(one, other, size, 1, 0);
        types_within_bounds<X, Y, T>(one, other, size, 3, 1);
    }
}

TEST_CASE("map on a GPU: types, sizes, tails, schedules") {
    check_types<float, float, float>();
    check_types<ht::bfloat16, ht::bfloat16, ht::bfloat16>();
    check_types<ht::float16, float, ht::float16>();
    check_types<float, ht::bfloat16, float>();
}

TEST_CASE("map on a GPU: NaN and zeros, rows, columns, scalars, functors, wrong arguments") {
    emulator::device device;
    nan_and_zeros(device);
    rows_columns_scalars(device);
    long_rows(device);
    functors_constants_tensors(device);
    refuses(device);
}

TEST_CASE("map on a GPU: rows with a stride, in vectors if aligned") {
    const extent rows = 37, columns = 64;
    support::random data{3};
    for (const extent pitch : {72, 71}) {
        const guarded<ht::bfloat16> x(data.integers<ht::bfloat16>(rows * pitch, 100), 0),
            column(data.integers<ht::bfloat16>(columns, 100), 0);
        for (const extent offset : {0, 1}) {
            emulator::device device;
            const guarded<float> out(rows * pitch, offset);
            ht::map(
                device, [](auto a, auto b) { return a * b; },
                ht::view<ht::bfloat16, 2>(x.data(), {rows, columns}, {pitch, 1}), column.view(),
                ht::view<float, 2>(out.data(), {rows, columns}, {pitch, 1}));
            // Threads of eight elements, or of one.
            CHECK(device.count().blocks == (offset == 0 && pitch % 8 == 0 ? 2 : 10));
            extent wrong = 0;
            for (extent i = 0; i < rows; ++i) {
                for (extent j = 0; j < pitch; ++j) {
                    const float got = out[i * pitch + j];
                    wrong += j < columns ? got != wide(x[i * pitch + j]) * wide(column[j]) : !std::isnan(got);
                }
            }
            CHECK(wrong == 0);
            CHECK(out.intact());
        }
    }
}

TEST_CASE("map on a GPU: gradients of elements, columns and scalars in one pass") {
    emulator::device one{{.seed = 1}}, other{{.seed = 1000, .resident_blocks = 7}};
    for (const ht::shape<2>& shape : {ht::shape<2>{1, 1}, {5, 17}, {113, 31}, {700, 8}, {40, 264}, {3, 4009}}) {
        gradients_within_bounds(one, other, shape, 0);
        gradients_within_bounds(one, other, shape, 1);
    }
}

TEST_CASE("map on a GPU: scalars of flat inputs, over more vectors than threads") {
    emulator::device device;
    const extent size = 1024 * 128 * 4 + 4 * 777;
    support::random data{11};
    const guarded<float> x(data.integers<float>(size, 3), 0), dy(data.integers<float>(size, 3), 0), ds(1);
    const guarded<float> s(1);
    s[0] = 1;
    map::backward(
        device, ht::make_pack(ht::trace<2>([](auto a, auto b) { return a * b; })), ht::make_pack(dy.const_view()),
        ht::make_pack(x.const_view(), s.const_view(ht::shape<0>{})),
        ht::make_pack(ht::kernel::no_gradient{}, ht::kernel::gradient{ds.view(ht::shape<0>{}), write_mode::overwrite}));
    float total = 0;
    for (extent i = 0; i < size; ++i) total += x[i] * dy[i];
    CHECK(ds[0] == total);
    CHECK(device.count().blocks == 1025);
}

TEST_CASE("map on a GPU: absent gradients, one input twice, no rows, no allocation") {
    emulator::device device;
    absent_gradients(device);
    bias_gradient(device);
    steady_step_allocates_nothing(device);

    // x + x: the second gradient adds to the first, in the order of the inputs.
    const guarded<float> dy(std::vector<float>(77, 3.0f)), dx(77);
    map::backward(device, ht::make_pack(ht::trace<2>([](auto a, auto b) { return a + b; })),
                  ht::make_pack(dy.const_view()), ht::make_pack(dy.const_view(), dy.const_view()),
                  ht::make_pack(ht::kernel::gradient{dx.view(), write_mode::overwrite},
                                ht::kernel::gradient{dx.view(), write_mode::add}));
    for (extent i = 0; i < 77; ++i) CHECK(dx[i] == 6);

    // Sums over nothing are zero.
    const guarded<float> column(5), one(1);
    const ht::view<const float, 2> none(nullptr, {0, 5});
    map::backward(device, ht::make_pack(ht::trace<3>([](auto a, auto b, auto c) { return a * b * c; })),
                  ht::make_pack(none), ht::make_pack(none, column.const_view(), one.const_view(ht::shape<0>{})),
                  ht::make_pack(ht::kernel::no_gradient{}, ht::kernel::gradient{column.view(), write_mode::overwrite},
                                ht::kernel::gradient{one.view(ht::shape<0>{}), write_mode::overwrite}));
    for (extent j = 0; j < 5; ++j) CHECK(column[j] == 0);
    CHECK(one[0] == 0);
}

TEST_CASE("map on a GPU: any schedule gives the same bits, and every damage is found") {
    // Two sums of all elements and one by columns; all sums are different, and exact.
    const extent rows = 70, columns = 24;
    const ht::shape<2> shape{rows, columns};
    support::random data{13};
    const guarded<float> x(data.integers<float>(rows * columns, 9), 0), dy(data.integers<float>(rows * columns, 9), 0),
        b(data.integers<float>(columns, 9), 0);
    const guarded<float> s(std::vector<float>{2}), t(std::vector<float>{3});
    float of_s = 0, of_t = 0;
    std::vector<float> of_b(static_cast<std::size_t>(columns));
    for (extent i = 0; i < rows * columns; ++i) {
        of_s += dy[i] * x[i];
        of_t += dy[i] * b[i % columns];
        of_b[static_cast<std::size_t>(i % columns)] += dy[i] * t[0];
    }
    emulator::check_kernels([&](emulator::device& device) {
        const guarded<float> dx(rows * columns, 0), db(columns), ds(1), dt(1);
        map::backward(device, ht::make_pack(ht::trace<4>([](auto p, auto q, auto r, auto v) { return p * r + q * v; })),
                      ht::make_pack(dy.const_view(shape)),
                      ht::make_pack(x.const_view(shape), b.const_view(), s.const_view(ht::shape<0>{}),
                                    t.const_view(ht::shape<0>{})),
                      ht::make_pack(ht::kernel::gradient{dx.view(shape), write_mode::overwrite},
                                    ht::kernel::gradient{db.view(), write_mode::overwrite},
                                    ht::kernel::gradient{ds.view(ht::shape<0>{}), write_mode::overwrite},
                                    ht::kernel::gradient{dt.view(ht::shape<0>{}), write_mode::overwrite}));
        bool right = ds[0] == of_s && dt[0] == of_t;
        for (extent i = 0; i < rows * columns; ++i) right = right && dx[i] == dy[i] * s[0];
        for (extent j = 0; j < columns; ++j) right = right && db[j] == of_b[static_cast<std::size_t>(j)];
        return right && dx.intact() && db.intact();
    });
}

}  // namespace emulator_kernel_map_tests
