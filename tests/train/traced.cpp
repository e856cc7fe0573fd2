// SPDX-License-Identifier: MIT
/// \file
/// A trainer's ranges: a trace of its steps, the table of what its operations could be, and that neither changes a bit.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/observe/profile/peaks.hpp>
#include <halftone/observe/profile/speed_of_light.hpp>
#include <halftone/observe/trace/chrome.hpp>
#include <halftone/observe/trace/listeners.hpp>
#include <halftone/observe/trace/workers.hpp>

#include "observe/trace_checks.hpp"
#include "support/temporary_folder.hpp"
#include "train/small_gpt.hpp"

namespace train_traced_tests {

namespace ht = halftone;

const ht::training_arguments arguments{.per_device_train_batch_size = 4,
                                       .gradient_accumulation_steps = 2,
                                       .max_steps = 4,
                                       .learning_rate = 1e-3,
                                       .logging_steps = 2,
                                       .eval_steps = 2};

template <class Policy>
struct run {
    explicit run(ht::range_listener* listener, ht::executor* executor = nullptr, int checkpointing = 0)
        : device{{.threads = executor == nullptr ? 1 : 0, .executor = executor}}, model{device, small::config, 1},
          data{ht::token_view{text}, small::options}, trainer{device, model, with(checkpointing), ht::watched} {
        trainer.listen(listener);
    }
    static ht::training_arguments with(int checkpointing) {
        ht::training_arguments a = arguments;
        a.gradient_checkpointing = checkpointing != 0;
        a.memory.checkpoint_every = std::max(1, checkpointing);
        return a;
    }

    std::string text = small::text();
    ht::cpu device;
    ht::nn::gpt<Policy> model;
    ht::language_data data;
    ht::trainer<ht::cpu, ht::nn::gpt<Policy>, ht::watched_tape> trainer;
};

/// A plain kernel in place of a fast one: where an operation of a layer begins, the same product by plain loops.
struct planted_product final : ht::range_listener {
    explicit planted_product(const char* where) : layer_(where) {}
    void begin(const char*, ht::pass p) override { is_forward_ = p == ht::pass::forward; }
    void end() override {}
    bool wants_origins() const override { return true; }
    void layer(const char* path) override {
        if (!is_forward_ || layer_ != path) return;
        ++planted;
        constexpr int n = 160;
        static float a[n][n], b[n][n];
        [[maybe_unused]] static volatile float sink;
        for (int i = 0; i < n; ++i) {
            for (int j = 0; j < n; ++j) {
                float sum = 0;
                for (int k = 0; k < n; ++k) sum += a[i][k] * b[k][j];
                sink = sum;
            }
        }
    }
    int planted = 0;

  private:
    std::string layer_;
    bool is_forward_ = false;
};

/// An operation that takes its time.
struct slow {
    static constexpr const char* name = "slow_product";
    static auto forward(auto& ctx, const auto& x) {
        spend();
        return ht::keep(ht::map(ctx, [](auto a) { return a + 0.5f; }, x), x);
    }
    static auto backward(auto& ctx, const auto& dy, const auto&) { return ht::map(ctx, [](auto g) { return g; }, dy); }
    static void spend() {
        static volatile float sink = 0;
        for (int i = 0; i < 3'000'000; ++i) sink = sink + 1;
    }
};

TEST_CASE("a trace of training: parts add up to the step, layers are told, workers are there, the bits are the same") {
    const support::temporary_folder folder;
    ht::thread_pool pool{2};
    ht::trace_recorder trace{{.schedule = {.wait = 1, .active = 2, .repeat = 1}}};
    ht::traced_executor workers{pool, trace};
    run<ht::amp_bf16> traced(&trace, &workers), plain(nullptr);
    traced.trainer.train(traced.data);
    plain.trainer.train(plain.data);
    CHECK(small::masters(traced.model.parameters()) == small::masters(plain.model.parameters()));
    trace.write(folder.path() / "trace.json");
    const auto j = trace_checks::read(folder.path() / "trace.json");
    trace_checks::check(j);
    std::set<std::string> titles, layers;
    for (const auto& [row, title] : trace_checks::rows_of(j)) titles.insert(title);
    for (const char* title : {"steps", "data loading", "forward", "backward", "optimizer", "worker 0"}) {
        CAPTURE(title);
        CHECK(titles.count(title) == 1);
    }
    for (const auto& e : j["traceEvents"]) {
        if (e["ph"] == "X" && e["args"].contains("layer")) layers.insert(e["args"]["layer"].get<std::string>());
    }
    CHECK(layers.count("h.1.attn.qkv") == 1);
    const double steps = trace_checks::sum_of(j, "steps", "step");
    const double parts = trace_checks::sum_of(j, "data loading", "data loading") +
                         trace_checks::sum_of(j, "forward", "forward") +
                         trace_checks::sum_of(j, "backward", "backward") +
                         trace_checks::sum_of(j, "optimizer", "optimizer");
    CHECK(parts <= steps);
    CHECK(parts >= 0.97 * steps);
}

TEST_CASE("speed of light of training: lines are all of a step, checkpoints repeat what MFU does not count") {
    ht::speed_of_light light, again;
    run<ht::amp_bf16> one(&light), repeated(&again, nullptr, 1);
    one.trainer.train(one.data);
    repeated.trainer.train(repeated.data);
    ht::machine_peaks peaks;
    for (double& rate : peaks.flops) rate = 1e11;
    peaks.bytes = 1e10;
    const ht::light_table t = light.table(peaks), r = again.table(peaks);
    CHECK(t.steps == arguments.max_steps);
    double sum = 0, calls = 0;
    for (const ht::light_row& row : t.rows) {
        sum += row.seconds;
        if (row.operation == "linear_cross_entropy") calls += row.calls;
    }
    CHECK(sum == doctest::Approx(t.step_seconds).epsilon(0.02));
    CHECK(calls == 2 * 2);  // two micro-batches, forward and backward
    CHECK(t.mfu > 0);
    CHECK(r.model_flops == doctest::Approx(t.model_flops));
    const auto of_layer = [](const ht::light_table& table, const char* layer) {
        double flops = 0;
        for (const ht::light_row& row : table.rows) flops += row.layer == layer ? row.flops : 0;
        return flops;
    };
    CHECK(of_layer(r, "h.0.attn.qkv") > 1.3 * of_layer(t, "h.0.attn.qkv"));
}

TEST_CASE("a product by plain loops in a layer of training comes first in the table, with the work of the fast one") {
    ht::speed_of_light light;
    planted_product slow("h.1.attn.qkv");
    ht::listener_list both{{&light, &slow}};
    run<ht::full_fp32> r(&both);
    r.trainer.train(r.data);
    CHECK(slow.planted >= 2 * arguments.max_steps);  // two micro-batches
    ht::machine_peaks peaks;
    for (double& rate : peaks.flops) rate = 1e11;
    peaks.bytes = 1e10;
    const ht::light_table t = light.table(peaks);
    CHECK(t.rows.front().layer == "h.1.attn.qkv");
    CHECK(t.rows.front().operation == "linear");
    CHECK(t.rows.front().pass == ht::pass::forward);
    CHECK(t.rows.front().bound != ht::light_bound::unknown);
    CHECK(t.rows.front().share() < 0.5);
}

TEST_CASE("the steps of a trace are the wall time between their callbacks") {
    struct watch final : ht::trainer_callback {
        std::int64_t first = 0, last = 0;
        void on_step(const ht::trainer_state& s) override { (s.step == 1 ? first : last) = ht::detail::monotonic_nanoseconds(); }
    } wall;
    ht::trace_recorder trace;
    run<ht::amp_bf16> r(&trace);
    r.trainer.add_callback(wall);
    r.trainer.train(r.data);
    std::int64_t inside = 0;
    for (const ht::trace_row& row : trace.rows()) {
        for (const ht::trace_event& e : row.events) {
            const bool is_part = row.title == "steps" || std::string(e.name) == "log";
            if (is_part && e.begin >= wall.first && e.end <= wall.last) inside += e.duration();
        }
    }
    CHECK(static_cast<double>(inside) > 0.97 * static_cast<double>(wall.last - wall.first));
    CHECK(inside <= wall.last - wall.first);
}

TEST_CASE("an operation that takes its time, planted among fast ones, comes first") {
    ht::speed_of_light light;
    ht::cpu device{{.threads = 1}};
    ht::tape<ht::cpu, ht::watched_tape> tape{device, ht::watched};
    tape.listen(&light);
    const std::vector<float> values(64 * 64, 0.1f);
    light.begin_step(1);
    {
        const ht::scoped_range part(tape, "forward");
        auto x = tape.leaf(ht::const_view<float, 2>(values.data(), {64, 64}));
        auto y = ht::matmul(tape, x, x);
        y = ht::apply<slow>(tape, y);
        tape.backward(ht::sum(tape, ht::matmul(tape, y, x)));
    }
    light.end_step();
    const ht::light_table t = light.table(ht::measure_peaks(device, 0.02, 1 << 20));
    CHECK(t.rows.front().operation == "slow_product");
    CHECK(t.rows.front().seconds > 0.5 * t.step_seconds);
}

TEST_CASE("measured peaks are positive, and those of bfloat16 at least those of floats") {
    ht::cpu device{{.threads = 1}};
    const ht::machine_peaks p = ht::measure_peaks(device, 0.05, 1 << 22);
    CHECK(p.of(ht::arithmetic::fp32) > 1e8);
    CHECK(p.of(ht::arithmetic::bf16) >= 0.5 * p.of(ht::arithmetic::fp32));
    CHECK(p.bytes > 1e7);
}

}  // namespace train_traced_tests
