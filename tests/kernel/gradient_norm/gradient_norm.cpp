// SPDX-License-Identifier: MIT
/// \file
/// The read pass over gradients on every instruction set (checks.hpp has the tests), and its records.
#include <halftone/kernel/gradient_norm/cpu.hpp>

#include "kernel/gradient_norm/checks.hpp"
#include "support/each_set.hpp"

namespace kernel_gradient_norm_tests {

using namespace gradient_norm_checks;

/// Calls check(device) for each instruction set.
template <class Check>
void on_each_set(const Check& check) {
    support::for_each_set([&](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        check(device);
    });
}

TEST_CASE_TEMPLATE("gradient_norm: equals its definition", G, float, ht::bfloat16, ht::float16) {
    on_each_set([](ht::cpu& device) { equals_definition<G>(device); });
}

TEST_CASE("gradient_norm: squares outside of float's range") {
    on_each_set([](ht::cpu& device) { knows_all_magnitudes(device); });
}

TEST_CASE_TEMPLATE("gradient_norm: one value that is not finite is found at any position", G, float, ht::bfloat16,
                   ht::float16) {
    on_each_set([](ht::cpu& device) { finds_one<G>(device); });
}

TEST_CASE("gradient_norm: finite gradients whose norm exceeds float's range count as infinite") {
    on_each_set([](ht::cpu& device) { finds_what_unscaling_overflows(device); });
}

TEST_CASE("gradient_norm: passes over several runs of gradients add up, and each has its own flag") {
    ht::cpu device{{.threads = 1}};
    adds_up(device);
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

TEST_CASE("gradient_norm: gradients that are not contiguous are refused") {
    ht::cpu device{{.threads = 1}};
    refuses(device);
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

}  // namespace kernel_gradient_norm_tests
