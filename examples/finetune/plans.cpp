// SPDX-License-Identifier: MIT
#include <algorithm>
#include <ostream>

#include <halftone/io/pretrained.hpp>
#include <halftone/observe/metrics/machine.hpp>
#include <halftone/observe/report/table.hpp>

#include "plans.hpp"

using ht::detail::formatted;

namespace {

constexpr const method* all_methods[] = {&qlora, &lora, &full_in_bf16, &full};

/// The methods of a name, what computes with more bits first.
std::vector<const method*> methods_of(const std::string& name) {
    if (name == "lora") return {&lora};
    if (name == "qlora") return {&qlora};
    return {&full, &full_in_bf16};
}

/// A method's plan.
memory_answer asked(ht::cpu& device, const method& m, const task& t, tuning_data& data) {
    memory_answer a = m.plan(device, t, data);
    a.fits = a.fits && (t.budget == 0 || a.peak_bytes <= t.budget);
    return a;
}

/// A method's plan, or why a model of these sizes has none: rows of a weight that are no whole blocks, say.
memory_answer asked_or_why(ht::cpu& device, const method& m, const task& t, tuning_data& data) {
    try {
        return asked(device, m, t, data);
    } catch (const ht::error& e) {
        memory_answer none;
        none.fits = false, none.way = e.what();
        return none;
    }
}

/// The method that fits with the fewest bits in its base, in words.
std::string what_would_fit(ht::cpu& device, const options& o, const task& t, tuning_data& data) {
    std::string text;
    for (const method* m : all_methods) {
        if (m->name == o.method) continue;
        const memory_answer a = asked_or_why(device, *m, t, data);
        if (!a.fits) continue;
        text += (text.empty() ? "what fits: --method " : ", --method ") + std::string(m->name) + " with " +
                bytes_text(a.peak_bytes);
        break;
    }
    return text.empty() ? "no method fits; a smaller --length or --rank needs less" : text;
}

}  // namespace

std::string bytes_text(std::size_t bytes) {
    const auto n = static_cast<double>(bytes);
    return n >= 0x1p30 ? formatted("%.2f GiB", n / 0x1p30) : formatted("%.1f MiB", n / 0x1p20);
}

task task_of(const options& o, const std::filesystem::path& config) {
    const std::string type = ht::read_model_type(config);
    if (type != "llama" && type != "mistral" && type != "qwen2" && type != "qwen3")
        refuse(config.string(), " is a ", type, "; expected a llama, a mistral, a qwen2 or a qwen3");
    task t;
    t.folder = config;
    t.has_head_norms = type == "qwen3";
    t.config = ht::read_llama_config(config, {.at_most = 2 * o.length});
    t.length = std::min(o.length, t.config.max_position_embeddings);
    t.batch = o.batch, t.rank = o.rank, t.seed = o.seed, t.steps = 1000;
    t.alpha = o.alpha != 0 ? o.alpha : 2 * static_cast<double>(o.rank);
    t.learning_rate = o.learning_rate != 0 ? o.learning_rate : o.method == "full" ? 2e-5 : 2e-4;
    t.budget = o.budget;
    return t;
}

void take_example(options& o, const example& e) {
    o.folder = e.model, o.data = e.data;
    o.length = 128, o.batch = 4, o.rank = 8;
    if (o.steps == 0) o.steps = 120;
    if (o.learning_rate == 0) o.learning_rate = o.method == "full" ? 3e-4 : 3e-3;
}

chosen_method choose(ht::cpu& device, const options& o, const task& t, ht::extent longest) {
    tuning_data data = tuning_data::of_sizes(t.batch, t.length, longest);
    const std::size_t memory = o.budget != 0 ? o.budget : static_cast<std::size_t>(ht::physical_memory());
    task limited = t;
    limited.budget = memory;
    std::size_t least = 0;
    for (const method* const m : methods_of(o.method)) {
        const memory_answer a = asked(device, *m, limited, data);
        least = a.peak_bytes;
        if (!a.fits) continue;
        const std::size_t budget = a.way.empty() ? 0 : memory;
        std::string text =
            o.method + " (" + m->what + ") needs " + bytes_text(a.peak_bytes) + " of " + bytes_text(memory);
        if (budget != 0) text += ", as " + bytes_text(a.plan.peak_bytes) + " would be too much: " + a.way;
        return {m, budget, a, text};
    }
    refuse((o.budget != 0 ? "--budget: " : "this machine: "), o.method, " needs ", bytes_text(least),
           " at least, and there are ", bytes_text(memory), "; ", what_would_fit(device, o, limited, data));
}

int print_plans(std::ostream& out, const options& o) {
    ht::cpu device{{.threads = o.threads}};
    const task t = task_of(o, o.plan);
    tuning_data data = tuning_data::of_sizes(t.batch, t.length, t.length);
    constexpr ht::memory_kind kinds[] = {ht::memory_kind::master,     ht::memory_kind::copy,
                                         ht::memory_kind::gradient,   ht::memory_kind::moment,
                                         ht::memory_kind::activation, ht::memory_kind::workspace};
    task limited = t;
    limited.budget = o.budget != 0 ? o.budget : static_cast<std::size_t>(ht::physical_memory());
    out << t.batch << " rows of " << t.length << " tokens in a step, adapters of rank " << t.rank << "; "
        << (o.budget != 0 ? "a budget of " : "this machine has ") << bytes_text(limited.budget)
        << "; kinds in MiB, at the peak\n";
    out << formatted("%-9s %15s", "method", "bytes");
    for (const ht::memory_kind k : kinds) out << formatted(" %10s", ht::name(k));
    out << "  fits\n";
    for (const method* const m : all_methods) {
        const memory_answer a = asked_or_why(device, *m, limited, data);
        out << formatted("%-9s", m == &full_in_bf16 ? "full bf16" : m->name);
        if (a.plan.peak_bytes == 0) {
            out << "  no: " << a.way << '\n';
            continue;
        }
        out << formatted(" %15zu", a.plan.peak_bytes);
        for (const ht::memory_kind k : kinds)
            out << formatted(" %10.1f", static_cast<double>(a.plan.at_peak(k)) / 0x1p20);
        out << "  "
            << (!a.fits         ? "no: " + bytes_text(a.peak_bytes) + " at least"
                : a.way.empty() ? "yes"
                                : "with " + a.way)
            << '\n';
    }
    return 0;
}
