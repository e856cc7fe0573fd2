// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in store_run.hpp that are no templates.
#pragma once

#include <halftone/memory/store_run.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE std::vector<store_run> make_runs(std::vector<store_entry>& entries,
                                                      const std::vector<store_group>& groups, const run_options& o) {
    std::vector<store_run> runs;
    for (std::size_t i = 0; i < entries.size(); ++i) {
        store_entry& e = entries[i];
        store_run like;
        like.group = e.group;
        like.unit = e.is_state ? 0 : o.units[i];
        like.kind = e.is_state ? store_run::content::state
                    : e.frozen ? store_run::content::frozen
                               : store_run::content::trained;
        like.keeps_master = e.keeps_master;
        const std::size_t room = round_up(e.count, run_options::granule);
        e.run = runs.size();
        const std::size_t candidates = groups[e.group].coding == nullptr ? runs.size() : 0;
        for (std::size_t r = 0; r < candidates; ++r) {  // the last one that has room
            if (belongs_to(runs[r], like)) e.run = runs[r].count + room <= o.most ? r : runs.size();
        }
        if (e.run == runs.size()) runs.push_back(like);
        store_run& r = runs[e.run];
        e.in_run = r.count;
        r.used += e.count;
        r.count += room;
    }
    for (store_run& r : runs) {
        r.piece = round_up(ceil_div(r.count, o.ranks), run_options::granule);
        r.count = o.ranks * r.piece;
    }
    return runs;
}

HALFTONE_OUT_OF_LINE void place_runs(std::vector<store_run>& runs, std::vector<store_group>& groups, const run_options& o) {
    for (store_group& g : groups) g.masters = g.copies = g.gradients = g.moments = 0;
    for (store_run& r : runs) {
        store_group& g = groups[r.group];
        const bool is_trained = r.kind == store_run::content::trained, has_copy = g.copy_bytes != 0;
        const bool divides = o.stage >= 3 && r.kind != store_run::content::state;
        const auto take = [&r](std::size_t& end, bool whole) {
            return run_place{std::exchange(end, end + (whole ? r.count : r.piece)), whole};
        };
        // What kernels read of the rest, which belongs to no unit, stays whole.
        if (is_trained || !has_copy || r.keeps_master || r.kind == store_run::content::state)
            r.master = take(g.masters, !divides || (r.unit == 0 && (!has_copy || r.keeps_master)));
        if (g.coding != nullptr) {
            r.copy = {std::exchange(g.copies, g.copies + round_up(g.coding->bytes(r.used), std::size_t{64})), true};
        } else if (has_copy) {
            r.copy = take(g.copies, !divides || r.unit == 0);
        }
        if (!is_trained) continue;
        r.gradient = take(g.gradients, o.stage < 2);
        r.moment = take(g.moments, o.stage < 1);
    }
}

HALFTONE_OUT_OF_LINE std::vector<store_run> lay_out_runs(std::vector<store_entry>& entries, std::vector<store_group>& groups,
                                           const run_options& o) {
    std::vector<store_run> runs = make_runs(entries, groups, o);
    place_runs(runs, groups, o);
    for (store_entry& e : entries) {
        const store_run& r = runs[e.run];
        e.master = place_of(e, r, r.master, o.rank);
        e.copy = place_of(e, r, r.copy, o.rank);
        e.gradient = place_of(e, r, r.gradient, o.rank);
        e.moment = place_of(e, r, r.moment, o.rank);
    }
    return runs;
}

HALFTONE_OUT_OF_LINE element_range part_of_rank(const store_entry& e, const store_run& r, std::size_t rank) {
    const std::size_t room = round_up(e.count, run_options::granule);
    const std::size_t begin = std::max(e.in_run, rank * r.piece), end = std::min(e.in_run + room, (rank + 1) * r.piece);
    return begin < end ? element_range{begin - e.in_run, end - begin} : element_range{};
}

HALFTONE_OUT_OF_LINE void run_mover::move(const std::size_t store_entry::*place, const run_place store_run::*slab, std::size_t each,
                            const buffer& from, const buffer& to) const {
    std::vector<std::byte> host;
    for (std::size_t i = 0; i < now.size(); ++i) {
        const store_entry& e = now[i];
        if (e.group != group || !(runs[e.run].*slab).is_there() || before[i].*place == store_entry::nowhere) continue;
        const element_range part = part_here(e, runs[e.run], slab, rank);
        host.resize(part.count == 0 ? 0 : std::min(part.count, e.count - part.first) * each);
        memory.read(host.data(), from.data() + (before[i].*place + part.first) * each, host.size());
        memory.write(to.data() + (e.*place + part.first) * each, host.data(), host.size());
    }
}

HALFTONE_OUT_OF_LINE void run_mover::move_codes(const store_group& of, const buffer& from, const buffer& to) const {
    for (std::size_t i = 0; i < now.size(); ++i) {
        if (now[i].group != group) continue;
        std::vector<std::byte> host(of.coding->bytes(now[i].count));
        memory.read(host.data(), from.data() + before[i].copy, host.size());
        memory.write(to.data() + now[i].copy, host.data(), host.size());
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
