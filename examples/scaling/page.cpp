// SPDX-License-Identifier: MIT
#include <algorithm>

#include <nlohmann/json.hpp>

#include <halftone/observe/report/chart.hpp>
#include <halftone/observe/report/table.hpp>

#include "page.hpp"

namespace ht = halftone;
using ht::detail::formatted;

namespace {

std::size_t elements_of(const scaling::subject& s) {
    std::size_t n = 0;
    for (const ht::store_entry& e : s.parameters.entries) n += e.count;
    return n;
}
double mebibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

/// A curve of each strategy; `of(row)` is its height.
template <class Of>
std::string chart_of(const std::vector<scaled>& all, ht::detail::chart c, const Of& of) {
    c.of_x = "ranks";
    c.has_powers_of_two = true;
    for (const scaled& s : all) {
        ht::detail::chart_line line{.name = s.name(), .colour = s.how.zero, .points = {}};
        for (const scaling::row& r : s.rows) line.points.push_back({static_cast<double>(r.ranks), of(r)});
        c.lines.push_back(std::move(line));
    }
    return c.svg();
}

/// What the memory of a rank is for.
std::string memory_chart(const scaled& s) {
    ht::detail::chart c{.title = "Memory of a rank, " + s.name(), .of_x = "ranks", .unit = "MiB", .has_powers_of_two = true, .is_stacked = true};
    const auto add = [&](const char* name, int colour, const auto& of) {
        ht::detail::chart_line line{.name = name, .colour = colour, .points = {}};
        double most = 0;
        for (const scaling::row& r : s.rows) {
            line.points.push_back({static_cast<double>(r.ranks), mebibytes(of(r.memory))});
            most = std::max(most, line.points.back().y);
        }
        if (most > 0) c.lines.push_back(std::move(line));
    };
    for (int k = 0; k < ht::memory_kinds; ++k) {
        const auto kind = static_cast<ht::memory_kind>(k);
        add(ht::name(kind), k, [kind](const scaling::rank_memory& m) { return m.of(kind); });
    }
    add("for a while", 7, [](const scaling::rank_memory& m) { return m.gathered + m.wire; });
    return c.svg();
}

std::string table_of(const scaled& s) {
    ht::detail::table t{{{"ranks", 0, "n"},
                         {"memory, MiB", 0, "n"},
                         {"masters", 0, "n wide"},
                         {"copies", 0, "n wide"},
                         {"gradients", 0, "n wide"},
                         {"moments", 0, "n wide"},
                         {"for a while", 0, "n wide"},
                         {"received, MiB", 0, "n wide"},
                         {"step, ms", 0, "n"},
                         {"hidden", 0, "n wide"},
                         {"of ideal", 0, "n"}}};
    const auto mib = [](std::uint64_t bytes) { return formatted("%.2f", mebibytes(bytes)); };
    for (const scaling::row& r : s.rows) {
        const scaling::rank_memory& m = r.memory;
        t.rows.push_back({std::to_string(r.ranks), mib(m.total()), mib(m.of(ht::memory_kind::master)),
                          mib(m.of(ht::memory_kind::copy)), mib(m.of(ht::memory_kind::gradient)),
                          mib(m.of(ht::memory_kind::moment)), mib(m.gathered + m.wire), mib(r.traffic.total()),
                          formatted("%.3f", 1e3 * r.step_seconds),
                          r.wire_seconds > 0 ? formatted("%.0f%%", 100 * r.hidden_seconds / r.wire_seconds) : "-",
                          formatted("%.1f%%", 100 * r.efficiency)});
    }
    return "<h2>" + ht::detail::escaped(s.name()) + "</h2>\n" + t.html();
}

}  // namespace

std::string subject_text(const options& o, const scaling::subject& s) {
    return formatted(
        "a GPT of %lld blocks of width %lld, %s, %.4g million parameters; of each rank %lld x %lld windows of %lld "
        "tokens",
        static_cast<long long>(o.layers), static_cast<long long>(o.width), o.policy.c_str(),
        1e-6 * static_cast<double>(elements_of(s)), static_cast<long long>(o.accumulation),
        static_cast<long long>(o.batch), static_cast<long long>(o.context));
}

std::string table_json(const options& o, const scaling::subject& s, const std::vector<scaled>& all) {
    nlohmann::ordered_json j{{"model", {{"policy", o.policy}, {"layers", o.layers}, {"heads", o.heads}, {"width", o.width},
                                        {"context", o.context}, {"vocabulary", o.vocabulary}, {"parameters", elements_of(s)},
                                        {"batch", o.batch}, {"accumulation", o.accumulation}}},
                             {"machine", {{"step_seconds", o.step_seconds}, {"update_seconds", o.update_seconds},
                                          {"gigabytes_per_second", o.bandwidth}, {"latency_microseconds", o.latency},
                                          {"per_node", o.per_node}, {"at_once", o.at_once}}},
                             {"strategies", nlohmann::ordered_json::array()}};
    for (const scaled& each : all) {
        nlohmann::ordered_json rows = nlohmann::ordered_json::array();
        for (const scaling::row& r : each.rows) {
            nlohmann::ordered_json memory;
            for (int k = 0; k < ht::memory_kinds; ++k) memory[ht::name(static_cast<ht::memory_kind>(k))] = r.memory.bytes[static_cast<std::size_t>(k)];
            memory["gathered"] = r.memory.gathered;
            memory["wire"] = r.memory.wire;
            memory["total"] = r.memory.total();
            rows.push_back({{"ranks", r.ranks}, {"memory_bytes", memory}, {"reduced_bytes", r.traffic.reduced},
                            {"gathered_bytes", r.traffic.gathered}, {"step_seconds", r.step_seconds},
                            {"wire_seconds", r.wire_seconds}, {"hidden_seconds", r.hidden_seconds}, {"efficiency", r.efficiency}});
        }
        j["strategies"].push_back({{"zero", each.how.zero}, {"units", each.how.units}, {"rows", rows}});
    }
    return j.dump(1) + "\n";
}

std::string table_html(const options& o, const scaling::subject& s, const std::vector<scaled>& all) {
    std::string page = ht::detail::page_begin("From 1 to " + std::to_string(o.ranks) + " devices", ht::detail::chart_style);
    page += "<p>Predicted for " + ht::detail::escaped(subject_text(o, s)) + ". " +
            formatted(
                "A step takes %.4g ms on one device; %lld ranks in each node, %.4g GB/s and %.4g us within it, %.4g "
                "GB/s and %.4g us "
                "between nodes.",
                1e3 * o.step_seconds, static_cast<long long>(o.per_node), o.bandwidth[0], o.latency[0], o.bandwidth[1],
                o.latency[1]) +
            " Each rank has its own batch, so that n ranks do n times the work of one.</p>\n<div class=\"charts\">\n";
    page += chart_of(all, {.title = "Memory of a rank", .unit = "MiB", .from_zero = true},
                     [](const scaling::row& r) { return mebibytes(r.memory.total()); });
    page += chart_of(all, {.title = "Step", .unit = "ms", .from_zero = true},
                     [](const scaling::row& r) { return 1e3 * r.step_seconds; });
    page += chart_of(all, {.title = "Efficiency", .unit = "% of ideal", .from_zero = true},
                     [](const scaling::row& r) { return 100 * r.efficiency; });
    page += chart_of(all, {.title = "Received by a rank in a step", .unit = "MiB", .from_zero = true},
                     [](const scaling::row& r) { return mebibytes(r.traffic.total()); });
    for (const scaled& each : all) page += memory_chart(each);
    page += "</div>\n";
    for (const scaled& each : all) page += table_of(each);
    return page + "<p class=\"dim\">For a while: parameters and gradients of other ranks that are gathered, and what a reduction sends and "
                  "receives. Hidden: the share of the time on the wire in which the device computes.</p>\n</body>\n</html>\n";
}
