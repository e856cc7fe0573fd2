// SPDX-License-Identifier: MIT
/// \file
/// The layout of a store whose slabs are divided among ranks (ranks/shard.hpp): runs of parameters that are side by side
/// in all slabs of their group, each divided into as many pieces of equal length as there are ranks.
///
/// Parameters of a run belong to one group and one unit. Each begins at a multiple of 256 elements, and so does each
/// piece, so that no piece ends inside a block of 8-bit moments and no sum of 256 squares spans two ranks. The padding after a run is part of it.
///
/// A slab holds a run whole, or this rank's piece. An entry's place in a slab is that of its first element; of a piece
/// it is the place where the first element would be, so that element i is at place + i either way. (It may lie before
/// the slab's begin; unsigned arithmetic then gives the right place for the elements that are there.)
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <halftone/memory/store_entry.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Where a slab holds a run of parameters.
struct run_place {
    std::size_t first = store_entry::nowhere;  ///< `nowhere`: not at all
    bool is_whole = true;                      ///< otherwise this rank's piece

    bool is_there() const { return first != store_entry::nowhere; }
};

/// Some elements of a parameter, or of a run.
struct element_range {
    std::size_t first = 0, count = 0;
};

/// Parameters of one group that are side by side in all slabs, and divided among the ranks.
struct store_run {
    /// What its parameters are: layers' states have no gradients either, and no rank has a piece of them.
    enum class content { trained, frozen, state };

    std::size_t group = 0;
    std::size_t unit = 0;  ///< 0: what belongs to no unit
    content kind = content::trained;
    bool keeps_master = false;
    std::size_t used = 0;          ///< elements of parameters
    std::size_t count = 0;         ///< with all padding: `piece` times the number of ranks
    std::size_t piece = 0;
    run_place master{}, copy{}, gradient{}, moment{};
};

namespace detail {

/// How a store is divided.
struct run_options {
    int stage = 0;  ///< of ZeRO: 1 divides moments, 2 gradients as well, 3 masters and copies as well
    std::size_t rank = 0, ranks = 1;
    std::vector<std::size_t> units{};  ///< by entry
    std::size_t most = std::size_t{1} << 22;  ///< elements of a run, unless a single parameter has more
    static constexpr std::size_t granule = 256;
};

inline bool belongs_to(const store_run& r, const store_run& like) {
    return r.group == like.group && r.unit == like.unit && r.kind == like.kind && r.keeps_master == like.keeps_master;
}

/// Assigns entries to runs, in the order of the store. Entries whose copies are codes have a run each, and each rank has all of their
/// codes: these are no elements that could be divided anywhere.
std::vector<store_run> make_runs(std::vector<store_entry>& entries, const std::vector<store_group>& groups,
                                 const run_options& o);

/// Places runs in the slabs of their groups.
void place_runs(std::vector<store_run>& runs, std::vector<store_group>& groups, const run_options& o);

/// The place of an entry in a slab that holds its run so.
inline std::size_t place_of(const store_entry& e, const store_run& r, const run_place& p, std::size_t rank) {
    if (!p.is_there()) return store_entry::nowhere;
    return p.first + e.in_run - (p.is_whole ? 0 : rank * r.piece);
}

/// Lays out a store's slabs in runs.
std::vector<store_run> lay_out_runs(std::vector<store_entry>& entries, std::vector<store_group>& groups,
                                    const run_options& o);

/// The elements of an entry, with those of the gap after it, that are in a rank's piece of its run.
element_range part_of_rank(const store_entry& e, const store_run& r, std::size_t rank);

/// The elements of an entry, with those of the gap after it, that a slab of this rank holds.
inline element_range part_here(const store_entry& e, const store_run& r, const run_place store_run::*slab,
                               std::size_t rank) {
    return (r.*slab).is_whole ? element_range{0, round_up(e.count, run_options::granule)} : part_of_rank(e, r, rank);
}

/// Moves what this rank holds of a group's entries from slabs with the layout `before` to new ones.
struct run_mover {
    memory_resource& memory;
    const std::vector<store_entry>&before, &now;
    const std::vector<store_run>& runs;
    std::size_t rank, group;

    void move(const std::size_t store_entry::*place, const run_place store_run::*slab, std::size_t each,
              const buffer& from, const buffer& to) const;
    /// Moves the group's copies, which are codes, as wholes.
    void move_codes(const store_group& of, const buffer& from, const buffer& to) const;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/memory/store_run.body.hpp>
#endif
