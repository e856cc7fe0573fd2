// SPDX-License-Identifier: MIT
/// \file
/// What a checkpoint of GPT-2 124M costs a training run on the CPU: weights and AdamW's moments, 1.5 GB.
///
///     bench_checkpoint --json checkpoint.json                          // a minute or two, 3.1 GB of disk in the folder of the call
///
/// Saving: rounds of some steps alone and of the steps that begin while a save is under way (io/checkpoint/saver.hpp). Reported
/// are the milliseconds for which save() blocks the loop, and the mean time of the steps beside a save divided by the mean
/// of the steps alone in the same round, as the median over the rounds. Loading: the time of load_checkpoint divided by that of
/// one thread that reads the same files into new memory, in turn: from the disk, as where a run is resumed, the page cache being
/// dropped before each; and from the page cache, as after a save, where reading is a copy within memory.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/io/checkpoint.hpp>

#include <support/program.hpp>

namespace {

namespace ht = halftone;
namespace fs = std::filesystem;
using bench::json;
using gpt = ht::nn::gpt<ht::amp_bf16>;

struct settings : bench::options {
    int layers = 12, steps = 4;
    ht::extent width = 768, heads = 12, vocabulary = 50304, context = 1024, batch = 4, length = 64;
    fs::path folder = "bench_checkpoint_out";

    bench::case_name named(const char* kernel) const {
        return {kernel, std::to_string(layers) + "x" + std::to_string(width), "amp_bf16"};
    }
};

template <class F>
double milliseconds(const F& f) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}
double mean(const std::vector<double>& values) {
    double sum = 0;
    for (const double v : values) sum += v;
    return sum / static_cast<double>(values.size());
}
double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}
double largest(const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); }

/// A run with all that is saved of it, on one batch of random tokens.
class training {
  public:
    training(ht::cpu& device, const settings& o)
        : device_(device),
          model_(device, {.vocabulary = o.vocabulary, .context = o.context, .layers = o.layers, .heads = o.heads, .width = o.width}) {
        std::mt19937 engine(1);
        std::uniform_int_distribution<std::int32_t> any(0, static_cast<std::int32_t>(o.vocabulary - 1));
        for (auto* ids : {&tokens_, &targets_}) {
            ids->resize(static_cast<std::size_t>(o.batch * o.length));
            for (auto& id : *ids) id = any(engine);
        }
        batch_ = {{tokens_.data(), {o.batch, o.length}}, {targets_.data(), {o.batch, o.length}}};
    }
    void step() {
        tape_.backward(model_.loss(tape_, batch_), acc_);
        auto gradients = acc_.take();
        ht::clip_grad_norm(device_, gradients, 1.0f);
        optimizer_.step(gradients);
    }
    /// f(parts...) with the parts of a checkpoint.
    template <class F>
    auto with_parts(const F& f) {
        return f(model_, optimizer_, tape_);
    }
    std::size_t parameters() const { return model_.parameters().size(); }

  private:
    ht::cpu& device_;
    gpt model_;
    ht::adamw<ht::cpu, gpt> optimizer_{device_, model_, {.lr = 3e-4, .weight_decay = 0.1}};
    ht::accumulator<ht::unscaled_t, ht::types<gpt>> acc_{model_, ht::unscaled};
    ht::tape<ht::cpu> tape_{device_};
    std::vector<std::int32_t> tokens_, targets_;
    ht::language_batch batch_;
};

/// A round: some steps alone, a save, and the steps beside it.
struct saved_round {
    std::vector<double> alone, beside;
    double blocked_ms = 0, save_ms = 0;
    double ratio() const { return mean(beside) / mean(alone); }
};
saved_round save_once(training& run, ht::checkpoint_saver& saver, const settings& o, int round) {
    saved_round r;
    for (int i = 0; i < o.steps; ++i) r.alone.push_back(milliseconds([&] { run.step(); }));
    r.save_ms = milliseconds([&] {
        r.blocked_ms = milliseconds([&] {
            run.with_parts([&](auto&... parts) { saver.save({.step = round + 1, .save_total_limit = 1}, parts...); });
        });
        do r.beside.push_back(milliseconds([&] { run.step(); }));
        while (saver.is_saving());
    });
    saver.wait();
    return r;
}

/// A row of the report begins with the case's name.
json row_of(const bench::case_name& name) { return {{"kernel", name.kernel}, {"shape", name.shape}, {"policy", name.policy}}; }

/// Leaves a checkpoint for tell_loading() in any case.
void tell_saving(training& run, const settings& o, bench::report& report) {
    ht::checkpoint_saver saver(o.folder);
    std::vector<double> blocked, ratios;
    json rounds = json::array();
    run.step(), run.step();
    save_once(run, saver, o, 0);  // memory for the copy
    const bench::case_name name = o.named("saving");
    if (!report.wants(name)) return;
    for (int i = 1; i <= o.rounds; ++i) {
        const saved_round r = save_once(run, saver, o, i);
        blocked.push_back(r.blocked_ms), ratios.push_back(r.ratio());
        std::printf("save %d: the loop blocked for %.1f ms; %zu steps of %.0f ms beside it, %.0f ms alone: %.3f times\n", i, r.blocked_ms,
                    r.beside.size(), mean(r.beside), mean(r.alone), r.ratio());
        std::fflush(stdout);
        rounds.push_back({{"blocked_ms", r.blocked_ms}, {"save_ms_at_most", r.save_ms}, {"step_ms_alone", r.alone}, {"step_ms_beside", r.beside},
                          {"ratio", r.ratio()}});
    }
    std::printf("saving: blocks for %.1f ms at most (target 50); steps beside a save take %.3f times as long (target 1.10)\n",
                largest(blocked), median(ratios));
    json row = row_of(name);
    row["blocked_ms"] = largest(blocked);
    row["times_step_time"] = median(ratios);
    row["rounds"] = rounds;
    report.add_row(std::move(row));
}

/// Reads all files of a folder into new memory.
void read_files(const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(folder)) {
        const ht::detail::input_file in(entry.path());
        const auto size = static_cast<std::size_t>(in.size());
        const std::unique_ptr<std::byte[]> bytes(new std::byte[size]);
        in.read(bytes.get(), 0, size);
    }
}

/// Takes a folder's files out of the page cache.
void drop_from_cache(const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(folder)) {
        const int file = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
        if (file < 0 || ::fdatasync(file) != 0 || ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0)
            throw ht::error("cannot take " + entry.path().string() + " out of the page cache");
        ::close(file);
    }
}

void tell_loading(training& run, const settings& o, bench::report& report, bool from_disk) {
    const bench::case_name name = o.named(from_disk ? "loading from disk" : "loading from page cache");
    if (!report.wants(name)) return;
    const fs::path newest = ht::list_checkpoints(o.folder).front().path;
    const auto load = [&] {
        run.with_parts([&](auto&... parts) { ht::load_checkpoint(newest, {}, parts...); });
    };
    std::uintmax_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(newest)) bytes += entry.file_size();
    std::vector<double> reading, loading, ratios;
    read_files(newest), load();
    for (int i = 0; i < 2 * o.rounds + 1; ++i) {
        if (from_disk) drop_from_cache(newest);
        reading.push_back(milliseconds([&] { read_files(newest); }));
        if (from_disk) drop_from_cache(newest);
        loading.push_back(milliseconds(load));
        ratios.push_back(loading.back() / reading.back());
    }
    std::printf("loading %.2f GB from the %s: %.0f ms, reading the files %.0f ms: %.3f times as long (target 1.50)\n",
                static_cast<double>(bytes) / 1e9, from_disk ? "disk" : "page cache", median(loading), median(reading), median(ratios));
    json row = row_of(name);
    row["bytes"] = bytes;
    row["load_ms"] = loading;
    row["read_ms"] = reading;
    row["times_reading"] = median(ratios);
    report.add_row(std::move(row));
}

void run(const settings& o, ht::cpu& device, bench::report& report) {
    report.note("protocol", "rounds of steps alone and of the steps beside a save; loading and reading the same files in turn; a time of several is "
                            "their median, and a ratio the median of the rounds' ratios");
    bool wants_any = false;
    for (const char* const kernel : {"saving", "loading from disk", "loading from page cache"}) wants_any |= report.wants(o.named(kernel));
    if (!wants_any) return;
    if (fs::exists(o.folder)) throw ht::error(o.folder.string() + " exists; name another --folder, which is removed at the end");
    struct removed {
        fs::path folder;
        ~removed() {
            std::error_code ignored;
            fs::remove_all(folder, ignored);
        }
    } const at_the_end{o.folder};
    training run(device, o);
    std::printf("%zu parameters, steps of %lld x %lld tokens\n", run.parameters(), static_cast<long long>(o.batch), static_cast<long long>(o.length));
    report.note("parameters", run.parameters());
    report.note("batch", o.batch);
    report.note("length", o.length);
    tell_saving(run, o, report);
    tell_loading(run, o, report, true);
    tell_loading(run, o, report, false);
}

}  // namespace

int main(int argc, char** argv) {
    settings o;
    o.rounds = 3;
    CLI::App app{"Times what saving and loading a checkpoint costs a training run."};
    app.option_defaults()->always_capture_default();
    app.add_option("--layers", o.layers)->check(CLI::Range(1, 1000));
    app.add_option("--width", o.width);
    app.add_option("--heads", o.heads);
    app.add_option("--vocabulary", o.vocabulary);
    app.add_option("--batch", o.batch, "sequences in a step");
    app.add_option("--length", o.length, "tokens in a sequence");
    app.add_option("--steps", o.steps, "steps alone in a round")->check(CLI::Range(1, 1000));
    app.add_option("--folder", o.folder, "a folder for the checkpoints, which must not exist and is removed at the end");
    return bench::run_cases("bench_checkpoint", app, o, argc, argv, [&](ht::cpu& device, bench::report& report) { run(o, device, report); });
}
