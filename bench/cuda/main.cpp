// SPDX-License-Identifier: MIT
/// \file
/// Kernels on a GPU, beside what the same GPU's copy and cuBLASLt reach in the same run.
///
/// Exit codes: 0; 2 for arguments; 3 without a usable GPU; 1 where a kernel gave wrong values or failed.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <halftone/observe/machine.hpp>
#include <halftone/observe/output_file.hpp>

#include "bench.hpp"

#if !defined(BENCH_COMMIT)
#define BENCH_COMMIT "unknown"
#endif

namespace {

using json = nlohmann::ordered_json;

class table final : public bench::listener {
  public:
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
    }
    void on_product(const halftone::measured_product& p) override { products_.push_back(p); }
    const json& rows() const { return rows_; }
    const std::vector<halftone::measured_product>& products() const { return products_; }
    bool any_wrong() const { return wrong_; }

  private:
    json rows_ = json::array();
    std::vector<halftone::measured_product> products_;
    bool wrong_ = false;
};

}  // namespace

int main(int argc, char** argv) {
    bench::settings s;
    std::string file, table_file;
    CLI::App app{"Times halftone's kernels on a GPU, beside a copy and cuBLASLt in the same run."};
    app.add_option("--json", file, "write the rows there, too");
    app.add_option("--matmul-table", table_file,
                   "write there which products cuBLASLt multiplies faster, for ht::matmul_table::read");
    app.add_option("--filter", s.filter,
                   "only kernels whose name contains this: matmul, attention, layer_norm, softmax, cross_entropy, "
                   "adamw, map, training step");
    app.add_option("--seconds", s.seconds_each, "that a case is measured for")->capture_default_str();
    bool quick = false, tiny = false;
    app.add_flag("--quick", quick, "few and small shapes");
    app.add_flag("--tiny", tiny, "a tiny shape of each kind and no peer, to see that all of it runs");
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& e) {
        return app.exit(e);
    } catch (const CLI::ParseError& e) {
        std::cerr << "bench_cuda: " << e.what() << '\n';
        return 2;
    }
    s.how_much = tiny ? bench::amount::tiny : quick ? bench::amount::few : bench::amount::all;
    bench::gpu_description gpu;
    try {
        gpu = bench::describe_gpu();
    } catch (const std::exception& e) {
        std::cerr << "bench_cuda: no usable GPU: " << e.what() << '\n';
        return 3;
    }
    table rows;
    json all{{"program", "bench_cuda"}, {"commit", BENCH_COMMIT}};
    int code = 0;
    try {
        std::printf("%s, CUDA %s, driver %s\n", gpu.name.c_str(), gpu.cuda.c_str(), gpu.driver.c_str());
        const bench::peaks p = bench::measure_peaks(s);
        std::printf("copy %.0f GB/s, read and written; cuBLASLt at 8192 cubed %.0f TFLOP/s\n", p.copy_bytes / 1e9,
                    p.bf16_flops / 1e12);
        all["machine"] = {{"cpu", halftone::cpu_model()}, {"gpu", gpu.name}, {"driver", gpu.driver}};
        all["compiler"] = "nvcc, CUDA " + gpu.cuda;
        all["protocol"] =
            "random operands, buffers in turn over 3 times the second-level cache, CUDA graphs of many launches, "
            "medians of 10 to 200 of these; percent_of_peak is of copy_bytes_per_second or of cublaslt_bf16_flops, "
            "measured in the same run";
        all["copy_bytes_per_second"] = p.copy_bytes;
        all["cublaslt_bf16_flops"] = p.bf16_flops;
        bench::bench_step(s, rows);
        bench::bench_rows(s, p, rows);
        bench::bench_attention(s, p, rows);
        bench::bench_matmul(s, p, rows);
        bench::bench_matmul_bytes(s, p, rows);
    } catch (const std::exception& e) {
        std::cerr << "bench_cuda: " << e.what() << '\n';
        all["failed"] = e.what();
        code = 1;
    }
    all["rows"] = rows.rows();
    if (rows.any_wrong()) code = 1;
    const auto write = [&](const std::string& to, const std::string& text) {
        if (to.empty()) return;
        try {
            halftone::output_file out(to);
            out.write(text);
            out.commit();
        } catch (const std::exception& e) {
            std::cerr << "bench_cuda: " << e.what() << '\n';
            code = 1;
        }
    };
    write(file, all.dump(1) + "\n");
    std::replace(gpu.name.begin(), gpu.name.end(), ' ', '-');
    write(table_file, halftone::matmul_table(gpu.name, gpu.architecture, rows.products()).text());
    return code;
}
