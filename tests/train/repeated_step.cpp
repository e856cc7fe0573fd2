// SPDX-License-Identifier: MIT
/// \file
/// Steps that are repeated begin with the states of their beginning: running statistics, random draws, an outlier guard's window.
#include "train/repeated_step.hpp"

#include <halftone/optim/adafactor.hpp>

namespace train_repeated_step_tests {

namespace ht = halftone;

struct one_thread {
    ht::cpu operator()() const { return ht::cpu({.threads = 1}); }
};

TEST_CASE_TEMPLATE("a step that an exception ended is repeated with the states of its beginning", P, ht::full_fp32, ht::amp_bf16) {
    repeated_step::check_thrown<P, one_thread>(false);
}

TEST_CASE_TEMPLATE("auto_find_batch_size: a model with batch norm is the one that began with what fits", P, ht::full_fp32,
                   ht::amp_bf16) {
    repeated_step::check_out_of_memory<P, one_thread>(false);
}

TEST_CASE("a step whose update was about to begin is repeated: the outlier guard counts it once") {
    struct throws_once : ht::range_listener {
        int left;
        explicit throws_once(int n) : left(n) {}
        void begin(const char* what, ht::pass) override {
            if (what == std::string("adamw") && --left == 0) throw std::runtime_error("a bad listener");
        }
        void end() override {}
    };
    const auto state_with = [](int fails_in) {
        ht::cpu device{{.threads = 1}};
        repeated_step::failing_net<ht::full_fp32, std::runtime_error> model{device};
        repeated_step::data rows;
        ht::training_arguments a = repeated_step::arguments_of(4, 2);
        a.scaler.outlier_factor = 100, a.scaler.outlier_window = 4;
        ht::trainer trainer{device, model, a};
        throws_once listener(fails_in);
        trainer.listen(&listener);
        if (fails_in != 0) CHECK_THROWS_AS(trainer.train(rows), std::runtime_error);
        trainer.train(rows);
        ht::outlier_state s;
        trainer.visit_checkpoint_parts([&](const std::string& name, auto& part) {
            if constexpr (requires { s = part.state(); }) {
                if (name == "outlier_guard") s = part.state();
            }
        });
        return s;
    };
    const ht::outlier_state never = state_with(0);
    CHECK(never.norms.size() == 4);
    for (const int fails_in : {2, 5}) {
        const ht::outlier_state once = state_with(fails_in);
        CHECK(once.norms == never.norms);
        CHECK(once.losses == never.losses);
    }
}

/// A table of 5,000 rows, of which the first three are looked up. Its loss takes no scratch memory, and its Adafactor does.
struct table_net : ht::nn::model {
    using policy = ht::full_fp32;
    ht::nn::token_embedding<ht::at<policy, "table">> table;

    explicit table_net(ht::cpu& device) : model{device}, table{parameters(), 5000, 6} { commit(*this, 3); }
    template <class Context>
    ht::variable<float, 0> loss(Context&& ctx, const repeated_step::batch& b) const {
        static constexpr std::int32_t ids[] = {0, 1, 2};
        return ht::mean_squared_error(ctx, table(ctx, ht::const_view<std::int32_t, 2>{ids, {1, 3}}),
                                      ht::const_view<float, 3>{b.targets.data(), {1, 3, 6}});
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.table); }
};

TEST_CASE("an update that memory ended is not repeated: some parameters have changed") {
    struct in_update final : ht::memory_listener, ht::range_listener {
        bool is_in_update = false;
        void begin(const char* what, ht::pass) override { is_in_update = what == std::string("adafactor"); }
        void end() override {}
        bool allows(std::size_t, ht::memory_kind) override { return !is_in_update; }
    } scarcity;
    ht::cpu device{{.threads = 1}};
    table_net model{device};
    repeated_step::data rows;
    ht::training_arguments a{.per_device_train_batch_size = 4, .max_steps = 5};
    a.auto_find_batch_size = true;
    ht::trainer trainer{device, model, a, ht::adafactor_options{}};
    trainer.listen(&scarcity);
    device.memory().usage().listen(&scarcity);
    CHECK_THROWS_AS(trainer.train(rows), ht::out_of_memory);
    device.memory().usage().listen(nullptr);
    CHECK(trainer.arguments().per_device_train_batch_size == 4);
    CHECK_THROWS_WITH_AS(trainer.train(rows),
                         "trainer: an exception has ended the update of step 1, and some of the parameters may have changed; make the "
                         "model and the trainer again, and resume from a checkpoint", ht::state_error);
    CHECK_THROWS_AS(static_cast<void>(trainer.progress()), ht::state_error);
}

}  // namespace train_repeated_step_tests
