// SPDX-License-Identifier: MIT
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/sgd/cpu.hpp>
#include <halftone/kernel/sgd/reference.hpp>

#include "support/bounds.hpp"
#include "support/each_set.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace {

namespace ht = halftone;
namespace kernel = ht::kernel;
using support::guarded;

constexpr ht::extent sizes[] = {1, 3, 5, 15, 17, 67, 1009, 16384 + 33};
const kernel::gradient_factors factors{1.0f / 128, 0.75f, 1.5f};

template <class T>
std::vector<double> doubles(const guarded<T>& g) {
    std::vector<double> d;
    for (ht::extent i = 0; i < g.size(); ++i) d.push_back(static_cast<double>(g[i]));
    return d;
}
ht::view<double, 1> view_of(std::vector<double>& d) { return {d.data(), {static_cast<ht::extent>(d.size())}}; }

template <class Accumulate>
void check_steps(ht::cpu& device, const kernel::sgd_coefficients& c, std::int64_t steps) {
    support::random data{1};
    support::comparison masters, momenta;
    const kernel::step_record record{.steps = steps, .lr = 0.01};
    for (const ht::extent n : sizes) {
        const guarded<float> master(data.normals<float>(n), n % 5), momentum(data.normals<float>(n), 2);
        const guarded<Accumulate> gradient(data.normals<Accumulate>(n, 100), 3);
        const guarded<ht::bfloat16> copy(n, 1);
        std::vector<double> w = doubles(master), g = doubles(gradient), m = doubles(momentum);
        const std::vector<double> w0 = w, m0 = m;
        ht::reference::sgd(view_of(w), view_of(g), view_of(m), c, 0.01, 0.1, static_cast<double>(steps), factors);
        kernel::sgd<ht::cpu>::run<ht::rounding::nearest_even>(
            device, kernel::sgd_arguments<float, ht::bfloat16, Accumulate, float>{.master = master.view(),
                                                                                  .copy = copy.view(),
                                                                                  .gradient = gradient.const_view(),
                                                                                  .momentum = momentum.view(),
                                                                                  .coefficients = c,
                                                                                  .rates = {.weight_decay = 0.1},
                                                                                  .factors = &factors,
                                                                                  .step = &record});
        for (ht::extent i = 0; i < n; ++i) {
            const auto k = static_cast<std::size_t>(i);
            const double read = std::fabs(ht::reference::read_gradient(g[k], factors)) + 0.1 * std::fabs(w0[k]);
            const double sum = read + c.momentum * std::fabs(m0[k]);
            if (c.momentum != 0) momenta.expect(static_cast<double>(momentum[i]), m[k], support::gamma(8) * sum);
            masters.expect(static_cast<double>(master[i]), w[k],
                           0.01 * support::gamma(13) * 2 * sum + support::u * std::fabs(w[k]));
            CHECK(copy[i].bits() == ht::bfloat16(master[i]).bits());
        }
        if (c.momentum == 0) CHECK(doubles(momentum) == m0);
        CHECK((master.intact() && copy.intact() && momentum.intact()));
    }
    CHECK_WITHIN(masters);
    if (c.momentum != 0) CHECK_WITHIN(momenta);
}

TEST_CASE_TEMPLATE("sgd: equals its definition", G, float, ht::bfloat16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        for (const std::int64_t steps : {1, 5}) {
            check_steps<G>(device, {}, steps);
            check_steps<G>(device, {.momentum = 0.9}, steps);
            check_steps<G>(device, {.momentum = 0.9, .dampening = 0.5}, steps);
            check_steps<G>(device, {.momentum = 0.9, .kind = kernel::momentum_kind::nesterov}, steps);
        }
    });
}

TEST_CASE_TEMPLATE("sgd: a parameter is rounded by the random bits of its place", Param, ht::bfloat16, ht::float16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        const ht::extent n = 16384 + 77;
        support::random data{3};
        const guarded<Param> master(std::vector<Param>(static_cast<std::size_t>(n), Param(0.0f)), 5);
        const guarded<float> gradient(data.normals<float>(n), 2);
        for (ht::extent i = 0; i < 100; ++i) gradient[i] *= 0x1p-18f;  // subnormal in fp16
        const kernel::step_record record{.steps = 9, .lr = 1};
        const kernel::gradient_factors plain;
        kernel::sgd<ht::cpu>::run<ht::rounding::stochastic>(
            device, kernel::sgd_arguments<Param, float, float, float>{.master = master.view(),
                                                                      .gradient = gradient.const_view(),
                                                                      .factors = &plain,
                                                                      .step = &record,
                                                                      .key = {.seed = 77, .tensor = 12, .first = 256}});
        for (ht::extent i = 0; i < n; ++i) {
            const std::uint32_t bits = ht::random_bits(77, 9, 12, 256 + static_cast<std::uint64_t>(i));
            CHECK(master[i].bits() == ht::round_stochastic<Param>(-gradient[i], bits).bits());
        }
        CHECK(master.intact());
    });
}

TEST_CASE("sgd: parameters without a master move on average") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        const ht::extent n = 4099;
        const guarded<ht::bfloat16> master(std::vector<ht::bfloat16>(n, ht::bfloat16(1.0f)));
        const guarded<float> gradient(std::vector<float>(n, 1.0f));
        kernel::step_record record{.steps = 1, .lr = 1e-4};
        for (; record.steps <= 10; ++record.steps) {
            const kernel::gradient_factors plain;
            kernel::sgd<ht::cpu>::run<ht::rounding::stochastic>(
                device,
                kernel::sgd_arguments<ht::bfloat16, ht::bfloat16, float, float>{.master = master.view(),
                                                                                .gradient = gradient.const_view(),
                                                                                .factors = &plain,
                                                                                .step = &record,
                                                                                .key = {.seed = 1}});
        }
        double moved = 0;
        for (ht::extent i = 0; i < n; ++i) moved += (1 - static_cast<double>(master[i])) / static_cast<double>(n);
        CHECK(std::fabs(moved - 1e-3) < 5 * std::sqrt(10.0 / static_cast<double>(n)) * 0x1p-9);
        CHECK(master.intact());
    });
}

TEST_CASE("sgd: a skipped step changes nothing; arguments that do not fit together are refused") {
    ht::cpu device{{.threads = 1}};
    const guarded<float> master(std::vector<float>(10, 1.0f)), gradient(std::vector<float>(10, 1.0f)),
        momentum(std::vector<float>(10, 0.0f));
    kernel::step_record record{.steps = 1, .lr = 0.1, .skips = 1};
    kernel::sgd_arguments<float, float, float, float> a{.master = master.view(),
                                                        .gradient = gradient.const_view(),
                                                        .momentum = momentum.view(),
                                                        .coefficients = {.momentum = 0.9},
                                                        .factors = &factors,
                                                        .step = &record};
    kernel::sgd<ht::cpu>::run<ht::rounding::nearest_even>(device, a);
    CHECK(master[3] == 1);
    CHECK(momentum[3] == 0);
    a.momentum = {};
    CHECK_THROWS_AS((kernel::sgd<ht::cpu>::run<ht::rounding::nearest_even>(device, a)), ht::shape_error);
    a.coefficients.momentum = 0;
    a.key.first = 1;
    CHECK_THROWS_AS((kernel::sgd<ht::cpu>::run<ht::rounding::nearest_even>(device, a)), ht::argument_error);
}

}  // namespace
