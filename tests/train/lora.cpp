// SPDX-License-Identifier: MIT
/// \file
/// Training of low-rank adapters: every optimizer, plans to the byte, budgets, checkpoints of what is trained alone.
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/io/checkpoint.hpp>
#include <halftone/observe/lint/lint.hpp>
#include <halftone/observe/shadow/shadow.hpp>
#include <halftone/optim/adafactor.hpp>
#include <halftone/optim/adamw_8bit.hpp>
#include <halftone/optim/lion_8bit.hpp>
#include <halftone/optim/muon.hpp>
#include <halftone/optim/sgd_8bit.hpp>

#include "nn/lora.hpp"
#include "support/temporary_folder.hpp"
#include "train/plan_checks.hpp"
#include "train/small_gpt.hpp"

namespace train_lora_tests {

namespace ht = halftone;
using namespace lora_test;
using tuned = ht::lora<ht::amp_bf16, ht::pure_bf16>;

/// The bits of all parameters that are frozen, or of all others, by their paths.
std::map<std::string, std::vector<double>> values(const ht::store& s, bool frozen) {
    std::map<std::string, std::vector<double>> all;
    for (std::size_t i = 0; i < s.entries().size(); ++i) {
        if (s.entries()[i].frozen == frozen) all[s.entries()[i].path] = values_of(s, i).values;
    }
    return all;
}

/// Steps of a model on the same batches, from `first` on; the last loss.
template <class Model, class Optimizer, class Accumulator>
double steps(ht::cpu& device, Model& model, Optimizer& optimizer, Accumulator& acc, int first, int end) {
    double last = 0;
    ht::tape tape{device};
    for (int step = first; step < end; ++step) {
        const batch b(static_cast<unsigned>(1 + step % 2));
        const auto loss = model.loss(tape, b);
        last = static_cast<double>(loss.item());
        tape.backward(loss, acc);
        auto gradients = acc.take();
        optimizer.step(gradients);
    }
    return last;
}

template <class Make>
void learns(const char* name, const Make& make) {
    CAPTURE(name);
    ht::cpu device{{.threads = 1}};
    const ht::add_adapters added{device, {.rank = 8, .alpha = 16}};
    ht::nn::llama<tuned> model{device, llama_config(), 4};
    const auto before = values(model.parameters(), true);
    auto optimizer = make(device, model);
    ht::accumulator acc{model, ht::unscaled};
    const double first = steps(device, model, optimizer, acc, 0, 1), last = steps(device, model, optimizer, acc, 1, 60);
    CAPTURE(first);
    CAPTURE(last);
    CHECK(last < first - 0.04);
    CHECK(values(model.parameters(), true) == before);
}

TEST_CASE("lora: every optimizer trains adapters, and leaves the base as it is") {
    learns("adamw", [](auto& d, auto& m) { return ht::adamw{d, m, {.lr = 0.01}}; });
    learns("adamw_8bit", [](auto& d, auto& m) { return ht::adamw_8bit{d, m, {.lr = 0.01, .min_8bit_size = 64}}; });
    learns("lion_8bit", [](auto& d, auto& m) { return ht::lion_8bit{d, m, {.lr = 0.003, .min_8bit_size = 64}}; });
    learns("muon", [](auto& d, auto& m) { return ht::muon{d, m, {.hidden = {"*"}, .lr = 0.02}}; });
    learns("adafactor", [](auto& d, auto& m) { return ht::adafactor{d, m, {.lr = 1}}; });
    learns("sgd_8bit", [](auto& d, auto& m) {
        return ht::sgd_8bit{d, m, {.lr = 1, .momentum = 0.9, .min_8bit_size = 64}};
    });
#if defined(HALFTONE_FULL_TESTS)  // the rules of those with 8-bit moments
    learns("lion", [](auto& d, auto& m) { return ht::lion{d, m, {.lr = 0.003}}; });
    learns("sgd", [](auto& d, auto& m) { return ht::sgd{d, m, {.lr = 1, .momentum = 0.9}}; });
#endif
}

TEST_CASE("lora: a run that goes on from a checkpoint of adapters alone has the same bits") {
    ht::cpu device{{.threads = 1}};
    const support::temporary_folder folder;
    const ht::add_adapters added{device, {.rank = 4, .dropout = 0, .trained = {"norm"}}};
    const auto run = [&](int stop, bool resumes) {
        ht::nn::llama<tuned> model{device, llama_config(), 4};
        ht::adamw optimizer{device, model, {.lr = 0.01}};
        ht::accumulator acc{model, ht::unscaled};
        int first = 0;
        if (resumes) {
            const auto from = ht::load_newest_checkpoint(folder.path(), {}, model, optimizer);
            REQUIRE(from);
            first = static_cast<int>(from->step);
        }
        steps(device, model, optimizer, acc, first, stop);
        if (stop == 3) ht::save_checkpoint(folder.path(), {.step = 3}, model, optimizer);
        return values(model.parameters(), false);
    };
    const auto through = run(6, false);
    CHECK(through.size() == 2 * (4 + 7) + 1);
    run(3, false);
    CHECK(run(6, true) == through);
    const ht::tensor_files files(folder.path() / "checkpoint-3" / "model.safetensors");
    CHECK(files.tensors().size() == through.size());
    for (const ht::tensor_info& t : files.tensors()) CHECK(through.count(t.name) == 1);
}

TEST_CASE("lora: plans have the bytes of the run") {
    ht::cpu device{{.threads = 1}};
    const auto program = [](auto& on, int count) {
        const ht::add_adapters added{on, {.rank = 4, .dropout = 0.1f, .targets = {"*.q", "*.v", "*.mlp"}}};
        ht::nn::llama<tuned> model{on, llama_config(), 4};
        ht::adamw optimizer{on, model, {.lr = 0.01}};
        ht::accumulator acc{model, ht::unscaled};
        ht::tape tape{on};
        for (int step = 0; step < count; ++step) {
            const batch b(static_cast<unsigned>(1 + step % 2));
            tape.backward(model.loss(tape, b), acc);
            auto gradients = acc.take();
            optimizer.step(gradients);
        }
    };
    plan_checks::expect_exact("a loop", device, 4, program);
    // Masters of 4 bytes, copies, gradients and two moments are those of adapters alone.
    const ht::memory_plan plan = ht::plan(device, [&](auto& twin) { program(twin, 2); });
    std::size_t adapters = 0;
    for (const ht::planned_parameter& p : plan.parameters) {
        CAPTURE(p.path);
        const bool is_adapter = p.path.find("lora_") != std::string::npos;
        CHECK((p.of(ht::memory_kind::gradient) != 0) == is_adapter);
        CHECK((p.of(ht::memory_kind::moment) != 0) == is_adapter);
        if (is_adapter) adapters += p.of(ht::memory_kind::gradient);
    }
    CHECK(plan.peak_of(ht::memory_kind::gradient) - adapters <= 64);  // and the sums by which infinities are found
    CHECK(plan.peak_of(ht::memory_kind::moment) == 2 * adapters);
}

TEST_CASE("lora: a trainer within a budget of memory, also where the adapters' options are gone") {
    ht::cpu device{{.threads = 1}};
    std::optional<ht::nn::llama<tuned>> model;
    {
        const ht::add_adapters added{device, {.rank = 4}};
        ht::nn::llama_config config = llama_config();
        config.max_position_embeddings = small::config.context;
        model.emplace(device, config, 4);
    }
    const std::string corpus = small::text();
    ht::language_data data{ht::token_view{corpus}, small::options};
    const auto before = values(model->parameters(), true);
    ht::trainer trainer{
        device,
        *model,
        {.per_device_train_batch_size = 4, .max_steps = 4, .learning_rate = 1e-2, .memory = {.budget = 4 << 20}}};
    trainer.train(data);
    REQUIRE(trainer.budget());
    CHECK(device.memory().usage().peak() <= std::size_t{4} << 20);
    CHECK(values(model->parameters(), true) == before);
    CHECK(values(model->parameters(), false) != std::map<std::string, std::vector<double>>{});
}

TEST_CASE("lora: a step differs from fp32 only by rounding, and its sums are short enough") {
    ht::cpu device{{.threads = 1}};
    const ht::add_adapters added{device, {.rank = 4, .alpha = 6, .targets = {"*.attn", "*.gate", "*.down"}}};
    using model_type = ht::nn::llama<ht::recipe<tuned, ht::rule<"h.1.attn.proj", ht::pure_bf16>>>;
    model_type model{device, llama_config(), 1};
    fill_b(model.parameters());
    ht::shadow_twin<model_type> twin{device, llama_config()};
    const batch b;
    const auto report = ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) { return m.loss(tape, b); });
    std::ostringstream table;
    report.print(table);
    CAPTURE(table.str());
    CHECK(report.first() == nullptr);
    CHECK(ht::lint(model, {.rows = 8192, .micro_batches = 512}).empty());
}

}  // namespace train_lora_tests
