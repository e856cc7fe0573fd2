// SPDX-License-Identifier: MIT
/// \file
/// The tests of layers share a store with one layer in it, and inputs.
#pragma once

#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>

#include "support/gradient_sink.hpp"
#include "support/random.hpp"

namespace nn_test {

namespace ht = halftone;

/// A layer alone, below the path "at".
template <class Layer>
struct alone {
    ht::cpu device{{.threads = 1}};
    ht::store parameters{device.memory()};
    Layer layer;

    template <class... Arguments>
    explicit alone(const Arguments&... arguments) : layer(parameters, arguments...) {
        parameters.commit(1);
    }
    std::vector<std::string> paths() const {
        std::vector<std::string> all;
        for (const ht::store::entry& e : parameters.entries()) all.push_back(e.path);
        return all;
    }
};

template <class T, int Rank>
struct input {
    std::vector<T> values;
    ht::view<T, Rank> view;
    explicit input(const ht::shape<Rank>& s, std::uint64_t seed = 1)
        : values(support::random(seed).normals<T>(s.size())), view(values.data(), s) {}
    input(const input&) = delete;
};

}  // namespace nn_test
