// SPDX-License-Identifier: MIT
/// \file
/// Times kernels on a GPU, compared with the rates of a copy and of cuBLASLt on the same GPU in the same run.
///
/// Exit codes: 0; 2 for arguments; 3 without a usable GPU; 1 if a kernel gave wrong values or failed.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <halftone/observe/metrics/machine.hpp>
#include <halftone/observe/metrics/output_file.hpp>

#include "bench.hpp"

#if !defined(BENCH_COMMIT)
#define BENCH_COMMIT "unknown"
#endif

namespace {

using json = nlohmann::ordered_json;

struct options {
    bench::settings settings;
    std::string file, table_file, ceilings_file;
    bool smoke = false, check = false;
};

/// The JSON file, rewritten completely after every row, so that an interrupted run leaves the rows so far.
class results final : public bench::listener, public bench::smoke_listener {
  public:
    results(const options& o, const bench::gpu_description& gpu) : file_(o.file), table_file_(o.table_file), gpu_(gpu) {
        all_ = {{"program", "bench_cuda"},
                {"commit", BENCH_COMMIT},
                {"machine", {{"cpu", halftone::cpu_model()}, {"gpu", gpu.name}, {"driver", gpu.driver}}},
                {"compiler", "nvcc, CUDA " + gpu.cuda},
                {"protocol",
                 "random operands, buffers in turn over 3 times the second-level cache, CUDA graphs of many launches, "
                 "medians of 10 to 200 of these; percent_of_peak is of copy_bytes_per_second or of "
                 "cublaslt_bf16_flops"}};
        std::replace(gpu_.name.begin(), gpu_.name.end(), ' ', '-');
    }

    void on_peaks(const bench::peaks& p) {
        all_["copy_bytes_per_second"] = p.copy_bytes;
        all_["cublaslt_bf16_flops"] = p.bf16_flops;
        renew();
    }
    void on_row(const bench::row& r) override {
        std::printf("%-24s %-36s %-24s %-16s %12.2f us %10.1f %-8s %5.1f%%", r.kernel.c_str(), r.shape.c_str(),
                    r.policy.c_str(), r.engine.c_str(), r.seconds * 1e6, r.rate, r.unit.c_str(), r.percent_of_peak);
        json ratios = json::object();
        for (const auto& [peer, ratio] : r.ratio_to) {
            std::printf("  %.2f of %s", ratio, peer.c_str());
            ratios[peer] = ratio;
        }
        std::puts("");
        std::fflush(stdout);
        wrong_ = wrong_ || r.engine.find("WRONG") != std::string::npos;
        rows_.push_back({{"kernel", r.kernel}, {"shape", r.shape}, {"policy", r.policy}, {"engine", r.engine}, {"seconds", r.seconds}, {"p10", r.p10}, {"p90", r.p90}, {"rate", r.rate},
                         {"unit", r.unit}, {"percent_of_peak", r.percent_of_peak}, {"ratio_to", ratios}});
        renew();
    }
    void on_product(const halftone::measured_product& p) override { products_.push_back(p); }
    void on_kernel(const bench::smoke_row& r) override {
        std::printf("%-28s %7lld of %7lld wrong  %6.2f s  %s\n", r.kernel.c_str(), static_cast<long long>(r.wrong),
                    static_cast<long long>(r.of), r.seconds, r.what.c_str());
        std::fflush(stdout);
        wrong_ = wrong_ || !r.what.empty();
        smoke_.push_back({{"kernel", r.kernel}, {"wrong", r.wrong}, {"of", r.of}, {"what", r.what}, {"seconds", r.seconds}});
        renew();
    }
    void on_failure(const char* what) {
        all_["failed"] = what;
        renew();
    }
    bool any_wrong() const { return wrong_; }
    bool any_unwritten() const { return unwritten_; }

  private:
    void renew() {
        if (!file_.empty()) {
            json now = all_;
            if (!smoke_.empty()) now["smoke"] = smoke_;
            now["rows"] = rows_;
            write(file_, now.dump(1) + "\n");
        }
        if (!table_file_.empty())
            write(table_file_, halftone::matmul_table(gpu_.name, gpu_.architecture, products_).text());
    }
    void write(const std::string& to, const std::string& text) {
        try {
            halftone::output_file out(to);
            out.write(text);
            out.commit();
        } catch (const std::exception& e) {
            if (!unwritten_) std::cerr << "bench_cuda: " << e.what() << '\n';
            unwritten_ = true;
        }
    }

    std::string file_, table_file_;
    bench::gpu_description gpu_;
    json all_, rows_ = json::array(), smoke_ = json::array();
    std::vector<halftone::measured_product> products_;
    bool wrong_ = false, unwritten_ = false;
};

/// The peaks from the file, if it exists and is of this GPU; otherwise measures them and writes the file.
bench::peaks find_peaks(const options& o, const bench::gpu_description& gpu) {
    if (std::ifstream file(o.ceilings_file); !o.ceilings_file.empty() && file) {
        const json known = json::parse(file, nullptr, false);
        if (known.is_object() && known.value("gpu", "") == gpu.name)
            return {known.value("copy_bytes_per_second", 0.0), known.value("cublaslt_bf16_flops", 0.0)};
    }
    const bench::peaks p = bench::measure_peaks(o.settings);
    if (!o.ceilings_file.empty()) {
        halftone::output_file out(o.ceilings_file);
        const json all{{"gpu", gpu.name}, {"copy_bytes_per_second", p.copy_bytes}, {"cublaslt_bf16_flops", p.bf16_flops}};
        out.write(all.dump(1) + "\n");
        out.commit();
    }
    return p;
}

void run(const options& o, const bench::gpu_description& gpu, results& to) {
    std::printf("%s, CUDA %s, driver %s\n", gpu.name.c_str(), gpu.cuda.c_str(), gpu.driver.c_str());
    std::fflush(stdout);
    if (o.check) {
        bench::check_gpu();
        std::puts("memory and kernels answer");
        return;
    }
    if (o.smoke) {
        bench::run_smoke_test(o.settings.is_tiny() ? 256 : 2048, to);
        return;
    }
    const bench::settings& s = o.settings;
    const bench::peaks p = find_peaks(o, gpu);
    std::printf("copy %.0f GB/s, read and written; cuBLASLt at 8192 cubed %.0f TFLOP/s\n", p.copy_bytes / 1e9,
                p.bf16_flops / 1e12);
    to.on_peaks(p);
    bench::bench_matmul(s, p, to);
    bench::bench_matmul_bytes(s, p, to);
    bench::bench_attention(s, p, to);
    bench::bench_rows(s, p, to);
    bench::bench_own_models(s, p, to);
    bench::bench_step(s, to);
}

}  // namespace

int main(int argc, char** argv) {
    options o;
    bench::settings& s = o.settings;
    CLI::App app{"Times halftone's kernels on a GPU, compared with a copy and cuBLASLt in the same run."};
    app.add_option("--json", o.file, "a file to which the rows are also written; it is rewritten after each row");
    app.add_option("--matmul-table", o.table_file,
                   "write there which products cuBLASLt multiplies faster, for ht::matmul_table::read");
    app.add_option("--ceilings", o.ceilings_file,
                   "what the copy and cuBLASLt reach: read from this file where it is there, else measured and written");
    app.add_option("--filter", s.filters,
                   "only kernels whose name contains one of these: matmul, attention, layer_norm, softmax, "
                   "cross_entropy, adamw, map, reduction, gather, copy, rotary, batch_norm, pool, conv2d, adamw_8bit, training "
                   "step, GPT-2 step; ceilings: nothing but these")
        ->delimiter(',');
    app.add_option("--seconds", s.seconds_each, "time of each case")->capture_default_str();
    bool thin = false, once = false, quick = false, tiny = false;
    app.add_flag("--thin", thin, "only the most informative shapes");
    app.add_flag("--once", once, "one large shape of each kind, run once, with inaccurate times: for a profiler");
    app.add_flag("--quick", quick, "few and small shapes");
    app.add_flag("--tiny", tiny, "a tiny shape of each kind without comparison, to test that all cases run");
    app.add_flag("--smoke", o.smoke, "no times: each kernel once, compared exactly on whole numbers; with --tiny only small products");
    app.add_flag("--check", o.check, "no times: tests whether the GPU responds");
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& e) {
        return app.exit(e);
    } catch (const CLI::ParseError& e) {
        std::cerr << "bench_cuda: " << e.what() << '\n';
        return 2;
    }
    using bench::amount;
    s.how_much = tiny ? amount::tiny : quick ? amount::few : once ? amount::once : thin ? amount::thin : amount::all;
    bench::gpu_description gpu;
    try {
        gpu = bench::describe_gpu();
    } catch (const std::exception& e) {
        std::cerr << "bench_cuda: no usable GPU: " << e.what() << '\n';
        return 3;
    }
    results to(o, gpu);
    try {
        run(o, gpu, to);
    } catch (const std::exception& e) {
        std::cerr << "bench_cuda: " << e.what() << '\n';
        to.on_failure(e.what());
        return 1;
    }
    return to.any_wrong() || to.any_unwritten() ? 1 : 0;
}
