// SPDX-License-Identifier: MIT
/// \file
/// The memory of a rank, to the byte, for every way to divide a training.
///
///     const scaling::rank_memory m = scaling::memory_of_rank(subject, {.zero = 3, .units = {"h.*"}}, 64);
///     std::cout << m.of(ht::memory_kind::moment) << " of " << m.total() << " bytes\n";
///
/// What a rank holds of masters, copies, gradients and moments follows from the layout itself (memory/store_run.hpp): of n
/// ranks each has a piece P = ceil(E / 256n) 256 of a run of E elements, parameters of the same types in a unit. Stages are
/// those of Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 3.
///
///     zero   masters         copies          gradients   moments   for a while
///     0      E               E               E           E         2 nb w bytes for each of 3 buckets of b elements
///     1      nP              nP              nP          P         4 nP w bytes, of the largest run: two sums
///     2      nP              nP              P           P         the same, and gradients that are not summed yet
///     3      P, the rest nP  P, the rest nP  P           P         the same, and the parameters of two units
///            if it is read
///
/// with w bytes for an element on its way. Gradients that are not summed yet: with one micro-batch those of the rest, of the
/// unit that computes and of the two whose sums are under way; with several, all of them. Two units: the one that computes,
/// and the one that is gathered ahead (Zhao et al. 2023, "PyTorch FSDP", section 3.3).
///
/// Activations, workspaces and tensors of the user are those of the plan's peak.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <halftone/memory/store_run.hpp>
#include <halftone/ranks/zero.hpp>

#include "training.hpp"

namespace scaling {

namespace ht = halftone;

/// How a training is divided among ranks.
struct strategy {
    int zero = 0;                           ///< 0: ht::data_parallel; 1, 2, 3: ht::shard with zero1, zero2, zero3
    std::vector<std::string> units{"h.*"};  ///< layers whose parameters are gathered and reduced together, by patterns
    int micro_batches = 1;                  ///< of a rank in a step
    std::size_t wire_bytes = 4;             ///< of a gradient's element on its way: sizeof the policy's `reduce` type
    std::size_t bucket_bytes = std::size_t{25} << 20;  ///< as data_parallel_options and shard_options have it
};

/// What a rank has in use at the peak.
struct rank_memory {
    std::array<std::size_t, ht::memory_kinds> bytes{};  ///< of each kind, without what is there for a while
    std::size_t gathered = 0;  ///< for a while: parameters of units, and gradients that are not summed yet
    std::size_t wire = 0;      ///< for a while: what sums send and receive

    /// Its bytes of a kind.
    std::size_t of(ht::memory_kind kind) const { return bytes[static_cast<std::size_t>(kind)]; }
    /// The peak, as if what is there for a while met the plan's.
    std::size_t total() const {
        std::size_t sum = gathered + wire;
        for (const std::size_t each : bytes) sum += each;
        return sum;
    }
};

/// The slabs of a rank, without their memory.
struct layout {
    std::vector<ht::store_entry> entries;
    std::vector<ht::store_group> groups;
    std::vector<ht::store_run> runs{};   ///< none if nothing is divided
    std::vector<std::string> units{""};  ///< the first is the rest
    std::vector<std::size_t> unit_of{};  ///< by entry

    /// Whether kernels read copies of a run, and their bytes for each element.
    bool reads_copies(const ht::store_run& r) const { return groups[r.group].copy_bytes != 0; }
    std::size_t read_bytes(const ht::store_run& r) const {
        return reads_copies(r) ? groups[r.group].copy_bytes : groups[r.group].param_bytes;
    }
    bool is_trained(const ht::store_run& r) const { return r.kind == ht::store_run::content::trained; }
    std::size_t gradient_bytes(const ht::store_run& r) const { return r.count * groups[r.group].accumulate_bytes; }
    /// The bytes of a run's gathered parameters; 0 if it is not gathered for its unit.
    bool is_gathered(const ht::store_run& r) const {
        return r.unit != 0 && r.kind != ht::store_run::content::state &&
               !(reads_copies(r) ? r.copy : r.master).is_whole;
    }
};

inline void check(const strategy& how, int ranks) {
    if (ranks < 1) ht::fail<ht::argument_error>("scaling: ", ranks, " ranks; expected 1 or more");
    if (how.zero < 0 || how.zero > 3)
        ht::fail<ht::argument_error>("scaling: zero is ", how.zero, "; expected 0, 1, 2 or 3");
    if (how.micro_batches < 1)
        ht::fail<ht::argument_error>("scaling: ", how.micro_batches, " micro-batches; expected 1 or more");
    if (how.wire_bytes < 1 || how.wire_bytes > 8)
        ht::fail<ht::argument_error>("scaling: wire_bytes is ", how.wire_bytes, "; expected 1 to 8");
    if (how.bucket_bytes < 1) ht::fail<ht::argument_error>("scaling: bucket_bytes is 0; expected 1 or more");
}

/// The units of paths, in the order of the parameters.
inline std::size_t unit_number(std::vector<std::string>& names, const std::vector<std::string>& patterns,
                               const std::string& path, bool adds) {
    std::string name;
    for (std::size_t p = 0; p < patterns.size() && name.empty(); ++p) name = ht::detail::unit_in(path, patterns[p]);
    auto at = name.empty() ? names.begin() : std::find(names.begin() + 1, names.end(), name);
    if (at == names.end() && adds) at = names.insert(at, name);
    return at == names.end() ? 0 : static_cast<std::size_t>(at - names.begin());
}

/// The slabs of one of `ranks` ranks.
inline layout layout_of(const subject& s, const strategy& how, int ranks) {
    layout l{.entries = s.parameters.entries, .groups = {}};
    for (const ht::detail::storage_layout& g : s.parameters.groups) {
        l.groups.emplace_back();
        static_cast<ht::detail::storage_layout&>(l.groups.back()) = g;
    }
    for (const ht::store_entry& e : l.entries)
        l.unit_of.push_back(e.is_state ? 0 : unit_number(l.units, how.units, e.path, true));
    if (ranks == 1 || how.zero == 0) {
        for (const ht::store_entry& e : l.entries) {
            ht::store_group& g = l.groups[e.group];
            const std::size_t room = ht::round_up(e.count, ht::store::granule);
            if (e.master != ht::store_entry::nowhere) g.masters += room;
            if (g.copy_bytes != 0) g.copies += room;
            if (!e.frozen) g.gradients += room, g.moments += room;
        }
        return l;
    }
    ht::detail::run_options o;
    o.stage = how.zero;
    o.ranks = static_cast<std::size_t>(ranks);
    o.units = l.unit_of;
    o.most = how.bucket_bytes / sizeof(float);
    l.runs = ht::detail::lay_out_runs(l.entries, l.groups, o);
    return l;
}

/// Bytes of masters, copies, gradients and moments.
inline std::array<std::size_t, 4> slab_bytes(const subject& s, const layout& l) {
    std::vector<std::size_t> planned(l.groups.size()), elements(l.groups.size());  // moments of one device
    for (const ht::store_entry& e : s.parameters.entries) {
        if (e.frozen) continue;
        elements[e.group] += ht::round_up(e.count, ht::store::granule);
        for (const ht::planned_parameter& p : s.plan.parameters)
            planned[e.group] += p.path == e.path ? p.of(ht::memory_kind::moment) : 0;
    }
    std::array<std::size_t, 4> bytes{};
    for (std::size_t i = 0; i < l.groups.size(); ++i) {
        const ht::store_group& g = l.groups[i];
        bytes[0] += g.masters * g.param_bytes;
        bytes[1] += g.copies * g.copy_bytes;
        bytes[2] += g.gradients * g.accumulate_bytes;
        // Of moments in 8 bits, whose blocks have values of their own, the mean.
        if (elements[i] != 0) bytes[3] += (planned[i] * g.moments + elements[i] - 1) / elements[i];
    }
    return bytes;
}

/// A range of a gradient slab that data_parallel sums at once.
struct bucket {
    std::size_t count = 0, piece = 0;  // elements
    std::size_t gradient_bytes = 0;    // of an element
    std::size_t completes = 0;         // when, in the order of the backward pass
};

/// The buckets of data_parallel, in the order in which they are complete: the last unit's first, the rest's last.
inline std::vector<bucket> buckets_of(const layout& l, const strategy& how, int ranks) {
    std::vector<bucket> buckets;
    const auto n = static_cast<std::size_t>(ranks);
    for (std::size_t i = 0; i < l.groups.size(); ++i) {
        const ht::store_group& g = l.groups[i];
        if (g.gradients == 0) continue;
        const std::size_t most =
            std::max(how.bucket_bytes / g.accumulate_bytes / ht::store::granule, std::size_t{1}) * ht::store::granule;
        for (std::size_t first = 0; first < g.gradients; first += most) {
            const std::size_t end = std::min(first + most, g.gradients);
            bucket b{end - first, (end - first + n - 1) / n, g.accumulate_bytes, 0};
            for (std::size_t k = 0; k < l.entries.size(); ++k) {
                const ht::store_entry& e = l.entries[k];
                if (e.group != i || e.frozen || e.gradient >= end || e.gradient + e.count <= first) continue;
                b.completes = std::max(b.completes, l.units.size() - l.unit_of[k]);
            }
            buckets.push_back(b);
        }
    }
    std::stable_sort(buckets.begin(), buckets.end(),
                     [](const auto& a, const auto& b) { return a.completes < b.completes; });
    return buckets;
}

/// What a sum of pieces sends and receives.
inline std::size_t sum_bytes(std::size_t piece, int ranks, std::size_t wire) {
    return 2 * ht::round_up(piece * static_cast<std::size_t>(ranks) * wire, ht::block_alignment);
}

/// The most bytes of gradients that are not summed yet, of which the rank keeps a piece only.
inline std::size_t unsummed_bytes(const layout& l, const strategy& how) {
    std::size_t live = 0;
    for (const ht::store_run& r : l.runs) {
        if (l.is_trained(r) && !r.gradient.is_whole && (r.unit == 0 || how.micro_batches > 1))
            live += l.gradient_bytes(r);
    }
    std::size_t most = live;
    if (how.micro_batches > 1) return most;
    std::deque<std::size_t> under_way;  // as shard adds them: one waits for the one before the last
    for (std::size_t u = l.units.size() - 1; u > 0; --u) {
        std::vector<std::size_t> unit;
        for (const ht::store_run& r : l.runs) {
            if (r.unit == u && l.is_trained(r) && !r.gradient.is_whole) unit.push_back(l.gradient_bytes(r));
        }
        for (const std::size_t bytes : unit) live += bytes;
        most = std::max(most, live);
        for (const std::size_t bytes : unit) {
            for (; under_way.size() > 1; under_way.pop_front()) live -= under_way.front();
            under_way.push_back(bytes);
        }
    }
    return most;
}

/// The memory in which two units are gathered: those with even and those with odd numbers.
inline std::size_t gathered_bytes(const layout& l) {
    std::vector<std::size_t> bytes(l.units.size());
    for (const ht::store_run& r : l.runs) {
        if (l.is_gathered(r)) bytes[r.unit] += ht::round_up(r.count * l.read_bytes(r), ht::block_alignment);
    }
    std::size_t most[2]{};
    for (std::size_t u = 1; u < bytes.size(); ++u) most[u % 2] = std::max(most[u % 2], bytes[u]);
    return most[0] + most[1];
}

/// The memory of one of `ranks` ranks at its peak; of one rank it is the plan's. To the byte, but for moments in 8 bits,
/// which are so up to the padding of their blocks. Throws argument_error.
inline rank_memory memory_of_rank(const subject& s, const strategy& how, int ranks) {
    check(how, ranks);
    rank_memory m;
    m.bytes = s.plan.bytes_at_peak;
    if (ranks == 1) return m;
    const layout l = layout_of(s, how, ranks);
    const auto one = slab_bytes(s, layout_of(s, how, 1)), each = slab_bytes(s, l);
    constexpr ht::memory_kind kinds[] = {ht::memory_kind::master, ht::memory_kind::copy, ht::memory_kind::gradient,
                                         ht::memory_kind::moment};
    for (std::size_t k = 0; k < 4; ++k) {
        std::size_t& bytes = m.bytes[static_cast<std::size_t>(kinds[k])];
        if (bytes < one[k])
            ht::fail<ht::argument_error>("scaling: the plan's peak has ", bytes, " bytes of kind ", ht::name(kinds[k]),
                                         ", and the parameters have ", one[k],
                                         "; expected a plan of this model with its optimizer and accumulator");
        bytes = bytes - one[k] + each[k];  // what is not the store's stays
    }
    if (how.zero == 0) {
        const std::vector<bucket> buckets = buckets_of(l, how, ranks);
        std::size_t most = 0;
        for (const bucket& b : buckets) most = std::max(most, sum_bytes(b.piece, ranks, how.wire_bytes));
        m.wire = std::min<std::size_t>(3, buckets.size()) * most;
        return m;
    }
    for (const ht::store_run& r : l.runs) {
        if (l.is_trained(r)) m.wire = std::max(m.wire, 2 * sum_bytes(r.piece, ranks, how.wire_bytes));
    }
    m.gathered = unsummed_bytes(l, how) + gathered_bytes(l);
    return m;
}

}  // namespace scaling
