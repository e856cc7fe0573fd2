// SPDX-License-Identifier: MIT
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/gradient_norm/cpu.hpp>
#include <halftone/kernel/gradient_norm/reference.hpp>

#include "support/bounds.hpp"
#include "support/each_set.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace {

namespace ht = halftone;
namespace kernel = ht::kernel;

constexpr ht::extent sizes[] = {0, 1, 3, 5, 15, 17, 67, 16383, 16385, 3 * 16384 + 11};

struct pass {
    kernel::gradient_record record;
    std::int32_t found = 0;
};

template <class G>
pass run(ht::cpu& device, const support::guarded<G>& g, const kernel::gradient_factors& factors = {}) {
    pass p;
    p.record.factors = factors;
    kernel::begin_pass(p.record);
    kernel::gradient_norm<ht::cpu>::add(device, g.const_view(), &p.record, &p.found);
    kernel::end_pass(p.record);
    return p;
}

TEST_CASE_TEMPLATE("gradient_norm: equals its definition", G, float, ht::bfloat16, ht::float16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        support::random data{1};
        support::comparison c;
        for (const ht::extent n : sizes) {
            const support::guarded<G> g(data.normals<G>(n, 3), 1 + n % 3);
            for (const kernel::gradient_factors& f :
                 {kernel::gradient_factors{}, kernel::gradient_factors{1.0f / 1024, 0.7f, 1e-3f}}) {
                const double want = std::sqrt(ht::reference::sum_of_squares(g.const_view(), f));
                const pass p = run(device, g, f);
                // A square has four roundings of its factors in it and one of its own; a sum within a chunk passes
                // through at most sum_depth additions; then the root halves it, and rounds.
                const double relative =
                    support::gamma(static_cast<double>(kernel::sum_depth(kernel::gradient_norm<ht::cpu>::chunk)) + 5) /
                        2 +
                    2 * support::u;
                if (n != 0) c.expect(static_cast<double>(p.record.norm), want, relative * want);
                CHECK(p.record.found_inf == 0);
                CHECK(p.found == 0);
            }
            CHECK(g.intact());
        }
        CHECK_WITHIN(c);
    });
}

TEST_CASE("gradient_norm: squares that leave float's range") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        support::random data{2};
        for (const double magnitude : {1e-38, 1e-30, 1e-20, 1e-13, 1e-10, 1e10, 1e16, 1e18, 1e25, 1e35}) {
            const support::guarded<float> g(data.normals<float>(20000, magnitude), 1);
            const double want = std::sqrt(ht::reference::sum_of_squares(g.const_view(), {}));
            CHECK(static_cast<double>(run(device, g).record.norm) == doctest::Approx(want).epsilon(1e-4));
        }
        // A large value in one chunk does not hide the small ones of another.
        std::vector<float> mixed(2 * 16384, 1e-25f);
        mixed[5] = 3e-25f;
        CHECK(run(device, support::guarded<float>(mixed)).record.norm ==
              doctest::Approx(1e-25 * std::sqrt(2 * 16384 + 8)).epsilon(1e-6));
        CHECK(run(device, support::guarded<float>(std::vector<float>(1000, 0.0f))).record.norm == 0);
    });
}

TEST_CASE_TEMPLATE("gradient_norm: one value that is not finite is found wherever it lies", G, float, ht::bfloat16,
                   ht::float16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        const ht::extent n = 16384 + 83;
        const support::guarded<G> g(std::vector<G>(static_cast<std::size_t>(n), G(0.5f)), 1);
        const float infinity = std::numeric_limits<float>::infinity();
        for (ht::extent i = n - 200; i < n; ++i) {
            for (const float odd : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
                g[i] = G(odd);
                // Clamped, it is finite; in memory it is not.
                const pass p = run(device, g, {1.0f, 1.0f, 2.0f});
                CHECK(p.record.found_inf == 1);
                CHECK(p.found == 1);
                CHECK(p.record.norm == infinity);
            }
            g[i] = G(0.5f);
        }
        g[7] = static_cast<G>(static_cast<float>(ht::number_traits<G>::max));
        CHECK(run(device, g).found == 0);
        CHECK(ht::reference::all_finite(g.const_view()));
    });
}

TEST_CASE("gradient_norm: passes over several runs of gradients add up, and each has its own flag") {
    ht::cpu device{{.threads = 1}};
    const std::vector<float> three{3, 0}, four{0, 4}, odd{std::numeric_limits<float>::infinity()};
    const support::guarded<float> a(three), b(four), c(odd);
    kernel::gradient_record record;
    std::int32_t found[3] = {};
    kernel::begin_pass(record);
    kernel::gradient_norm<ht::cpu>::add(device, a.const_view(), &record, &found[0]);
    kernel::gradient_norm<ht::cpu>::add(device, b.const_view(), &record, &found[1]);
    kernel::end_pass(record);
    CHECK(record.norm == 5);
    kernel::gradient_norm<ht::cpu>::add(device, c.const_view(), &record, &found[2]);
    kernel::end_pass(record);
    CHECK(record.norm == std::numeric_limits<float>::infinity());
    CHECK((found[0] == 0 && found[1] == 0 && found[2] == 1));
    kernel::gradient_norm<ht::cpu>::add(device, a.const_view(), &record, &found[2]);
    CHECK(record.found_inf == 1);
    CHECK(found[2] == 1);
}

TEST_CASE("gradient_norm: the same bits at any number of threads") {
    support::for_each_set([](ht::isa set) {
        support::random data{3};
        const support::guarded<float> g(data.normals<float>(300007), 1);
        std::vector<double> squares;
        for (const int threads : {1, 2, 3}) {
            ht::cpu device{{.threads = threads, .instruction_set = set}};
            squares.push_back(run(device, g).record.squares);
        }
        CHECK(squares[0] == squares[1]);
        CHECK(squares[0] == squares[2]);
    });
}

TEST_CASE("gradient_norm: gradients in pieces are refused") {
    ht::cpu device{{.threads = 1}};
    const support::guarded<float> g(std::vector<float>(10, 1.0f));
    kernel::gradient_record record;
    std::int32_t found = 0;
    CHECK_THROWS_AS(
        kernel::gradient_norm<ht::cpu>::add(device, ht::const_view<float, 1>(g.data(), {5}, {2}), &record, &found),
        ht::shape_error);
}

TEST_CASE("records: clipping by norm has PyTorch's coefficient, and never enlarges") {
    kernel::gradient_record r;
    r.norm = 4;
    kernel::clip_by_norm(r, 1);
    CHECK(r.factors.clip == 1.0f / (4.0f + 1e-6f));
    CHECK(r.norm_before == 4);
    CHECK(r.norm == 4 * r.factors.clip);
    const float clip = r.factors.clip;
    kernel::clip_by_norm(r, 5);
    CHECK(r.factors.clip == clip);
    kernel::clip_by_value(r, 2);
    kernel::clip_by_value(r, 3);
    CHECK(r.factors.limit == 2);
}

TEST_CASE("records: rates of a group") {
    kernel::step_record s{.lr = 0.5, .multiplier = 0.25};
    CHECK(kernel::group_rates{}.lr(s) == 0.125);
    CHECK(kernel::group_rates{.lr_share = 2}.lr(s) == 0.25);
    CHECK(kernel::group_rates{.fixed_lr = 3, .lr_share = 0}.lr(s) == 0.75);
}

}  // namespace
