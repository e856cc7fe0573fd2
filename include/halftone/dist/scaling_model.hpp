// SPDX-License-Identifier: MIT
/// \file
/// What a training needs and how fast it is on N devices, before there are N devices: memory per rank, bytes on the wire,
/// and the time of a step, from the program's own plan and a measured step on one device.
///
///     const ht::scaling_machine machine{.within = {.bytes_per_second = 200e9, .latency = 10e-6},
///                                       .between = {.bytes_per_second = 50e9, .latency = 20e-6}, .per_node = 8};
///     const ht::scaling_times measured{.forward = 0.10, .backward = 0.20, .update = 0.02};      // on one device, of one step
///     for (const ht::scaling_row& r : ht::scaling_table(subject, {.zero = 2}, machine, measured, 4096)) ...
///
/// Each rank has the batch of the measured step, so that n ranks do n times its work (weak scaling); the efficiency is
/// the measured time divided by that of a step of n ranks.
///
/// Links have two levels: `within` is what a rank sends to another one of its node, `between` what a node sends to the
/// others, which its ranks share. With latencies a, bandwidths b, n ranks, p of them in each node, and pieces of m bytes:
///
///     gather      ring             (n - 1) (a + m / b), of the slower link as soon as there are two nodes
///     reduction   pairwise         (p - 1) (a1 + m / b1) + (n - p) (a2 + p m / b2)
///
/// The ring of n - 1 rounds and the exchange by pairs are those of Thakur, Rabenseifner and Gropp 2005, "Optimization of
/// Collective Communication Operations in MPICH", sections 3.1 and 3.3. In a ring one rank of each node sends to another
/// node at a time; in an exchange all p do, which share the node's link. That is the price of sums in one fixed order:
/// between nodes a reduction takes p times as long as one that adds within the node first.
///
/// A step is a program on two resources, the device and the wire, where what begins first is sent first:
///
///     zero 0 to 2   a unit's reduction begins when its backward pass has ended; the update waits for all of them
///     zero 3        the next unit is gathered while a unit computes, forward and backward; reductions as above
///
/// so that the time is not a sum, but that of the slower resource where they overlap. The parameters of no unit (the
/// embedding, the head) compute last in the forward and first in the backward pass, and are reduced last, as an embedding
/// is. A step's time is divided among units as their arithmetic is; ZeRO 1 and above update 1/n of the parameters.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <vector>

#include <halftone/dist/scaling_memory.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What connects two ranks, or a node with the others; in one direction, while the other direction is busy, too.
struct scaling_link {
    double bytes_per_second = 0;
    double latency = 0;  ///< seconds from a call to the first byte
};

/// What the ranks run on.
struct scaling_machine {
    scaling_link within{};           ///< from a rank to another one of its node
    scaling_link between{};          ///< from a node to the others, shared by its ranks
    int per_node = 1;                ///< ranks of a node
    int at_once = 0;                 ///< how many of them compute at a time; fewer than per_node if they share cores; 0: all
    double memory_bytes_per_second = 0;  ///< at which a rank rounds and adds what it reduces; 0: in no time
};

/// A step on one device, in seconds, with all micro-batches of a rank.
struct scaling_times {
    double forward = 0, backward = 0, update = 0;
    double total() const { return forward + backward + update; }
};

/// A number of ranks.
struct scaling_row {
    int ranks = 1;
    rank_memory memory{};
    rank_traffic traffic{};       ///< per step
    double step_seconds = 0;
    double wire_seconds = 0;      ///< in which something is sent
    double hidden_seconds = 0;    ///< of these, in which the device computes
    double efficiency = 1;        ///< the time on one device / step_seconds
    /// Steps of one device that all ranks do in the time of one.
    double speedup() const { return efficiency * ranks; }
};

namespace detail {

/// A device and its wire: what begins first is sent first.
class two_resources {
  public:
    void compute(double seconds) { now_ += seconds; }
    /// Begins to send; returns when that will end.
    double begin(double seconds) {
        sent_ = std::max(now_, sent_) + seconds;
        busy_ += seconds;
        return sent_;
    }
    void wait(double end) {
        if (end > now_) waited_ += end - now_, now_ = end;
    }
    double now() const { return now_; }
    double busy() const { return busy_; }
    double waited() const { return waited_; }

  private:
    double now_ = 0, sent_ = 0, busy_ = 0, waited_ = 0;
};

/// The seconds in which pieces of `piece` bytes go round a ring.
inline double ring_seconds(const scaling_machine& m, int ranks, double piece) {
    if (ranks == 1 || piece == 0) return 0;
    const auto round = [piece](const scaling_link& l) { return l.latency + piece / l.bytes_per_second; };
    const double inner = m.per_node > 1 ? round(m.within) : 0;
    return (ranks - 1) * (ranks > m.per_node ? std::max(inner, round(m.between)) : inner);
}
/// The seconds in which each rank sends a piece to each other one.
inline double pairwise_seconds(const scaling_machine& m, int ranks, double piece) {
    if (ranks == 1 || piece == 0) return 0;
    const int near = std::min(m.per_node, ranks), far = ranks - near;
    return (near > 1 ? (near - 1) * (m.within.latency + piece / m.within.bytes_per_second) : 0) +
           (far > 0 ? far * (m.between.latency + near * piece / m.between.bytes_per_second) : 0);
}

inline void check(const scaling_machine& m, const scaling_times& t, int ranks) {
    if (m.per_node < 1) fail<argument_error>("scaling: ", m.per_node, " ranks per node; expected 1 or more");
    const auto check_link = [](const char* which, const scaling_link& l) {
        if (!(l.bytes_per_second > 0 && l.latency >= 0))
            fail<argument_error>("scaling: the link ", which, " nodes has ", l.bytes_per_second, " bytes per second and a latency of ",
                                 l.latency, " s; expected more than 0, and 0 or more");
    };
    if (ranks > 1 && m.per_node > 1) check_link("within", m.within);
    if (ranks > m.per_node) check_link("between", m.between);
    if (!(t.forward >= 0 && t.backward >= 0 && t.update >= 0 && t.total() > 0 && std::isfinite(t.total())))
        fail<argument_error>("scaling: a step of ", t.forward, " + ", t.backward, " + ", t.update, " s; expected more than 0");
}

/// A unit's seconds in a micro-batch.
struct unit_seconds {
    double forward = 0, backward = 0;  // of the device
    double reduce = 0, gather = 0, gather_reduced = 0;  // of the wire
    double add = 0;                    // rounding and adding what is reduced
};

/// The root first, then the units in the order of the forward pass.
inline std::vector<unit_seconds> seconds_of_units(const scaling_subject& s, const scaling_strategy& how, const scaling_machine& m,
                                                  const scaling_times& t, int ranks) {
    const std::vector<scaling_unit> units = units_of(s, how.units);
    double forward = 0, backward = 0;
    for (const scaling_unit& u : units) forward += u.forward_flops, backward += u.backward_flops;
    const double shared = m.at_once > 0 ? std::max(1.0, 1.0 * std::min(ranks, m.per_node) / m.at_once) : 1;
    std::vector<unit_seconds> all;
    for (const scaling_unit& u : units) {
        const double even = 1.0 / static_cast<double>(units.size());
        const unit_bytes b = whole_bytes(slabs_of(u.parameters, s.plan), how, ranks);
        const auto piece = [ranks](std::size_t bytes) { return static_cast<double>(bytes) / ranks; };
        unit_seconds each;
        each.forward = shared * t.forward / how.micro_batches * (forward > 0 ? u.forward_flops / forward : even);
        each.backward = shared * t.backward / how.micro_batches * (backward > 0 ? u.backward_flops / backward : even);
        each.reduce = pairwise_seconds(m, ranks, piece(b.wire));
        each.gather = ring_seconds(m, ranks, piece(b.read));
        each.gather_reduced = ring_seconds(m, ranks, piece(b.wire));
        // Rounding reads gradients and writes the wire type; adding reads the wire type and writes a range.
        if (m.memory_bytes_per_second > 0 && ranks > 1)
            each.add = shared * static_cast<double>(b.gradients + 2 * b.wire + b.gradients / static_cast<std::size_t>(ranks)) / m.memory_bytes_per_second;
        all.push_back(each);
    }
    return all;
}

/// The passes of a micro-batch; what is reduced is waited for behind them.
inline void run_passes(two_resources& r, const std::vector<unit_seconds>& units, bool gathers, bool reduces,
                       std::vector<std::pair<double, const unit_seconds*>>& reductions) {
    const std::size_t last = units.size() - 1;  // units[0] is the root
    const auto gather = [&](std::size_t u) { return gathers && u >= 1 && u <= last ? r.begin(units[u].gather) : 0.0; };
    if (gathers) {
        const double root = r.begin(units[0].gather);
        r.wait(root);
    }
    double ready = gather(1);
    for (std::size_t u = 1; u <= last; ++u) {
        r.wait(ready);
        ready = gather(u + 1);
        r.compute(units[u].forward);
    }
    r.compute(units[0].forward);
    ready = gather(last);
    r.compute(units[0].backward);
    for (std::size_t u = last; u >= 1; --u) {
        r.wait(ready);
        ready = gather(u - 1);
        r.compute(units[u].backward);
        if (reduces) reductions.emplace_back(r.begin(units[u].reduce), &units[u]);
    }
    if (reduces) reductions.emplace_back(r.begin(units[0].reduce), &units[0]);
}

}  // namespace detail

/// A training on `ranks` devices; `measured`: a step on one of them. Throws argument_error.
inline scaling_row scale_to(const scaling_subject& s, const scaling_strategy& how, const scaling_machine& machine,
                            const scaling_times& measured, int ranks) {
    detail::check(how, ranks);
    detail::check(machine, measured, ranks);
    scaling_row row{.ranks = ranks, .memory = memory_of_rank(s, how, ranks), .traffic = traffic_of_rank(s, how, ranks)};
    const std::vector<detail::unit_seconds> units = detail::seconds_of_units(s, how, machine, measured, ranks);
    detail::two_resources r;
    for (int k = 0; k < how.micro_batches; ++k) {
        std::vector<std::pair<double, const detail::unit_seconds*>> reductions;
        detail::run_passes(r, units, how.zero == 3, ranks > 1 && (how.zero >= 2 || k + 1 == how.micro_batches), reductions);
        double last = 0;
        for (const auto& [end, unit] : reductions) {
            r.wait(end);
            r.compute(unit->add);
            if (how.zero == 0) last = r.begin(unit->gather_reduced);
        }
        r.wait(last);
    }
    const double shared = machine.at_once > 0 ? std::max(1.0, 1.0 * std::min(ranks, machine.per_node) / machine.at_once) : 1;
    r.compute(shared * measured.update / (how.zero >= 1 ? ranks : 1));
    if (how.zero == 1 || how.zero == 2) {
        double last = 0;
        for (const detail::unit_seconds& u : units) last = r.begin(u.gather);
        r.wait(last);
    }
    row.step_seconds = r.now();
    row.wire_seconds = r.busy();
    row.hidden_seconds = std::max(0.0, r.busy() - r.waited());
    row.efficiency = measured.total() / row.step_seconds;
    return row;
}

/// The rows of 1, 2, 4, ... ranks, up to `most`, and of `most`. Throws argument_error.
inline std::vector<scaling_row> scaling_table(const scaling_subject& s, const scaling_strategy& how, const scaling_machine& machine,
                                              const scaling_times& measured, int most) {
    std::vector<scaling_row> rows;
    for (long n = 1; n < most; n *= 2) rows.push_back(scale_to(s, how, machine, measured, static_cast<int>(n)));
    rows.push_back(scale_to(s, how, machine, measured, most));
    return rows;
}

/// Prints a line for each number of ranks: memory and traffic in MiB, times in ms.
inline void print_scaling(std::ostream& out, const std::vector<scaling_row>& rows) {
    char line[200];
    std::snprintf(line, sizeof line, "%6s %12s %12s %12s %12s %12s %11s %10s %9s\n", "ranks", "memory MiB", "parameters", "gradients",
                  "moments", "wire MiB", "step ms", "hidden", "of ideal");
    out << line;
    const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    for (const scaling_row& r : rows) {
        const rank_memory& m = r.memory;
        char hidden[16] = "-";
        if (r.wire_seconds > 0) std::snprintf(hidden, sizeof hidden, "%.0f%%", 100 * r.hidden_seconds / r.wire_seconds);
        std::snprintf(line, sizeof line, "%6d %12.2f %12.2f %12.2f %12.2f %12.2f %11.3f %10s %8.1f%%\n", r.ranks, mib(m.total()),
                      mib(m.of(memory_kind::master) + m.of(memory_kind::copy)), mib(m.of(memory_kind::gradient)),
                      mib(m.of(memory_kind::moment)), mib(r.traffic.total()), 1e3 * r.step_seconds, hidden, 100 * r.efficiency);
        out << line;
    }
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
