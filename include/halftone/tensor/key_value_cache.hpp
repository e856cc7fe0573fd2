// SPDX-License-Identifier: MIT
/// \file
/// The keys and values that attention has computed for the tokens of sequences so far, so that a further token costs
/// the work of one token.
///
///     ht::key_value_cache cache{device, 2, 128};             // two sequences of up to 128 tokens
///     const std::int32_t offsets[] = {0, 5, 9};              // five new tokens of the first sequence, four of the second
///     auto logits = model.logits(eval, tokens, ht::packed{{offsets, {3}}, &cache});      // tokens: (1, 9)
///     const std::int32_t next[] = {0, 1, 2};                 // then one token of each
///     auto more = model.logits(eval, next_tokens, ht::packed{{next, {3}}, &cache});
///
/// A step takes any number of new tokens of each sequence, including none. They are appended to the tokens of earlier
/// steps: their positions continue, and they attend to all tokens of their sequence. Logits have the same bits as if
/// the whole sequence were computed in one step, whatever the division into steps and whatever the other sequences are.
/// docs/models.md lists the exceptions.
///
/// It works with any model that passes packed documents to its layers: in each step every call of self_attention stores
/// its keys and values here, in their type. If a step throws, its sequences are undefined: call clear() or truncate().
///
///     ht::key_value_cache cache{device, 2, 128, ht::cache_type::int8};       // half the memory of 16-bit numbers
///
/// In eight bits every vector of a head and token is rounded by itself, as kernel/cache_heads/eight_bit defines it, before
/// anything attends to it: a token's own key and value, too. So logits have the same bits whatever the division into steps
/// is, and are those of attention over the rounded keys and values; they are not those of a computation without a cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <halftone/tensor/tensor.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// The data of a step apart from its tokens, in host memory. For attention, the slots of each sequence in the cache
/// are two sequences: the filled slots, with the step's queries, and the unused ones, with no queries.
struct cache_step {
    std::vector<std::int32_t> positions;                   ///< position of each token in its sequence
    std::vector<std::int32_t> slots;                       ///< slot of each token in the cache
    std::vector<std::int32_t> query_offsets, key_offsets;  ///< (2 sequences + 1)
    extent longest = 0;                                    ///< the largest number of new tokens of a sequence
};

}  // namespace detail

/// How a key-value cache stores keys and values.
enum class cache_type {
    as_computed,  ///< in the type of attention's input
    int8,         ///< in eight bits, and one float, the scale, for each head and token
};

namespace detail {

/// The keys, then the values, of one layer in eight bits.
struct eight_bit_layer {
    view<std::int8_t, 3> codes;  ///< (heads, slots, head_size)
    view<float, 2> scales;       ///< (heads, slots)
};

}  // namespace detail

/// Keys and values of several sequences, for all layers of a model. Neither copyable nor movable.
class key_value_cache {
  public:
    /// Room for `sequences` sequences of up to `capacity` tokens, in the memory of the device, which must outlive the
    /// cache. The memory of layers is allocated in the first step: the keys and values of all heads for each slot.
    /// Throws argument_error.
    template <class Device>
    key_value_cache(Device& device, extent sequences, extent capacity, cache_type type = cache_type::as_computed)
        : key_value_cache(static_cast<memory_resource&>(device.memory()), sequences, capacity, type) {}
    key_value_cache(const key_value_cache&) = delete;
    key_value_cache& operator=(const key_value_cache&) = delete;

    extent sequences() const { return static_cast<extent>(lengths_.size()); }
    extent capacity() const { return capacity_; }
    cache_type type() const { return type_; }
    /// The number of tokens of a sequence so far. Throws argument_error for a sequence out of range.
    extent length(extent sequence) const { return lengths_[checked(sequence)]; }
    /// The size of the keys and values of all layers, in bytes, the scales of eight bits included. Attention over eight bits
    /// also takes scratch memory for the keys and values of one layer in the type of its input.
    std::size_t bytes() const;

    /// Keeps only the first `length` tokens of a sequence. Throws argument_error for more than it has.
    void truncate(extent sequence, extent length);
    /// Empties all sequences; the memory of the layers stays allocated.
    void clear() { std::fill(lengths_.begin(), lengths_.end(), 0); }

    // ---- called by documents_to_device and by attention

    /// Begins a step with tokens[offsets[i]] to tokens[offsets[i + 1] - 1] of sequence i. Throws shape_error, and
    /// changes nothing, for invalid offsets and for a sequence that would be longer than `most` or the capacity.
    const detail::cache_step& begin_step(const const_view<std::int32_t, 1>& offsets, extent tokens, extent most);
    /// The data of the current step.
    const detail::cache_step& step() const { return step_; }
    /// The vectors of the next layer, (heads, sequences * capacity, head_size): keys, then values. Throws state_error
    /// if earlier steps had no such layer.
    template <class T>
    view<T, 3> next_layer(extent heads, extent head_size) {
        const shape<3> s = layer_shape(heads, head_size);
        return {reinterpret_cast<T*>(take(s, sizeof(T), s.size() * static_cast<extent>(sizeof(T)))), s};
    }
    /// The next layer's keys and values in eight bits, with their scales.
    detail::eight_bit_layer next_eight_bit_layer(extent heads, extent head_size);

  private:
    struct layer {
        shape<3> extents;
        std::size_t element;
        tensor<std::byte, 1> memory;
    };

    key_value_cache(memory_resource& memory, extent sequences, extent capacity, cache_type type);

    shape<3> layer_shape(extent heads, extent head_size) const { return {heads, sequences() * capacity_, head_size}; }
    std::size_t checked(extent sequence) const;
    void check(const const_view<std::int32_t, 1>& offsets, extent tokens, extent most) const;
    std::byte* take(const shape<3>& s, std::size_t element, extent bytes);

    memory_resource* memory_;
    extent capacity_;
    cache_type type_;
    std::vector<extent> lengths_;
    std::vector<layer> layers_;
    std::size_t layer_ = 0;
    bool is_new_ = true;
    detail::cache_step step_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/tensor/key_value_cache.body.hpp>
#endif
