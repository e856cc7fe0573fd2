// SPDX-License-Identifier: MIT
/// \file
/// A training run that runs out of memory, anywhere; and one that goes on with smaller micro-batches by itself.
#include <halftone/observe/memory/plan.hpp>

#include "train/out_of_memory_checks.hpp"

namespace train_out_of_memory_tests {

namespace ht = halftone;
using namespace out_of_memory_checks;

TEST_CASE(
    "out of memory at each request in turn: one error, nothing lost, and the next run has the bits of a fresh one") {
    for (const int threads : {1, 2}) {
        ht::cpu device{{.threads = threads}};
        expect_errors_everywhere<ht::amp_bf16, ht::plain_tape>(device);
    }
}
#if defined(HALFTONE_FULL_TESTS)
TEST_CASE("out of memory at each request in turn: with a loss scale and a watched tape") {
    ht::cpu device{{.threads = 1}};
    expect_errors_everywhere<ht::amp_fp16, ht::watched_tape>(device);
}
#endif

/// The kind of a device's limits: what a step is told when they are reached.
std::string message_within(std::size_t limit, ht::extent batch, bool is_watched) {
    const std::string corpus = small::text();
    ht::cpu device{{.threads = 1, .memory_limit = limit}};
    ht::nn::gpt<ht::amp_bf16> model{device, small::config, 1};
    ht::language_data data{ht::token_view{corpus}, small::options};
    const ht::training_arguments arguments{.per_device_train_batch_size = batch, .max_steps = 2, .learning_rate = 1e-3};
    const auto train = [&](auto&& trainer) -> std::string {
        try {
            trainer.train(data);
        } catch (const ht::out_of_memory& e) {
            return e.what();
        }
        return {};
    };
    return is_watched ? train(ht::trainer{device, model, arguments, ht::watched})
                      : train(ht::trainer{device, model, arguments});
}

ht::memory_usage usage_with(ht::extent batch) {
    const std::string corpus = small::text();
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::amp_bf16> model{device, small::config, 1};
    ht::language_data data{ht::token_view{corpus}, small::options};
    ht::trainer trainer{device, model, {.per_device_train_batch_size = batch, .max_steps = 2, .learning_rate = 1e-3}};
    trainer.train(data);
    return device.memory().usage();
}
std::size_t held_with(ht::extent batch) { return usage_with(batch).peak_held(); }

/// Whether a run fits into a limit, with smaller micro-batches if it must.
bool fits_into(std::size_t limit, ht::arena_kind arenas, ht::extent batch) {
    const std::string corpus = small::text();
    ht::cpu device{{.threads = 1, .memory_limit = limit, .arenas = arenas}};
    try {
        ht::nn::gpt<ht::amp_bf16> model{device, small::config, 1};
        ht::language_data data{ht::token_view{corpus}, small::options};
        ht::trainer trainer{device,
                            model,
                            {.per_device_train_batch_size = batch,
                             .max_steps = 2,
                             .learning_rate = 1e-3,
                             .auto_find_batch_size = true}};
        trainer.train(data);
        return true;
    } catch (const ht::out_of_memory&) {
        return false;
    }
}

TEST_CASE("out of memory by a limit: what fits into a limit fits into every larger one") {
    // Limits at which a segment's reserve would be taken from what another operation of the same step needs among them.
    constexpr std::size_t kibibyte = 1024, first = 450 * kibibyte, last = 2750 * kibibyte, step = 70 * kibibyte;
    for (const auto arenas : {ht::arena_kind::segments, ht::arena_kind::planned, ht::arena_kind::caching}) {
        for (const ht::extent batch : {1, 32}) {
            std::size_t least = 0;
            for (std::size_t limit = first; limit < last; limit += step) {
                CAPTURE(limit);
                CAPTURE(batch);
                CAPTURE(static_cast<int>(arenas));
                const bool fits = fits_into(limit, arenas, batch);
                CHECK((fits || least == 0));
                if (fits && least == 0) least = limit;
            }
            CHECK((least > first && least < 700 * kibibyte));
        }
    }
}

TEST_CASE("out of memory by a limit: the message names the operation, its pass, its layer, and what would fit") {
    const std::size_t limit = held_with(16);
    for (const bool is_watched : {false, true}) {
        const std::string what = message_within(limit, 128, is_watched);
        expect_told(what);
        CAPTURE(what);
        CHECK(what.find(" (forward) of h.") != std::string::npos);
        CHECK(what.find(" in step 1; the largest layers of the run: h.") != std::string::npos);
        CHECK(what.find("; it would fit with micro-batches of ") != std::string::npos);
    }
    CHECK(message_within(limit, 16, false).empty());
}

/// A run with dropout that begins with micro-batches of `batch` rows; its losses and parameters.
struct ran {
    std::vector<double> losses;
    std::vector<std::byte> masters;
    ht::extent batch = 0, accumulation = 0;
    int told = 0;
    std::size_t in_use = 0;  ///< bytes at one time, at most
};
struct recorder : ht::trainer_callback {
    ran* r = nullptr;
    void on_log(const ht::trainer_state& s) override { r->losses.push_back(s.loss); }
    void on_out_of_memory(const ht::trainer_state& s, ht::extent rows, const char* what) override {
        CHECK(s.step == static_cast<std::int64_t>(r->losses.size()));
        CHECK(std::string(what).find("memory: no ") == 0);
        r->batch = rows;
        ++r->told;
    }
};
template <class Model>
ran run_of(Model& model, ht::cpu& device, ht::extent batch, ht::extent accumulation, bool finds) {
    static const std::string corpus = small::text();
    ht::language_data data{ht::token_view{corpus}, small::options};
    ht::trainer trainer{device,
                        model,
                        {.per_device_train_batch_size = batch,
                         .gradient_accumulation_steps = accumulation,
                         .max_steps = 5,
                         .learning_rate = 1e-3,
                         .logging_steps = 1,
                         .auto_find_batch_size = finds}};
    ran r;
    recorder record;
    record.r = &r;
    trainer.add_callback(record);
    trainer.train(data);
    CHECK((r.told == 0 || r.batch == trainer.arguments().per_device_train_batch_size));
    r.batch = trainer.arguments().per_device_train_batch_size;
    r.accumulation = trainer.arguments().gradient_accumulation_steps;
    r.masters = small::masters(model.parameters());
    return r;
}
template <class P>
ran run_within(std::size_t limit, ht::extent batch, ht::extent accumulation, bool finds) {
    ht::cpu device{{.threads = 1, .memory_limit = limit}};
    ht::nn::gpt_config config = small::config;
    config.dropout = 0.1f;
    ht::nn::gpt<P> model{device, config, 1};
    ran r = run_of(model, device, batch, accumulation, finds);
    r.in_use = device.memory().usage().peak();
    return r;
}
constexpr std::size_t no_limit = static_cast<std::size_t>(-1);

TEST_CASE_TEMPLATE("auto_find_batch_size: a run that begins too large is the run that began with what fits", P,
                   ht::amp_fp16, ht::amp_bf16) {
    // Rows of 12 fit, and those of 24 do not, whatever memory the kernels of this processor take beside them: near a limit
    // no more is taken from the system than is in use at one time.
    const std::size_t fits = run_within<P>(no_limit, 12, 4, false).in_use,
                      fails = run_within<P>(no_limit, 24, 2, false).in_use, limit = (fits + fails) / 2;
    REQUIRE(fits < fails);
    const ran found = run_within<P>(limit, 48, 1, true);
    CHECK(found.told >= 2);
    CHECK(found.batch < 48);
    CHECK(found.batch * found.accumulation == 48);
    const ran from_the_start = run_within<P>(no_limit, found.batch, found.accumulation, false);
    CHECK(found.losses == from_the_start.losses);
    CHECK(found.masters == from_the_start.masters);
    CHECK(from_the_start.told == 0);
    CHECK_THROWS_AS(run_within<P>(limit, 48, 1, false), ht::out_of_memory);
    const ran roomy = run_within<P>(no_limit, 48, 1, true);
    CHECK(roomy.batch == 48);
    CHECK(roomy.losses == run_within<P>(no_limit, 48, 1, false).losses);
}

/// Throws out_of_memory once, in the `left`-th micro-batch, behind the forward pass.
struct scarce_gpt : ht::nn::gpt<ht::amp_fp16> {
    using gpt::gpt;
    mutable int left = 0;
    template <class Context, class Batch>
    ht::variable<float, 0> loss(Context&& ctx, const Batch& batch) const {
        const auto loss = gpt::loss(ctx, batch);
        if (--left == 0) ht::fail<ht::out_of_memory>("memory: no 1 bytes for other; held: nothing");
        return loss;
    }
};

TEST_CASE("auto_find_batch_size: out of memory in a later step repeats that step alone, with its batch") {
    ht::nn::gpt_config config = small::config;
    config.dropout = 0.1f;
    const auto run = [&](int fails_in) {
        ht::cpu device{{.threads = 1}};
        scarce_gpt model{device, config, 1};
        model.left = fails_in;
        return run_of(model, device, 6, 2, true);
    };
    const ran never = run(0), first_of_third = run(5), second_of_third = run(6);
    CHECK((never.batch == 6 && never.told == 0));
    for (const ran& r : {first_of_third, second_of_third}) {
        CHECK((r.batch == 3 && r.accumulation == 4 && r.told == 1));
        REQUIRE(r.losses.size() == 5);
        CHECK((r.losses[0] == never.losses[0] && r.losses[1] == never.losses[1]));
        CHECK(std::abs(r.losses[2] - never.losses[2]) < 0.1);  // other dropout
    }
    CHECK(first_of_third.losses == second_of_third.losses);
    CHECK(first_of_third.masters == second_of_third.masters);
}

TEST_CASE("auto_find_batch_size: where not even a row fits, the error is that of the last attempt") {
    ht::cpu device{{.threads = 1, .memory_limit = usage_with(1).peak() - 64}};
    const std::string corpus = small::text();
    ht::nn::gpt<ht::amp_bf16> model{device, small::config, 1};
    ht::language_data data{ht::token_view{corpus}, small::options};
    ht::trainer trainer{
        device,
        model,
        {.per_device_train_batch_size = 6, .max_steps = 2, .learning_rate = 1e-3, .auto_find_batch_size = true}};
    try {
        trainer.train(data);
        FAIL("fits");
    } catch (const ht::out_of_memory& e) {
        expect_told(e.what());
        CHECK(trainer.arguments().per_device_train_batch_size == 1);
        CHECK(trainer.arguments().gradient_accumulation_steps == 6);
    }
}

}  // namespace train_out_of_memory_tests
