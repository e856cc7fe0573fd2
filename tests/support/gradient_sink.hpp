// SPDX-License-Identifier: MIT
/// \file
/// The least that a tape's backward pass needs to put gradients of parameters somewhere, and a look at what it put there.
///
///     support::gradient_sink sink(parameters);
///     tape.backward(loss, sink);
///     sink.of(weight)                                    // as doubles, in the order of its elements
///     sink.close();                                      // the next backward pass begins anew
#pragma once

#include <string>
#include <vector>

#include <halftone/memory/gradient_slabs.hpp>

namespace support {

class gradient_sink {
  public:
    explicit gradient_sink(halftone::store& owner) : slabs_(owner) {}

    template <class Loss>
    void receive(const Loss&) {
        ++received;
    }
    halftone::gradient_slabs* find(const halftone::store& owner) { return &owner == &slabs_.owner() ? &slabs_ : nullptr; }
    void close() { slabs_.close(); }

    template <class Storage, int Rank>
    std::vector<double> of(const halftone::parameter<Storage, Rank>& p) const {
        const halftone::store::entry& e = slabs_.owner().entries()[p.entry()];
        const auto all = slabs_.group<Storage>(e.group);
        std::vector<double> values;
        for (std::size_t i = 0; i < e.count; ++i) values.push_back(static_cast<double>(all.data()[e.gradient + i]));
        return values;
    }
    /// The gradient of entry i, which has to be accumulated in float.
    std::vector<float> entry(std::size_t i) const {
        const halftone::store::entry& e = slabs_.owner().entries()[i];
        const float* all = slabs_.group<in_float>(e.group).data() + e.gradient;
        return {all, all + e.count};
    }

    int received = 0;

  private:
    struct in_float {
        using accumulate = float;
    };
    halftone::gradient_slabs slabs_;
};

/// The masters of entry i, which have to be floats.
inline float* masters(halftone::store& s, std::size_t i) {
    const halftone::store::entry& e = s.entries()[i];
    return reinterpret_cast<float*>(s.groups()[e.group].master.data()) + e.master;
}

/// Sets a parameter by hand.
template <class Storage, int Rank, class T>
void set(const halftone::parameter<Storage, Rank>& p, const std::vector<T>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) p.master().data()[i] = typename Storage::param(static_cast<float>(values[i]));
    p.owner().refresh();
}

/// A view's elements as doubles.
template <class T, int Rank>
std::vector<double> doubles(const halftone::view<T, Rank>& v) {
    std::vector<double> values;
    for (halftone::extent i = 0; i < v.size(); ++i) values.push_back(static_cast<double>(v.data()[i]));
    return values;
}

}  // namespace support
