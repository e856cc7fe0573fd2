// SPDX-License-Identifier: MIT
/// \file
/// The average of parameters that optimizers keep: its definition, for masters of all kinds, and errors.
#include <halftone/optim/sgd.hpp>

#include "optim/ema_checks.hpp"
#include "support/each_set.hpp"
#include "support/own_numbers.hpp"

namespace optim_ema_tests {

namespace ht = halftone;
using pure = ht::with_state<ht::pure_bf16, ht::bfloat16>;
using split = ht::with_split_master<ht::amp_bf16>;

TEST_CASE_TEMPLATE("ema: equals its definition, replaces parameters and gives them back", P, ht::full_fp32, ht::amp_fp16, pure,
                   split) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        ema_checks::equals_definition<P>(device);
    });
}

TEST_CASE("ema: parameters that float does not hold are refused") {
    ht::cpu device{{.threads = 1}};
    using P = ht::with_param<ht::full_fp32, support::fixed32>;
    small::model<P> model{device};
    using optimizer = ht::sgd<ht::cpu, small::model<P>>;
    CHECK_THROWS_WITH_AS(
        (optimizer{device, model, {.ema_decay = 0.9}}),
        "sgd: ema_decay with parameters of fixed32: averages are floats, which do not hold them; use no average",
        ht::argument_error);
}

TEST_CASE("ema: without ema_decay there is none, and a decay out of range is refused") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::full_fp32> model{device};
    ht::sgd plain{device, model};
    CHECK(plain.ema(0).empty());
    CHECK_THROWS_WITH_AS((void)plain.ema(model.fc1.weight), "sgd: ema() of an optimizer that was made without ema_decay",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS((void)plain.average_parameters(),
                         "sgd: average_parameters() of an optimizer that was made without ema_decay", ht::state_error);
    using optimizer = ht::sgd<ht::cpu, small::model<ht::full_fp32>>;
    CHECK_THROWS_WITH_AS((optimizer{device, model, {.ema_decay = 1}}),
                         "sgd: ema_decay is 1; expected 0 or more and less than 1, 0 for none", ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.ema_decay = -0.1}}), ht::argument_error);
    small::model<ht::full_fp32> other{device};
    ht::sgd kept{device, model, {.ema_decay = 0.9f}};
    CHECK_THROWS_AS((void)kept.ema(other.fc1.weight), ht::argument_error);
}

struct sparse_layer {
    using policy = ht::at<ht::full_fp32, "items">;
    using operation = ht::op::sparse_embedding;
    static constexpr bool owns_parameters = true;
    ht::parameter<ht::storage_signature<policy, operation>, 2> table;

    explicit sparse_layer(ht::store& s) : table(s.add<policy, operation>("table", ht::shape<2>{4, 3}, {.deviation = 1})) {}
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};
struct sparse_model : ht::nn::model {
    using policy = ht::full_fp32;
    sparse_layer items;

    explicit sparse_model(ht::cpu& device) : ht::nn::model(device), items(parameters()) { commit(*this, 1); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.items); }
};

TEST_CASE("ema: refused for a table with a sparse gradient, unless it is frozen") {
    ht::cpu device{{.threads = 1}};
    sparse_model model{device};
    using optimizer = ht::sgd<ht::cpu, sparse_model>;
    CHECK_THROWS_WITH_AS((optimizer{device, model, {.ema_decay = 0.5}}),
                         "sgd: ema_decay with items.table, whose gradient is sparse: rows without a gradient would not update "
                         "their average; use a dense gradient, or no average",
                         ht::argument_error);
    CHECK_NOTHROW((optimizer{device, model, {.ema_decay = 0.5}, {{"items", ht::frozen}}}));
}

}  // namespace optim_ema_tests
