// SPDX-License-Identifier: MIT
/// \file
/// What a training needs and how fast it is on N devices, before there are N devices: memory per rank, bytes on the wire,
/// and the time of a step, from the program's own plan and a measured step on one device.
///
///     const scaling::machine machine{.within = {.bytes_per_second = 200e9, .latency = 10e-6},
///                                       .between = {.bytes_per_second = 50e9, .latency = 20e-6}, .per_node = 8};
///     const scaling::times measured{.forward = 0.10, .backward = 0.20, .update = 0.02};      // on one device, of one step
///     for (const scaling::row& r : scaling::table(subject, {.zero = 2}, machine, measured, 4096)) ...
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
/// A step is a program on two resources, the device and the wire, where what begins first is sent first: that of
/// data_parallel and of shard, with their waits.
///
///     zero 0      a bucket's pieces are sent when its last unit has passed backward, the sum of the one before it after them
///     zero 1, 2   a unit's runs are sent when it has passed backward; the update waits for all; then parameters are gathered
///     zero 3      the next unit is gathered while a unit computes, forward and backward; sums as above
///
/// So the time is not a sum, but that of the slower resource where they overlap. The rest (the embedding, the head) computes
/// last in the forward and first in the backward pass, and is sent last, as an embedding's gradient is complete last. A
/// step's time is divided among units as their arithmetic is; ZeRO updates 1/n of the parameters. With k micro-batches only
/// the last one is accompanied by sums.
///
/// Bytes are what a rank receives: (n - 1) pieces of each sum and each gather. With W bytes of gradients on their way and P
/// of parameters as they are read, that is (n - 1)/n of
///
///     zero 0      W + W         sums, and the gathered results
///     zero 1, 2   W + M + P     sums; the updated masters and copies (without copies W + P)
///     zero 3      W + 2 k P     sums; units for each pass, but for two that are still there when the pass turns; copies of the
///                               rest after the update
///
/// the 2, 2 and 3 times the parameters of Rajbhandari et al. 2020, section 7, with equal types, k = 1 and masters that are
/// read. Agreements of a few bytes are not counted: losses, norms, which parameters were reached.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <ostream>
#include <utility>
#include <vector>

#include <halftone/observe/report/table.hpp>

#include "memory.hpp"

namespace scaling {

namespace ht = halftone;

/// What connects two ranks, or a node with the others; in one direction, while the other direction is busy, too.
struct link {
    double bytes_per_second = 0;
    double latency = 0;  ///< seconds from a call to the first byte
};

/// What the ranks run on.
struct machine {
    link within{};     ///< from a rank to another one of its node
    link between{};    ///< from a node to the others, shared by its ranks
    int per_node = 1;  ///< ranks of a node
    int at_once = 0;   ///< how many of them compute at a time; fewer than per_node if they share cores; 0: all
    double memory_bytes_per_second = 0;  ///< at which a rank rounds and adds what it reduces; 0: in no time
};

/// A step on one device, in seconds, with all micro-batches of a rank.
struct times {
    double forward = 0, backward = 0, update = 0;
    double total() const { return forward + backward + update; }
};

/// What a rank receives from the others in a step.
struct rank_traffic {
    std::uint64_t reduced = 0;   ///< bytes of gradients, by exchanges
    std::uint64_t gathered = 0;  ///< bytes of parameters (zero 0: of sums of gradients), by gathers
    std::uint64_t total() const { return reduced + gathered; }
};

/// A number of ranks.
struct row {
    int ranks = 1;
    rank_memory memory{};
    rank_traffic traffic{};  ///< per step, from the second one on
    double step_seconds = 0;
    double wire_seconds = 0;    ///< in which something is sent
    double hidden_seconds = 0;  ///< of these, in which the device computes
    double efficiency = 1;      ///< the time on one device / step_seconds
};

/// The seconds in which pieces of `piece` bytes go round a ring.
inline double ring_seconds(const machine& m, int ranks, double piece) {
    if (ranks == 1 || piece == 0) return 0;
    const auto round = [piece](const link& l) { return l.latency + piece / l.bytes_per_second; };
    const double inner = m.per_node > 1 ? round(m.within) : 0;
    return (ranks - 1) * (ranks > m.per_node ? std::max(inner, round(m.between)) : inner);
}
/// The seconds in which each rank sends a piece to each other one.
inline double pairwise_seconds(const machine& m, int ranks, double piece) {
    if (ranks == 1 || piece == 0) return 0;
    const int near = std::min(m.per_node, ranks), far = ranks - near;
    return (near > 1 ? (near - 1) * (m.within.latency + piece / m.within.bytes_per_second) : 0) +
           (far > 0 ? far * (m.between.latency + near * piece / m.between.bytes_per_second) : 0);
}

inline void check(const machine& m, const times& t, int ranks) {
    if (m.per_node < 1) ht::fail<ht::argument_error>("scaling: ", m.per_node, " ranks per node; expected 1 or more");
    const auto check_link = [](const char* which, const link& l) {
        if (!(l.bytes_per_second > 0 && l.latency >= 0))
            ht::fail<ht::argument_error>("scaling: the link ", which, " nodes has ", l.bytes_per_second,
                                         " bytes per second and a latency of ", l.latency,
                                         " s; expected more than 0, and 0 or more");
    };
    if (ranks > 1 && m.per_node > 1) check_link("within", m.within);
    if (ranks > m.per_node) check_link("between", m.between);
    if (!(t.forward >= 0 && t.backward >= 0 && t.update >= 0 && t.total() > 0 && ht::is_finite(t.total())))
        ht::fail<ht::argument_error>("scaling: a step of ", t.forward, " + ", t.backward, " + ", t.update,
                                     " s; expected more than 0");
}

/// A step of one of several ranks, on a device and a wire.
class step {
  public:
    step(const subject& s, const strategy& how, const machine& machine, const times& measured, int ranks)
        : how_(&how),
          machine_(&machine),
          ranks_(ranks),
          layout_(layout_of(s, how, ranks)),
          forward_(layout_.units.size()),
          backward_(layout_.units.size()) {
        slower_ = machine.at_once > 0 ? std::max(1.0, 1.0 * std::min(ranks, machine.per_node) / machine.at_once) : 1;
        divide_times(s, measured);
        if (how.zero == 0 && ranks > 1) buckets_ = buckets_of(layout_, how, ranks);
        const std::size_t last = layout_.units.size() - 1;
        for (int k = 1; k <= how.micro_batches; ++k) run_micro_batch(last, ranks > 1 && k == how.micro_batches);
        if (ranks > 1) end_window();
        compute(slower_ * measured.update / (how.zero >= 1 ? ranks : 1));
        if (how.zero >= 1 && ranks > 1) gather_updated();
    }

    rank_traffic traffic{};
    double now = 0, busy = 0, waited = 0;  // seconds

  private:
    struct sum {
        double end = 0, add = 0;  // when its pieces are there, and what adding them takes
        std::size_t piece_bytes = 0;
    };

    void compute(double seconds) { now += seconds; }
    void wait(double end) {
        if (end > now) waited += end - now, now = end;
    }
    double send(double seconds) {
        sent_ = std::max(now, sent_) + seconds;
        busy += seconds;
        return sent_;
    }
    double gather(std::size_t piece) {
        traffic.gathered += static_cast<std::uint64_t>(piece) * static_cast<std::uint64_t>(ranks_ - 1);
        return send(ring_seconds(*machine_, ranks_, static_cast<double>(piece)));
    }
    /// Rounds and sends the pieces of a sum.
    sum begin_sum(std::size_t count, std::size_t piece, std::size_t gradient_bytes) {
        const std::size_t bytes = piece * how_->wire_bytes;
        const double rate = machine_->memory_bytes_per_second > 0 ? slower_ / machine_->memory_bytes_per_second : 0;
        if (how_->wire_bytes != gradient_bytes)
            compute(rate * static_cast<double>(count * (gradient_bytes + how_->wire_bytes)));
        traffic.reduced += static_cast<std::uint64_t>(bytes) * static_cast<std::uint64_t>(ranks_ - 1);
        const double add = rate * static_cast<double>(piece) *
                           (static_cast<double>(how_->wire_bytes) * ranks_ + static_cast<double>(gradient_bytes));
        return {send(pairwise_seconds(*machine_, ranks_, static_cast<double>(bytes))), add, bytes};
    }
    void finish(const sum& s) {
        wait(s.end);
        compute(s.add);
    }

    void divide_times(const subject& s, const times& measured) {
        double forward = 0, backward = 0;
        for (const layer& layer : s.layers) {
            const std::size_t u = unit_number(layout_.units, how_->units, layer.path + ".", false);
            forward_[u] += layer.forward_flops, backward_[u] += layer.backward_flops;
            forward += layer.forward_flops, backward += layer.backward_flops;
        }
        const auto share = [&](std::vector<double>& of, double all, double seconds) {
            for (double& each : of)
                each = slower_ * seconds / how_->micro_batches *
                       (all > 0 ? each / all : 1.0 / static_cast<double>(of.size()));
        };
        share(forward_, forward, measured.forward), share(backward_, backward, measured.backward);
    }

    void run_micro_batch(std::size_t last, bool sums) {
        for (std::size_t u = 1; u <= last; ++u) {
            open(u, u + 1);
            compute(forward_[u]);
        }
        compute(forward_[0] + backward_[0]);
        for (std::size_t u = last; u > 0; --u) {
            open(u, u - 1);
            compute(backward_[u]);
            if (sums && how_->zero == 0) send_buckets(layout_.units.size() - u);
            if (sums && how_->zero >= 1) send_runs(u);
        }
    }

    // ---- as unit_gather (zero 3)

    void open(std::size_t unit, std::size_t next) {
        if (how_->zero < 3 || ranks_ == 1) return;
        begin_unit(unit);
        wait(ready_[unit % 2]);
        if (next > 0 && next < layout_.units.size()) begin_unit(next);
    }
    void begin_unit(std::size_t unit) {
        if (std::exchange(there_[unit % 2], unit) == unit) return;
        wait(ready_[unit % 2]);
        for (const ht::store_run& r : layout_.runs) {
            if (r.unit == unit && layout_.is_gathered(r)) ready_[unit % 2] = gather(r.piece * layout_.read_bytes(r));
        }
    }

    // ---- as shard (zero 1 to 3)

    void send_runs(std::size_t unit) {
        for (const ht::store_run& r : layout_.runs) {
            if (r.unit != unit || !layout_.is_trained(r)) continue;
            finish_sums(1);
            sums_.push_back(begin_sum(r.count, r.piece, layout_.groups[r.group].accumulate_bytes));
        }
    }
    void finish_sums(std::size_t left) {
        for (; sums_.size() > left; sums_.pop_front()) finish(sums_.front());
    }
    void gather_updated() {
        double end = 0;
        for (const ht::store_run& r : layout_.runs) {
            const ht::store_group& g = layout_.groups[r.group];
            if (!layout_.is_trained(r)) continue;
            if (r.master.is_there() && r.master.is_whole) end = gather(r.piece * g.param_bytes);
            if (r.copy.is_there() && r.copy.is_whole) end = gather(r.piece * g.copy_bytes);
        }
        wait(end);
    }

    // ---- as data_parallel (zero 0)

    void send_buckets(std::size_t completed) {
        for (; next_ < buckets_.size() && buckets_[next_].completes <= completed; ++next_) {
            const bucket& b = buckets_[next_];
            sums_.push_back(begin_sum(b.count, b.piece, b.gradient_bytes));
            if (sums_.size() > 1) gather_sum();
            if (gathers_.size() > 1) wait(gathers_.front()), gathers_.pop_front();
        }
    }
    void gather_sum() {
        finish(sums_.front());
        gathers_.push_back(gather(sums_.front().piece_bytes));
        sums_.pop_front();
    }

    /// The sums that are left when the last backward pass has ended.
    void end_window() {
        if (how_->zero >= 1) {
            send_runs(0);
            return finish_sums(0);
        }
        send_buckets(layout_.units.size());
        while (!sums_.empty()) gather_sum();
        for (; !gathers_.empty(); gathers_.pop_front()) wait(gathers_.front());
    }

    const strategy* how_;
    const machine* machine_;
    int ranks_;
    layout layout_;
    std::vector<double> forward_, backward_;  // seconds of a micro-batch, by unit
    double slower_ = 1, sent_ = 0;
    std::vector<bucket> buckets_;
    std::size_t next_ = 0;
    std::deque<sum> sums_;
    std::deque<double> gathers_;
    std::size_t there_[2] = {};  // units that have been gathered
    double ready_[2] = {};
};

/// A training on `ranks` devices; `measured`: a step on one of them. Throws argument_error.
inline row scale_to(const subject& s, const strategy& how, const machine& machine, const times& measured, int ranks) {
    check(how, ranks);
    check(machine, measured, ranks);
    const step step(s, how, machine, measured, ranks);
    return {.ranks = ranks,
            .memory = memory_of_rank(s, how, ranks),
            .traffic = step.traffic,
            .step_seconds = step.now,
            .wire_seconds = step.busy,
            .hidden_seconds = std::max(0.0, step.busy - step.waited),
            .efficiency = measured.total() / step.now};
}

/// The rows of 1, 2, 4, ... ranks, up to `most`, and of `most`. Throws argument_error.
inline std::vector<row> table(const subject& s, const strategy& how, const machine& machine, const times& measured,
                              int most) {
    std::vector<row> rows;
    for (long n = 1; n < most; n *= 2) rows.push_back(scale_to(s, how, machine, measured, static_cast<int>(n)));
    rows.push_back(scale_to(s, how, machine, measured, most));
    return rows;
}

/// Prints a line for each number of ranks: memory and traffic in MiB, times in ms.
inline void print(std::ostream& out, const std::vector<row>& rows) {
    using halftone::detail::formatted;
    out << formatted("%6s %12s %12s %12s %12s %12s %11s %10s %9s\n", "ranks", "memory MiB", "parameters", "gradients",
                     "moments", "wire MiB", "step ms", "hidden", "of ideal");
    const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    for (const row& r : rows) {
        const rank_memory& m = r.memory;
        const std::string hidden =
            r.wire_seconds > 0 ? formatted("%.0f%%", 100 * r.hidden_seconds / r.wire_seconds) : "-";
        out << formatted("%6d %12.2f %12.2f %12.2f %12.2f %12.2f %11.3f %10s %8.1f%%\n", r.ranks, mib(m.total()),
                         mib(m.of(ht::memory_kind::master) + m.of(ht::memory_kind::copy)),
                         mib(m.of(ht::memory_kind::gradient)), mib(m.of(ht::memory_kind::moment)),
                         mib(r.traffic.total()), 1e3 * r.step_seconds, hidden.c_str(), 100 * r.efficiency);
    }
}

}  // namespace scaling
