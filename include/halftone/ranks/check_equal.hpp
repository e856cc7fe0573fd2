// SPDX-License-Identifier: MIT
/// \file
/// Whether all ranks have the same parameters, and making them so.
///
///     ht::broadcast_parameters(comm, model);        // rank 0's replace those of all others
///     ht::check_equal(comm, model);                 // throws state_error, which names the first parameter that differs
///
/// Both are collective, and first compare the models' layouts: paths, sizes, types, and what is frozen. Parameters are
/// compared by checksums of their bytes, FNV-1a in 64 bits, which are computed on the host: on a GPU it waits, and copies
/// them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <halftone/memory/store.hpp>
#include <halftone/ranks/communicator.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// FNV-1a of 64 bits (Fowler, Noll and Vo).
class checksum {
  public:
    void add(const void* data, std::size_t bytes) {
        const auto* const at = static_cast<const unsigned char*>(data);
        for (std::size_t i = 0; i < bytes; ++i) value_ = (value_ ^ at[i]) * 0x100000001b3;
    }
    void add(const char* text) { add(text, std::strlen(text) + 1); }
    template <class T>
        requires std::is_arithmetic_v<T>
    void add(T number) { add(&number, sizeof number); }
    std::uint64_t value() const { return value_; }

  private:
    std::uint64_t value_ = 0xcbf29ce484222325;
};

/// What a rank's optimizers and exchanges require to be the same on all ranks.
inline std::uint64_t layout_checksum(const store& parameters, const store::entry& e) {
    const store::group& g = parameters.groups()[e.group];
    checksum sum;
    sum.add(e.path.c_str()), sum.add(g.param_type->name), sum.add(g.copy_type->name), sum.add(g.state_type->name);
    for (const std::size_t n : {e.count, e.group, e.master, e.copy, e.gradient, g.accumulate_bytes}) sum.add(n);
    return sum.value();
}
/// The bytes of an entry's master and copy.
inline std::uint64_t value_checksum(const store& parameters, const store::entry& e) {
    const store::group& g = parameters.groups()[e.group];
    std::vector<std::byte> part(std::size_t{1} << 16);
    checksum sum;
    const auto add = [&](const buffer& slab, std::size_t first, std::size_t each, std::size_t all) {
        if (first == store::nowhere || each == 0) return;
        for (std::size_t done = 0; done < all; done += part.size()) {
            const std::size_t bytes = std::min(part.size(), all - done);
            parameters.memory().read(part.data(), slab.data() + first * each + done, bytes);
            sum.add(part.data(), bytes);
        }
    };
    add(g.master, e.master, g.param_bytes, e.count * g.param_bytes);
    add(g.copy, e.copy, g.copy_bytes, g.bytes_of_copy(e));
    return sum.value();
}

/// The first of `own` that a rank has otherwise than rank 0, and that rank; rank -1: none. All ranks give as many.
struct rank_difference {
    std::size_t which;
    int rank;
};
inline rank_difference first_difference(communicator& comm, const char* what, const std::vector<std::uint64_t>& own) {
    std::vector<std::uint64_t> all(own.size() * static_cast<std::size_t>(comm.size()));
    if (!own.empty()) comm.all_gather(what, own.data(), all.data(), own.size() * sizeof own[0]);
    for (std::size_t i = 0; i < own.size(); ++i) {
        for (int rank = 1; rank < comm.size(); ++rank) {
            if (all[static_cast<std::size_t>(rank) * own.size() + i] != all[i]) return {i, rank};
        }
    }
    return {0, -1};
}

/// Throws argument_error unless all ranks have this layout of parameters.
inline void check_same_layout(communicator& comm, const store& parameters) {
    if (!parameters.is_waiting()) parameters.check_committed();
    const std::vector<store::entry>& entries = parameters.entries();
    std::vector<std::uint64_t> counts(static_cast<std::size_t>(comm.size()));
    const std::uint64_t own = entries.size();
    comm.all_gather("number of parameters", &own, counts.data(), sizeof own);
    for (int rank = 0; rank < comm.size(); ++rank) {
        if (const std::uint64_t n = counts[static_cast<std::size_t>(rank)]; n != counts[0])
            fail<argument_error>("ranks: rank ", rank, " has a model of ", n, " parameters, and rank 0 one of ", counts[0],
                                 "; construct the same model on all ranks");
    }
    std::vector<std::uint64_t> sums;
    for (const store::entry& e : entries) sums.push_back(layout_checksum(parameters, e));
    if (const rank_difference d = first_difference(comm, "layout of parameters", sums); d.rank >= 0) {
        fail<argument_error>("ranks: parameter ", d.which, " of the model on rank ", d.rank,
                             " is not that of rank 0 in path, size, types or being frozen; here it is ",
                             entries[d.which].path, "; construct the same model on all ranks");
    }
}

inline void broadcast_parameters(communicator& comm, store& parameters) {
    parameters.check_committed();
    check_same_layout(comm, parameters);
    parameters.await_readers();
    for (const store::group& g : parameters.groups()) {
        if (g.master.bytes() != 0) comm.broadcast("parameters", g.master.data(), g.master.bytes(), 0);
        if (g.copy.bytes() != 0) comm.broadcast("copies of parameters", g.copy.data(), g.copy.bytes(), 0);
    }
}
inline void check_equal(communicator& comm, const store& parameters) {
    parameters.check_committed();
    check_same_layout(comm, parameters);
    std::vector<std::uint64_t> sums;
    for (const store::entry& e : parameters.entries()) sums.push_back(value_checksum(parameters, e));
    if (const rank_difference d = first_difference(comm, "checksums of parameters", sums); d.rank >= 0)
        fail<state_error>("ranks: ", parameters.entries()[d.which].path, " differs on rank ", d.rank, " from that of rank 0");
}

}  // namespace detail

/// Copies rank 0's parameters, with layers' states, to all other ranks. Collective. Throws argument_error on all ranks if
/// their models are not the same but for the values; nothing has changed then.
template <class Model>
void broadcast_parameters(communicator& comm, Model& model) {
    detail::broadcast_parameters(comm, model.parameters());
}

/// Compares the parameters of all ranks, bit for bit, with layers' states. Collective. Throws on all ranks: state_error
/// that names the first parameter that differs from rank 0's, and the rank; argument_error as broadcast_parameters.
template <class Model>
void check_equal(communicator& comm, const Model& model) {
    detail::check_equal(comm, model.parameters());
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
