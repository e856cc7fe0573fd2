// SPDX-License-Identifier: MIT
/// \file
/// A minimal accumulator: the members that a tape's backward pass needs for gradients of parameters, and access to
/// these gradients.
///
///     support::gradient_sink sink(parameters);
///     tape.backward(loss, sink);
///     sink.of(weight)                                    // as doubles, in the order of its elements
///     sink.close();                                      // the next backward pass overwrites
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
    halftone::gradient_slabs* find(const halftone::store& owner) {
        return &owner == &slabs_.owner() ? &slabs_ : nullptr;
    }
    void close() { slabs_.close(); }

    template <class Storage, int Rank>
    std::vector<double> of(const halftone::parameter<Storage, Rank>& p) const {
        const auto all = read<Storage>(p.entry());
        return {all.begin(), all.end()};
    }
    /// The gradient of entry i, which must be accumulated in float.
    std::vector<float> entry(std::size_t i) const {
        return read<in_float>(i);
    }
    /// That of an entry which is accumulated in double.
    std::vector<double> double_entry(std::size_t i) const { return read<in_double>(i); }

    int received = 0;

  private:
    struct in_float {
        using accumulate = float;
    };
    struct in_double {
        using accumulate = double;
    };
    /// A copy of a gradient from the device's memory.
    template <class Storage>
    std::vector<typename Storage::accumulate> read(std::size_t i) const {
        const halftone::store::entry& e = slabs_.owner().entries()[i];
        std::vector<typename Storage::accumulate> values(e.count);
        slabs_.owner().memory().read(values.data(), slabs_.group<Storage>(e.group).data() + e.gradient,
                                     e.count * sizeof values[0]);
        return values;
    }
    halftone::gradient_slabs slabs_;
};

/// Copies the masters of entry i, which are not split, from and to the device's memory, as floats.
inline std::vector<float> read_masters(const halftone::store& s, std::size_t i) {
    const halftone::store::entry& e = s.entries()[i];
    const halftone::store::group& g = s.groups()[e.group];
    std::vector<std::byte> bytes(e.count * g.param_bytes);
    s.memory().read(bytes.data(), g.master.data() + e.master * g.param_bytes, bytes.size());
    std::vector<float> values(e.count);
    g.param_type->widen(bytes.data(), e.count, values.data());
    return values;
}
inline void write_masters(halftone::store& s, std::size_t i, const std::vector<float>& values) {
    const halftone::store::entry& e = s.entries()[i];
    const halftone::store::group& g = s.groups()[e.group];
    std::vector<std::byte> bytes(e.count * g.param_bytes);
    g.param_type->narrow(values.data(), e.count, bytes.data());
    s.memory().write(g.master.data() + e.master * g.param_bytes, bytes.data(), bytes.size());
}
/// Their address, on the CPU.
inline float* masters(halftone::store& s, std::size_t i) {
    const halftone::store::entry& e = s.entries()[i];
    return reinterpret_cast<float*>(s.groups()[e.group].master.data()) + e.master;
}

/// Sets a parameter's values.
template <class Storage, int Rank, class T>
void set(const halftone::parameter<Storage, Rank>& p, const std::vector<T>& values) {
    for (std::size_t i = 0; i < values.size(); ++i)
        p.master().data()[i] = typename Storage::param(static_cast<float>(values[i]));
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
