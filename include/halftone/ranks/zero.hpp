// SPDX-License-Identifier: MIT
/// \file
/// What ht::shard (ranks/shard.hpp) divides among ranks: the stages of ZeRO (Rajbhandari et al. 2020), as types, each with
/// the units of the model.
///
///     ht::shard sharded{device, model, comm, ht::zero1{}};
///     ht::shard sharded{device, model, comm, ht::zero3{"h.*"}};      // each block is a unit: "h.0", "h.1", ...
///
/// A unit is a layer of a list (nn/stack.hpp), by the paths of recipes; '*' stands for any run of characters. Everything
/// else is the rest, which is one unit that stays.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <halftone/memory/store.hpp>
#include <halftone/policy/path.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// What all stages have: the patterns of units.
struct zero_units {
    std::vector<std::string> units;

    zero_units() = default;
    zero_units(std::initializer_list<const char*> patterns) : units(patterns.begin(), patterns.end()) {}
    explicit zero_units(std::vector<std::string> patterns) : units(std::move(patterns)) {}
};

}  // namespace detail

/// Divides nothing: plain data parallel training. For comparisons; ht::data_parallel does the same beside the backward
/// pass.
struct zero0 : detail::zero_units {
    using zero_units::zero_units;
    static constexpr int stage = 0;
    static constexpr const char* name = "zero0";
};
/// Divides the optimizer's state: each rank updates a part of each parameter's slab, and gathers the others.
struct zero1 : detail::zero_units {
    using zero_units::zero_units;
    static constexpr int stage = 1;
    static constexpr const char* name = "zero1";
};
/// Divides gradients as well: after a window each rank has the sum of all ranks in its part, and no memory for others.
struct zero2 : detail::zero_units {
    using zero_units::zero_units;
    static constexpr int stage = 2;
    static constexpr const char* name = "zero2";
};
/// Divides masters and copies as well: a unit's parameters are gathered before its forward and backward pass, with the
/// next unit's on their way, and given up after it. Without units, masters are divided and copies are not.
struct zero3 : detail::zero_units {
    using zero_units::zero_units;
    static constexpr int stage = 3;
    static constexpr const char* name = "zero3";
};

/// One of the others, chosen at run time: ht::zero{3, {"h.*"}}.
struct zero : detail::zero_units {
    int stage;

    /// Throws argument_error unless the stage is 0 to 3.
    explicit zero(int of, std::vector<std::string> patterns = {}) : zero_units(std::move(patterns)), stage(of) {
        if (of < 0 || of > 3) fail<argument_error>("shard: a stage of ", of, "; expected 0 to 3");
    }
};

namespace detail {

/// The units of a model, in the order of the store; the first is the rest.
struct unit_list {
    std::vector<std::string> names{"the rest"};
    std::vector<std::size_t> of_entry{};
};

/// The shortest part of a path, at its begin, that a pattern matches as a whole; empty: none.
inline std::string unit_in(const std::string& path, const std::string& pattern) {
    for (std::size_t end = path.find('.'); end != std::string::npos; end = path.find('.', end + 1)) {
        std::string begin = path.substr(0, end);
        if (glob(pattern.c_str(), begin.c_str(), glob_extent::whole)) return begin;
    }
    return {};
}

/// Throws argument_error for a unit that is no layer of a list, and for a pattern that names none.
inline unit_list find_units(const store& parameters, const std::vector<std::string>& patterns) {
    unit_list list;
    std::vector<bool> is_used(patterns.size(), false);
    for (const store::entry& e : parameters.entries()) {
        std::string name;
        for (std::size_t p = 0; p < patterns.size() && name.empty(); ++p) {
            name = unit_in(e.path, patterns[p]);
            if (!name.empty()) is_used[p] = true;
        }
        const std::size_t last = name.rfind('.') + 1;
        if (!name.empty() && name.find_first_not_of("0123456789", last) != std::string::npos) {
            fail<argument_error>("shard: the unit '", name, "' is no layer of a list, and parameters are gathered where a list "
                                 "calls its layers; take 'h.*', say, and leave the others to the rest");
        }
        const auto found = std::find(list.names.begin() + 1, list.names.end(), name);
        list.of_entry.push_back(name.empty() ? 0 : static_cast<std::size_t>(found - list.names.begin()));
        if (!name.empty() && found == list.names.end()) list.names.push_back(name);
    }
    for (std::size_t p = 0; p < patterns.size(); ++p) {
        if (!is_used[p]) {
            fail<argument_error>("shard: the unit '", patterns[p], "' names no layer with parameters; the first parameter is ",
                                 parameters.entries().empty() ? "missing" : parameters.entries()[0].path);
        }
    }
    for (const std::string& inner : list.names) {
        for (const std::string& outer : list.names) {
            if (inner.size() > outer.size() && inner.compare(0, outer.size() + 1, outer + '.') == 0)
                fail<argument_error>("shard: the unit '", inner, "' is inside the unit '", outer, "'; one of them is enough");
        }
    }
    return list;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
