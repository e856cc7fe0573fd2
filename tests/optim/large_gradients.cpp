// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <halftone/kernel.hpp>

#include "optim/large_checks.hpp"
#include "optim/sparse_checks.hpp"
#include "support/each_set.hpp"

namespace optim_large_gradients_tests {

namespace ht = halftone;

/// A loss times 1e25: gradients of a table, whose squares a CPU sums while it writes them, or of some of its rows.
template <class Model>
void of_tables() {
    ht::cpu device{{.threads = 1}};
    auto r = sparse_checks::with_adamw<Model>(device, {.lr = 0.1});
    sparse_checks::ids data;
    const auto step = [&](double factor) {
        r.tape.backward(r.scaler.scale(r.model.loss(r.tape, data.next(2, 8)) * factor), r.acc);
        auto grads = r.scaler.unscale(r.acc.take());
        const auto result = r.optimizer.step(grads).result();
        r.scaler.update();
        return result;
    };
    CHECK(step(1) == ht::step_result::taken);
    const auto before = sparse_checks::masters_of(r.model.tokens.table);
    CHECK(step(1e25) == ht::step_result::infinity);
    CHECK(sparse_checks::same_bits(sparse_checks::masters_of(r.model.tokens.table), before));
    CHECK(step(1) == ht::step_result::taken);
    CHECK(step(1e15) == ht::step_result::taken);
}

TEST_CASE("optimizer: finite gradients that are too large for its moments count as an overflow") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        large_gradients::check(device);
    });
}

TEST_CASE("optimizer: gradients too large for its moments, of sparse and of dense tables") {
    of_tables<sparse_checks::sparse<ht::full_fp32>>();
    of_tables<sparse_checks::dense<ht::full_fp32>>();
}

}  // namespace optim_large_gradients_tests
