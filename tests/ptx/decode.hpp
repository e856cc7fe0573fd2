// SPDX-License-Identifier: MIT
/// \file
/// Chooses the handler of an instruction: each function returns nullptr for instructions of other kinds, and otherwise fills in the
/// fields that the handler reads (module.hpp).
#pragma once

#include "ptx/module.hpp"

namespace halftone::ptx {

/// An instruction's name, as `ld.shared.v4.u32`: an operation, modifiers, and usually a type at the end.
struct mnemonic {
    const std::vector<std::string_view>& words;

    std::string_view operation() const { return words.front(); }
    std::string_view form() const { return words.size() > 1 ? words[1] : std::string_view{}; }
    std::string_view type() const { return words.back(); }
    bool has(std::string_view word) const {
        for (const std::string_view w : words) {
            if (w == word) return true;
        }
        return false;
    }
    /// Bytes of the type; a predicate has one.
    std::int32_t bytes() const { return type().front() == 'p' ? 1 : std::stoi(std::string(type().substr(1))) / 8; }
};

/// Warp-wide instructions: shuffles, votes, loads of matrices from shared memory and their products; barriers.
handler decode_warp_wide(instruction& i, const mnemonic& name);
/// Loads, stores, atomics, asynchronous copies, addresses.
handler decode_memory(instruction& i, const mnemonic& name);
/// Mbarriers, and bulk copies of tensors into shared memory.
handler decode_asynchronous(instruction& i, const mnemonic& name);
/// Bulk copies from shared memory, and the fence before them.
handler decode_bulk_store(instruction& i, const mnemonic& name);
/// Products of warpgroups.
handler decode_warpgroup(instruction& i, const mnemonic& name);
handler decode_convert(instruction& i, const mnemonic& name);
/// Sums, products, functions, comparisons and bit operations.
handler decode_arithmetic(instruction& i, const mnemonic& name);

}  // namespace halftone::ptx
