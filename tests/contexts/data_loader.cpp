// SPDX-License-Identifier: MIT
/// \file
/// The threads of data loaders, which end at any moment.
#include <doctest/doctest.h>

#include "data/loader_stops.hpp"

namespace contexts_data_loader_tests {

TEST_CASE("data loaders end at any moment without a race") { data_test::stop_abruptly(40); }

}  // namespace contexts_data_loader_tests
