// SPDX-License-Identifier: MIT
/// \file
/// The kernels of products on a GPU are those that their plan names: of many shapes, types, layouts, distances and architectures,
/// launched on a device that runs none.
#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include <halftone/exec/measure.hpp>
#include <halftone/kernel/matmul/device.hpp>
#include <halftone/number.hpp>

#include "kernel/matmul/device_choices.hpp"
#include "kernel/matmul/launch_writer.hpp"
#include "support/random.hpp"
#include "support/recording_device.hpp"

namespace emulator_kernel_matmul_plan_tests {

namespace ht = halftone;
namespace simt = ht::simt;
using namespace ht::kernel::on_device;
using ht::extent;

/// A matrix at an address where no memory is, row-major or stored transposed, with `gap` elements between its lines.
template <class T>
ht::view<T, 2> matrix_at(std::uintptr_t address, extent rows, extent columns, bool transposed, extent gap) {
    T* const data = reinterpret_cast<T*>(address);
    return transposed ? ht::view<T, 2>(data, {rows, columns}, {1, rows + gap})
                      : ht::view<T, 2>(data, {rows, columns}, {columns + gap, 1});
}

struct place {
    bool transposed_a, transposed_b;
    extent gap_a, gap_b, gap_c, offset_c;
};

/// Multiplies, and compares what was launched with the plan of the same operands.
template <class Compute, class A, class B, class C>
void launches_its_plan(const simt::architecture& gpu, bool with_special_code, extent m, extent n, extent k,
                       extent matrices, const place& at) {
    using namespace ht::kernel;
    std::string launched;
    support::recording_device device{gpu, with_special_code, matmul_test::launch_writer{&launched, ht::eight_bit<A>}};
    using device_type = decltype(device);
    const auto a = matrix_at<const A>(std::uintptr_t{1} << 40, m, k, at.transposed_a, at.gap_a);
    const auto b = matrix_at<const B>(std::uintptr_t{1} << 44, k, n, at.transposed_b, at.gap_b);
    const auto c = matrix_at<C>((std::uintptr_t{1} << 45) + static_cast<std::uintptr_t>(at.offset_c) * sizeof(C), m, n,
                                false, at.gap_c);
    const auto end = ht::epilogue_of(ht::plain{}, c);
    const auto x = make_operand(a);
    const auto y = make_operand(ht::transpose(b));
    matmul_problem p;
    if (matrices == 1) {
        matmul<device_type>::template run<Compute>(device, a, b, end);
        // The device's twin takes the same plan, and so the same scratch memory.
        const auto call = [&]<class D>(D& d) { matmul<D>::template run<Compute>(d, a, b, end); };
        CHECK(ht::workspace_bytes(device, call) == device.scratch().peak());
        p = describe_product<Compute>(device, x, y, end, one_matrix{});
    } else {
        const extent apart = extent{1} << 30;  // aligned, as the first matrix may be
        const ht::view<const A, 3> all_a(a.data(), {matrices, m, k}, {apart, a.stride_of(0), a.stride_of(1)});
        const ht::view<const B, 3> all_b(b.data(), {matrices, k, n}, {apart, b.stride_of(0), b.stride_of(1)});
        p = describe_product<Compute>(device, x, y, end, matrix_batch{matrices, apart, apart, apart});
        if (planning::copies_rows(p)) return;  // matrices are multiplied one by one then
        matmul<device_type>::template run_each<Compute>(device, all_a, all_b, matrices, end, apart);
    }
    INFO(m, " x ", n, " x ", k, " sm_", gpu.version, (at.transposed_a ? " t" : " n"), (at.transposed_b ? "t " : "n "),
         at.gap_a, " ", at.gap_b, " ", at.gap_c, " ", at.offset_c);
    CHECK(launched == matmul_test::choice_of(p));
}

template <class Compute, class A, class B, class C>
void launch_plans() {
    support::random data{7};
    const auto one_of = [&data](const auto& all) { return all[data.below(static_cast<int>(std::size(all)))]; };
    const extent sizes[] = {1, 9, 64, 200, 768, 1000, 2047, 2304, 4096, 8192}, gaps[] = {0, 0, 0, 1, 4, 8};
    const int versions[] = {80, 86, 89, 90, 90, 90, 100, 120};
    for (int i = 0; i < 1500; ++i) {
        simt::architecture gpu = simt::architecture_of(one_of(versions));
        if (data.below(4) == 0) gpu.multiprocessors = 1 + data.below(16);
        gpu.batch_invariant = data.below(8) == 0;
        const place at{data.below(2) == 0, data.below(2) == 0, one_of(gaps), one_of(gaps), one_of(gaps), one_of(gaps)};
        const extent m = one_of(sizes), n = one_of(sizes), k = data.below(30) == 0 ? 0 : one_of(sizes);
        launches_its_plan<Compute, A, B, C>(gpu, data.below(8) != 0, m, n, k, data.below(6) == 0 ? 3 : 1, at);
    }
}

TEST_CASE("matmul on a GPU launches what its plan says") {
    using ht::bfloat16, ht::float8_e4m3, ht::float8_e5m2;
    SUBCASE("bf16") { launch_plans<bfloat16, bfloat16, bfloat16, bfloat16>(); }
    SUBCASE("fp16, into fp32") { launch_plans<ht::float16, ht::float16, ht::float16, float>(); }
    SUBCASE("bf16, into 8 bits") { launch_plans<bfloat16, bfloat16, bfloat16, float8_e4m3>(); }
    SUBCASE("8 bits") { launch_plans<bfloat16, float8_e5m2, float8_e4m3, bfloat16>(); }
    SUBCASE("8 bits in tf32") { launch_plans<ht::tfloat32, float8_e4m3, float8_e4m3, float>(); }
    SUBCASE("bf16 and fp32 operands") { launch_plans<bfloat16, bfloat16, float, float>(); }
    SUBCASE("tf32") { launch_plans<ht::tfloat32, float, float, float>(); }
    SUBCASE("fp32") { launch_plans<float, float, float, float>(); }
}

/// What a plan looks at (kernel/matmul/device/plan.hpp), without the device.
std::string words_of(const matmul_problem& p) {
    std::string text;
    for (const extent n : {p.m, p.n, p.k, p.matrices, extent{p.c.bytes}, extent{p.c.fits_bulk},
                           extent{p.c.has_odd_rows}, extent{p.c.offset}})
        text += std::to_string(n) + " ";
    for (const int n : {static_cast<int>(p.arithmetic), static_cast<int>(p.elements), static_cast<int>(p.a.axis),
                        static_cast<int>(p.a.access), static_cast<int>(p.b.axis), static_cast<int>(p.b.access)})
        text += std::to_string(n) + " ";
    return text;
}
/// The problem of views is that of the same shape, types and layout without views.
template <class Compute, class A, class C>
void describes_views(const matmul_types& types) {
    support::random data{3};
    const extent sizes[] = {1, 1, 2, 7, 8, 64, 100, 768, 1003}, gaps[] = {0, 0, 1, 8};
    const auto one_of = [&data](const auto& all) { return all[data.below(static_cast<int>(std::size(all)))]; };
    const auto nothing = [](const auto&) {};
    support::recording_device device{simt::architecture_of(90), true, nothing};
    for (int i = 0; i < 2000; ++i) {
        const extent m = one_of(sizes), n = one_of(sizes), k = data.below(20) == 0 ? 0 : one_of(sizes);
        const bool ta = data.below(2) == 0, tb = data.below(2) == 0;
        const extent gap_a = one_of(gaps), gap_b = one_of(gaps), gap_c = one_of(gaps);
        const auto a = matrix_at<const A>(std::uintptr_t{1} << 40, m, k, ta, gap_a);
        const auto b = matrix_at<const A>(std::uintptr_t{1} << 44, k, n, tb, gap_b);
        const auto c = matrix_at<C>(std::uintptr_t{1} << 45, m, n, false, gap_c);
        const matmul_problem of_views = describe_product<Compute>(
            device, make_operand(a), make_operand(ht::transpose(b)), ht::epilogue_of(ht::plain{}, c), one_matrix{});
        const product_layout layout{ta, tb, (ta ? m : k) + gap_a, (tb ? k : n) + gap_b, n + gap_c};
        const simt::target on = *simt::target_named("sm_90a");
        INFO(m, " x ", n, " x ", k, ta ? " t" : " n", tb ? "t " : "n ", gap_a, " ", gap_b, " ", gap_c);
        CHECK(words_of(dense_problem(m, n, k, types, on, layout)) == words_of(of_views));
        if (gap_a + gap_b + gap_c == 0)
            CHECK(words_of(dense_problem(m, n, k, types, on, {ta, tb})) == words_of(of_views));
    }
}

TEST_CASE("a product without views is described as that of views") {
    using ht::bfloat16, ht::float16, ht::float8_e4m3;
    describes_views<bfloat16, bfloat16, bfloat16>(named_types[0]);
    describes_views<float16, float16, float16>(named_types[1]);
    describes_views<ht::tfloat32, float, float>(named_types[2]);
    describes_views<float, float, float>(named_types[3]);
    describes_views<bfloat16, float8_e4m3, bfloat16>(named_types[4]);
}

}  // namespace emulator_kernel_matmul_plan_tests
