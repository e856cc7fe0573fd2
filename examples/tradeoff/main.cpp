// SPDX-License-Identifier: MIT
/// \file
/// What memory costs, in time and loss: the same classifier of texts, from the same initial weights on the same batches, in
/// fp32, in bf16, and in bf16 with checkpointing, with 8-bit AdamW, and with both. `tradeoff --help` lists the options.
///
/// The texts are a folder with the folders pos and neg, one file a text (aclImdb/train, say); without one, short reviews are
/// invented. The rows train in turn, a few steps each, so that all of them share what else the machine does. Prints a table,
/// and writes summary.json, tradeoff.html, a page with the curve, report.html, the rows side by side, and metrics.jsonl.
///
/// Exit codes: 0; 2 for invalid arguments, texts or output folder, with one line and nothing left behind; 130 after Ctrl-C,
/// with no results; 1 for everything else.
#include <chrono>
#include <iostream>

#include <halftone/data/labelled_text.hpp>
#include <halftone/data/synthetic_reviews.hpp>
#include <halftone/data/vocabulary.hpp>
#include <halftone/observe/memory/plan.hpp>
#include <halftone/observe/metrics/output_file.hpp>
#include <halftone/observe/metrics/progress.hpp>
#include <halftone/observe/metrics/terminal.hpp>
#include <halftone/policy/presets.hpp>

#include "../seeing.hpp"
#include "../signals.hpp"
#include "../write_file.hpp"
#include "report.hpp"

namespace ht = halftone;
namespace fs = std::filesystem;

extern template std::unique_ptr<any_run> make_run<ht::full_fp32>(ht::cpu&, const row&, const options&, ht::extent,
                                                                 ht::trainer_callback&, ht::range_listener*);
extern template std::unique_ptr<any_run> make_run<ht::amp_bf16>(ht::cpu&, const row&, const options&, ht::extent,
                                                                ht::trainer_callback&, ht::range_listener*);

namespace {

std::vector<row> all_rows() {
    return {{.name = "fp32"},
            {.name = "bf16", .is_bf16 = true},
            {.name = "bf16, checkpointing", .is_bf16 = true, .recomputes = true},
            {.name = "bf16, adamw_8bit", .is_bf16 = true, .has_8bit_state = true},
            {.name = "bf16, checkpointing, adamw_8bit", .is_bf16 = true, .recomputes = true, .has_8bit_state = true}};
}

std::unique_ptr<any_run> make_row(ht::cpu& device, const row& r, const options& o, ht::extent vocabulary,
                                  ht::trainer_callback& observer, ht::range_listener* listener) {
    return r.is_bf16 ? make_run<ht::amp_bf16>(device, r, o, vocabulary, observer, listener)
                     : make_run<ht::full_fp32>(device, r, o, vocabulary, observer, listener);
}

/// The folder with pos/ and neg/: the options', or that of invented reviews, which are written at the first time.
fs::path folder_of(const options& o) {
    if (!o.text.empty()) return fs::is_directory(o.text / "train" / "pos") ? o.text / "train" : o.text;
    const fs::path folder = o.out / ("reviews_" + std::to_string(o.texts) + "_" + std::to_string(o.seed));
    if (fs::is_directory(folder)) return folder;
    std::cerr << "writing " << 2 * o.texts << " invented reviews to " << folder.string() << '\n';
    // Written aside and renamed, so that an interrupted run leaves no half of them behind.
    fs::path part = folder;
    part += ".part";
    fs::remove_all(part);
    ht::write_synthetic_reviews(part, {.texts_per_class = o.texts, .seed = o.seed});
    fs::rename(part, folder);
    return folder;
}

struct source {
    review_data data;
    ht::extent vocabulary;
    surroundings around;
};

source read(const options& o) {
    const fs::path folder = folder_of(o);
    const ht::labelled_text texts{folder, {.classes = {"neg", "pos"}}};
    const ht::word_vocabulary words{texts, o.vocabulary};
    review_data data{ht::labelled_data{texts, words, {.length = o.length, .held_out = o.held_out, .seed = o.seed}}};
    const ht::cpu device{{.threads = o.threads}};
    surroundings around{.device = device.description(),
                        .isa = ht::name(device.instruction_set()),
                        .threads = device.threads(),
                        .text = o.text.empty() ? "invented reviews" : folder.filename().string(),
                        .training = data.training(),
                        .held_out = data.windows(),
                        .vocabulary = words.size()};
    return {std::move(data), words.size(), around};
}

/// The memory of a row, to the byte: its own code on a device that computes nothing, for as many steps as the peak needs.
void plan_row(finished_row& r, const options& o, source& from) {
    options few = o;
    few.steps = std::min<std::int64_t>(o.steps, 2);
    ht::cpu device{{.threads = o.threads}};
    ht::trainer_callback silent;
    const ht::memory_plan plan = ht::plan(device, [&](ht::cpu& twin) {
        const auto run = make_row(twin, r.what, few, from.vocabulary, silent, twin.listener());
        run->train(from.data, few.steps);
        r.result.parameters = run->parameters();
    });
    r.result.planned = {plan.peak_bytes, plan.peak_bytes_by_kind};
    r.result.operation_at_peak = plan.operation.empty() ? "" : plan.operation + ", " + ht::name(plan.of_pass);
}

/// The progress of all rows, drawn as one.
class shared_bar {
  public:
    explicit shared_bar(std::int64_t steps)
        : bar_(std::cerr, "tradeoff", steps, {.columns = ht::terminal_columns(stderr)}) {}
    void step(const ht::trainer_state& s) {
        bar_.update({.step = ++done_,
                     .loss = s.loss,
                     .learning_rate = s.learning_rate,
                     .tokens_per_second = s.tokens_per_second,
                     .bytes = static_cast<double>(s.peak_bytes)},
                    std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count());
    }
    ht::progress& bar() { return bar_; }

  private:
    ht::progress bar_;
    std::int64_t done_ = 0;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// Tells the bar and the row's files.
class observer final : public ht::trainer_callback {
  public:
    observer(shared_bar& bar, seen_runs::run& seen) : bar_(&bar), seen_(&seen) {}
    void on_step(const ht::trainer_state& s) override {
        bar_->step(s);
        seen_->on_step(s);
    }
    void on_log(const ht::trainer_state& s) override { seen_->on_log(s); }

  private:
    shared_bar* bar_;
    seen_runs::run* seen_;
};

/// Trains all rows in turn. False after Ctrl-C.
bool train(std::vector<finished_row>& rows, const options& o, source& from, seen_runs& seen, file_writes& writes) {
    std::vector<std::unique_ptr<ht::cpu>> devices;
    std::vector<std::unique_ptr<observer>> watches;
    std::vector<std::unique_ptr<any_run>> runs;
    std::vector<seen_runs::run*> told;
    shared_bar bar(o.steps * static_cast<std::int64_t>(rows.size()));
    writes.print_above(&bar.bar());
    for (const finished_row& r : rows) {
        seen_runs::run& own = seen.begin(r.what.name, {.out = o.out, .steps = o.steps, .threads = o.threads, .is_alone = false});
        told.push_back(&own);
        devices.push_back(std::make_unique<ht::cpu>(ht::cpu_options{.threads = o.threads, .executor = own.view.executor()}));
        own.view.watch(devices.back()->memory());
        watches.push_back(std::make_unique<observer>(bar, own));
        runs.push_back(make_row(*devices.back(), r.what, o, from.vocabulary, *watches.back(), own.view.listener()));
    }
    const std::int64_t turn = std::max<std::int64_t>(1, std::min<std::int64_t>(10, o.steps / 5));
    for (std::int64_t step = 0; step < o.steps; step += turn) {
        for (const auto& run : runs) {
            if (received_signal != 0) return writes.print_above(nullptr), false;
            run->train(from.data, std::min(turn, o.steps - step));
        }
    }
    writes.print_above(nullptr);
    bar.bar().finish();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        row_result measured = runs[i]->finish(from.data);
        measured.planned = rows[i].result.planned;
        measured.operation_at_peak = rows[i].result.operation_at_peak;
        rows[i].result = measured;
        told[i]->on_test("test/accuracy", measured.accuracy, o.steps);
    }
    return true;
}

int run(const options& o) {
    ht::output_folder folder(o.out);
    source from = read(o);
    std::cout << from.around.device << '\n'
              << from.around.training << " texts to train on, " << from.around.held_out << " held out, " << from.vocabulary
              << " words\n" << std::flush;
    std::vector<finished_row> rows;
    for (const row& r : all_rows()) {
        rows.push_back({r, {}});
        plan_row(rows.back(), o, from);
    }
    if (o.plan) {
        print_plans(std::cout, rows);
        return 0;
    }
    note_signals();
    file_writes writes("tradeoff", o.on_write_error);
    {
        seen_runs seen(o.out, o, writes);
        if (!train(rows, o, from, seen, writes)) return 128 + received_signal;
        print_table(std::cout, rows);
        writes([&] { write_file(o.out / "summary.json", summary_json(o, from.around, rows)); });
        writes([&] { write_file(o.out / "tradeoff.html", page(o, from.around, rows)); });
        seen.commit(report_page(o, from.around, rows));
    }
    folder.keep();
    std::cout << "\nthe curve: " << (o.out / "tradeoff.html").string() << '\n';
    return writes.any_failed() ? 2 : 0;
}

}  // namespace

int main(int argc, char** argv) {
    return run_main("tradeoff", "these sizes and these texts", [&] {
        const auto o = parse_options(argc, argv);
        return o ? run(*o) : 0;
    });
}
