// SPDX-License-Identifier: MIT
/// \file
/// What training a GPT would need, and how long a step would take, on 1 to N devices: memory of each rank, bytes that it
/// receives, time and efficiency, for data parallel training and ZeRO 1, 2 and 3. `scaling --help` lists the options.
///
///     scaling --ranks 4096 --layers 12 --heads 12 --width 768 --context 1024 --vocabulary 50257 --batch 8
///             --step-seconds 0.0192 --bandwidth 450,50 --latency 10,20 --per-node 8 --html scaling.html
///
/// Prints a table for each strategy; with --json and --html it also writes files. Exit codes: 0; 2 for invalid arguments,
/// with one line and nothing left behind; 1 for everything else.
#include <iostream>

#include "../write_file.hpp"
#include "page.hpp"
#include "subject.hpp"

namespace ht = halftone;

namespace {

int run(const options& o) {
    const scaling::subject s = make_subject(o);
    const scaling::machine machine{.within = {1e9 * o.bandwidth[0], 1e-6 * o.latency[0]},
                                   .between = {1e9 * o.bandwidth[1], 1e-6 * o.latency[1]},
                                   .per_node = static_cast<int>(o.per_node),
                                   .at_once = static_cast<int>(o.at_once)};
    // Backward passes have about twice the arithmetic of forward passes; the layers tell how much.
    double forward = 0, backward = 0;
    for (const scaling::layer& l : s.layers) forward += l.forward_flops, backward += l.backward_flops;
    const double passes = o.step_seconds - o.update_seconds;
    const scaling::times measured{.forward = passes * forward / (forward + backward),
                                  .backward = passes * backward / (forward + backward),
                                  .update = o.update_seconds};
    std::vector<scaled> all;
    for (const int zero : o.zero) {
        const scaling::strategy how{.zero = zero, .units = o.units, .micro_batches = static_cast<int>(o.accumulation)};
        all.push_back({how, scaling::table(s, how, machine, measured, static_cast<int>(o.ranks))});
    }
    std::cout << subject_text(o, s) << '\n';
    for (const scaled& each : all) {
        std::cout << '\n' << each.name() << '\n';
        scaling::print(std::cout, each.rows);
    }
    if (!o.json.empty()) write_file(o.json, table_json(o, s, all));
    if (!o.html.empty()) write_file(o.html, table_html(o, s, all));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    return run_main("scaling", "these sizes", [&] {
        const auto o = parse_options(argc, argv);
        return o ? run(*o) : 0;
    });
}
