// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in key_value_cache.hpp that are no templates.
#pragma once

#include <halftone/tensor/key_value_cache.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

HALFTONE_OUT_OF_LINE std::size_t key_value_cache::bytes() const {
    std::size_t n = 0;
    for (const layer& l : layers_) n += static_cast<std::size_t>(l.memory.size());
    return n;
}

HALFTONE_OUT_OF_LINE void key_value_cache::truncate(extent sequence, extent length) {
    extent& now = lengths_[checked(sequence)];
    if (length < 0 || length > now)
        fail<argument_error>("key_value_cache: sequence ", sequence, " has ", now, " tokens; ", length,
                             " cannot be kept");
    now = length;
}

HALFTONE_OUT_OF_LINE const detail::cache_step& key_value_cache::begin_step(const const_view<std::int32_t, 1>& offsets, extent tokens,
                                                             extent most) {
    check(offsets, tokens, most);
    layer_ = 0;
    is_new_ = std::all_of(lengths_.begin(), lengths_.end(), [](extent n) { return n == 0; });
    step_.positions.clear(), step_.slots.clear();
    step_.query_offsets.assign(1, 0), step_.key_offsets.assign(1, 0);
    step_.longest = 0;
    for (extent i = 0; i < sequences(); ++i) {
        extent& length = lengths_[static_cast<std::size_t>(i)];
        const extent count = extent{offsets(i + 1)} - offsets(i), begin = i * capacity_;
        for (const extent end = length + count; length < end; ++length) {
            step_.positions.push_back(static_cast<std::int32_t>(length));
            step_.slots.push_back(static_cast<std::int32_t>(begin + length));
        }
        step_.query_offsets.insert(step_.query_offsets.end(), 2, offsets(i + 1));
        step_.key_offsets.push_back(static_cast<std::int32_t>(begin + length));
        step_.key_offsets.push_back(static_cast<std::int32_t>(begin + capacity_));
        step_.longest = std::max(step_.longest, count);
    }
    return step_;
}

HALFTONE_OUT_OF_LINE detail::eight_bit_layer key_value_cache::next_eight_bit_layer(extent heads, extent head_size) {
    const shape<3> s = layer_shape(heads, head_size);
    const shape<2> of_scales{s[0], s[1]};
    const extent codes_bytes = static_cast<extent>(round_up(static_cast<std::size_t>(s.size()), sizeof(float)));
    std::byte* const memory = take(s, 1, codes_bytes + of_scales.size() * static_cast<extent>(sizeof(float)));
    return {{reinterpret_cast<std::int8_t*>(memory), s}, {reinterpret_cast<float*>(memory + codes_bytes), of_scales}};
}

HALFTONE_OUT_OF_LINE key_value_cache::key_value_cache(memory_resource& memory, extent sequences, extent capacity, cache_type type)
    : memory_(&memory), capacity_(capacity), type_(type) {
    constexpr extent most = 2147483647;
    if (sequences < 0 || capacity < 1 || capacity > most || sequences > most / capacity)
        fail<argument_error>("key_value_cache: ", sequences, " sequences of ", capacity,
                             " tokens; expected at least 1 token, and at most 2^31 - 1 together");
    lengths_.resize(static_cast<std::size_t>(sequences));
}

HALFTONE_OUT_OF_LINE std::size_t key_value_cache::checked(extent sequence) const {
    if (sequence < 0 || sequence >= sequences())
        fail<argument_error>("key_value_cache: sequence ", sequence, " of ", sequences());
    return static_cast<std::size_t>(sequence);
}

HALFTONE_OUT_OF_LINE void key_value_cache::check(const const_view<std::int32_t, 1>& offsets, extent tokens, extent most) const {
    if (offsets.extent_of(0) != sequences() + 1)
        fail<shape_error>("key_value_cache: ", offsets.extent_of(0), " offsets; expected ", sequences() + 1,
                          ", the number of sequences plus 1");
    if (offsets(0) != 0 || offsets(sequences()) != tokens)
        fail<shape_error>("key_value_cache: the offsets go from ", offsets(0), " to ", offsets(sequences()),
                          "; expected 0 to ", tokens, ", the tokens of the row");
    for (extent i = 0; i < sequences(); ++i) {
        const extent count = extent{offsets(i + 1)} - offsets(i), length = lengths_[static_cast<std::size_t>(i)];
        if (count < 0) fail<shape_error>("key_value_cache: sequence ", i, " gets ", count, " tokens; offsets ascend");
        if (length + count > most || length + count > capacity_)
            fail<shape_error>("key_value_cache: sequence ", i, " has ", length, " tokens and gets ", count,
                              most < capacity_ ? "; the context holds " : "; the cache holds ",
                              std::min(most, capacity_));
    }
}

HALFTONE_OUT_OF_LINE std::byte* key_value_cache::take(const shape<3>& s, std::size_t element, extent bytes) {
    if (layer_ == layers_.size() && is_new_) layers_.push_back({s, element, tensor<std::byte, 1>(*memory_, {bytes})});
    if (layer_ == layers_.size() || !(layers_[layer_].extents == s) || layers_[layer_].element != element)
        fail<state_error>("key_value_cache: layer ", layer_, " stores ", s, " elements of ", element,
                          " bytes, unlike in earlier steps; use a cache with one model only, or clear() it first");
    return layers_[layer_++].memory.data();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
