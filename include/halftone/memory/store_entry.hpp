// SPDX-License-Identifier: MIT
/// \file
/// What the store keeps of a parameter and of a group of parameters: where they lie in slabs, and how they are filled.
///
///     for (const ht::store_entry& e : model.parameters().entries())
///         std::cout << e.path << ": " << e.count << (e.frozen ? " frozen\n" : "\n");
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <halftone/memory/initial.hpp>
#include <halftone/memory/resource.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A parameter.
struct store_entry {
    static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

    std::string path;  ///< "h.0.attn.qkv.weight"
    std::size_t group = 0;
    std::size_t count = 0;     ///< elements
    std::size_t master = 0;    ///< first element in the group's master slab; `nowhere` where frozen without one
    std::size_t copy = 0;      ///< first element in the copy slab; unused where the group has none
    std::size_t gradient = 0;  ///< first element in gradient and moment slabs; `nowhere` where frozen
    initial values{};
    bool frozen = false;
    bool keeps_master = false;   ///< some operation reads the master although there is a copy
    extent rows = 0, width = 0;  ///< of a matrix; else 0
    extent most_rows = 0;        ///< of a sparse gradient; 0: as many as turn up
};

namespace detail {

/// The storage types of parameters, as what a store has to know of them.
struct storage_layout {
    bool has_sparse_gradients = false;  ///< no gradient slab, then; moments lie as ever
    /// Of one element of a slab; copy 0: none.
    std::size_t param_bytes = 0, copy_bytes = 0, accumulate_bytes = 0, state_bytes = 0;
    void (*fill)(const initial&, std::byte* to, std::size_t first, std::size_t count, std::uint64_t seed,
                 std::uint32_t tensor) = nullptr;
    /// None where masters are split.
    void (*round)(const std::byte* master, std::byte* copy, std::size_t count) = nullptr;
    /// Of parameters.
    void (*split)(const std::byte* values, std::byte* master, std::byte* copy, std::size_t count) = nullptr;
};

}  // namespace detail

/// Parameters that have their storage types in common, in slabs.
struct store_group : detail::storage_layout {
    const void* key = nullptr;  ///< the address that stands for its storage type: store::key_of<Storage>()
    std::size_t masters = 0, copies = 0, gradients = 0;  ///< elements of each slab
    buffer master{}, copy{};
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
