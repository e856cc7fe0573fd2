// SPDX-License-Identifier: MIT
/// \file
/// Compares arenas with each other and with the C library's malloc, on the allocations of training steps of random
/// lengths: bytes reserved, system calls, seconds.
///
///     bench_memory_arenas --json memory_arenas.json
///     bench_memory_arenas --tiny                                    // a small model: seconds
///
/// The allocations of one forward and backward pass are recorded for each length on a planning device, and replayed; no
/// kernel runs. Each contender first runs the largest length three times. `touched` also writes a byte of each page of
/// each block, as the kernels of a step would; the others do not access the memory.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <halftone/memory/arena.hpp>

#include <support/activation_calls.hpp>
#include <support/program.hpp>
#include <support/system_calls.hpp>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace {

namespace ht = halftone;
using ht::extent;
using clock_type = std::chrono::steady_clock;

struct settings : bench::options {
    int steps = 10'000, touched_steps = 40, counted_steps = 500;
    bool tiny = false;

    ht::nn::gpt_config config() const {
        if (tiny) return {.vocabulary = 256, .context = 128, .layers = 2, .heads = 2, .width = 64};
        return {.vocabulary = 50304, .context = 1024, .layers = 12, .heads = 12, .width = 768};
    }
};

/// malloc, aligned to 16 bytes; or with the arenas' alignment.
class c_library {
  public:
    explicit c_library(bool is_aligned) : is_aligned_(is_aligned) {}
    std::byte* allocate(std::size_t bytes) {
        return static_cast<std::byte*>(is_aligned_ ? std::aligned_alloc(ht::block_alignment, bytes) : std::malloc(bytes));
    }
    void deallocate(std::byte* block, std::size_t) { std::free(block); }
    /// Returns free memory to the system.
    static void trim() {
#if defined(__GLIBC__)
        malloc_trim(0);
#endif
    }
    /// Bytes taken from the system; 0: not known.
    static std::size_t reserved() {
#if defined(__GLIBC__)
        const struct mallinfo2 now = mallinfo2();
        return now.arena + now.hblkhd;
#else
        return 0;
#endif
    }

  private:
    bool is_aligned_;
};

/// What one allocator is measured by.
struct contender {
    std::string name;
    std::function<void(const calls::sequence&)> run;
    std::function<void(const calls::sequence&)> run_touched;
    std::function<std::size_t(const calls::sequence&)> reserved_in;  ///< the most, during a step
    std::size_t warm = 0, reserved = 0;
    std::optional<std::int64_t> system_calls;
    std::vector<double> seconds, seconds_touched;  ///< a step, in each round
};

template <class Allocator>
class touching {
  public:
    explicit touching(Allocator& on) : on_(&on) {}
    std::byte* allocate(std::size_t bytes) {
        std::byte* const block = on_->allocate(bytes);
        for (std::size_t i = 0; i < bytes; i += 4096) static_cast<volatile std::byte*>(block)[i] = std::byte{1};
        return block;
    }
    void deallocate(std::byte* block, std::size_t bytes) { on_->deallocate(block, bytes); }

  private:
    Allocator* on_;
};

template <class Allocator, class Reserved>
contender contender_on(const std::string& name, std::shared_ptr<Allocator> on, const Reserved& reserved) {
    contender c;
    c.name = name;
    c.run = [on, replay = calls::replayed<Allocator>(*on)](const calls::sequence& s) mutable { replay.run(s); };
    c.run_touched = [on](const calls::sequence& s) {
        touching<Allocator> touched(*on);
        calls::replayed<touching<Allocator>>(touched).run(s);
    };
    c.reserved_in = [on, reserved](const calls::sequence& s) {
        std::size_t most = reserved();
        calls::replayed<Allocator>(*on).run(s, [&] { most = std::max(most, reserved()); });
        return most;
    };
    return c;
}

double seconds_of(const std::function<void(const calls::sequence&)>& run, const std::vector<const calls::sequence*>& steps) {
    const auto begin = clock_type::now();
    for (const calls::sequence* s : steps) run(*s);
    return std::chrono::duration<double>(clock_type::now() - begin).count() / static_cast<double>(steps.size());
}
double median(std::vector<double> v) {
    std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
}

/// The allocators whose names are wanted. The arenas' memories are put into `memories`, which outlive them.
std::vector<contender> contenders_of(const std::function<bool(const std::string&)>& wants, std::vector<std::unique_ptr<ht::host_memory>>& memories) {
    std::vector<contender> all;
    for (const ht::arena_kind kind : {ht::arena_kind::segments, ht::arena_kind::planned, ht::arena_kind::growable, ht::arena_kind::caching}) {
        if (!wants(ht::name(kind))) continue;
        memories.push_back(std::make_unique<ht::host_memory>());
        memories.back()->set_arenas(kind);
        const auto arena = std::make_shared<ht::arena>(*memories.back(), ht::memory_kind::activation);
        all.push_back(contender_on(ht::name(kind), arena, [arena] { return arena->reserved(); }));
    }
    for (const char* const name : {"malloc", "aligned_alloc"}) {
        if (!wants(name)) continue;
        // What the other has left behind is not counted.
        const auto before = std::make_shared<std::optional<std::size_t>>();
        all.push_back(contender_on(name, std::make_shared<c_library>(name[0] == 'a'), [before] {
            if (!*before) *before = (c_library::trim(), c_library::reserved());
            const std::size_t now = c_library::reserved();
            return now > **before ? now - **before : 0;
        }));
    }
    return all;
}

/// The bytes that a contender reserves, and its system calls.
void count(contender& c, const settings& o, const std::vector<const calls::sequence*>& steps, const calls::sequence& largest) {
    c.reserved_in({});
    for (int i = 0; i < 3; ++i) c.run(largest);
    c.warm = c.reserved = c.reserved_in(largest);
    // malloc and aligned_alloc are asked after each call, which takes long: for fewer steps.
    const std::size_t asked = c.name.find("alloc") != std::string::npos ? std::min<std::size_t>(steps.size(), 500) : steps.size();
    for (std::size_t i = 0; i < asked; ++i) c.reserved = std::max(c.reserved, c.reserved_in(*steps[i]));
    const auto counted = std::min<std::size_t>(steps.size(), static_cast<std::size_t>(o.counted_steps));
    c.system_calls = bench::memory_calls_of([&] {
        for (std::size_t i = 0; i < counted; ++i) c.run(*steps[i]);
    });
    std::printf("%-13s reserved\n", c.name.c_str());
}

/// Prints the table, and reports a row for each contender.
void tell(const std::vector<contender>& contenders, const settings& o, const char* model, std::size_t in_use, bench::report& report) {
    std::printf("| arena | reserved (MiB) | waste | after the warm-up (MiB) | system calls a step | us a step | ms a step, touched |\n");
    const auto counted = static_cast<double>(std::min(o.steps, o.counted_steps));
    for (const contender& c : contenders) {
        const auto mebibytes = [](std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
        const double waste = static_cast<double>(c.reserved) / static_cast<double>(in_use) - 1;
        std::printf("| %s | %.1f | %.2f%% | +%.1f | %s | %.1f | %.2f |\n", c.name.c_str(), mebibytes(c.reserved), 100 * waste,
                    mebibytes(c.reserved - c.warm),
                    c.system_calls ? std::to_string(static_cast<double>(*c.system_calls) / counted).c_str() : "?",
                    1e6 * median(c.seconds), 1e3 * median(c.seconds_touched));
        bench::json row{{"kernel", c.name}, {"shape", model}, {"policy", "amp_bf16"}, {"reserved_bytes", c.reserved}, {"waste", waste},
                        {"reserved_bytes_after_warm_up", c.warm}};
        row["system_calls_a_step"] = nullptr;
        if (c.system_calls) row["system_calls_a_step"] = static_cast<double>(*c.system_calls) / counted;
        row["seconds_a_step"] = median(c.seconds);
        row["seconds_a_step_touched"] = median(c.seconds_touched);
        report.add_row(std::move(row));
    }
}

void run(const settings& o, ht::cpu& device, bench::report& report) {
    const char* const model = o.tiny ? "2x64" : "GPT-2 124M";
    std::vector<std::unique_ptr<ht::host_memory>> memories;  // they outlive the arenas
    std::vector<contender> contenders =
        contenders_of([&](const std::string& name) { return report.wants({name, model, "amp_bf16"}); }, memories);
    if (contenders.empty()) return;

    const ht::nn::gpt_config config = o.config();
    std::vector<extent> lengths(static_cast<std::size_t>(config.context - 31));
    std::iota(lengths.begin(), lengths.end(), extent{32});
    const auto all = calls::of_lengths<ht::amp_bf16>(device, config, 1, lengths);
    std::mt19937 engine(1);
    std::vector<const calls::sequence*> steps;
    for (int i = 0; i < o.steps; ++i) steps.push_back(&all[engine() % all.size()]);
    const std::size_t in_use = calls::peak_of(all.back());
    for (contender& c : contenders) count(c, o, steps, all.back());
    const std::vector<const calls::sequence*> few(steps.begin(), steps.begin() + std::min<std::ptrdiff_t>(o.touched_steps, o.steps)),
        some(steps.begin(), steps.begin() + std::min<std::ptrdiff_t>(1000, o.steps));
    for (int round = 0; round < o.rounds; ++round) {
        for (std::size_t i = 0; i < contenders.size(); ++i) {
            contender& c = contenders[(i + static_cast<std::size_t>(round)) % contenders.size()];
            c.seconds.push_back(seconds_of(c.run, some));
            c.seconds_touched.push_back(seconds_of(c.run_touched, few));
        }
    }
    std::printf("\n%zu bytes in use at one time, %zu allocations and frees at the largest length\n\n", in_use, all.back().size());
    report.note("protocol", {{"rounds", o.rounds}, {"order", "contenders in turn, in an order that rotates"}, {"steps_a_round", some.size()},
                             {"steps_a_round_touched", few.size()}, {"steps_with_counted_system_calls", std::min(o.steps, o.counted_steps)},
                             {"time", "median over the rounds; nothing but the allocator is called"}});
    report.note("model", {{"layers", config.layers}, {"heads", config.heads}, {"width", config.width}, {"vocabulary", config.vocabulary}, {"policy", "amp_bf16"}});
    report.note("lengths", {{"from", 32}, {"to", config.context}, {"steps", o.steps}, {"warm_up", "the largest, three times"}});
    report.note("bytes_in_use", in_use);
    report.note("calls_of_the_largest_step", all.back().size());
    tell(contenders, o, model, in_use, report);
}

}  // namespace

int main(int argc, char** argv) {
    settings o;
    o.rounds = 9;
    CLI::App app{"Compares arenas and malloc on the allocations of training steps of random lengths."};
    app.add_option("--steps", o.steps, "steps of random lengths")->check(CLI::PositiveNumber);
    app.add_flag("--tiny", o.tiny, "a small model");
    return bench::run_cases("bench_memory_arenas", app, o, argc, argv, [&](ht::cpu& device, bench::report& report) { run(o, device, report); });
}
