// SPDX-License-Identifier: MIT
/// \file
/// A trainer's memory budget: the peak is within it, the measures are the cheapest that fit, and what fits nowhere is
/// refused with the missing bytes.
#include <algorithm>
#include <bit>

#include <doctest/doctest.h>

#include <halftone/nn/llama.hpp>
#include <halftone/tensor/tensor.hpp>

#include "support/temporary_folder.hpp"
#include "train/repeated_step.hpp"
#include "train/small_gpt.hpp"

namespace train_memory_budget_tests {

namespace ht = halftone;

using gpt = ht::nn::gpt<ht::amp_bf16>;

ht::nn::gpt_config config_of(int layers) {
    ht::nn::gpt_config config = small::config;
    config.layers = layers;
    return config;
}
ht::training_arguments arguments_of(ht::extent batch, std::size_t budget, const ht::memory_measures& may = {}) {
    return {.per_device_train_batch_size = batch,
            .max_steps = 3,
            .learning_rate = 1e-3,
            .memory = {.budget = budget, .measures = may}};
}
constexpr ht::memory_measures blocks_alone{.micro_batches = false, .logits = false};

struct ran {
    ht::memory_choice choice;
    std::size_t peak_bytes = 0;
    double loss = 0;
    std::vector<std::byte> masters;
};

/// A run of three steps on a device of its own.
ran run_of(int layers, const ht::training_arguments& arguments, const std::vector<ht::parameter_group>& groups = {}) {
    static const std::string corpus = small::text();
    ht::cpu device{{.threads = 1}};
    gpt model{device, config_of(layers), 1};
    ht::language_data data{ht::token_view{corpus}, small::options};
    ht::trainer trainer{device, model, arguments, groups};
    const ht::training_result result = trainer.train(data);
    ran r;
    if (trainer.budget()) r.choice = *trainer.budget();
    r.peak_bytes = device.memory().usage().peak();
    r.loss = result.train_loss;
    r.masters = small::masters(model.parameters());
    return r;
}
std::size_t least_peak(int layers, const ht::training_arguments& arguments) {
    ht::training_arguments hopeless = arguments;
    hopeless.memory.budget = 1;
    try {
        run_of(layers, hopeless);
    } catch (const ht::budget_error& e) {
        CHECK(e.budget_bytes == 1);
        return e.least_bytes;
    }
    FAIL("a byte suffices");
    return 0;
}

/// Budgets evenly between two peaks, both included.
std::vector<std::size_t> budgets_between(std::size_t least, std::size_t most, int count) {
    std::vector<std::size_t> all;
    for (int i = 0; i < count; ++i)
        all.push_back(least + (most - least) * static_cast<std::size_t>(i) / static_cast<std::size_t>(count - 1));
    return all;
}

TEST_CASE("budget: of a GPT of 12 layers the peak is within each budget, as planned") {
    const std::size_t most = run_of(12, arguments_of(8, 0)).peak_bytes, least = least_peak(12, arguments_of(8, 1));
    CHECK(least < most);
    std::vector<double> costs;
    for (const std::size_t budget : budgets_between(least, most, 10)) {
        const ran r = run_of(12, arguments_of(8, budget));
        CAPTURE(r.choice.text);
        CHECK(r.peak_bytes <= budget);
        CHECK(r.peak_bytes == r.choice.peak_bytes);
        CHECK(r.choice.budget_bytes == budget);
        CHECK(r.choice.micro_batch * r.choice.accumulation == 8);
        costs.push_back(r.choice.more_operations);
    }
    CHECK(std::is_sorted(costs.rbegin(), costs.rend()));
    CHECK(costs.front() > 0);
    CHECK(costs.back() == 0);
}

TEST_CASE("budget: blocks computed again change no bits, and a run that fits is left as it is") {
    const ran plain = run_of(12, arguments_of(8, 0));
    const ran exact = run_of(12, arguments_of(8, plain.peak_bytes));
    CHECK(exact.choice.text.find("fits as it is: peak ") == 0);
    const ran less = run_of(12, arguments_of(8, plain.peak_bytes - 1, blocks_alone));
    CHECK(less.choice.recomputed_blocks > 0);
    CHECK(less.choice.text.find("the first " + std::to_string(less.choice.recomputed_blocks) + " of 12 blocks computed again: peak ") == 0);
    CHECK(less.choice.micro_batch == 8);
    CHECK(less.choice.keeps_logits);
    CHECK((plain.masters == exact.masters && plain.masters == less.masters));
    CHECK(plain.loss == less.loss);
}

TEST_CASE("budget: the least one is taken, and a byte and a page below it are refused, by how much and what would help") {
    for (const ht::memory_measures& may : {ht::memory_measures{}, blocks_alone, ht::memory_measures{.recomputation = false}}) {
        const std::size_t least = least_peak(12, arguments_of(8, 1, may));
        CHECK(run_of(12, arguments_of(8, least, may)).peak_bytes == least);
        for (const std::size_t below : {std::size_t{1}, std::size_t{4096}}) {
            try {
                run_of(12, arguments_of(8, least - below, may));
                FAIL("taken");
            } catch (const ht::budget_error& e) {
                const std::string what = e.what();
                CAPTURE(what);
                CHECK(e.least_bytes == least);
                CHECK(what.find("memory.budget: the run needs " + std::to_string(least) + " bytes with ") == 0);
                CHECK(what.find("; " + std::to_string(below) + " more than the " + std::to_string(least - below) +
                                " given; it would take ") != std::string::npos);
                CHECK((what.find("allowing smaller micro-batches") != std::string::npos) == !may.micro_batches);
                CHECK((what.find("allowing blocks to be computed again") != std::string::npos) == !may.recomputation);
            }
        }
    }
}

/// The peak by its plan of a run that computes the chosen blocks again.
template <class Chosen>
std::size_t peak_with(ht::cpu& device, int layers, const Chosen& chosen) {
    static const std::string corpus = small::text();
    return ht::plan(device, [&](ht::cpu& twin) {
               gpt model{twin, config_of(layers), 1};
               model.checkpoint_where(chosen);
               ht::language_data data{ht::token_view{corpus}, small::options};
               ht::trainer trainer{twin, model, [] {
                                       auto arguments = arguments_of(8, 0);
                                       arguments.max_steps = 2;
                                       return arguments;
                                   }()};
               trainer.train(data);
           })
        .peak_bytes;
}

/// For each number of blocks the least peak of all sets of so many blocks.
std::vector<std::size_t> least_peaks(int layers) {
    ht::cpu device{{.threads = 1}};
    std::vector<std::size_t> least(static_cast<std::size_t>(layers) + 1, static_cast<std::size_t>(-1));
    for (unsigned set = 0; set < 1u << layers; ++set) {
        const std::size_t peak = peak_with(device, layers, [set](int block) { return (set >> block & 1) != 0; });
        std::size_t& best = least[static_cast<std::size_t>(std::popcount(set))];
        best = std::min(best, peak);
    }
    return least;
}

/// Blocks are alike, so that time grows with the number of those that are computed again.
void expect_best_of_all_sets(int layers) {
    const std::vector<std::size_t> least = least_peaks(layers);
    const std::size_t most = least[0], bottom = *std::min_element(least.begin(), least.end());
    for (const std::size_t budget : budgets_between(bottom, most, 10)) {
        CAPTURE(budget);
        const auto fewest = std::find_if(least.begin(), least.end(), [budget](std::size_t p) { return p <= budget; });
        CHECK(run_of(layers, arguments_of(8, budget, blocks_alone)).choice.recomputed_blocks == fewest - least.begin());
    }
}

TEST_CASE("budget: no set of blocks that fits has fewer than the chosen one, of all sets of 7 blocks") {
    expect_best_of_all_sets(7);
}
TEST_CASE("budget: the same of all 4,096 sets of 12 blocks" * doctest::skip()) { expect_best_of_all_sets(12); }

TEST_CASE("budget: of all measures no way that fits has fewer operations than the chosen one") {
    static const std::string corpus = small::text();
    ht::cpu device{{.threads = 1}};
    gpt model{device, config_of(5), 1};
    ht::language_data data{ht::token_view{corpus}, small::options};
    const auto arguments = arguments_of(12, 1);
    const std::vector<ht::parameter_group> groups;
    const auto asked = ht::detail::asked_by(arguments);
    const ht::detail::planned_run<ht::cpu, gpt, ht::plain_tape, ht::language_data> run{device, model, arguments, asked, groups, data};
    const ht::detail::budget_question q = run.question();
    CHECK((q.rows == 12 && q.accumulation == 1 && q.length == small::config.context && q.work.blocks == 5 && q.has_logits));
    std::vector<ht::memory_choice> all;
    for (ht::memory_choice way : ht::detail::ways_without_blocks(q)) {
        for (int blocks = 0; blocks <= 5; ++blocks) {
            way.recomputed_blocks = blocks;
            way.more_operations = ht::detail::more_operations(q, way);
            way.peak_bytes = run.plan(way).peak_bytes;
            all.push_back(way);
        }
    }
    CHECK(all.size() == 6 * 2 * 6);  // 1, 2, 3, 4, 6 and 12 rows
    const auto by_peak = [](const ht::memory_choice& a, const ht::memory_choice& b) { return a.peak_bytes < b.peak_bytes; };
    const auto [least, most] = std::minmax_element(all.begin(), all.end(), by_peak);
    for (const std::size_t budget : budgets_between(least->peak_bytes, most->peak_bytes, 25)) {
        const auto answer = ht::detail::cheapest_measures(q, [&](const ht::memory_choice& way) {
            const std::size_t peak = run.plan(way).peak_bytes;
            return ht::detail::budget_plan{peak <= budget, peak};
        });
        REQUIRE(answer.fits);
        double cheapest = 1e9;
        for (const ht::memory_choice& way : all) {
            if (way.peak_bytes <= budget) cheapest = std::min(cheapest, way.more_operations);
        }
        CAPTURE(budget);
        CHECK(answer.way.more_operations == cheapest);
    }
}

TEST_CASE("budget: what else is in use on the device counts; so do evaluations, frozen parameters and accumulation") {
    static const std::string corpus = small::text();
    auto arguments = arguments_of(8, 0);
    arguments.gradient_accumulation_steps = 2;
    arguments.eval_steps = 2;
    arguments.per_device_eval_batch_size = 40;
    const std::vector<ht::parameter_group> groups{{"embed", ht::frozen}};
    const auto run = [&](std::size_t budget, std::string& text) {
        ht::cpu device{{.threads = 1}};
        const ht::tensor<float, 1> others(device.memory(), ht::shape<1>{10000});
        gpt model{device, config_of(4), 1};
        model.parameters().freeze("h.0");
        ht::language_data data{ht::token_view{corpus}, small::options};
        arguments.memory.budget = budget;
        ht::trainer trainer{device, model, arguments, groups};
        device.memory().usage().reset_peaks();  // freezing takes new masters while the old ones are still there
        trainer.train(data);
        if (trainer.budget()) {
            CHECK(trainer.budget()->peak_bytes == device.memory().usage().peak());
            CHECK(trainer.arguments().per_device_train_batch_size == trainer.budget()->micro_batch);
            CHECK(trainer.arguments().gradient_accumulation_steps == trainer.budget()->accumulation);
            text = trainer.budget()->text;
        }
        return device.memory().usage().peak();
    };
    std::string text;
    const std::size_t peak = run(0, text);
    CHECK(run(peak, text) == peak);
    CHECK(text.find("fits as it is") == 0);
    // The evaluation's forward pass of 40 rows has its own peak, which no measure lowers.
    arguments.per_device_eval_batch_size = 8;
    const std::size_t of_training = run(0, text);
    CHECK(run(of_training * 9 / 10, text) <= of_training * 9 / 10);
    CHECK(text.find("fits as it is") == std::string::npos);
}

TEST_CASE("budget: moments in 8 bits where they are allowed, and only where AdamW's do not fit") {
    const ran plain = run_of(4, arguments_of(8, 0));
    const ht::memory_measures moments_alone{.micro_batches = false, .recomputation = false, .logits = false, .eight_bit_moments = true};
    const ran roomy = run_of(4, arguments_of(8, plain.peak_bytes, moments_alone));
    CHECK(!roomy.choice.eight_bit_moments);
    CHECK(roomy.peak_bytes == plain.peak_bytes);
    CHECK((roomy.masters == plain.masters && roomy.loss == plain.loss));
    const ran scarce = run_of(4, arguments_of(8, plain.peak_bytes - 1, moments_alone));
    CHECK(scarce.choice.eight_bit_moments);
    CHECK(scarce.choice.text.find("moments in 8 bits: peak ") == 0);
    CHECK(scarce.peak_bytes == scarce.choice.peak_bytes);
    CHECK(scarce.peak_bytes < plain.peak_bytes - 5 * 4 * 2 * 4096);  // two matrices of 4,096 elements in each block
    auto in_8_bits = arguments_of(8, 0);
    in_8_bits.optim = "adamw_8bit";
    CHECK(scarce.masters == run_of(4, in_8_bits).masters);
}

TEST_CASE("budget: the rate that a program has set stays where another optimizer takes the place of the first one") {
    static const std::string corpus = small::text();
    ht::cpu device{{.threads = 1}};
    gpt model{device, config_of(2), 1};
    ht::language_data data{ht::token_view{corpus}, small::options};
    ht::trainer trainer{device, model, arguments_of(4, std::size_t{1} << 30, {.eight_bit_moments = true})};
    CHECK(trainer.arguments().optim == "adamw_8bit");
    trainer.optimizer().set_lr(0.25);
    trainer.fit_to_budget(data);
    CHECK(trainer.arguments().optim == "adamw");
    CHECK(trainer.optimizer().lr() == 0.25);
    trainer.train(data);
    CHECK(trainer.optimizer().last_lr() == doctest::Approx(0.25 / 3));  // in the last of three steps of a linear decay
}

/// Data without windows, and windows without batches for training.
struct training_alone {
    ht::language_data data;
    ht::language_batch sample(std::uint32_t step, ht::extent rows) { return data.sample(step, rows); }
};
struct windows_alone {
    ht::language_data data;
    ht::extent windows() const { return data.windows(); }
    ht::language_batch window(ht::extent first, ht::extent rows) { return data.window(first, rows); }
};
static_assert(!ht::evaluation_data<training_alone> && !ht::training_data<windows_alone>);

TEST_CASE("budget: an evaluation on other data is within it, and one on the data's own windows does not count then") {
    static const std::string corpus = small::text();
    auto few_windows = small::options;
    few_windows.most_windows = 1;
    const auto run = [&](std::size_t budget, ht::extent eval_rows, auto&& data, windows_alone others) {
        ht::cpu device{{.threads = 1}};
        gpt model{device, config_of(4), 1};
        auto arguments = arguments_of(8, budget);
        arguments.eval_steps = 1;
        arguments.per_device_eval_batch_size = eval_rows;
        ht::trainer trainer{device, model, arguments};
        trainer.train(data, others);
        const std::size_t peak = device.memory().usage().peak();
        if (budget != 0) CHECK(trainer.budget()->peak_bytes == peak);
        return peak;
    };
    const auto whole = [&](const ht::language_options& o) { return ht::language_data{ht::token_view{corpus}, o}; };
    const auto windows = [&](const ht::language_options& o) { return windows_alone{whole(o)}; };
    const std::size_t of_training = run(0, 1, training_alone{whole(few_windows)}, windows(few_windows));
    for (const std::size_t budget : {of_training, of_training * 9 / 10}) {
        CHECK(run(budget, 1, training_alone{whole(few_windows)}, windows(small::options)) <= budget);
        CHECK(run(budget, 64, whole(small::options), windows(few_windows)) <= budget);
        // A forward pass of 64 rows needs more, and no measure lowers that.
        CHECK_THROWS_AS(run(budget, 64, training_alone{whole(few_windows)}, windows(small::options)), ht::budget_error);
    }
}

TEST_CASE("an evaluation that runs out of memory says where, also of windows alone") {
    static const std::string corpus = small::text();
    ht::cpu device{{.threads = 1, .memory_limit = std::size_t{640} << 10}};
    gpt model{device, config_of(2), 1};
    windows_alone others{ht::language_data{ht::token_view{corpus}, small::options}};
    ht::training_arguments arguments = arguments_of(1, 0);
    arguments.per_device_eval_batch_size = 400;
    ht::trainer trainer{device, model, arguments};
    std::string what;
    try {
        trainer.evaluate(others);
    } catch (const ht::out_of_memory& e) {
        what = e.what();
    }
    CAPTURE(what);
    CHECK(what.find("; asked for by ") != std::string::npos);
    CHECK(what.find("; the largest layers of the model: ") != std::string::npos);
}

/// Batch norm, whose statistics are those of a micro-batch, and a layer that needs memory.
struct normed_net : ht::nn::model {
    using policy = ht::full_fp32;
    struct settings {};
    ht::nn::batch_norm2d<ht::at<policy, "bn">> bn;

    explicit normed_net(auto& device, const settings& = {}) : model{device}, bn{parameters(), 3} { commit(*this, 3); }
    settings config() const { return {}; }
    template <class Context>
    ht::variable<float, 0> loss(Context&& ctx, const repeated_step::batch& b) const {
        auto y = bn(ctx, ctx.root().to_device(b.images));
        for (int i = 0; i < 4; ++i) y = ht::gelu(ctx, y);
        return ht::mean_squared_error(ctx, y, b.targets);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.bn); }
};

TEST_CASE(
    "budget: a model with batch norm has the micro-batches that it was asked for, whose statistics are others in "
    "smaller ones") {
    const auto run = [](std::size_t budget) {
        ht::cpu device{{.threads = 1}};
        normed_net model{device};
        repeated_step::data data;
        ht::trainer trainer{device, model, arguments_of(64, budget)};
        trainer.train(data);
        if (budget != 0) CHECK(trainer.budget()->micro_batch == 64);
        return device.memory().usage().peak();
    };
    const std::size_t peak = run(0);
    CHECK(run(peak) == peak);
    CHECK_THROWS_WITH_AS(
        run(peak - 1),
        ht::detail::sentence("memory.budget: the run needs ", peak, " bytes; 1 more than the ", peak - 1,
                             " given; it would take a smaller per_device_train_batch_size, by which the model's "
                             "states become others, shorter rows, moments in 8 bits, a policy of fewer bytes a "
                             "parameter")
            .c_str(),
        ht::budget_error);
}

#if defined(HALFTONE_FULL_TESTS)
TEST_CASE("budget: of a Llama") {
    static const std::string corpus = small::text();
    const auto run = [&](std::size_t budget) {
        ht::cpu device{{.threads = 1}};
        ht::nn::llama<ht::amp_bf16> model{device,
                                          {.vocab_size = 32, .hidden_size = 32, .intermediate_size = 80,
                                           .num_hidden_layers = 4, .num_attention_heads = 4, .num_key_value_heads = 2,
                                           .max_position_embeddings = 8},
                                          1};
        CHECK(model.work(8).block == 32 * 32 * 3 + 3 * 32 * 80 + 32 * 8);
        ht::language_data data{ht::token_view{corpus}, small::options};
        ht::trainer trainer{device, model, arguments_of(8, budget, blocks_alone)};
        trainer.train(data);
        if (budget != 0) CHECK(trainer.budget()->recomputed_blocks > 0);
        return device.memory().usage().peak();
    };
    const std::size_t peak = run(0);
    CHECK(run(peak - 1) < peak);
}
#endif

/// A model without a configuration.
struct nameless : gpt {
    explicit nameless(ht::cpu& device) : gpt(device, small::config, 1) {}
};

TEST_CASE("budget: arguments that contradict it, and a model that cannot be planned") {
    static const std::string corpus = small::text();
    ht::cpu device{{.threads = 1}};
    nameless model{device};
    ht::language_data data{ht::token_view{corpus}, small::options};
    ht::trainer trainer{device, model, arguments_of(8, 1)};
    CHECK_THROWS_WITH_AS(trainer.train(data),
                         "training_arguments: memory.budget of a model that cannot be planned; give it a config() from "
                         "which it is made, as model{device, config}",
                         ht::argument_error);
    auto both = arguments_of(8, 1 << 20);
    both.gradient_checkpointing = true;
    CHECK_THROWS_WITH_AS(check_arguments(both),
                         "training_arguments: gradient_checkpointing together with a memory.budget, which chooses the blocks "
                         "that are computed again; expected one of them",
                         ht::argument_error);
}

TEST_CASE("a trainer's memory history is an argument") {
    static const std::string corpus = small::text();
    const support::temporary_folder folder;
    const std::string file = (folder.path() / "memory.html").string();
    ht::cpu device{{.threads = 1}};
    gpt model{device, config_of(2), 1};
    ht::language_data data{ht::token_view{corpus}, small::options};
    auto arguments = arguments_of(4, 0);
    arguments.memory.history = file;
    ht::trainer trainer{device, model, arguments, ht::watched};
    trainer.train(data);
    const ht::memory_snapshot s = trainer.history()->snapshot();
    CHECK(s.steps.size() == 3);
    CHECK(s.outliving().empty());
    CHECK(s.peak_bytes == device.memory().usage().peak());
    CHECK(std::any_of(s.allocations.begin(), s.allocations.end(),
                      [](const auto& a) { return std::string(a.layer) == "h.1.attn.qkv"; }));
    const std::string page = support::temporary_folder::read(file);
    CHECK(page.find("<!DOCTYPE html>") == 0);
    CHECK(page.find("h.1.attn.qkv") != std::string::npos);

    arguments.memory.history = "memory.txt";
    CHECK_THROWS_AS((ht::trainer{device, model, arguments}), ht::argument_error);
    arguments.memory.history = (folder.path() / "none" / "memory.html").string();
    CHECK_THROWS_AS((ht::trainer{device, model, arguments}), ht::output_error);
}

}  // namespace train_memory_budget_tests
