// SPDX-License-Identifier: MIT
/// \file
/// What a store, accumulators, gradients, optimizers and lists of layers ask of the object that divides a store among
/// ranks: ht::shard (ranks/shard.hpp), the only one that implements it. A program with one rank has none and includes
/// nothing of ranks/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

class gradient_slabs;
struct element_range;

/// Whether a model is an ht::shard.
template <class Model>
inline constexpr bool is_sharded = requires { typename Model::sharding_strategy; };

namespace detail {

struct found_squares;

/// The pass in which a unit's parameters are needed.
enum class unit_pass { forward, backward };

/// How a store is divided among ranks. reduce, unite, gather, open, close, read_whole and on_all are
/// collective.
class store_sharding {
  public:
    store_sharding() = default;
    store_sharding(const store_sharding&) = delete;
    store_sharding& operator=(const store_sharding&) = delete;
    virtual ~store_sharding() = default;

    /// Called when backward pass `number` (from 1) of a window begins, of a loss of so many ranks' rows. Throws state_error
    /// for a loss that is not one of all ranks.
    virtual void begin_pass(gradient_slabs& slabs, int number, int ranks) = 0;
    /// Called within a backward pass: it has come to a unit's begin, and gives its parameters no more gradients.
    virtual void complete(std::size_t unit) = 0;
    /// Called when a window ends: adds the gradients of all ranks, and gives each its own.
    virtual void reduce(gradient_slabs& slabs) = 0;
    /// Called when a window is discarded.
    virtual void cancel() noexcept = 0;
    /// The elements of an entry whose squares this rank adds, as many as follow it to the next entry.
    virtual element_range measured_here(std::size_t entry) const = 0;
    /// What all ranks together found, the same on all of them.
    virtual found_squares unite(const found_squares& own) = 0;
    /// Called after a step, or after masters were written: gathers what this rank holds whole.
    virtual void gather() = 0;

    /// Called when a layer begins that is a unit, and when it has ended: its parameters are gathered between both.
    virtual void open(std::size_t unit, unit_pass pass) = 0;
    virtual void close(std::size_t unit, unit_pass pass) = 0;
    /// The unit that is open; 0: none.
    virtual std::size_t current() const = 0;
    /// The first element of an entry's gathered parameters. Throws state_error if its unit is not open.
    virtual const std::byte* gathered(std::size_t entry) const = 0;

    /// Copies the values of a whole entry to host memory: its masters, joined if they are split, or, if it has none, its copies.
    virtual void read_whole(std::size_t entry, std::byte* to) const = 0;
    /// Calls f, and returns if no rank's call has thrown; otherwise it throws on all ranks. `what` names the call.
    virtual void on_all(const char* what, const std::function<void()>& f) = 0;
    /// Whether this rank writes what all have together.
    virtual bool is_first() const = 0;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
