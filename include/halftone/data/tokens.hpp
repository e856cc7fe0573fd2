// SPDX-License-Identifier: MIT
/// \file
/// A corpus as token ids, stored in any width, without a copy.
///
///     const ht::token_view tokens{corpus};                        // a byte is a token: 256 of them
///     const auto [training, validation] = ht::hold_out(tokens, 0.1);  // the last tenth is held out
///     ht::check_tokens(tokens, 256);                              // once, before training
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include <halftone/data/data_error.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Token ids stored as bytes, 16-bit or 32-bit numbers. It owns nothing.
class token_view {
  public:
    token_view() = default;
    explicit token_view(std::string_view bytes)
        : data_(bytes.data()), size_(static_cast<extent>(bytes.size())), width_(1) {}
    explicit token_view(std::span<const std::uint8_t> ids)
        : data_(ids.data()), size_(static_cast<extent>(ids.size())), width_(1) {}
    explicit token_view(std::span<const std::uint16_t> ids)
        : data_(ids.data()), size_(static_cast<extent>(ids.size())), width_(2) {}
    explicit token_view(std::span<const std::int32_t> ids)
        : data_(ids.data()), size_(static_cast<extent>(ids.size())), width_(4) {}

    extent size() const { return size_; }
    std::int32_t operator[](extent index) const {
        std::int32_t id = 0;
        copy(index, 1, &id);
        return id;
    }

    /// Copies the ids [first, first + count) to `to`.
    void copy(extent first, extent count, std::int32_t* to) const {
        switch (width_) {
            case 1: return copy_from(static_cast<const std::uint8_t*>(data_) + first, count, to);
            case 2: return copy_from(static_cast<const std::uint16_t*>(data_) + first, count, to);
            default: return copy_from(static_cast<const std::int32_t*>(data_) + first, count, to);
        }
    }

    /// The ids [first, first + count).
    token_view part(extent first, extent count) const {
        token_view p = *this;
        p.data_ = static_cast<const char*>(data_) + first * width_;
        p.size_ = count;
        return p;
    }

  private:
    template <class T>
    static void copy_from(const T* from, extent count, std::int32_t* to) {
        for (extent i = 0; i < count; ++i) to[i] = static_cast<std::int32_t>(from[i]);
    }

    const void* data_ = nullptr;
    extent size_ = 0;
    int width_ = 1;
};

/// The training and the validation part of a text.
struct token_split {
    token_view training, validation;
};

/// The first part for training and the last `held_out` (a fraction) for validation, rounded down. Throws argument_error
/// for a fraction outside [0, 1).
inline token_split hold_out(const token_view& tokens, double held_out) {
    if (!(held_out >= 0.0 && held_out < 1.0))
        fail<argument_error>("hold_out: ", held_out, " of the tokens held out; expected 0 or more and less than 1");
    const extent validation = static_cast<extent>(static_cast<double>(tokens.size()) * held_out);
    return {tokens.part(0, tokens.size() - validation), tokens.part(tokens.size() - validation, validation)};
}

/// Throws data_error, naming the first token outside [0, vocabulary).
inline void check_tokens(const token_view& tokens, extent vocabulary) {
    constexpr extent at_once = 1024;
    std::int32_t ids[at_once];
    for (extent first = 0; first < tokens.size(); first += at_once) {
        const extent count = std::min(at_once, tokens.size() - first);
        tokens.copy(first, count, ids);
        for (extent i = 0; i < count; ++i) {
            if (ids[i] < 0 || ids[i] >= vocabulary) {
                fail<data_error>("tokens: number ", first + i, " is ", ids[i], "; the vocabulary has 0 to ",
                                 vocabulary - 1);
            }
        }
    }
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
