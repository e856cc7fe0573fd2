// SPDX-License-Identifier: MIT
/// \file
/// What ranks agree on after a window, besides the sums of gradients: which parameters were reached, the amaxes of delayed
/// scaling, and layers' states. All functions are collective.
///
///     detail::agree_on_reached(comm, slabs);        // by any rank
///     detail::agree_on_amaxes(comm, amaxes);        // the largest of all ranks
///     detail::agree_on_states(comm, parameters);    // rank 0's
#pragma once

#include <algorithm>
#include <vector>

#include <halftone/dist/communicator.hpp>
#include <halftone/memory/gradient_slabs.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A parameter that one rank's backward pass reached has a gradient on all ranks.
inline void agree_on_reached(communicator& comm, gradient_slabs& slabs) {
    const std::size_t count = slabs.owner().entries().size(), ranks = static_cast<std::size_t>(comm.size());
    std::vector<std::uint8_t> own(count), all(count * ranks);
    for (std::size_t i = 0; i < count; ++i) own[i] = slabs.is_reached(i) ? 1 : 0;
    if (count != 0) comm.all_gather("reached parameters", own.data(), all.data(), count);
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i] != 0) slabs.set_reached(i % count);
    }
}

/// Magnitudes are ordered as their bit patterns are.
inline void agree_on_amaxes(communicator& comm, memory_resource& memory, const amax_histories& amaxes) {
    const auto count = static_cast<std::size_t>(amaxes.size()), ranks = static_cast<std::size_t>(comm.size());
    if (count == 0) return;
    std::vector<amax_record> records(count);
    memory.read(records.data(), amaxes.records(), count * sizeof(amax_record));
    std::vector<std::uint32_t> own(count), all(count * ranks);
    for (std::size_t i = 0; i < count; ++i) own[i] = records[i].amax;
    comm.all_gather("amaxes", own.data(), all.data(), count * sizeof own[0]);
    for (std::size_t i = 0; i < all.size(); ++i)
        records[i % count].amax = std::max(records[i % count].amax, all[i]);
    memory.write(amaxes.records(), records.data(), count * sizeof(amax_record));
}

/// Layers' states, such as running statistics, become rank 0's.
inline void agree_on_states(communicator& comm, const store& parameters) {
    for (const store::entry& e : parameters.entries()) {
        const store::group& g = parameters.groups()[e.group];
        if (e.is_state && e.count != 0)
            comm.broadcast(e.path.c_str(), g.master.data() + e.master * g.param_bytes, e.count * g.param_bytes, 0);
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
