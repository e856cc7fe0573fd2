// SPDX-License-Identifier: MIT
/// \file
/// What ranks agree on besides the sums of gradients: after a window which parameters were reached, the amaxes of delayed
/// scaling, and layers' states; and before a pass how many targets there are. All functions are collective.
///
///     detail::agree_on_reached(comm, slabs);        // by any rank
///     detail::agree_on_amaxes(comm, amaxes);        // the largest of all ranks
///     detail::agree_on_states(comm, parameters);    // rank 0's
///     return detail::share_of_ranks(comm, context, micro, batch);      // of all ranks' targets
#pragma once

#include <algorithm>
#include <vector>

#include <halftone/autodiff/engine/rank_loss.hpp>
#include <halftone/memory/gradient_slabs.hpp>
#include <halftone/ranks/communicator.hpp>
#include <halftone/ranks/reduce.hpp>

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

/// The largest of all ranks; magnitudes are ordered as their bit patterns are.
inline void agree_on_amaxes(communicator& comm, amax_histories& amaxes) {
    std::vector<std::uint32_t> own = amaxes.window_amaxes();
    if (own.empty()) return;
    std::vector<std::uint32_t> all(own.size() * static_cast<std::size_t>(comm.size()));
    comm.all_gather("amaxes", own.data(), all.data(), own.size() * sizeof own[0]);
    for (std::size_t i = 0; i < all.size(); ++i) own[i % own.size()] = std::max(own[i % own.size()], all[i]);
    amaxes.set_window_amaxes(own);
}

/// Layers' states, such as running statistics, become rank 0's. Neighbours are sent together.
inline void agree_on_states(communicator& comm, const store& parameters) {
    const auto& entries = parameters.entries();
    for (std::size_t i = 0, end; i < entries.size(); i = end) {
        end = i + 1;
        if (!entries[i].is_state) continue;
        const store::entry& first = entries[i];
        std::size_t room = round_up(first.count, store::granule);
        while (end < entries.size() && entries[end].is_state && entries[end].group == first.group &&
               entries[end].master == first.master + room)
            room += round_up(entries[end++].count, store::granule);
        const store::group& g = parameters.groups()[first.group];
        comm.broadcast(first.path.c_str(), g.master.data() + first.master * g.param_bytes, room * g.param_bytes, 0);
    }
}

/// The share of all ranks' batches, by what their losses are means over, that is in `micro`, a part of this rank's `batch`. On a
/// GPU it waits for the device.
template <class Context, class Micro, class Batch>
rank_share share_of_ranks(communicator& comm, Context&& context, const Micro& micro, const Batch& batch) {
    auto& root = context.root();
    kernel::target_counts counts = halftone::share_of(context, micro, batch).read();
    counts = kernel::target_counts_of(counts.counted, all_reduce_sum(comm, "targets", counts.of));
    const auto share = root.template make<kernel::target_counts>(halftone::shape<0>{}, false);
    root.device().memory().write(share.view().data(), &counts, sizeof counts);
    return {loss_share(share), comm.size()};
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
