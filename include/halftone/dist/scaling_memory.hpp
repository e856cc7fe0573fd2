// SPDX-License-Identifier: MIT
/// \file
/// The memory of a rank, to the byte, for every way to divide a training.
///
///     const ht::rank_memory m = ht::memory_of_rank(subject, {.zero = 3, .units = {"h.*"}}, 64);
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

#include <halftone/dist/scaling_subject.hpp>
#include <halftone/dist/zero.hpp>
#include <halftone/memory/store_run.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// How a training is divided among ranks.
struct scaling_strategy {
    int zero = 0;                             ///< 0: ht::data_parallel; 1, 2, 3: ht::shard with zero1, zero2, zero3
    std::vector<std::string> units{"h.*"};    ///< layers whose parameters are gathered and reduced together, by patterns
    int micro_batches = 1;                    ///< of a rank in a step
    std::size_t wire_bytes = 4;               ///< of a gradient's element on its way: sizeof the policy's `reduce` type
    std::size_t bucket_bytes = std::size_t{25} << 20;  ///< as data_parallel_options and shard_options have it
};

/// What a rank has in use at the peak.
struct rank_memory {
    std::array<std::size_t, memory_kinds> bytes{};  ///< of each kind, without what is there for a while
    std::size_t gathered = 0;   ///< for a while: parameters of units, and gradients that are not summed yet
    std::size_t wire = 0;       ///< for a while: what sums send and receive

    /// Its bytes of a kind.
    std::size_t of(memory_kind kind) const { return bytes[static_cast<std::size_t>(kind)]; }
    /// The peak, as if what is there for a while met the plan's.
    std::size_t total() const {
        std::size_t sum = gathered + wire;
        for (const std::size_t each : bytes) sum += each;
        return sum;
    }
};

namespace detail {

/// The slabs of a rank, without their memory.
struct scaling_layout {
    std::vector<store_entry> entries;
    std::vector<store_group> groups;
    std::vector<store_run> runs{};           ///< none if nothing is divided
    std::vector<std::string> units{""};      ///< the first is the rest
    std::vector<std::size_t> unit_of{};      ///< by entry

    /// Whether kernels read copies of a run, and their bytes for each element.
    bool reads_copies(const store_run& r) const { return groups[r.group].copy_bytes != 0; }
    std::size_t read_bytes(const store_run& r) const { return reads_copies(r) ? groups[r.group].copy_bytes : groups[r.group].param_bytes; }
    bool is_trained(const store_run& r) const { return r.kind == store_run::content::trained; }
    std::size_t gradient_bytes(const store_run& r) const { return r.count * groups[r.group].accumulate_bytes; }
    /// The bytes of a run's gathered parameters; 0 if it is not gathered for its unit.
    bool is_gathered(const store_run& r) const {
        return r.unit != 0 && r.kind != store_run::content::state && !(reads_copies(r) ? r.copy : r.master).is_whole;
    }
};

inline void check(const scaling_strategy& how, int ranks) {
    if (ranks < 1) fail<argument_error>("scaling: ", ranks, " ranks; expected 1 or more");
    if (how.zero < 0 || how.zero > 3) fail<argument_error>("scaling: zero is ", how.zero, "; expected 0, 1, 2 or 3");
    if (how.micro_batches < 1) fail<argument_error>("scaling: ", how.micro_batches, " micro-batches; expected 1 or more");
    if (how.wire_bytes < 1 || how.wire_bytes > 8) fail<argument_error>("scaling: wire_bytes is ", how.wire_bytes, "; expected 1 to 8");
    if (how.bucket_bytes < 1) fail<argument_error>("scaling: bucket_bytes is 0; expected 1 or more");
}

/// The units of paths, in the order of the parameters.
inline std::size_t unit_number(std::vector<std::string>& names, const std::vector<std::string>& patterns, const std::string& path, bool adds) {
    std::string name;
    for (std::size_t p = 0; p < patterns.size() && name.empty(); ++p) name = unit_in(path, patterns[p]);
    auto at = name.empty() ? names.begin() : std::find(names.begin() + 1, names.end(), name);
    if (at == names.end() && adds) at = names.insert(at, name);
    return at == names.end() ? 0 : static_cast<std::size_t>(at - names.begin());
}

/// The slabs of one of `ranks` ranks.
inline scaling_layout layout_of(const scaling_subject& s, const scaling_strategy& how, int ranks) {
    scaling_layout l{.entries = s.parameters.entries, .groups = {}};
    for (const storage_layout& g : s.parameters.groups) {
        l.groups.emplace_back();
        static_cast<storage_layout&>(l.groups.back()) = g;
    }
    for (const store_entry& e : l.entries) l.unit_of.push_back(e.is_state ? 0 : unit_number(l.units, how.units, e.path, true));
    if (ranks == 1 || how.zero == 0) {
        for (const store_entry& e : l.entries) {
            store_group& g = l.groups[e.group];
            const std::size_t room = round_up(e.count, store::granule);
            if (e.master != store_entry::nowhere) g.masters += room;
            if (g.copy_bytes != 0) g.copies += room;
            if (!e.frozen) g.gradients += room, g.moments += room;
        }
        return l;
    }
    run_options o;
    o.stage = how.zero;
    o.ranks = static_cast<std::size_t>(ranks);
    o.units = l.unit_of;
    o.most = how.bucket_bytes / sizeof(float);
    l.runs = lay_out_runs(l.entries, l.groups, o);
    return l;
}

/// Bytes of masters, copies, gradients and moments.
inline std::array<std::size_t, 4> slab_bytes(const scaling_subject& s, const scaling_layout& l) {
    std::vector<std::size_t> planned(l.groups.size()), elements(l.groups.size());  // moments of one device
    for (const store_entry& e : s.parameters.entries) {
        if (e.frozen) continue;
        elements[e.group] += round_up(e.count, store::granule);
        for (const planned_parameter& p : s.plan.parameters) planned[e.group] += p.path == e.path ? p.of(memory_kind::moment) : 0;
    }
    std::array<std::size_t, 4> bytes{};
    for (std::size_t i = 0; i < l.groups.size(); ++i) {
        const store_group& g = l.groups[i];
        bytes[0] += g.masters * g.param_bytes;
        bytes[1] += g.copies * g.copy_bytes;
        bytes[2] += g.gradients * g.accumulate_bytes;
        // Of moments in 8 bits, whose blocks have values of their own, the mean.
        if (elements[i] != 0) bytes[3] += (planned[i] * g.moments + elements[i] - 1) / elements[i];
    }
    return bytes;
}

/// A range of a gradient slab that data_parallel sums at once.
struct scaling_bucket {
    std::size_t count = 0, piece = 0;  // elements
    std::size_t gradient_bytes = 0;    // of an element
    std::size_t completes = 0;         // when, in the order of the backward pass
};

/// The buckets of data_parallel, in the order in which they are complete: the last unit's first, the rest's last.
inline std::vector<scaling_bucket> buckets_of(const scaling_layout& l, const scaling_strategy& how, int ranks) {
    std::vector<scaling_bucket> buckets;
    const auto n = static_cast<std::size_t>(ranks);
    for (std::size_t i = 0; i < l.groups.size(); ++i) {
        const store_group& g = l.groups[i];
        if (g.gradients == 0) continue;
        const std::size_t most = std::max(how.bucket_bytes / g.accumulate_bytes / store::granule, std::size_t{1}) * store::granule;
        for (std::size_t first = 0; first < g.gradients; first += most) {
            const std::size_t end = std::min(first + most, g.gradients);
            scaling_bucket b{end - first, (end - first + n - 1) / n, g.accumulate_bytes, 0};
            for (std::size_t k = 0; k < l.entries.size(); ++k) {
                const store_entry& e = l.entries[k];
                if (e.group != i || e.frozen || e.gradient >= end || e.gradient + e.count <= first) continue;
                b.completes = std::max(b.completes, l.units.size() - l.unit_of[k]);
            }
            buckets.push_back(b);
        }
    }
    std::stable_sort(buckets.begin(), buckets.end(), [](const auto& a, const auto& b) { return a.completes < b.completes; });
    return buckets;
}

/// What a sum of pieces sends and receives.
inline std::size_t sum_bytes(std::size_t piece, int ranks, std::size_t wire) {
    return 2 * round_up(piece * static_cast<std::size_t>(ranks) * wire, block_alignment);
}

/// The most bytes of gradients that are not summed yet, of which the rank keeps a piece only.
inline std::size_t unsummed_bytes(const scaling_layout& l, const scaling_strategy& how) {
    std::size_t live = 0;
    for (const store_run& r : l.runs) {
        if (l.is_trained(r) && !r.gradient.is_whole && (r.unit == 0 || how.micro_batches > 1)) live += l.gradient_bytes(r);
    }
    std::size_t most = live;
    if (how.micro_batches > 1) return most;
    std::deque<std::size_t> under_way;  // as shard adds them: one waits for the one before the last
    for (std::size_t u = l.units.size() - 1; u > 0; --u) {
        std::vector<std::size_t> unit;
        for (const store_run& r : l.runs) {
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
inline std::size_t gathered_bytes(const scaling_layout& l) {
    std::vector<std::size_t> bytes(l.units.size());
    for (const store_run& r : l.runs) {
        if (l.is_gathered(r)) bytes[r.unit] += round_up(r.count * l.read_bytes(r), block_alignment);
    }
    std::size_t most[2]{};
    for (std::size_t u = 1; u < bytes.size(); ++u) most[u % 2] = std::max(most[u % 2], bytes[u]);
    return most[0] + most[1];
}

}  // namespace detail

/// The memory of one of `ranks` ranks at its peak; of one rank it is the plan's. To the byte, but for moments in 8 bits,
/// which are so up to the padding of their blocks. Throws argument_error.
inline rank_memory memory_of_rank(const scaling_subject& s, const scaling_strategy& how, int ranks) {
    detail::check(how, ranks);
    rank_memory m;
    m.bytes = s.plan.bytes_at_peak;
    if (ranks == 1) return m;
    const detail::scaling_layout l = detail::layout_of(s, how, ranks);
    const auto one = detail::slab_bytes(s, detail::layout_of(s, how, 1)), each = detail::slab_bytes(s, l);
    constexpr memory_kind kinds[] = {memory_kind::master, memory_kind::copy, memory_kind::gradient, memory_kind::moment};
    for (std::size_t k = 0; k < 4; ++k) {
        std::size_t& bytes = m.bytes[static_cast<std::size_t>(kinds[k])];
        if (bytes < one[k])
            fail<argument_error>("scaling: the plan's peak has ", bytes, " bytes of kind ", name(kinds[k]), ", and the parameters have ",
                                 one[k], "; expected a plan of this model with its optimizer and accumulator");
        bytes = bytes - one[k] + each[k];  // what is not the store's stays
    }
    if (how.zero == 0) {
        const std::vector<detail::scaling_bucket> buckets = detail::buckets_of(l, how, ranks);
        std::size_t most = 0;
        for (const detail::scaling_bucket& b : buckets) most = std::max(most, detail::sum_bytes(b.piece, ranks, how.wire_bytes));
        m.wire = std::min<std::size_t>(3, buckets.size()) * most;
        return m;
    }
    for (const store_run& r : l.runs) {
        if (l.is_trained(r)) m.wire = std::max(m.wire, 2 * detail::sum_bytes(r.piece, ranks, how.wire_bytes));
    }
    m.gathered = detail::unsummed_bytes(l, how) + detail::gathered_bytes(l);
    return m;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
