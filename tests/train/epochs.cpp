// SPDX-License-Identifier: MIT
/// \file
/// Runs of num_train_epochs: their steps, rates and last steps of an epoch are those of transformers' Trainer, on one rank and on
/// several; each row of the library's data comes once an epoch; a run that is resumed within an epoch has the same bits.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/data/data_loader.hpp>
#include <halftone/data/labelled_batches.hpp>
#include <halftone/data/length_buckets.hpp>
#include <halftone/ranks/threads.hpp>
#include <halftone/train/checkpoints.hpp>
#include <halftone/train/ranks.hpp>

#include "optim/golden.hpp"
#include "support/temporary_folder.hpp"
#include "train/small_gpt.hpp"

namespace train_epochs_tests {

namespace ht = halftone;
using ht::extent;

/// Two numbers and the one that belongs to them.
struct line_batch {
    ht::const_view<float, 2> x;  // (rows, 2)
    ht::const_view<float, 2> y;  // (rows, 1)

    extent rows() const { return x.extent_of(0); }
    extent size() const { return rows(); }
    line_batch part(extent first, extent count) const {
        return {{x.data() + 2 * first, {count, 2}}, {y.data() + first, {count, 1}}};
    }
    std::vector<line_batch> split(extent count) const {
        std::vector<line_batch> parts;
        for (extent i = 0; i < count; ++i) parts.push_back(part(i * (rows() / count), rows() / count));
        return parts;
    }
};

/// Row i as golden/epochs.py has it, in order.
class line_data {
  public:
    explicit line_data(extent rows) : rows_(rows) {}

    extent epoch_rows() const { return rows_; }
    line_batch of_epoch(std::uint32_t, extent first, extent rows) {
        x_.clear(), y_.clear();
        for (extent i = first; i < first + rows; ++i) {
            x_.push_back(static_cast<float>(i * 7 % 5 - 2) / 2);
            x_.push_back(static_cast<float>(i * 3 % 7 - 3) / 4);
            y_.push_back(static_cast<float>(i * 5 % 9 - 4) / 4);
        }
        return {{x_.data(), {rows, 2}}, {y_.data(), {rows, 1}}};
    }
    line_batch sample(std::uint32_t, extent rows) { return of_epoch(0, 0, rows); }

  private:
    extent rows_;
    std::vector<float> x_, y_;
};
static_assert(ht::epoch_data<line_data>);

/// A line through zero at first. Notes the rows of each micro-batch.
struct line : ht::nn::model {
    using policy = ht::full_fp32;
    ht::nn::linear<policy> layer;
    mutable std::string micro_batches;

    template <class Device>
    explicit line(Device& device) : ht::nn::model(device), layer(parameters(), 2, 1) {
        commit(*this, 1);
        const float zero[2]{};
        parameters().memory().write(layer.weight.master().data(), zero, 2 * sizeof(float));
        parameters().refresh();
    }
    template <class Context>
    ht::variable<float, 0> loss(Context&& ctx, const line_batch& b) const {
        micro_batches += (micro_batches.empty() ? "" : ",") + std::to_string(b.rows());
        return ht::mean_squared_error(ctx, layer(ctx, ctx.root().to_device(b.x)), b.y);
    }
    std::vector<float> numbers() const {
        std::vector<float> all(3);
        parameters().memory().read(all.data(), layer.weight.master().data(), 2 * sizeof(float));
        parameters().memory().read(&all[2], layer.bias.master().data(), sizeof(float));
        return all;
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.layer); }
};

ht::training_arguments of_run(extent batch, extent accumulation, double epochs) {
    return {.per_device_train_batch_size = batch, .gradient_accumulation_steps = accumulation, .num_train_epochs = epochs,
            .max_grad_norm = 0, .logging_steps = 1};
}
constexpr ht::sgd_options by_sgd{.lr = 0.125};

struct steps_keeper : ht::trainer_callback {
    std::vector<ht::trainer_state> steps;
    std::vector<std::string> micro_batches;
    line* model = nullptr;
    void on_step(const ht::trainer_state& s) override {
        steps.push_back(s);
        if (model != nullptr) micro_batches.push_back(std::exchange(model->micro_batches, {}));
    }
};

TEST_CASE("epochs: steps, micro-batches, rates and what is learnt are those of transformers' Trainer") {
    const std::vector<support::golden_line> lines = support::read_golden("epochs.txt");
    int runs = 0;
    for (std::size_t at = 0; at < lines.size(); ++runs) {
        const support::golden_line& head = lines[at++];
        REQUIRE(head.kind == "run");
        CAPTURE(head.words);
        ht::cpu device;
        line model{device};
        line_data data{static_cast<extent>(head.number(0))};
        ht::trainer trainer{device, model,
                            of_run(static_cast<extent>(head.number(1)), static_cast<extent>(head.number(2)), head.number(3)), by_sgd};
        steps_keeper kept;
        kept.model = &model;
        trainer.add_callback(kept);
        const ht::training_result result = trainer.train(data);
        CHECK(result.steps == static_cast<std::int64_t>(head.number(4)));
        CHECK(trainer.arguments().max_steps == result.steps);
        for (std::size_t step = 0; lines[at].kind == "step"; ++step, ++at) {
            REQUIRE(step < kept.steps.size());
            CHECK(kept.micro_batches[step] == lines[at].words[0]);
            CHECK(kept.steps[step].learning_rate == doctest::Approx(lines[at].number(1)).epsilon(1e-12));
            CHECK(kept.steps[step].epoch == doctest::Approx(lines[at].number(2)).epsilon(1e-12));
            CHECK(kept.steps[step].max_steps == result.steps);
        }
        REQUIRE(lines[at].kind == "end");
        const std::vector<float> numbers = model.numbers();
        // Some ten sums of ten products of numbers below 1, rounded in another order.
        for (std::size_t i = 0; i < 3; ++i) CHECK(std::fabs(static_cast<double>(numbers[i]) - lines[at].number(i)) <= 100 * 0x1p-24);
        ++at;
    }
    CHECK(runs == 12);
}

TEST_CASE("epochs: ranks share the last step of an epoch, also if there are no rows for one of them") {
    for (const extent rows : {extent{13}, extent{11}, extent{10}, extent{7}, extent{5}, extent{2}}) {
        CAPTURE(rows);
        const auto train = [&](int ranks) {
            std::vector<float> numbers;
            std::vector<double> losses;
            ht::run_ranks(ranks, [&](ht::communicator& comm) {
                ht::cpu device{{.threads = 1}};
                line model{device};
                line_data data{rows};
                ht::trainer trainer{device, model, of_run(1, 6 / ranks, 2), by_sgd};
                steps_keeper kept;
                trainer.add_callback(kept);
                ht::join(trainer, comm);
                trainer.train(data);
                ht::check_equal(comm, model);
                if (comm.rank() != 0) return;
                numbers = model.numbers();
                for (const auto& s : kept.steps) losses.push_back(s.step_loss);
            });
            return std::pair{numbers, losses};
        };
        const auto [numbers, losses] = train(1);
        for (const int ranks : {2, 3}) {
            const auto [of_ranks, losses_of_ranks] = train(ranks);
            for (std::size_t i = 0; i < 3; ++i) CHECK(std::fabs(of_ranks[i] - numbers[i]) <= 100 * 0x1p-24f);
            REQUIRE(losses_of_ranks.size() == losses.size());
            for (std::size_t i = 0; i < losses.size(); ++i) CHECK(losses_of_ranks[i] == doctest::Approx(losses[i]).epsilon(1e-5));
        }
    }
}

const std::string corpus = small::text();

/// The windows of an epoch by their names, in its order.
template <class Data>
std::vector<extent> rows_of(Data& data, std::uint32_t epoch, extent step, const std::map<std::string, extent>& names) {
    std::vector<extent> all;
    for (extent first = 0; first < data.epoch_rows(); first += step) {
        const auto batch = data.of_epoch(epoch, first, std::min(step, data.epoch_rows() - first));
        for (extent row = 0; row < batch.rows(); ++row) {
            std::string text;
            for (extent i = 0; i < batch.tokens.extent_of(1); ++i) text += static_cast<char>(batch.tokens(row, i));
            all.push_back(names.at(text));
        }
    }
    return all;
}

TEST_CASE("epochs: of a text its consecutive windows, each once, in another order in each epoch") {
    std::string text;
    for (int i = 0; i < 8 * 53 + 5; ++i) text += static_cast<char>(i / 8 % 8 == i % 8 ? 8 + i / 64 : i % 8);
    ht::language_data data{ht::token_view{text}, {.context = 8, .vocabulary = 32, .held_out = 0, .seed = 5}};
    CHECK(data.epoch_rows() == 53);
    std::map<std::string, extent> names;
    for (extent i = 0; i < 53; ++i) names[text.substr(static_cast<std::size_t>(8 * i), 8)] = i;
    REQUIRE(names.size() == 53);
    const std::vector<extent> first = rows_of(data, 0, 6, names), again = rows_of(data, 0, 10, names), second = rows_of(data, 1, 6, names);
    CHECK(first == again);
    CHECK(first != second);
    for (std::vector<extent> order : {first, second}) {
        std::sort(order.begin(), order.end());
        for (extent i = 0; i < 53; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
    }
    CHECK_THROWS_WITH_AS(data.of_epoch(0, 50, 4), "data: 4 windows from 50 on of an epoch of 53", ht::argument_error);
    CHECK_THROWS_AS(data.of_epoch(0, -1, 4), ht::argument_error);
    CHECK_THROWS_AS(data.of_epoch(0, 0, 0), ht::argument_error);
}

struct number_batch {
    ht::const_view<std::int32_t, 1> numbers;
    extent rows() const { return numbers.size(); }
    extent size() const { return numbers.size(); }
    number_batch part(extent first, extent count) const { return {{numbers.data() + first, {count}}}; }
    std::vector<number_batch> split(extent) const { return {*this}; }
};
number_batch collate(std::span<const int> numbers, ht::batch_memory& memory) {
    const auto to = memory.make<std::int32_t>(ht::shape<1>{static_cast<extent>(numbers.size())});
    std::copy(numbers.begin(), numbers.end(), to.data());
    return {to};
}

TEST_CASE("epochs: a data loader's batches, the last one smaller or dropped") {
    const std::vector<int> source{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    for (const auto last : {ht::last_batch::keep, ht::last_batch::drop}) {
        ht::data_loader loader{source, {.batch_size = 4, .last = last, .seed = 3}, collate};
        static_assert(ht::epoch_data<decltype(loader)>);
        const extent rows = last == ht::last_batch::keep ? 11 : 8;
        CHECK(loader.epoch_rows() == rows);
        std::vector<std::int32_t> once;
        for (extent first = 0; first < rows; first += 4) {
            const number_batch b = loader.of_epoch(1, first, std::min<extent>(4, rows - first));
            once.insert(once.end(), b.numbers.data(), b.numbers.data() + b.rows());
        }
        ht::data_loader by_steps{source, {.batch_size = 4, .last = last, .seed = 3}, collate};
        std::vector<std::int32_t> of_steps;
        const auto in_epoch = static_cast<std::uint32_t>(by_steps.batches());
        for (std::uint32_t step = in_epoch; step < 2 * in_epoch; ++step) {
            const number_batch b = by_steps.sample(step, 4);
            of_steps.insert(of_steps.end(), b.numbers.data(), b.numbers.data() + b.rows());
        }
        CHECK(once == of_steps);
        std::sort(once.begin(), once.end());
        CHECK(std::unique(once.begin(), once.end()) == once.end());
        CHECK(once.size() == static_cast<std::size_t>(rows));
        CHECK_THROWS_WITH_AS(loader.of_epoch(0, 2, 4),
                             "data_loader: a step takes 4 rows of an epoch from 2 on; the loader's batches have 4, of 1 ranks; "
                             "expected a batch_size of a step's rows, and a world_size of 1",
                             ht::argument_error);
        CHECK_THROWS_AS(loader.of_epoch(0, 0, 3), ht::argument_error);
    }
    ht::data_loader of_two{source, {.batch_size = 4, .world_size = 2}, collate};
    CHECK_THROWS_AS(of_two.of_epoch(0, 0, 4), ht::argument_error);
}

struct word {
    static constexpr std::int32_t padding = 0;
    std::vector<std::int32_t> encode(const std::string& text, extent) const {
        return {1, static_cast<std::int32_t>(std::stoi(text)) + 2};
    }
};
struct numbered_text {
    std::string text;
    std::int32_t label;
};

TEST_CASE("epochs: labelled texts, each once") {
    std::vector<numbered_text> texts;
    for (int i = 0; i < 9; ++i) texts.push_back({std::to_string(i), i % 2});
    ht::labelled_data data{texts, word{}, {.length = 2, .seed = 4}};
    static_assert(ht::epoch_data<ht::labelled_data>);
    std::vector<std::int32_t> ids;
    for (const auto& [first, rows] : {std::pair{extent{0}, extent{4}}, {extent{4}, extent{4}}, {extent{8}, extent{1}}}) {
        const ht::labelled_batch b = data.of_epoch(2, first, rows);
        for (extent row = 0; row < rows; ++row) ids.push_back(b.tokens(row, 1));
    }
    std::sort(ids.begin(), ids.end());
    for (std::size_t i = 0; i < 9; ++i) CHECK(ids[i] == static_cast<std::int32_t>(i) + 2);
    CHECK_THROWS_WITH_AS(data.of_epoch(0, 8, 2), "labelled_data: 2 texts from 8 on of an epoch of 9", ht::argument_error);
}

/// A small GPT on some windows of its text.
struct gpt_run {
    ht::cpu device{{.threads = 1}};
    std::string text = corpus.substr(0, 8 * 27 + 1);
    ht::nn::gpt<ht::amp_bf16> model{device, small::config, 1};
    ht::language_data data{ht::token_view{text}, {.context = 8, .vocabulary = 32, .held_out = 0, .seed = 5}};
    ht::trainer<ht::cpu, ht::nn::gpt<ht::amp_bf16>> trainer;

    explicit gpt_run(const ht::training_arguments& a) : trainer(device, model, a) {}
};

ht::training_arguments of_gpt(const std::string& folder) {
    return {.per_device_train_batch_size = 4, .gradient_accumulation_steps = 2, .num_train_epochs = 2.5, .learning_rate = 1e-3,
            .logging_steps = 3, .output_dir = folder, .save_steps = 3};
}

TEST_CASE("epochs: a run that is resumed within an epoch has the same bits") {
    const support::temporary_folder folder;
    gpt_run whole(of_gpt((folder.path() / "whole").string()));
    ht::trainer_checkpoints saved{whole.trainer};
    CHECK(whole.trainer.train(whole.data).steps == 10);  // epochs of 27 windows: three steps of 8, and one of 3
    CHECK(whole.trainer.state().epoch == doctest::Approx(2 + 4.0 / 7));

    ht::training_arguments a = of_gpt((folder.path() / "whole").string());
    a.resume_from_checkpoint = (folder.path() / "whole" / "checkpoint-6").string();
    gpt_run rest(a);
    ht::trainer_checkpoints resumed{rest.trainer};
    REQUIRE(resumed.resumed());
    CHECK(rest.trainer.train(rest.data).steps == 10);
    CHECK(small::masters(rest.model.parameters()) == small::masters(whole.model.parameters()));
    CHECK(rest.trainer.state().epoch == whole.trainer.state().epoch);

    // Fewer epochs than the checkpoint has had.
    a.num_train_epochs = 1;
    gpt_run less(a);
    ht::trainer_checkpoints too_far{less.trainer};
    CHECK_THROWS_WITH_AS(less.trainer.train(less.data), "trainer: a state of step 6; expected 0 to 4, the steps of 1 epochs",
                         ht::argument_error);
}

TEST_CASE("epochs: targets that do not count are left out of the last step, too") {
    // Of the 3 windows of the last step, as one micro-batch of 3 rows or as three: the same loss and gradients.
    const auto train = [](extent batch, extent accumulation) {
        ht::training_arguments a{.per_device_train_batch_size = batch, .gradient_accumulation_steps = accumulation,
                                 .num_train_epochs = 1, .learning_rate = 1e-3, .logging_steps = 1};
        gpt_run r(a);
        steps_keeper kept;
        r.trainer.add_callback(kept);
        r.trainer.train(r.data);
        std::vector<double> losses;
        for (const auto& s : kept.steps) losses.push_back(s.step_loss);
        return losses;
    };
    const std::vector<double> whole = train(8, 1), parts = train(1, 8);
    REQUIRE(whole.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) CHECK(parts[i] == doctest::Approx(whole[i]).epsilon(2e-3));
}

TEST_CASE("epochs: a budget does not change the steps") {
    ht::training_arguments a{.per_device_train_batch_size = 8, .num_train_epochs = 2, .learning_rate = 1e-3};
    a.memory.budget = std::size_t{1} << 30;
    gpt_run r(a);
    CHECK(r.trainer.train(r.data).steps == 8);
    REQUIRE(r.trainer.budget());
    CHECK(r.trainer.state().epoch == 2);
}

std::string message(const auto& f) {
    try {
        f();
    } catch (const ht::argument_error& e) {
        return e.what();
    }
    return "no error";
}

/// Batches of line_data; step `empty`, counted from 0, has none of the rows that it is asked for, and window `empty` has none.
struct data_with_gap {
    line_data lines{4};
    std::int64_t empty = -1;
    extent window_count = 0;

    line_batch sample(std::uint32_t step, extent rows) { return lines.of_epoch(0, 0, step == empty ? 0 : rows); }
    extent windows() const { return window_count; }
    line_batch window(extent first, extent) { return lines.of_epoch(0, first, first == empty ? 0 : 1); }
};
/// The same with a size that is not its rows, and no part(): its micro-batches are those that split() gives.
struct whole_batch {
    line_batch inner;
    extent lost = 0;  ///< parts that split() leaves out
    extent rows() const { return inner.rows(); }
    extent size() const { return 7; }
    std::vector<line_batch> split(extent count) const {
        std::vector<line_batch> parts = inner.split(count);
        parts.resize(parts.size() - static_cast<std::size_t>(lost), inner);
        return parts;
    }
};
struct whole_batches {
    data_with_gap inner{};
    extent lost = 0;
    bool are_windows_empty = false;
    whole_batch sample(std::uint32_t step, extent rows) { return {inner.sample(step, rows), lost}; }
    extent windows() const { return 3; }
    line_batch window(extent first, extent) { return inner.lines.of_epoch(0, first, are_windows_empty ? 0 : 1); }
};

TEST_CASE("batches without rows: a step is refused before anything has changed, and a window counts as nothing") {
    const auto run_with = [](auto& data, ht::training_arguments a) {
        ht::cpu device;
        line model{device};
        a.max_steps = 4;
        ht::trainer trainer{device, model, a, by_sgd};
        std::string said = message([&] { trainer.train(data); });
        for (const float x : model.numbers()) CHECK(std::isfinite(x));
        return said + ", at " + std::to_string(trainer.state().step);
    };
    const ht::training_arguments two_parts = of_run(1, 2, 1);
    data_with_gap gap{.empty = 2};
    CHECK(run_with(gap, two_parts) == "trainer: the batch of step 3 has 0 rows; expected 2, or fewer at the end of an epoch, at 2");
    whole_batches whole{.inner = {.empty = 1}};
    CHECK(run_with(whole, two_parts) == "trainer: the batch of step 2 has 0 rows; expected 2, or fewer at the end of an epoch, at 1");
    whole_batches shorter{.lost = 1};
    CHECK(run_with(shorter, two_parts) == "trainer: split(2) of the batch of step 1 gave 1 micro-batches; expected 2, at 0");
    shorter.lost = 2;
    CHECK(run_with(shorter, two_parts) == "trainer: split(2) of the batch of step 1 gave 0 micro-batches; expected 2, at 0");
    shorter.lost = -1;
    CHECK(run_with(shorter, two_parts) == "trainer: split(2) of the batch of step 1 gave 3 micro-batches; expected 2, at 0");

    ht::cpu device;
    line model{device};
    ht::training_arguments one_at_a_time = of_run(1, 2, 1);
    one_at_a_time.per_device_eval_batch_size = 1;
    ht::trainer trainer{device, model, one_at_a_time, by_sgd};
    data_with_gap all{.window_count = 3}, without{.empty = 2, .window_count = 3}, two{.window_count = 2};
    CHECK(trainer.evaluate(without).loss == trainer.evaluate(two).loss);
    CHECK(trainer.evaluate(without).loss != trainer.evaluate(all).loss);
    CHECK(trainer.evaluate(without).tokens == 2);
    whole_batches none{.are_windows_empty = true};
    CHECK(message([&] { trainer.evaluate(none); }) == "trainer: evaluate() of data without windows; hold some of it out");
}

/// A loader of its own for each rank: one that has nothing.
struct rank_windows {
    line_data lines{4};
    extent left = 0;
    line_batch now{};
    const line_batch* next() {
        if (left == 0) return nullptr;
        --left;
        now = lines.of_epoch(0, left, 1);
        return &now;
    }
    int position() const { return 0; }
};

TEST_CASE("batches without rows: of several ranks, all refuse a step, and those without windows add nothing") {
    std::atomic<int> refused{0}, evaluated{0};
    ht::run_ranks(2, [&](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        line model{device}, other{device};
        ht::training_arguments a = of_run(1, 1, 1);
        a.max_steps = 4;
        a.per_device_eval_batch_size = 1;
        ht::trainer trainer{device, model, a, by_sgd}, alone{device, other, a, by_sgd};
        ht::join(trainer, comm);
        rank_windows mine{.left = comm.rank() == 0 ? 2 : 0}, whole{.left = 2};
        const ht::evaluation_result r = trainer.evaluate(mine);
        CHECK(r.tokens == 2);
        evaluated += r.loss == alone.evaluate(whole).loss;
        data_with_gap one{.window_count = 1};  // a rank has none
        CHECK(trainer.evaluate(one).loss == alone.evaluate(one).loss);
        data_with_gap half{.empty = 1, .window_count = 2};  // its window has no rows
        CHECK(trainer.evaluate(half).loss == alone.evaluate(one).loss);
        rank_windows nothing;
        CHECK(message([&] { trainer.evaluate(nothing); }) == "trainer: evaluate() of data without windows; hold some of it out");
        data_with_gap gap{.empty = 1};
        refused += message([&] { trainer.train(gap); }) ==
                   "trainer: the batch of step 2 has 0 rows; expected 2, or fewer at the end of an epoch";
        CHECK(trainer.state().step == 1);
    });
    CHECK(refused == 2);
    CHECK(evaluated == 2);
}

TEST_CASE("epochs: a schedule that the program has set stays") {
    const auto rates = [](bool sets, std::size_t budget) {
        ht::training_arguments a{.per_device_train_batch_size = 8, .num_train_epochs = 1, .learning_rate = 1e-3, .logging_steps = 1};
        a.memory.budget = budget;
        gpt_run r(a);
        if (sets) r.trainer.optimizer().set_schedule({.shape = ht::schedule::constant, .warmup_steps = 2});
        steps_keeper kept;
        r.trainer.add_callback(kept);
        r.trainer.train(r.data);
        std::vector<double> all;
        for (const ht::trainer_state& s : kept.steps) all.push_back(s.learning_rate);
        return all;
    };
    for (const std::size_t budget : {std::size_t{0}, std::size_t{1} << 30}) {
        CHECK(rates(true, budget) == std::vector<double>{0, 0.5e-3, 1e-3, 1e-3});
        CHECK(rates(false, budget) == std::vector<double>{1e-3, 0.75e-3, 0.5e-3, 0.25e-3});
    }
}

struct numbers_alone {
    std::int32_t first = 0;
    extent size() const { return 4; }
    std::vector<numbers_alone> split(extent count) const { return std::vector<numbers_alone>(static_cast<std::size_t>(count)); }
};
struct one_number : ht::nn::model {
    using policy = ht::full_fp32;
    ht::nn::linear<policy> layer;
    template <class Device>
    explicit one_number(Device& device) : ht::nn::model(device), layer(parameters(), 2, 1) {
        commit(*this, 1);
    }
    template <class Context>
    ht::variable<float, 0> loss(Context&& ctx, const numbers_alone&) const {
        return ht::sum(ctx, layer(ctx, ht::zeros<float>(ctx, ht::shape<2>{1, 2})));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.layer); }
};

TEST_CASE("epochs: batches that cannot be divided are named, not the data") {
    const std::vector<int> source{0, 1, 2, 3};
    const auto collate_alone = [](std::span<const int> all, ht::batch_memory&) { return numbers_alone{all[0]}; };
    ht::data_loader loader{source, {.batch_size = 4}, collate_alone};
    static_assert(!ht::epoch_data<decltype(loader)>);
    ht::cpu device;
    one_number model{device};
    ht::trainer trainer{device, model, of_run(2, 2, 1), by_sgd};
    CHECK(message([&] { trainer.train(loader); }) ==
          "training_arguments: max_steps is -1, a run of num_train_epochs, and a batch of the data has no rows() or no "
          "part(first, count), by which the last step of an epoch is divided (train/training_data.hpp); expected both, or max_steps");
}

TEST_CASE("epochs: data without epochs, too many steps, and a decay longer than the run") {
    ht::cpu device;
    ht::nn::gpt<ht::amp_bf16> model{device, small::config, 1};
    ht::bucketed_data buckets{{ht::token_view{corpus}}, ht::length_buckets({4000}), {.vocabulary = 32}};
    ht::trainer trainer{device, model, {}};
    CHECK(message([&] { trainer.train(buckets); }) ==
          "training_arguments: max_steps is -1, a run of num_train_epochs, and the data has no epochs (train/training_data.hpp); "
          "expected max_steps");
    gpt_run many({.per_device_train_batch_size = 1, .num_train_epochs = 1e9});
    CHECK(message([&] { many.trainer.train(many.data); }) ==
          "training_arguments: num_train_epochs is 1e+09, of 27 steps each; expected 2147483647 steps at most");
    ht::training_arguments a{.per_device_train_batch_size = 8, .num_train_epochs = 1,
                             .lr_scheduler_type = ht::schedule::warmup_stable_decay, .warmup_steps = 1};
    a.lr_scheduler_kwargs.num_decay_steps = 4;
    gpt_run decays(a);
    CHECK(message([&] { decays.trainer.train(decays.data); }) ==
          "training_arguments: lr_scheduler_kwargs.num_decay_steps is 4; expected 1 to 3, the steps behind the warm-up");
    CHECK(decays.trainer.state().step == 0);
}

}  // namespace train_epochs_tests
