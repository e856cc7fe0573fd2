// SPDX-License-Identifier: MIT
/// \file
/// Matrix products on a GPU: the tests of tests/kernel.
// compile: at most 120 kernels.
#include <doctest/doctest.h>

#include "cuda/device.cuh"
#include "kernel/matmul/epilogue_checks.hpp"

#if defined(HALFTONE_TEST_CUBLASLT)
#include <halftone/exec/cuda/cublaslt.cuh>
#endif

namespace {

using device_type = support::waiting_cuda;

namespace matmul {
using namespace matmul_test;

template <class P, class A, class B, class C>
void multiply_all() {
    device_type device;
    for (const sizes& s : {sizes{1, 1, 1}, sizes{33, 65, 37}, sizes{100, 72, 200}, sizes{130, 129, 97},
                           sizes{64, 256, 64}, sizes{300, 333, 515}}) {
        const std::vector<double> want = exact_product(s);
        for (std::size_t a = 0; a < 4; ++a) {
            for (std::size_t b = 0; b < 4; ++b) {
                CAPTURE(a);
                CAPTURE(b);
                const layout of_a = aligned(layouts[a], s.rows, s.depth),
                             of_b = aligned(layouts[b], s.depth, s.columns);
                multiply_exactly<P, A, B, C>(device, s, want, layouts[a], layouts[b], layouts[a < 2 ? 0 : 2]);
                multiply_exactly<P, A, B, C>(device, s, want, of_a, of_b,
                                             aligned(layouts[a < 2 ? 0 : 2], s.rows, s.columns));
                multiply_exactly<P, A, B, C>(device, s, want, of_a, layouts[b], layouts[0]);
            }
        }
    }
    const sizes many{12200, 9, 97};
    multiply_exactly<P, A, B, C>(device, many, exact_product(many), layouts[0], layouts[0], layouts[0]);
}

TEST_CASE("matmul on cuda: exact on small integers") {
    SUBCASE("fp32") { multiply_all<ht::full_fp32, float, float, float>(); }
    SUBCASE("bf16") { multiply_all<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(); }
    SUBCASE("fp16, into fp32") { multiply_all<ht::amp_fp16, float16, float16, float>(); }
    SUBCASE("tf32") { multiply_all<ht::tf32, float, float, float>(); }
    SUBCASE("bf16 and fp32 operands") { multiply_all<ht::amp_bf16, bfloat16, float, float>(); }
}

TEST_CASE("matmul on cuda: unaligned operands have the bits of aligned ones, by a copy first where that pays") {
    device_type device;
    const extent many = device.architecture().multiprocessors;
    const extent side = many > 32 ? 2048 : 520;
    const sizes s{side + 1, many * (1 << 23) / (side * side) + 1, side};
    REQUIRE(ht::kernel::on_device::pays_to_align(device.architecture(), s.rows, s.columns, s.depth,
                                                 (s.rows + s.columns) * s.depth));
    unaligned_as_aligned<ht::amp_bf16, bfloat16>(device, s);
    unaligned_as_aligned<ht::tf32, float>(device, s);
    const sizes too_few{33, 65, 37};
    unaligned_as_aligned<ht::amp_bf16, bfloat16>(device, too_few);
}

TEST_CASE("matmul on cuda: parts of k") {
    const sizes s{40, 5001, 72};
    const std::vector<double> want = exact_product(s);
    device_type device;
    REQUIRE(ht::kernel::on_device::cut_matmul(device.architecture(), s.rows, s.columns, s.depth).parts > 1);
    for (std::size_t a = 0; a < 4; ++a) {
        const layout of_a = aligned(layouts[a], s.rows, s.depth), of_b = aligned(layouts[a ^ 1], s.depth, s.columns);
        multiply_exactly<ht::full_fp32, float, float, float>(device, s, want, layouts[a], layouts[a ^ 1], layouts[2]);
        multiply_exactly<ht::amp_bf16, bfloat16, bfloat16, float>(device, s, want, of_a, of_b, layouts[0]);
        multiply_exactly<ht::tf32, float, float, float>(device, s, want, of_a, of_b, layouts[0]);
    }
}

TEST_CASE("matmul on cuda: nothing to sum, nothing at all, a batch") {
    device_type device;
    nothing_to_sum(device);
    each_matrix_of_a_batch(device);
    infinities_and_nans(device);
}

template <class P, class A, class B, class C>
void random_within_bounds(const sizes& s) {
    device_type device;
    const auto run = [&](const auto& test) { test(device); };
    const double roundoff = std::is_same_v<typename P::compute, float> ? support::u : matrix_unit_roundoff;
    within_bounds<P, A, B, C>(s, layouts[2], layouts[3], run, roundoff);
    within_bounds<P, A, B, C>(s, aligned(layouts[1], s.rows, s.depth), aligned(layouts[0], s.depth, s.columns), run,
                              roundoff);
}

TEST_CASE("matmul on cuda: random products within k u of their magnitudes") {
    SUBCASE("fp32") { random_within_bounds<ht::full_fp32, float, float, float>({31, 700, 65}); }
    SUBCASE("bf16") { random_within_bounds<ht::amp_bf16, bfloat16, bfloat16, bfloat16>({31, 700, 65}); }
    SUBCASE("bf16 into fp32") { random_within_bounds<ht::amp_bf16, bfloat16, bfloat16, float>({170, 300, 330}); }
    SUBCASE("tf32") { random_within_bounds<ht::tf32, float, float, float>({170, 3000, 330}); }
    SUBCASE("fp32 operands rounded to fp16") {
        random_within_bounds<ht::amp_fp16, float, float, float16>({17, 300, 33});
    }
    SUBCASE("fp16 operands rounded to bf16") {
        random_within_bounds<ht::amp_bf16, float16, bfloat16, float>({17, 300, 33});
    }
}

TEST_CASE("matmul on cuda: epilogues within their bounds, on matrix units") {
    device_type device;
    const auto run = [&](const auto& test) { test(device); };
    SUBCASE("aligned") {
        every_epilogue<ht::amp_bf16, bfloat16, float, errors_in_float>({136, 128, 200}, layouts[0], run,
                                                                       matrix_unit_roundoff);
    }
    SUBCASE("odd") {
        every_epilogue<ht::amp_bf16, bfloat16, float, errors_in_float>({35, 37, 67}, layouts[2], run,
                                                                       matrix_unit_roundoff);
    }
    SUBCASE("parts of k") {
        every_epilogue<ht::amp_bf16, bfloat16, float, errors_in_float>({24, 2100, 40}, layouts[2], run,
                                                                       matrix_unit_roundoff);
    }
}

#if defined(HALFTONE_TEST_CUBLASLT)
/// cuBLASLt multiplies whatever it can. What it was given is done when it returns.
class cublaslt_device : public device_type {
  public:
    cublaslt_device()
        : device_type(ht::cuda_options{.engine = ht::cublaslt{}, .engine_is_used = ht::engine_use::always}) {}

    ht::matmul_engine* engine_for(const ht::product_description& p) {
        waiting_.real = ht::cuda::engine_for(p);
        return waiting_.real == nullptr ? nullptr : &waiting_;
    }
    int products() const { return waiting_.products; }

  private:
    struct waiting_engine final : ht::matmul_engine {
        cublaslt_device& device;
        ht::matmul_engine* real = nullptr;
        int products = 0;

        explicit waiting_engine(cublaslt_device& d) : device(d) {}
        const char* name() const override { return real->name(); }
        bool can(const ht::product_description& p) override { return real->can(p); }
        bool prefers(const ht::product_description& p) const override { return real->prefers(p); }
        std::size_t workspace_bytes(const ht::product_description& p) override { return real->workspace_bytes(p); }
        void multiply(const ht::product_description& p, ht::workspace& scratch) override {
            real->multiply(p, scratch);
            device.synchronize();
            ++products;
        }
    };
    waiting_engine waiting_{*this};
};
static_assert(ht::kernel::on_device::engine_holder<cublaslt_device>);

TEST_CASE("matmul by cublaslt: a table of measured products decides, and belongs to one architecture") {
    const int here = ht::cuda().architecture().version;
    const auto is_asked = [&](double ratio) {
        ht::cuda device{{.engine = ht::cublaslt{
                             .table = {"measured",
                                       here,
                                       {{ht::element_type::bfloat16, ht::product_end::result, ht::matrix_order::rows,
                                         ht::matrix_order::rows, 128, 128, 128, ratio}}}}}};
        const ht::tensor<ht::bfloat16, 1> a(device.memory(), {256 * 256}), b(device.memory(), {256 * 256}),
            c(device.memory(), {256 * 256});
        return device.engine_for({.m = 256, .n = 256, .k = 256, .a = a.data(), .b = b.data(), .a_leading = 256, .b_leading = 256,
                                  .a_order = ht::matrix_order::rows, .b_order = ht::matrix_order::rows, .operands = ht::element_type::bfloat16, .c = c.data(),
                                  .c_leading = 256, .result = ht::element_type::bfloat16, .beta = 0, .end = ht::product_end::result}) != nullptr;
    };
    CHECK(is_asked(1.5));
    CHECK(!is_asked(0.5));
    const ht::matmul_table other{"other",
                                 here + 1,
                                 {{ht::element_type::bfloat16, ht::product_end::result, ht::matrix_order::rows,
                                   ht::matrix_order::rows, 1, 1, 1, 2}}};
    CHECK_THROWS_AS(ht::cuda({.engine = ht::cublaslt{.table = other}}), ht::argument_error);
}

TEST_CASE("matmul by cublaslt: exact on small integers, random products within bounds") {
    cublaslt_device device;
    const auto run = [&](const auto& test) { test(device); };
    for (const sizes& s : {sizes{64, 72, 200}, sizes{136, 256, 64}}) {
        const std::vector<double> want = exact_product(s);
        for (std::size_t a = 0; a < 4; ++a) {
            const layout of_a = aligned(layouts[a], s.rows, s.depth),
                         of_b = aligned(layouts[a ^ 1], s.depth, s.columns);
            multiply_exactly<ht::full_fp32, float, float, float>(device, s, want, of_a, of_b, layouts[0]);
            multiply_exactly<ht::tf32, float, float, float>(device, s, want, of_a, of_b, layouts[0]);
            multiply_exactly<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(device, s, want, of_a, of_b, layouts[0]);
            multiply_exactly<ht::amp_fp16, float16, float16, float>(device, s, want, of_a, of_b, layouts[0]);
        }
    }
    CHECK(device.products() > 0);
    within_bounds<ht::full_fp32, float, float, float>({64, 712, 72}, layouts[0], layouts[1], run);
    within_bounds<ht::amp_bf16, bfloat16, bfloat16, bfloat16>({64, 712, 72}, layouts[0], layouts[1], run,
                                                              matrix_unit_roundoff);
    // Either operand may be cut, by a step of tfloat32, or kept.
    within_bounds<ht::tf32, float, float, float>({64, 712, 72}, layouts[0], layouts[1], run, matrix_unit_roundoff,
                                                 4.01 * ht::unit_roundoff<ht::tfloat32>);
}

/// A product of eight bits, in every pair of layouts: c = p q ab, and c += p q ab where it is of floats.
template <class A, class C>
void multiply_bytes(cublaslt_device& device, const sizes& s) {
    using ht::float8_e4m3;
    namespace on_device = ht::kernel::on_device;
    std::vector<double> want = exact_product(s);
    for (double& w : want) w *= 0.5;
    const operand<float> p(1, 1, layouts[0], [](extent, extent) { return 0.25f; }),
        q(1, 1, layouts[0], [](extent, extent) { return 2.0f; });
    for (std::size_t i = 0; i < 4; ++i) {
        CAPTURE(i);
        const layout of_a{layouts[i % 2].contiguous, 0, 0}, of_b{layouts[i / 2].contiguous, 0, 0};
        const operand<A> a(s.rows, s.depth, of_a, small_integers{1});
        const operand<float8_e4m3> b(s.depth, s.columns, of_b, small_integers{2});
        const operand<C> c(s.rows, s.columns, layouts[0]);
        const auto run = [&](const auto& epilogue) {
            const int before = device.products();
            CHECK(on_device::multiply_by_engine<bfloat16>(device, on_device::make_operand(a.view),
                                                          on_device::make_operand(ht::transpose(b.view)), epilogue,
                                                          on_device::access_to(epilogue)));
            device.synchronize();
            CHECK(device.products() == before + 1);
        };
        run(ht::epilogue_of(ht::of_scaled{ht::plain{}, p.view.data(), q.view.data()}, c.view));
        CHECK(holds(c, s, want));
        if constexpr (std::is_same_v<C, float>) {
            run(ht::epilogue_of(ht::of_scaled{ht::add_product{}, p.view.data(), q.view.data()}, c.view));
            std::vector<double> twice = want;
            for (double& w : twice) w *= 2;
            CHECK(holds(c, s, twice));
        } else {
            // By a kernel of halftone, which then applies the factors.
            const operand<float> d(s.rows, s.columns, layouts[0]),
                residual(s.rows, s.columns, layouts[0], small_integers{3});
            run(ht::epilogue_of(ht::of_scaled{ht::then{[](auto sum, auto r) { return sum + r; }, residual.view},
                                              p.view.data(), q.view.data()},
                                d.view));
            std::vector<double> with_residual = want;
            for (extent i = 0; i < s.rows; ++i)
                for (extent j = 0; j < s.columns; ++j)
                    with_residual[static_cast<std::size_t>(i * s.columns + j)] += static_cast<double>(residual.view(i, j));
            CHECK(holds(d, s, with_residual));
        }
    }
}

TEST_CASE("matmul by cublaslt: eight bits with factors, exact on small integers, where the GPU multiplies them") {
    cublaslt_device device;
    const int version = device.architecture().version;
    if (version < 89) {
        MESSAGE("sm_", version, " has no matrix units for eight bits");
        return;
    }
    for (const sizes& s : {sizes{64, 96, 160}, sizes{256, 512, 128}}) {
        multiply_bytes<ht::float8_e4m3, bfloat16>(device, s);
        multiply_bytes<ht::float8_e5m2, float>(device, s);
    }
}

TEST_CASE("matmul by cublaslt: epilogues within their bounds") {
    cublaslt_device device;
    const auto run = [&](const auto& test) { test(device); };
    SUBCASE("bf16") {
        every_epilogue<ht::amp_bf16, bfloat16, float, errors_in_float>({136, 128, 200}, layouts[0], run,
                                                                       matrix_unit_roundoff);
    }
    SUBCASE("fp32") { every_epilogue<ht::full_fp32, float, float, errors_in_float>({72, 128, 200}, layouts[0], run); }
    CHECK(device.products() == 1);
}
#endif
}  // namespace matmul

}  // namespace
