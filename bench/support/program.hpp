// SPDX-License-Identifier: MIT
/// \file
/// The common part of all benchmarks: arguments, the machine's peaks, the cases, the JSON.
///
///     int main(int argc, char** argv) {
///         bench::options o;
///         CLI::App app{"Times something, compared with PyTorch."};
///         return bench::run_program("bench_something", app, o, argc, argv, [&](const bench::session& s) { ... });
///     }
#pragma once

#include <cstdio>
#include <stdexcept>

#include <support/peaks.hpp>
#include <support/protocol.hpp>
#include <support/torch.hpp>

namespace bench {

/// What cases are run with.
struct session {
    halftone::cpu& device;
    const options& o;
    bench::report& report;
    const bench::peaks& peaks;
    torch_peer* torch;  ///< nullptr if none was requested

    /// Whether oneDNN, which PyTorch uses, has bfloat16 products on this processor. Otherwise PyTorch takes a hundred
    /// times as long as for floats.
    bool peers_have_bf16() const { return device.instruction_set() >= halftone::isa::avx512; }

    /// Adds PyTorch to a case of products, if requested: in floats, with a name that says so, if it has no others.
    void add_torch(std::vector<contender>& all, json work, std::string engine = "torch") const {
        if (torch == nullptr) return;
        if (work["dtype"] == "bfloat16" && !peers_have_bf16()) {
            work["dtype"] = "float32";
            engine += " fp32";
        }
        all.push_back(torch->contender(std::move(engine), std::move(work)));
    }

    /// Adds PyTorch, or says why not: of packages that need not be installed besides.
    void add_torch_if_installed(std::vector<contender>& all, json work, std::string engine) const {
        try {
            add_torch(all, std::move(work), std::move(engine));
        } catch (const std::runtime_error& e) {
            std::printf("  left out: %s\n", e.what());
        }
    }

    /// Times a case with this number of operations on T and reports it with the peak from registers for T; afterwards
    /// PyTorch frees what it has prepared.
    template <class T>
    void tell_operations(const case_name& name, const std::vector<contender>& all, double operations) const {
        const bool pairs = std::is_same_v<T, halftone::bfloat16>;
        report.add(name, compare(all, o), operations, "GFLOP/s", pairs ? peaks.bf16 : peaks.fp32,
                   pairs ? "peak_bf16_flops" : "peak_fp32_flops");
        if (torch != nullptr) torch->clear();
    }
};

/// A benchmark of cases that are timed in any way: body(device, report), which notes its "protocol" if it is another than compare()'s.
/// Exit codes: 0; 2 for arguments; 1 for any failure, reported in one line.
template <class Body>
int run_cases(const char* name, CLI::App& app, options& o, int argc, char** argv, const Body& body) {
    add_case_options(app, o);
    if (const int code = parse(app, argc, argv, name); code >= 0) return code;
    try {
        halftone::cpu device{{.threads = o.threads}};
        bench::report report(name, o, device);
        body(device, report);
        return report.finish(name);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s: %s\n", name, e.what());
        return 1;
    }
}

/// A benchmark whose cases compare() times, beside the machine's peaks and PyTorch: body(session).
template <class Body>
int run_program(const char* name, CLI::App& app, options& o, int argc, char** argv, const Body& body) {
    add_compare_options(app, o);
    return run_cases(name, app, o, argc, argv, [&](halftone::cpu& device, bench::report& report) {
        const bench::peaks peaks = bench::measure_peaks(device, report);
        const auto torch = torch_if_asked(o, report);
        body(session{device, o, report, peaks, torch.get()});
    });
}

}  // namespace bench
