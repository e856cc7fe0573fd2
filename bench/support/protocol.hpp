// SPDX-License-Identifier: MIT
/// \file
/// How the CPU benchmarks measure time, and how they report it.
///
/// Contenders take turns: a round runs every contender once, in an order that is rotated from round to round, each as
/// often as fills some milliseconds. Before a turn the machine rests until the threads of the previous contender have
/// stopped spinning, and the work is done once untimed, so that the contender's own threads are awake. A ratio is the
/// median of the rounds' ratios, so that drift of the machine's speed between rounds affects both in the same way. Operands are
/// random; each contender has its own outputs.
///
///     bench::report report("bench_matmul", options);
///     report.add({"matmul", "256x256x256", "bf16"}, bench::compare({{"halftone", run}, {"onednn", peer}}, options), flops, peak);
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/observe/metrics/machine.hpp>
#include <halftone/observe/metrics/output_file.hpp>

#if !defined(HALFTONE_COMMIT)
#define HALFTONE_COMMIT "unknown"
#endif

namespace bench {

using json = nlohmann::ordered_json;

struct options {
    std::string json_file{};
    std::string filter{};  ///< only cases whose kernel, shape or policy contains it
    std::string torch{};   ///< a Python that has PyTorch; empty: no such peer
    int threads = 2;
    int rounds = 15;
    double seconds = 0.3;  ///< seconds for each contender in a case, over all rounds
    double rest = 0.02;    ///< seconds between turns
};

/// The options that all benchmarks share.
inline void add_case_options(CLI::App& app, options& o) {
    app.add_option("--json", o.json_file, "a file to which the rows are also written");
    app.add_option("--filter", o.filter, "only cases whose kernel, shape or policy contains this");
    app.add_option("--threads", o.threads, "number of threads of every library")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    app.add_option("--rounds", o.rounds, "number of rounds, in which all contenders take turns")
        ->check(CLI::Range(1, 10000))
        ->capture_default_str();
}

/// Those of benchmarks whose cases compare() times.
inline void add_compare_options(CLI::App& app, options& o) {
    app.add_option("--torch", o.torch, "a Python with PyTorch, for comparison");
    app.add_option("--seconds", o.seconds, "time of each library in a case, in all rounds together")
        ->capture_default_str();
}

/// Parses the command line; returns an exit code if the program should end.
inline int parse(CLI::App& app, int argc, char** argv, const char* program) {
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& e) {
        return app.exit(e);
    } catch (const CLI::ParseError& e) {
        std::fprintf(stderr, "%s: %s\n", program, e.what());
        return 2;
    }
    return -1;
}

/// A contender: `run(times)` does the work that often and returns the seconds it took.
struct contender {
    std::string engine;
    std::function<double(int times)> run;
};

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// A contender made of a function of this program.
template <class Work>
contender local(std::string engine, Work work) {
    return {std::move(engine), [work](int times) mutable {
                const auto begin = std::chrono::steady_clock::now();
                for (int i = 0; i < times; ++i) work();
                return seconds_since(begin);
            }};
}

inline double quantile(std::vector<double> values, double q) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

struct timing {
    std::string engine;
    double seconds = 0, p10 = 0, p90 = 0;
    double times_faster = 1;  ///< the first contender's speed relative to this one: the median over the rounds
};

/// Times all contenders in turn; the first one is halftone.
inline std::vector<timing> compare(const std::vector<contender>& all, const options& o) {
    const auto n = all.size();
    std::vector<int> times(n, 1);
    for (std::size_t c = 0; c < n; ++c) {
        all[c].run(1);  // initialises what the first call makes
        const double once = std::max(1e-9, std::min(all[c].run(1), all[c].run(1)));
        times[c] = static_cast<int>(std::clamp(o.seconds / o.rounds / once, 1.0, 1e6));
    }
    std::vector<std::vector<double>> seconds(n), ratios(n);
    for (int round = 0; round < o.rounds; ++round) {
        for (std::size_t turn = 0; turn < n; ++turn) {
            const std::size_t c = (turn + static_cast<std::size_t>(round)) % n;
            if (n > 1) {
                std::this_thread::sleep_for(std::chrono::duration<double>(o.rest));
                all[c].run(1);
            }
            seconds[c].push_back(all[c].run(times[c]) / times[c]);
        }
        for (std::size_t c = 0; c < n; ++c) ratios[c].push_back(seconds[c].back() / seconds[0].back());
    }
    std::vector<timing> result;
    for (std::size_t c = 0; c < n; ++c) {
        result.push_back({all[c].engine, quantile(seconds[c], 0.5), quantile(seconds[c], 0.1),
                          quantile(seconds[c], 0.9), quantile(ratios[c], 0.5)});
    }
    return result;
}

struct case_name {
    std::string kernel, shape, policy;
};

/// Prints a table and collects the JSON, row by row as cases are measured.
class report {
  public:
    report(std::string program, const options& o, const halftone::cpu& device) : options_(o) {
        all_["program"] = std::move(program);
        all_["commit"] = HALFTONE_COMMIT;
        all_["machine"] = {{"cpu", halftone::cpu_model()},
                           {"isa", halftone::name(device.instruction_set())},
                           {"threads", device.threads()},
                           {"gpu", nullptr}};
#if defined(__clang__)
        all_["compiler"] = "clang++ " __clang_version__;
#else
        all_["compiler"] = "g++ " __VERSION__;
#endif
        all_["protocol"] = "random operands; contenders take turns, " + std::to_string(o.rounds) +
                           " rounds, with a rest and an untimed run before each turn; seconds are medians; a ratio is "
                           "the median of the rounds' ratios, times that the peer takes; "
                           "percent_of_peak is of the peak named in the row, measured in the same run";
        all_["rows"] = json::array();
        std::printf("%s; %s\n", halftone::cpu_model().c_str(), device.description().c_str());
    }

    bool wants(const case_name& name) const {
        return (name.kernel + " " + name.shape + " " + name.policy).find(options_.filter) != std::string::npos;
    }

    /// Reports a figure of the machine, such as a peak.
    void machine_figure(const std::string& what, double value, double scale, const char* unit) {
        all_[what] = value;
        std::printf("%s %.1f %s\n", what.c_str(), value / scale, unit);
    }
    void note(const std::string& key, const json& value) { all_[key] = value; }

    /// Adds a row: `work` operations or bytes in one run, `unit` "GFLOP/s" or "GB/s", and the peak in operations or
    /// bytes a second.
    void add(const case_name& name, const std::vector<timing>& timings, double work, const char* unit, double peak,
             const char* peak_name) {
        const timing& ours = timings.front();
        const double rate = work / ours.seconds, percent = peak > 0 ? 100 * rate / peak : 0;
        std::printf("%-22s %-30s %-10s %10.1f us %8.1f %-8s %5.1f%%", name.kernel.c_str(), name.shape.c_str(),
                    name.policy.c_str(), ours.seconds * 1e6, rate / 1e9, unit, percent);
        json ratios = json::object(), peers = json::object();
        for (std::size_t c = 1; c < timings.size(); ++c) {
            std::printf("  %.2fx %s", timings[c].times_faster, timings[c].engine.c_str());
            ratios[timings[c].engine] = timings[c].times_faster;
            peers[timings[c].engine] = timings[c].seconds;
        }
        std::puts("");
        std::fflush(stdout);
        all_["rows"].push_back({{"kernel", name.kernel},
                                {"shape", name.shape},
                                {"policy", name.policy},
                                {"engine", ours.engine},
                                {"seconds", ours.seconds},
                                {"p10", ours.p10},
                                {"p90", ours.p90},
                                {"rate", rate / 1e9},
                                {"unit", unit},
                                {"percent_of_peak", percent},
                                {"peak", peak_name},
                                {"ratio_to", ratios},
                                {"peer_seconds", peers}});
    }
    /// Adds a row of any other form.
    void add_row(json row) { all_["rows"].push_back(std::move(row)); }
    const json& all() const { return all_; }

    /// Writes the JSON if requested. Returns an exit code.
    int finish(const char* program) const {
        if (options_.json_file.empty()) return 0;
        try {
            halftone::output_file out(options_.json_file);
            out.write(all_.dump(1) + "\n");
            out.commit();
            return 0;
        } catch (const std::exception& e) {
            std::fprintf(stderr, "%s: %s\n", program, e.what());
            return 1;
        }
    }

  private:
    options options_;
    json all_;
};

}  // namespace bench
