// SPDX-License-Identifier: MIT
#include "options.hpp"

#include <algorithm>
#include <cmath>

#include "../parse.hpp"

namespace {

void check_pair(const char* option, std::vector<double>& values, double least) {
    if (values.size() == 1) values.push_back(values[0]);
    if (values.size() != 2) refuse(option, " has ", values.size(), " values; expected one, or two: within a node, between nodes");
    for (const double v : values) {
        if (!(v >= least && v <= 1e9)) refuse(option, " is ", v, "; expected ", least, " to 1e9");
    }
}

void check(options& o) {
    check_range("--ranks", o.ranks, 1, 1 << 20);
    check_range("--layers", o.layers, 1, 1000);
    check_range("--width", o.width, 1, 1 << 16);
    check_range("--heads", o.heads, 1, o.width);
    check_range("--context", o.context, 1, 1 << 20);
    check_range("--vocabulary", o.vocabulary, 1, 1 << 24);
    check_range("--batch", o.batch, 1, 1 << 20);
    check_range("--accumulation", o.accumulation, 1, 1 << 16);
    check_range("--per-node", o.per_node, 1, 1 << 20);
    check_range("--at-once", o.at_once, 0, o.per_node);
    if (o.width % o.heads != 0) refuse("--heads: ", o.heads, " do not divide a --width of ", o.width);
    if (o.policy != "full_fp32" && o.policy != "amp_fp16" && o.policy != "amp_bf16")
        refuse("--policy: there is no '", o.policy, "'; known: full_fp32, amp_fp16, amp_bf16");
    if (o.zero.empty()) refuse("--zero names none");
    for (std::size_t i = 0; i < o.zero.size(); ++i) {
        check_range("--zero", o.zero[i], 0, 3);
        if (std::count(o.zero.begin(), o.zero.end(), o.zero[i]) > 1) refuse("--zero names ", o.zero[i], " twice");
    }
    check_pair("--bandwidth", o.bandwidth, 1e-6);
    check_pair("--latency", o.latency, 0);
    if (!(o.step_seconds > 0 && o.step_seconds <= 1e6))
        refuse("--step-seconds is ", o.step_seconds, "; expected more than 0, and 1e6 at most");
    if (!(o.update_seconds >= 0 && o.update_seconds < o.step_seconds))
        refuse("--update-seconds is ", o.update_seconds, "; expected 0 or more, and less than --step-seconds");
}

}  // namespace

std::optional<options> parse_options(int argc, char** argv) {
    options o;
    CLI::App app{
        "Tells what training a GPT would need and how long a step would take on 1 to N devices: memory of each rank, bytes that "
        "it receives, and time, for data parallel training (zero 0) and ZeRO 1, 2 and 3. Nothing is trained: the memory "
        "comes from the program's plan, the time from a step that you have measured on one device."};
    app.name("scaling");
    app.allow_windows_style_options(false);  // a path may begin with a slash there, too
    app.option_defaults()->always_capture_default();
    app.add_option("--ranks", o.ranks, "the largest number of ranks; the table has 1, 2, 4, ... and this");
    app.add_option("--zero", o.zero, "strategies: 0 (data parallel), 1, 2, 3")->delimiter(',');
    app.add_option("--unit", o.units, "the layers that zero 3 gathers one at a time, by patterns")->delimiter(',');
    app.add_option("--policy", o.policy, "full_fp32, amp_fp16 or amp_bf16");
    app.add_option("--layers", o.layers, "transformer blocks");
    app.add_option("--heads", o.heads, "attention heads; a divisor of the width");
    app.add_option("--width", o.width, "channels");
    app.add_option("--context", o.context, "tokens in a window");
    app.add_option("--vocabulary", o.vocabulary, "token ids");
    app.add_option("--batch", o.batch, "windows in a micro-batch of a rank");
    app.add_option("--accumulation", o.accumulation, "micro-batches of a rank in a step");
    app.add_option("--step-seconds", o.step_seconds, "the time of a step on one device, as train_gpt measures it")->required();
    app.add_option("--update-seconds", o.update_seconds, "of these, the time of the optimizer, which ZeRO divides");
    app.add_option("--bandwidth", o.bandwidth,
                   "GB/s in one direction: of a rank within its node, and of a node to the others, which its ranks share")
        ->delimiter(',');
    app.add_option("--latency", o.latency, "microseconds, within a node and between nodes")->delimiter(',');
    app.add_option("--per-node", o.per_node, "ranks of a node");
    app.add_option("--at-once", o.at_once, "how many of them compute at a time, if they share cores; 0: all");
    app.add_option("--json", o.json, "write the table to this file")->default_str("");
    app.add_option("--html", o.html, "write a page with curves and the table to this file")->default_str("");
    if (!parse(app, argc, argv)) return std::nullopt;
    check(o);
    return o;
}
