// SPDX-License-Identifier: MIT
/// \file
/// Operations that move elements: rows and elements chosen by an index, and rotary position embedding, which turns pairs of elements.
#pragma once

#include <algorithm>

#include <memory_bound/family.hpp>
#include <support/random.hpp>

#include <halftone/kernel/gather/cpu.hpp>
#include <halftone/kernel/gather/gather.hpp>
#include <halftone/kernel/rotary/cpu.hpp>
#include <halftone/kernel/rotary/rotary.hpp>

namespace bench {

/// Random numbers from 0 to below - 1, in the device's memory.
class random_indices {
  public:
    random_indices(halftone::cpu& device, extent n, extent below)
        : memory_(device.memory(), static_cast<std::size_t>(n) * sizeof(std::int32_t), halftone::memory_kind::other) {
        std::ranges::copy(random_classes(n, below, static_cast<unsigned>(n)), data());
    }
    std::int32_t* data() const { return reinterpret_cast<std::int32_t*>(memory_.data()); }

  private:
    halftone::buffer memory_;
};

/// run(x, y, indices) of a set of operands; the index has `indices` elements, which are below `below`.
template <class T, class Run>
void chosen(const memory_bound& b, const char* name, const matrix_case& c, const char* how, extent indices, extent below, json work,
            const Run& run) {
    const auto n = static_cast<extent>(c.size());
    b.run(name, c.text(how), 2 * c.size() * sizeof(T) + static_cast<double>(indices) * sizeof(std::int32_t),
          [&, n](int copies) {
              return [&, x = operands<T>(b.device, copies, n), y = operands<T>(b.device, copies, n),
                      index = random_indices(b.device, indices, below)](int k) { run(x(k), y(k), index.data()); };
          },
          std::move(work));
}

template <class T>
void choosing(const memory_bound& b) {
    namespace ht = halftone;
    const matrix_case c{8192, 3072};
    const ht::shape<2> all{c.rows, c.width};
    chosen<T>(b, "index_select", c, "rows", c.rows, c.rows, {{"op", "index_select"}, {"rows", c.rows}, {"width", c.width}},
              [&](const T* x, T* y, const std::int32_t* index) {
                  ht::index_select(b.device, ht::view(x, all), ht::axes<0>, ht::view(index, ht::shape<1>{c.rows}), ht::view(y, all));
              });
    chosen<T>(b, "gather", c, "elements", c.rows * c.width, c.width, {{"op", "gather"}, {"rows", c.rows}, {"width", c.width}},
              [&](const T* x, T* y, const std::int32_t* index) {
                  ht::gather(b.device, ht::view(x, all), ht::axes<1>, ht::view(index, all), ht::view(y, all));
              });
}

/// 8 texts of 1,024 tokens, 24 heads of 128 elements.
template <class T>
void rotaries(const memory_bound& b) {
    namespace ht = halftone;
    const matrix_case c{8192, 3072};
    const ht::shape<4> heads{8, 1024, 24, 128};
    const ht::tensor<float, 2> table = ht::rotary_table(b.device, 1024, 128);
    for (const auto layout : {ht::rotary_layout::half_split, ht::rotary_layout::interleaved}) {
        chosen<T>(b, "rotary", c, layout == ht::rotary_layout::half_split ? "half_split" : "interleaved", 0, 1, nullptr,
                  [&](const T* x, T* y, const std::int32_t*) {
                      ht::rotary(b.device, ht::view(x, heads), table, ht::view(y, heads), {.layout = layout});
                  });
    }
}

}  // namespace bench
