// SPDX-License-Identifier: MIT
/// \file
/// The store's descriptions of a parameter and of a group of parameters: their positions in the slabs, and how they are
/// initialised.
///
///     for (const ht::store_entry& e : model.parameters().entries())
///         std::cout << e.path << ": " << e.count << (e.frozen ? " frozen\n" : "\n");
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <halftone/error.hpp>
#include <halftone/memory/initial.hpp>
#include <halftone/memory/resource.hpp>
#include <halftone/memory/weight_coding.hpp>
#include <halftone/number/integer.hpp>
#include <halftone/number/value_traits.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Describes one parameter.
struct store_entry {
    static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

    std::string path;  ///< "h.0.attn.qkv.weight"
    std::size_t group = 0;
    std::size_t count = 0;     ///< elements
    std::size_t master = 0;    ///< first element in the group's master slab; `nowhere` if frozen without a master
    std::size_t copy = 0;      ///< first element in the copy slab, or first byte of codes; unused if the group has none
    std::size_t gradient = 0;  ///< first element in the gradient slab; `nowhere` if frozen
    std::size_t moment = 0;    ///< first element in slabs of moments, as in the gradients' unless the store is sharded
    std::size_t order = 0;     ///< index of its first random number in steps: `master`, as if the store were not sharded
    std::size_t run = 0;       ///< in a sharded store, its run (memory/store_run.hpp)
    std::size_t in_run = 0;    ///< first element in that run
    initial values{};
    bool frozen = false;
    bool is_state = false;  ///< a layer's state, such as running statistics, instead of a parameter; frozen
    bool is_adapter = false;  ///< of a low-rank adapter (memory/adapters.hpp)
    bool is_base = false;     ///< frozen as the model has adapters: it stays as it is loaded, until these are merged
    std::uint32_t number =
        0;  ///< of the random numbers of its initial values: parameters and adapters have numbers of their own
    bool keeps_master = false;   ///< some operation reads the master although there is a copy
    extent rows = 0, width = 0;  ///< the extents of a matrix; 0 for any other rank
    std::vector<extent> shape{};  ///< the extents of any rank
    extent most_rows = 0;        ///< the limit of a sparse gradient's rows; 0: no limit
};

namespace detail {

/// The storage types of a group of parameters, as run-time values.
struct storage_layout {
    bool has_sparse_gradients = false;  ///< then the group has no gradient slab; moments are as in any group
    /// Bytes of one element of each slab; copy_bytes is 0 without copies.
    std::size_t param_bytes = 0, copy_bytes = 0, accumulate_bytes = 0, state_bytes = 0;
    /// The block format of copies; nullptr: they are numbers. Otherwise copy_bytes is 1, as places in the slab are those of bytes.
    const weight_coding* coding = nullptr;
    /// The number types of masters (joined, if they are split), of copies (float if they are codes) and of moments.
    const value_traits *param_type = nullptr, *copy_type = nullptr, *state_type = nullptr;
    void (*fill)(const initial&, std::byte* to, std::size_t first, std::size_t count, std::uint64_t seed,
                 std::uint32_t tensor) = nullptr;
    /// Rounds masters to copies; nullptr if masters are split.
    void (*round)(const std::byte* master, std::byte* copy, std::size_t count) = nullptr;
    /// Splits values into masters and copies; nullptr if masters are not split.
    void (*split)(const std::byte* values, std::byte* master, std::byte* copy, std::size_t count) = nullptr;
};

}  // namespace detail

/// Describes the slabs of all parameters that have the same storage types.
struct store_group : detail::storage_layout {
    const void* key = nullptr;  ///< identifies the storage type: store::key_of<Storage>()
    std::size_t masters = 0, copies = 0, gradients = 0, moments = 0;  ///< elements of each slab
    buffer master{}, copy{};

    /// The bytes of a parameter's copy.
    std::size_t bytes_of_copy(const store_entry& e) const {
        return coding != nullptr ? coding->bytes(e.count) : e.count * copy_bytes;
    }
    /// What a copy in codes takes of the slab: whole cache lines.
    std::size_t room_of_codes(const store_entry& e) const { return round_up(coding->bytes(e.count), std::size_t{64}); }
};

namespace detail {

/// Throws state_error for a parameter in codes that is not frozen: training, and masters in pieces, would not change its codes.
inline void expect_frozen_codes(const char* operation, const store_entry& e, const store_group& g) {
    if (g.coding != nullptr && !e.frozen)
        fail<state_error>(operation, ": ", e.path, " is in blocks of ", g.coding->name,
                          ", which are not trained: freeze it, or give the model adapters");
}

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
