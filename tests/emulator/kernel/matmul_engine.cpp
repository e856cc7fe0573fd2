// SPDX-License-Identifier: MIT
/// \file
/// Products on an emulated device with an engine: the arguments of the engine, and the use of its sums.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/matmul/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/matmul/epilogue_checks.hpp"

namespace emulator_kernel_matmul_engine_tests {

using namespace matmul_test;
namespace emulator = ht::emulator;
namespace on_device = ht::kernel::on_device;

double load(ht::element_type type, const void* from, extent i) {
    if (type == ht::element_type::float32) return number(static_cast<const float*>(from)[i]);
    if (type == ht::element_type::tfloat32) return number(ht::tfloat32(static_cast<const float*>(from)[i]));
    if (type == ht::element_type::bfloat16) return number(static_cast<const bfloat16*>(from)[i]);
    if (type == ht::element_type::float8_e4m3) return number(static_cast<const ht::float8_e4m3*>(from)[i]);
    if (type == ht::element_type::float8_e5m2) return number(static_cast<const ht::float8_e5m2*>(from)[i]);
    return number(static_cast<const float16*>(from)[i]);
}
void store(ht::element_type type, void* to, extent i, double value) {
    const auto rounded = static_cast<float>(value);
    if (type == ht::element_type::float32) static_cast<float*>(to)[i] = rounded;
    if (type == ht::element_type::bfloat16) static_cast<bfloat16*>(to)[i] = bfloat16(rounded);
    if (type == ht::element_type::float16) static_cast<float16*>(to)[i] = float16(rounded);
}

/// An engine that multiplies by the definition.
struct definition_engine : ht::matmul_engine {
    emulator::closed_memory& memory;
    std::vector<ht::product_description> done{};
    extent most_rows = 1 << 20;
    bool reads_along_depth_alone = false;  // of eight bits only operands that are contiguous along depth, as on most GPUs

    explicit definition_engine(emulator::closed_memory& m) : memory(m) {}
    const char* name() const override { return "definition"; }
    bool can(const ht::product_description& p) override {
        const bool is_along_depth = p.a_order == ht::matrix_order::rows && p.b_order == ht::matrix_order::columns &&
                                    p.k % 16 == 0 && p.a_leading % 16 == 0 && p.b_leading % 16 == 0;
        return p.m <= most_rows && (is_along_depth || !(reads_along_depth_alone && ht::is_eight_bit(p.operands)));
    }
    bool prefers(const ht::product_description&) const override { return true; }
    void multiply(const ht::product_description& p, ht::workspace&) override {
        const emulator::closed_memory::opening here(memory);
        const auto place = [](ht::matrix_order order, extent leading, extent row, extent column) {
            return order == ht::matrix_order::rows ? row * leading + column : column * leading + row;
        };
        const auto factor = [](const float* f) { return f == nullptr ? 1 : static_cast<double>(*f); };
        const ht::element_type of_b = ht::is_eight_bit(p.operands) ? ht::element_type::float8_e4m3 : p.operands;
        for (extent i = 0; i < p.m; ++i) {
            for (extent j = 0; j < p.n; ++j) {
                double sum = 0;
                for (extent q = 0; q < p.k; ++q) {
                    sum += load(p.operands, p.a, place(p.a_order, p.a_leading, i, q)) *
                           load(of_b, p.b, place(p.b_order, p.b_leading, q, j));
                }
                sum *= factor(p.a_factor) * factor(p.b_factor);
                if (p.beta != 0) sum += static_cast<double>(p.beta) * load(p.result, p.c, i * p.c_leading + j);
                store(p.result, p.c, i * p.c_leading + j, sum);
            }
        }
        done.push_back(p);
    }
    std::size_t workspace_bytes(const ht::product_description&) override { return 0; }
};

struct engine_device : emulator::device {
    ht::detail::engine_slot slot{};
    definition_engine* engine;

    engine_device() {
        auto e = std::make_unique<definition_engine>(memory());
        engine = e.get();
        slot.hold(std::move(e));
    }
    ht::matmul_engine* engine_for(const ht::product_description& p) const { return slot.engine_for(p); }
};
static_assert(on_device::engine_holder<engine_device> && !on_device::engine_holder<emulator::device>);

template <class P, class T, class C>
void multiply_all() {
    engine_device device;
    std::size_t products = 0;
    for (const sizes& s : {sizes{1, 1, 1}, sizes{1, 5, 3}, sizes{5, 1, 1}, sizes{33, 17, 37}}) {
        const std::vector<double> want = exact_product(s);
        for (const layout& a : layouts) {
            for (const layout& b : layouts) {
                multiply_exactly<P, T, T, C>(device, s, want, a, b, layouts[2]);
                ++products;
            }
        }
    }
    CHECK(device.engine->done.size() == products);
    CHECK(device.launches() == 0);
}

TEST_CASE("matmul by an engine: exact on small integers, in all layouts") {
    SUBCASE("fp32") { multiply_all<ht::full_fp32, float, float>(); }
    SUBCASE("tf32") { multiply_all<ht::tf32, float, float>(); }
    SUBCASE("bf16") { multiply_all<ht::amp_bf16, bfloat16, bfloat16>(); }
    SUBCASE("fp16, into fp32") { multiply_all<ht::amp_fp16, float16, float>(); }
}

TEST_CASE("matmul by an engine: epilogues within their bounds") {
    engine_device device;
    const auto run = [&](const auto& test) {
        test(device);
        CHECK(device.engine->done.size() == 1);
        const ht::product_description& p = device.engine->done.front();
        CHECK((p.end == ht::product_end::kernel) == (device.launches() == 1));
        CHECK((p.end == ht::product_end::kernel ? p.beta == 0 && p.result == ht::element_type::float32
                                                : p.result == ht::element_type::bfloat16));
    };
    every_epilogue<ht::amp_bf16, bfloat16, float, errors_in_float>({35, 40, 72}, layouts[0], run);
}
TEST_CASE("matmul by an engine: epilogues within their bounds, odd") {
    engine_device device;
    every_epilogue<ht::full_fp32, float, float, errors_in_float>({35, 37, 67}, layouts[2],
                                                                 [&](const auto& test) { test(device); });
    CHECK(device.engine->done.size() == 1);
}

TEST_CASE("matmul by an engine: floats are rounded to tfloat32 only if the policy says so") {
    const sizes s{9, 33, 21};
    const auto run = [&](ht::element_type expected, const auto& multiply) {
        engine_device device;
        multiply(device);
        REQUIRE(device.engine->done.size() == 1);
        CHECK(device.engine->done.front().operands == expected);
        CHECK(device.engine->done.front().result == ht::element_type::float32);
    };
    within_bounds<ht::tf32, float, float, float>(s, layouts[0], layouts[1],
                                                 [&](const auto& test) { run(ht::element_type::tfloat32, test); });
    within_bounds<ht::full_fp32, float, float, float>(s, layouts[0], layouts[1],
                                                      [&](const auto& test) { run(ht::element_type::float32, test); });
}

TEST_CASE("matmul by an engine: in pieces of rows if the epilogue reads the result") {
    const sizes s{300, 9, 40};
    for (const layout& of_a : {layouts[2], layouts[3]}) {
        engine_device device;
        const operand<float> a(s.rows, s.depth, of_a, small_integers{1}),
            b(s.depth, s.columns, layouts[0], small_integers{2});
        const operand<float> c(s.rows, s.columns, layouts[2], small_integers{3});
        const auto epilogue =
            ht::epilogue_of(ht::then{[](auto sum, auto old) { return sum * 2.0f + old; }, c.view}, c.view);
        CHECK(on_device::multiply_by_engine<float>(device, on_device::make_operand(a.view),
                                                   on_device::make_operand(ht::transpose(b.view)), epilogue,
                                                   on_device::access_to(epilogue), 1000));
        CHECK(device.engine->done.size() == 3);
        const std::vector<double> want = exact_product(s);
        bool right = c.intact();
        for (extent i = 0; i < s.rows; ++i) {
            for (extent j = 0; j < s.columns; ++j)
                right = right && number(c.view(i, j)) == 2 * want[static_cast<std::size_t>(i * s.columns + j)] +
                                                             number(small_integers{3}(i, j));
        }
        CHECK(right);
    }
}

TEST_CASE("matmul by an engine: halftone's kernels compute what the engine cannot") {
    engine_device device;
    const sizes s{20, 24, 16};
    const std::vector<double> want = exact_product(s);
    multiply_exactly<ht::amp_bf16, bfloat16, float, float>(device, s, want, layouts[0], layouts[0],
                                                           layouts[0]);  // types to be rounded
    device.engine->most_rows = 10;
    multiply_exactly<ht::amp_bf16, bfloat16, bfloat16, float>(device, s, want, layouts[0], layouts[0], layouts[0]);
    CHECK(device.launches() == 2);
    nothing_to_sum(device);
    device.engine->most_rows = 1 << 20;

    // One row that is repeated.
    const operand<float> row(1, 24, layouts[0], small_integers{1}), b(24, 16, layouts[0], small_integers{2}),
        c(20, 16, layouts[0]);
    ht::matmul<ht::full_fp32>(device, ht::view<float, 2>(row.view.data(), {20, 24}, {0, 1}), b.view, c.view);
    for (extent i = 0; i < 20; ++i) {
        for (extent j = 0; j < 16; ++j) CHECK(number(c.view(i, j)) == want[static_cast<std::size_t>(j)]);
    }
    CHECK(device.engine->done.empty());
}

/// Multiplies eight-bit operands by the device's engine, with factors. Returns whether the engine supports it.
template <class A, class C, class Epilogue>
bool multiply_bytes(engine_device& device, const operand<A>& a, const operand<ht::float8_e4m3>& b, const operand<C>& c,
                    const Epilogue& e) {
    const auto epilogue = ht::epilogue_of(e, c.view);
    return on_device::multiply_by_engine<bfloat16>(device, on_device::make_operand(a.view),
                                                   on_device::make_operand(ht::transpose(b.view)), epilogue,
                                                   on_device::access_to(epilogue), 2000);
}

template <class A, class C>
void eight_bits_in_all_layouts() {
    const float p = 0.25f, q = 2;  // exact
    for (const bool picky : {false, true}) {
        for (const sizes& s : {sizes{16, 32, 48}, sizes{37, 21, 70}}) {
            std::vector<double> want = exact_product(s);
            for (double& w : want) w *= 0.5;
            for (const layout& of_a : layouts) {
                for (const layout& of_b : layouts) {
                    engine_device device;
                    device.engine->reads_along_depth_alone = picky;
                    const operand<A> a(s.rows, s.depth, of_a, small_integers{1});
                    const operand<ht::float8_e4m3> b(s.depth, s.columns, of_b, small_integers{2});
                    const operand<C> c(s.rows, s.columns, layouts[0]);
                    const bool has_multiplied = multiply_bytes(device, a, b, c, ht::of_scaled{ht::plain{}, &p, &q});
                    // Both operands in place, or both copied; otherwise the one not copied has an odd depth or stride.
                    const bool copies_a = of_a.contiguous == order::columns, copies_b = of_b.contiguous == order::rows;
                    const bool is_whole =
                        s.depth % 16 == 0 && (copies_a || of_a.gap == 0) && (copies_b || of_b.gap == 0);
                    CHECK(has_multiplied == (!picky || (copies_a && copies_b) || is_whole));
                    if (!has_multiplied) continue;
                    CHECK(c.intact());
                    CHECK(holds(c, s, want));
                    REQUIRE(device.engine->done.size() == 1);
                    const ht::product_description& done = device.engine->done.front();
                    CHECK(done.operands == ht::element_type_of<A>());
                    CHECK((done.a_factor == &p && done.b_factor == &q));
                    CHECK(device.launches() == (picky ? copies_a + copies_b : 0));
                }
            }
        }
    }
}

TEST_CASE("matmul by an engine: eight bits with factors, in place or copied along depth") {
    eight_bits_in_all_layouts<ht::float8_e4m3, bfloat16>();
    eight_bits_in_all_layouts<ht::float8_e5m2, float>();
}

TEST_CASE("matmul by an engine: eight bits added to the result's old values, and through a kernel") {
    const sizes s{300, 32, 24};
    const std::vector<double> product = exact_product(s);
    const float p = 0.5f;
    engine_device device;
    device.engine->reads_along_depth_alone = true;
    const operand<ht::float8_e5m2> a(s.rows, s.depth, layouts[1], small_integers{1});
    const operand<ht::float8_e4m3> b(s.depth, s.columns, layouts[1], small_integers{2});
    const auto plus = [&](double times, double column_and_all) {
        std::vector<double> want = product;
        for (std::size_t i = 0; i < want.size(); ++i)
            want[i] = times * want[i] + column_and_all * number(small_integers{3}(static_cast<extent>(i) / s.columns,
                                                                                  static_cast<extent>(i) % s.columns));
        return want;
    };
    const operand<float> c(s.rows, s.columns, layouts[2], small_integers{3});
    CHECK(multiply_bytes(device, a, b, c, ht::of_scaled{ht::add_product{}, &p, static_cast<const float*>(nullptr)}));
    CHECK(holds(c, s, plus(0.5, 1)));
    CHECK(device.engine->done.back().beta == 1);
    CHECK(device.launches() == 1);  // a's copy

    // The kernel applies the factors then.
    const operand<float> d(s.rows, s.columns, layouts[0]), residual(s.rows, s.columns, layouts[0], small_integers{3});
    CHECK(multiply_bytes(device, a, b, d,
                         ht::of_scaled{ht::then{[](auto sum, auto r) { return sum + r; }, residual.view}, &p, &p}));
    CHECK(holds(d, s, plus(0.25, 1)));
    const ht::product_description& last = device.engine->done.back();
    CHECK((last.a_factor == nullptr && last.b_factor == nullptr && last.end == ht::product_end::kernel));
    CHECK(device.engine->done.size() == 1 + 3);  // pieces of rows
    CHECK(device.launches() == 1 + 1 + 3);

    // Wider operands with factors: the kernel applies these, too, since no engine scales 16-bit operands.
    const operand<bfloat16> x(s.rows, s.depth, layouts[0], small_integers{1}),
        y(s.depth, s.columns, layouts[0], small_integers{2});
    const auto epilogue = ht::epilogue_of(ht::of_scaled{ht::plain{}, &p, &p}, d.view);
    CHECK(on_device::multiply_by_engine<bfloat16>(device, on_device::make_operand(x.view),
                                                  on_device::make_operand(ht::transpose(y.view)), epilogue,
                                                  on_device::access_to(epilogue)));
    CHECK(holds(d, s, plus(0.25, 0)));
    CHECK(device.engine->done.back().a_factor == nullptr);
}

TEST_CASE("matmul by an engine: the products that engines support") {
    using ht::float8_e4m3, ht::float8_e5m2;
    using on_device::engines_multiply;
    static_assert(engines_multiply<bfloat16, bfloat16, bfloat16> && engines_multiply<ht::tfloat32, float, float> &&
                  !engines_multiply<bfloat16, float, float> && !engines_multiply<bfloat16, bfloat16, float>);
    static_assert(
        engines_multiply<bfloat16, float8_e4m3, float8_e4m3> && engines_multiply<bfloat16, float8_e5m2, float8_e4m3> &&
        !engines_multiply<bfloat16, float8_e4m3, float8_e5m2> &&
        !engines_multiply<bfloat16, float8_e5m2, float8_e5m2> && !engines_multiply<bfloat16, bfloat16, float8_e4m3>);
}

TEST_CASE("copies along depth: right in every schedule, at any alignment, padded with zeros") {
    const auto test = [](emulator::device& device) {
        bool right = true;
        for (const sizes& s : {sizes{1, 1, 1}, sizes{70, 37, 1}, sizes{32, 160, 1}}) {
            for (const layout& l : {layouts[1], layouts[3]}) {
                const operand<ht::float8_e4m3> a(s.rows, s.depth, l, small_integers{5});
                on_device::depth_copy<ht::float8_e4m3> copy(device, on_device::make_operand(a.view));
                if (!copy.is_needed()) continue;  // one row
                copy.make(device);
                copy.fill_up();
                const extent depth = (s.depth + 15) / 16 * 16;
                right = right && copy.operand.depth == depth && copy.operand.leading == depth;
                std::vector<ht::float8_e4m3> got(static_cast<std::size_t>(s.rows * depth));
                device.memory().read(got.data(), copy.operand.elements.data, got.size());
                for (extent i = 0; i < s.rows; ++i) {
                    for (extent p = 0; p < depth; ++p)
                        right = right && number(got[static_cast<std::size_t>(i * depth + p)]) ==
                                             (p < s.depth ? number(small_integers{5}(i, p)) : 0.0);
                }
            }
        }
        return right;
    };
    emulator::check_schedules(test);
    CHECK(emulator::check_damages(test) == 0);  // no barrier and no shuffle
}

}  // namespace emulator_kernel_matmul_engine_tests
