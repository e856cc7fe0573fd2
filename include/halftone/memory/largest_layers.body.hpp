// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in largest_layers.hpp that are no templates.
#pragma once

#include <halftone/memory/largest_layers.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE std::string largest_layers(const std::vector<store_entry>& entries, const std::vector<store_group>& groups) {
    std::vector<std::pair<std::string, std::size_t>> layers;
    for (const store_entry& e : entries) {
        std::size_t end = e.path.find('.', e.path.find('.') + 1);  // two components, without the parameter's name
        if (end == std::string::npos) end = e.path.rfind('.');
        const std::string name = e.path.substr(0, end);
        const store_group& g = groups[e.group];
        const std::size_t bytes = (e.master == store_entry::nowhere ? 0 : e.count * g.param_bytes) + g.bytes_of_copy(e);
        const auto same = [&name](const auto& l) { return l.first == name; };
        const auto at = std::find_if(layers.begin(), layers.end(), same);
        if (at == layers.end()) {
            layers.emplace_back(name, bytes);
        } else {
            at->second += bytes;
        }
    }
    std::string text;
    for (int i = 0; i < 3 && !layers.empty(); ++i) {
        const auto largest = std::max_element(layers.begin(), layers.end(),
                                              [](const auto& a, const auto& b) { return a.second < b.second; });
        text += (i == 0 ? "" : ", ") + largest->first + ' ' + std::to_string(largest->second);
        layers.erase(largest);
    }
    return text;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
