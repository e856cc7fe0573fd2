// SPDX-License-Identifier: MIT
/// \file
/// The memory of a rank, to the byte, and the bytes that it receives in a step, for every way to divide a training.
///
///     const ht::rank_memory m = ht::memory_of_rank(subject, {.zero = 3, .units = {"h.*"}}, 64);
///     std::cout << m.of(ht::memory_kind::moment) << " of " << m.total() << " bytes\n";
///
/// With n ranks, a slab of E elements is divided into n equal ranges of R = ceil(E / 64n) 64 elements, the last of which
/// have nR - E elements of padding. What a rank holds of masters M, copies C, gradients G and moments (Rajbhandari et al.
/// 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 3, whose P_os, P_g and P_p are
/// ZeRO 1, 2 and 3):
///
///     zero   masters                  copies   gradients   moments   in addition, for a while
///     0      all                      all      all         all       -
///     1      R with copies, else all  all      all         R         -
///     2      R with copies, else all  all      R           R         gradients of two units and the root
///     3      R                        R        R           R         the same, and gathered parameters of two units and the root
///
/// Slabs are those of a group of parameters with the same types, under ZeRO 3 of a group in a unit. Two units: the one that
/// computes, and the one before it that is still being reduced, or the next one, which is gathered ahead (Zhao et al. 2023,
/// "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", section 3.3). In addition a reduction keeps what it
/// sends and what it receives, in the wire type. Activations, workspaces and tensors of the user are those of the plan.
///
/// Traffic: a reduction receives (n - 1) R elements in the wire type (an exchange: n - 1 pieces), a gather (n - 1) R
/// elements in the type that is read. Per step, with k micro-batches and W, P the bytes of all ranges in both types:
///
///     zero 0   (n - 1) (W + W)           each gradient is reduced and gathered, once a window
///     zero 1   (n - 1) (W + P)           gradients are reduced once a window; updated parameters gathered
///     zero 2   (n - 1) (k W + P)         after each micro-batch
///     zero 3   (n - 1) k (W + 2 P)       gathered for the forward and for the backward pass; the root once
///
/// These are the 2, 2, 2 and 3 times the parameters' bytes of Rajbhandari et al., section 7, for k = 1 and equal types.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <halftone/dist/scaling_subject.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// How a training is divided among ranks.
struct scaling_strategy {
    int zero = 0;                             ///< 0: data parallel alone; 1, 2, 3: ZeRO
    std::vector<std::string> units{"h.*"};    ///< layers whose parameters are gathered and reduced together, by patterns
    int micro_batches = 1;                    ///< of a rank in a step
    std::size_t wire_bytes = 4;               ///< of a gradient's element on its way: sizeof the policy's `reduce` type
};

/// What a rank has in use at the peak.
struct rank_memory {
    std::array<std::size_t, memory_kinds> bytes{};  ///< of each kind, at rest
    std::size_t gathered = 0;        ///< parameters of other ranks, and whole gradients of a unit, for a while
    std::size_t wire = 0;            ///< what a reduction sends and receives, for a while
    std::size_t padding = 0;         ///< of `bytes`, what is padding of ranges

    std::size_t of(memory_kind kind) const { return bytes[static_cast<std::size_t>(kind)]; }
    /// The peak.
    std::size_t total() const {
        std::size_t sum = gathered + wire;
        for (const std::size_t each : bytes) sum += each;
        return sum;
    }
};

/// What a rank receives from the others in a step.
struct rank_traffic {
    std::uint64_t reduced = 0;   ///< bytes of gradients, by exchanges
    std::uint64_t gathered = 0;  ///< bytes of parameters (zero 0: of reduced gradients), by gathers
    std::uint64_t total() const { return reduced + gathered; }
};

namespace detail {

/// Elements and bytes of slabs that are divided together.
struct scaling_slab {
    std::size_t masters = 0, copies = 0, gradients = 0;  // elements
    std::size_t master_bytes = 0, copy_bytes = 0, gradient_bytes = 0, moment_bytes = 0;  // the last: of all elements

    std::size_t read() const { return copy_bytes != 0 ? copies : masters; }
    std::size_t read_bytes() const { return copy_bytes != 0 ? copy_bytes : master_bytes; }
};

/// The elements of each of n equal ranges.
inline std::size_t range_of(std::size_t elements, int ranks) {
    const std::size_t each = store::granule * static_cast<std::size_t>(ranks);
    return (elements + each - 1) / each * store::granule;
}

/// The slabs of parameters that are divided, by group.
template <class Parameters>
std::vector<scaling_slab> slabs_of(const Parameters& parameters, const memory_plan& plan) {
    std::map<std::string, std::size_t> moments;
    for (const planned_parameter& p : plan.parameters) moments[p.path] = p.of(memory_kind::moment);
    std::map<std::size_t, scaling_slab> slabs;
    for (const scaling_parameter* p : parameters) {
        if (p->is_state) continue;
        scaling_slab& s = slabs[p->group];
        if (p->master_bytes != 0) s.masters += p->elements, s.master_bytes = p->master_bytes;
        if (p->copy_bytes != 0) s.copies += p->elements, s.copy_bytes = p->copy_bytes;
        if (p->gradient_bytes != 0) s.gradients += p->elements, s.gradient_bytes = p->gradient_bytes;
        s.moment_bytes += moments[p->path];
    }
    std::vector<scaling_slab> all;
    for (const auto& [group, s] : slabs) all.push_back(s);
    return all;
}
inline std::vector<scaling_slab> slabs_of(const scaling_subject& s) {
    std::vector<const scaling_parameter*> all;
    for (const scaling_parameter& p : s.parameters) all.push_back(&p);
    return slabs_of(all, s.plan);
}

inline void check(const scaling_strategy& how, int ranks) {
    if (ranks < 1) fail<argument_error>("scaling: ", ranks, " ranks; expected 1 or more");
    if (how.zero < 0 || how.zero > 3) fail<argument_error>("scaling: zero is ", how.zero, "; expected 0, 1, 2 or 3");
    if (how.micro_batches < 1) fail<argument_error>("scaling: ", how.micro_batches, " micro-batches; expected 1 or more");
}

/// What a unit, or all parameters, take for a while, in a rank of several.
struct unit_bytes {
    std::size_t read = 0, gradients = 0, wire = 0;
};
inline unit_bytes whole_bytes(const std::vector<scaling_slab>& slabs, const scaling_strategy& how, int ranks) {
    unit_bytes b;
    const auto n = static_cast<std::size_t>(ranks);
    for (const scaling_slab& s : slabs) {
        b.read += n * range_of(s.read(), ranks) * s.read_bytes();
        b.gradients += n * range_of(s.gradients, ranks) * s.gradient_bytes;
        b.wire += n * range_of(s.gradients, ranks) * how.wire_bytes;
    }
    return b;
}

/// The most that the root and two units that follow each other take.
inline unit_bytes most_at_once(const scaling_subject& s, const scaling_strategy& how, int ranks) {
    const std::vector<scaling_unit> units = units_of(s, how.units);
    std::vector<unit_bytes> each;
    for (const scaling_unit& u : units) each.push_back(whole_bytes(slabs_of(u.parameters, s.plan), how, ranks));
    unit_bytes most;
    most.wire = each[0].wire;
    for (std::size_t i = 1; i < each.size(); ++i) {
        const unit_bytes next = i + 1 < each.size() ? each[i + 1] : unit_bytes{};
        most.read = std::max(most.read, each[i].read + next.read);
        most.gradients = std::max(most.gradients, each[i].gradients + next.gradients);
        most.wire = std::max(most.wire, each[i].wire);
    }
    most.read += each[0].read, most.gradients += each[0].gradients;
    return most;
}

}  // namespace detail

/// The memory of one of `ranks` ranks at its peak. Of one rank it is the plan's. Masters, copies, gradients and moments are
/// to the byte (moments in 8 bits: up to the padding of their blocks); what is there for a while is the most at one time,
/// counted as if it met the plan's peak. Throws argument_error.
inline rank_memory memory_of_rank(const scaling_subject& s, const scaling_strategy& how, int ranks) {
    detail::check(how, ranks);
    rank_memory m;
    m.bytes = s.plan.bytes_at_peak;
    if (ranks == 1) return m;
    const auto n = static_cast<std::size_t>(ranks);
    std::size_t all[4]{}, held[4]{};  // bytes of masters, copies, gradients, moments: of all ranks together, and of one
    const auto divide = [&](int kind, std::size_t elements, std::size_t bytes, bool is_divided) {
        const std::size_t range = detail::range_of(elements, ranks);
        all[kind] += elements * bytes;
        held[kind] += (is_divided ? range : elements) * bytes;
        if (is_divided) m.padding += (n * range - elements) * bytes / n;
    };
    const auto add = [&](const std::vector<detail::scaling_slab>& slabs) {
        for (const detail::scaling_slab& d : slabs) {
            divide(0, d.masters, d.master_bytes, how.zero == 3 || (how.zero > 0 && d.copy_bytes != 0));
            divide(1, d.copies, d.copy_bytes, how.zero == 3);
            divide(2, d.gradients, d.gradient_bytes, how.zero >= 2);
            if (d.gradients != 0 && d.moment_bytes % d.gradients == 0) {
                divide(3, d.gradients, d.moment_bytes / d.gradients, how.zero >= 1);
            } else if (d.gradients != 0) {  // of several sizes, as in 8 bits: the mean
                const std::size_t range = detail::range_of(d.gradients, ranks);
                all[3] += d.moment_bytes;
                held[3] += how.zero >= 1 ? (d.moment_bytes * range + d.gradients - 1) / d.gradients : d.moment_bytes;
            }
        }
    };
    if (how.zero == 3) {
        for (const auto& u : detail::units_of(s, how.units)) add(detail::slabs_of(u.parameters, s.plan));
    } else {
        add(detail::slabs_of(s));
    }
    constexpr memory_kind kinds[] = {memory_kind::master, memory_kind::copy, memory_kind::gradient, memory_kind::moment};
    for (int k = 0; k < 4; ++k) {
        std::size_t& bytes = m.bytes[static_cast<std::size_t>(kinds[k])];
        if (bytes < all[k])
            fail<argument_error>("scaling: the plan's peak has ", bytes, " bytes of ", name(kinds[k]), "s, and the parameters ",
                                 all[k], "; expected a plan of this model with its optimizer");
        bytes = bytes - all[k] + held[k];  // what is not divided stays
    }
    const detail::unit_bytes most = detail::most_at_once(s, how, ranks);
    if (how.zero == 3) m.gathered += most.read;
    if (how.zero >= 2) m.gathered += most.gradients;
    m.wire = 2 * most.wire;
    return m;
}

/// What one of `ranks` ranks receives in a step. Throws argument_error.
inline rank_traffic traffic_of_rank(const scaling_subject& s, const scaling_strategy& how, int ranks) {
    detail::check(how, ranks);
    rank_traffic t;
    const auto others = [ranks](std::size_t bytes) {  // of all ranges: those of the others
        return static_cast<std::uint64_t>(bytes / static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks - 1));
    };
    const auto windows = static_cast<std::uint64_t>(how.zero >= 2 ? how.micro_batches : 1);
    if (how.zero == 3) {
        for (const auto& u : detail::units_of(s, how.units)) {
            const detail::unit_bytes b = detail::whole_bytes(detail::slabs_of(u.parameters, s.plan), how, ranks);
            t.reduced += windows * others(b.wire);
            t.gathered += windows * (u.name.empty() ? 1 : 2) * others(b.read);
        }
    } else {
        const detail::unit_bytes b = detail::whole_bytes(detail::slabs_of(s), how, ranks);
        t.reduced = windows * others(b.wire);
        t.gathered = others(how.zero == 0 ? b.wire : b.read);
    }
    return t;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
