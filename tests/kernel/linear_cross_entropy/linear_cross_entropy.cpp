// SPDX-License-Identifier: MIT
/// \file
/// linear_cross_entropy on the CPU compared with its definition; the definition's gradients compared with central differences.
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/linear_cross_entropy/cpu.hpp>

#include "kernel/linear_cross_entropy/checks.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"

namespace kernel_linear_cross_entropy_tests {

using namespace linear_cross_entropy_checks;
using head = ht::kernel::linear_cross_entropy<ht::cpu>;

template <class M>
void on_every_set() {
    support::for_each_isa([&](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        within_bounds<M>(head{}, device, {2, 1, 3}, write_mode::overwrite);
        within_bounds<M>(head{}, device, {37, 19, 53}, write_mode::overwrite);
        within_bounds<M>(head{}, device, {64, 33, 17}, write_mode::add);
    });
}

TEST_CASE("linear_cross_entropy: loss and gradients within their bounds") {
    SUBCASE("fp32") { on_every_set<types<float, float, float>>(); }
    SUBCASE("bf16") { on_every_set<types<bfloat16, bfloat16, bfloat16>>(); }
    SUBCASE("bf16 with fp32 logits") { on_every_set<types<bfloat16, float, bfloat16>>(); }
}

template <class M, std::size_t LogitBytes = ht::kernel::logit_bytes<ht::cpu>>
void several_blocks(const sizes& s, extent rows, extent classes) {
    using some_head = ht::kernel::linear_cross_entropy<ht::cpu, LogitBytes>;
    const ht::kernel::logit_blocks each = some_head::template blocks_of<typename M::Logit>(s.rows, s.classes);
    REQUIRE(each.rows == rows);
    REQUIRE(each.classes == classes);
    for (const ht::isa set : ht::every_isa) {
        if (!support::is_tested(set)) continue;
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        for (const write_mode mode : {write_mode::overwrite, write_mode::add}) within_bounds<M>(some_head{}, device, s, mode);
    }
}

TEST_CASE("linear_cross_entropy: classes and rows in several blocks, the last ones smaller") {
    SUBCASE("blocks of the default size") { several_blocks<types<float, float, float>>({67, 3, 10007}, 67, 3456); }
    SUBCASE("fp32") { several_blocks<types<float, float, float>, 1>({35, 19, 1000}, 35, 256); }
    SUBCASE("bf16") { several_blocks<types<bfloat16, bfloat16, bfloat16>, 1>({35, 19, 1000}, 35, 256); }
    SUBCASE("bf16 with fp32 logits") { several_blocks<types<bfloat16, float, bfloat16>, 1>({7, 33, 555}, 7, 256); }
    SUBCASE("rows in two blocks") { several_blocks<types<bfloat16, bfloat16, bfloat16>, 1>({2051, 3, 301}, 1056, 256); }
}

template <class M>
void kept_on_every_set() {
    using in_blocks = ht::kernel::linear_cross_entropy<ht::cpu, 1>;
    support::for_each_isa([&](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
            the_same_if_kept<M>(head{}, device, {1, 3, 2}, mode);
            the_same_if_kept<M>(head{}, device, {67, 19, 333}, mode);
            the_same_if_kept<M>(in_blocks{}, device, {35, 19, 1000}, mode);
        }
        the_same_if_kept<M>(in_blocks{}, device, {2051, 3, 301}, write_mode::overwrite);
    });
}

TEST_CASE("linear_cross_entropy: logits that are kept") {
    SUBCASE("fp32") { kept_on_every_set<types<float, float, float>>(); }
    SUBCASE("bf16") { kept_on_every_set<types<bfloat16, bfloat16, bfloat16>>(); }
    SUBCASE("bf16 with fp32 logits") { kept_on_every_set<types<bfloat16, float, bfloat16>>(); }
}

TEST_CASE("linear_cross_entropy: kept logits of ignored rows may be anything") {
    ht::cpu device{{.threads = 1}};
    using M = types<float, float, float>;
    const run<M> r({5, 4, 7});
    for (int i = 0; i < 5; ++i) {
        if (r.targets[static_cast<std::size_t>(i)] == -100) r.x[i * 4] = std::numeric_limits<float>::infinity();
    }
    const guarded<float> logits(head::kept_logits(5, 7));
    r(head{}, device, 1, write_mode::overwrite, logits.data());
    int finite = 0, ignored = 0;
    for (int i = 0; i < 5; ++i) {
        ignored += r.targets[static_cast<std::size_t>(i)] == -100;
        finite += std::isfinite(r.dx[i * 4]);
        if (r.targets[static_cast<std::size_t>(i)] == -100) CHECK(r.dx[i * 4] == 0);
    }
    CHECK(ignored > 0);
    CHECK(finite == 5);
}

TEST_CASE("linear_cross_entropy: squares of the weight's gradient, which several blocks write or add to") {
    using M = types<bfloat16, bfloat16, bfloat16>;
    support::comparison all;
    for (const sizes& s : {sizes{35, 19, 1000}, sizes{2051, 3, 301}}) {
        for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
            ht::cpu device{{.threads = 2}};
            const run<M> r(s);
            ht::square_sum squares;
            r(ht::kernel::linear_cross_entropy<ht::cpu, 1>{}, device, 8, mode, nullptr, &squares);
            double want = 0;
            for (extent i = 0; i < r.dw.size(); ++i)
                want += static_cast<double>(r.dw[i]) * static_cast<double>(r.dw[i]);
            all.expect(squares.sum, want, support::gamma(ht::kernel::written_squares::depth + 1) * want);
            CHECK(squares.is_known(r.dw.size()));
        }
    }
    CHECK_WITHIN(all);
}

TEST_CASE("linear_cross_entropy: the same bits with one thread and with two") {
    using M = types<bfloat16, bfloat16, bfloat16>;
    for (const ht::isa set : ht::every_isa) {
        if (!support::is_tested(set)) continue;
        ht::cpu one{{.threads = 1, .instruction_set = set}}, two{{.threads = 2, .instruction_set = set}};
        const run<M> a({200, 65, 301}), b({200, 65, 301});
        using some_head = ht::kernel::linear_cross_entropy<ht::cpu, 1>;  // two blocks
        a(some_head{}, one, 1, write_mode::overwrite);
        b(some_head{}, two, 1, write_mode::overwrite);
        CHECK(a.loss.same_bits(b.loss));
        CHECK(a.dx.same_bits(b.dx));
        CHECK(a.dw.same_bits(b.dw));
    }
}

TEST_CASE("linear_cross_entropy: the definition equals those of its parts, and its gradients central differences") {
    constexpr int rows = 4, width = 3, classes = 5;
    support::random data(1);
    const std::vector<double> x = data.normals<double>(rows * width), w = data.normals<double>(classes * width);
    const std::vector<std::int32_t> targets = {4, 0, -100, 2};
    const auto loss = [&](const std::vector<double>& at_x, const std::vector<double>& at_w) {
        std::vector<double> logits(rows * classes), losses(rows);
        for (int i = 0; i < rows; ++i) {
            for (int j = 0; j < classes; ++j) {
                double& sum = logits[static_cast<std::size_t>(i * classes + j)];
                for (int k = 0; k < width; ++k)
                    sum +=
                        at_x[static_cast<std::size_t>(i * width + k)] * at_w[static_cast<std::size_t>(j * width + k)];
            }
        }
        return ht::reference::cross_entropy(ht::view<double, 2>(logits.data(), {rows, classes}),
                                            ht::const_view<std::int32_t, 1>(targets.data(), {rows}), -100,
                                            ht::view<double, 1>(losses.data(), {rows}));
    };
    const definition<double> d(matrix<double>(rows, width, x.data()), matrix<double>(classes, width, w.data()), targets,
                               1, support::stored_exactly{}, support::stored_exactly{});
    CHECK(d.loss == doctest::Approx(loss(x, w)).epsilon(1e-14));
    support::check_gradient([&](const std::vector<double>& at) { return loss(at, w); }, x, d.dx.values);
    support::check_gradient([&](const std::vector<double>& at) { return loss(x, at); }, w, d.dw.values);
}

TEST_CASE("linear_cross_entropy: gradients that are not requested, and a batch without rows") {
    ht::cpu device{{.threads = 1}};
    less_than_everything(head{}, device);
}

TEST_CASE("linear_cross_entropy: a target that is no class") {
    ht::cpu device{{.threads = 1}};
    run<types<float, float, float>> r({5, 4, 7});
    r.targets[2] = 7;
    const auto x = r.x.const_view(ht::shape<2>{5, 4}), w = r.w.const_view(ht::shape<2>{7, 4});
    CHECK_THROWS_WITH_AS((head::forward<float, float>(device, x, w, r.rows())),
                         "cross_entropy: the target of row 2 is 7; expected 0 to 6, or -100 to ignore the row",
                         ht::argument_error);
}

}  // namespace kernel_linear_cross_entropy_tests
