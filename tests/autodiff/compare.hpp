// SPDX-License-Identifier: MIT
/// \file
/// Compares results of a tape with tracked definitions: every value must be within its definition's error bound.
#pragma once

#include <vector>

#include <doctest/doctest.h>

#include "support/bounds.hpp"
#include "support/gradient_sink.hpp"
#include "support/layers.hpp"

namespace autodiff_test {

/// `got` was stored as T.
template <class T>
void check_within(const std::vector<double>& got, const support::matrix<support::tracked>& want) {
    REQUIRE(got.size() == want.values.size());
    support::comparison c;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const support::tracked& w = want.values[i];
        c.expect(got[i], w.value, support::rounded<T>(w.value, w.error));
    }
    CHECK_WITHIN(c);
}
template <class T, int Rank>
void check_within(const halftone::view<T, Rank>& got, const support::matrix<support::tracked>& want) {
    check_within<std::remove_const_t<T>>(support::doubles(got), want);
}

}  // namespace autodiff_test
