// SPDX-License-Identifier: MIT
/// \file
/// Checkpoints and weights of models whose parameters have a number type that the library does not know.
#include <string>

#include <doctest/doctest.h>

#include "io/run.hpp"
#include "support/own_numbers.hpp"
#include "support/temporary_folder.hpp"

namespace io_own_numbers_tests {

namespace ht = halftone;
using keeping::run;

using own_run = run<support::pure_e6m9, keeping::by_adamw>;

std::string refusal(const auto& f) {
    try {
        f();
    } catch (const ht::error& e) {
        return e.what();
    }
    return "nothing was thrown";
}

TEST_CASE("checkpoint: a number type of a user's own is resumed with the same bits, and known by its name") {
    const support::temporary_folder folder;
    own_run whole, first;
    for (int i = 0; i < 6; ++i) whole.step(i);
    for (int i = 0; i < 3; ++i) first.step(i);
    first.save(folder.path(), 3);
    own_run second;
    second.load(folder.path() / "checkpoint-3");
    for (int i = 3; i < 6; ++i) second.step(i);
    CHECK(second.bytes() == whole.bytes());

    run<ht::with_param<support::pure_e6m9, ht::float16>, keeping::by_adamw> other;
    other.step(0);
    const std::string before = other.bytes();
    const std::string why = refusal([&] { other.load(folder.path() / "checkpoint-3"); });
    CAPTURE(why);
    CHECK(why.find("param is float16_e6m9 there, float16 here") != std::string::npos);
    CHECK(other.bytes() == before);
}

}  // namespace io_own_numbers_tests
