// SPDX-License-Identifier: MIT
/// \file
/// Decoding a coded matrix on a GPU: one thread an element, all of the matrix, as it is stored. Tables are arguments of the
/// kernel, where threads of one block read few of their words.
#pragma once

#include <cstddef>
#include <cstdint>

#include <halftone/exec/simt/memory.hpp>
#include <halftone/number/nf4.hpp>
#include <halftone/tensor/coded_matrix.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The elements of a coded matrix of a format: `coded_elements<Format>(m)`, then load(thread, i) of element i as float.
template <class Format>
struct coded_elements;

template <>
struct coded_elements<q8_0> {
    simt::global_span<const std::uint8_t> bytes;

    explicit coded_elements(const coded_matrix<q8_0>& m)
        : bytes{reinterpret_cast<const std::uint8_t*>(m.data()), static_cast<extent>(m.bytes())} {}

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD float load(Thread thread, extent i) const {
        constexpr auto block = static_cast<extent>(q8_0::block), block_bytes = static_cast<extent>(q8_0::block_bytes);
        const extent begin = i / block * block_bytes;
        const auto lower = static_cast<unsigned>(thread.load(bytes, begin)),
                   upper = static_cast<unsigned>(thread.load(bytes, begin + 1));
        const auto d = bit_cast<float16>(static_cast<std::uint16_t>(lower | upper << 8));
        return static_cast<float>(d) *
               static_cast<float>(static_cast<std::int8_t>(thread.load(bytes, begin + 2 + i % block)));
    }
};

template <>
struct coded_elements<nf4> {
    simt::global_span<const float> nested;  ///< the offset, then the nested scales
    simt::global_span<const std::uint8_t> codes, absmax;
    detail::dynamic_values map = detail::signed_dynamic_values;
    float values[16] = {};

    explicit coded_elements(const coded_matrix<nf4>& m)
        : nested{reinterpret_cast<const float*>(m.data()), static_cast<extent>(nf4::nested_count(m.elements()) + 1)},
          codes{bytes_at(m, nf4::codes_position(m.elements())), static_cast<extent>(m.elements() / 2)},
          absmax{bytes_at(m, nf4::absmax_position(m.elements())), static_cast<extent>(m.elements() / nf4::block)} {
        for (int code = 0; code < 16; ++code) values[code] = detail::nf4_values[code];
    }

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD float load(Thread thread, extent i) const {
        const extent b = i / static_cast<extent>(nf4::block);
        const float product =
            map.of[thread.load(absmax, b)] * thread.load(nested, 1 + b / static_cast<extent>(nf4::nested_block));
        const auto scale =
            static_cast<float>(static_cast<double>(product) + static_cast<double>(thread.load(nested, extent{0})));
        const auto both = static_cast<unsigned>(thread.load(codes, i / 2));
        return values[i % 2 == 0 ? both >> 4 : both & 15] * scale;
    }

  private:
    static const std::uint8_t* bytes_at(const coded_matrix<nf4>& m, std::size_t position) {
        return reinterpret_cast<const std::uint8_t*>(m.data()) + position;
    }
};

/// to[i] = element i, rounded to T.
template <class Format, class T>
struct decode_element {
    coded_elements<Format> from;
    simt::global_span<T> to;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        thread.store(to, i, static_cast<T>(from.load(thread, i)));
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
