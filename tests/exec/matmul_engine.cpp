// SPDX-License-Identifier: MIT
/// \file
/// When a device uses its engine.
#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

#include <halftone/exec/matmul_engine.hpp>

#include "support/environment.hpp"

namespace exec_matmul_engine_tests {

namespace ht = halftone;

struct engine : ht::matmul_engine {
    bool is_able, is_fast;
    engine(bool able, bool fast) : is_able(able), is_fast(fast) {}
    const char* name() const override { return "mine"; }
    bool can(const ht::product_description&) override { return is_able; }
    bool prefers(const ht::product_description&) const override { return is_fast; }
    void multiply(const ht::product_description&, ht::workspace&) override {}
    std::size_t workspace_bytes(const ht::product_description&) override { return 0; }
};

/// The environment's HALFTONE_MATMUL for a scope.
class environment {
  public:
    explicit environment(const char* value) {
        if (const char* old = std::getenv("HALFTONE_MATMUL")) old_ = old;
        support::set_environment("HALFTONE_MATMUL", value);
    }
    environment(const environment&) = delete;
    environment& operator=(const environment&) = delete;
    ~environment() { support::set_environment("HALFTONE_MATMUL", old_.empty() ? nullptr : old_.c_str()); }

  private:
    std::string old_;
};

bool is_asked(ht::engine_use use, bool able, bool fast) {
    ht::detail::engine_slot slot(use);
    slot.hold(std::make_unique<engine>(able, fast));
    return slot.engine_for({}) != nullptr;
}

TEST_CASE("matmul engines: by table, always, never") {
    using enum ht::engine_use;
    const environment none(nullptr);
    CHECK(is_asked(by_table, true, true));
    CHECK(!is_asked(by_table, true, false));
    CHECK(!is_asked(by_table, false, true));
    CHECK(is_asked(always, true, false));
    CHECK(!is_asked(always, false, false));
    CHECK(!is_asked(never, true, true));
    CHECK(ht::detail::engine_slot().engine_for({}) == nullptr);
    CHECK(ht::detail::engine_slot(always).engine_for({}) == nullptr);
}

TEST_CASE("matmul engines: the environment goes first") {
    using enum ht::engine_use;
    {
        const environment own("halftone");
        CHECK(!is_asked(always, true, true));
    }
    {
        const environment mine("mine");
        CHECK(is_asked(never, true, false));
        CHECK(!is_asked(by_table, false, false));
        CHECK_THROWS_WITH_AS(ht::detail::engine_slot().engine_for({}),
                             "matmul: HALFTONE_MATMUL is mine; this device has no engine in addition to halftone",
                             ht::argument_error);
    }
    {
        const environment empty("");
        CHECK(is_asked(by_table, true, true));
    }
    const environment other("other");
    CHECK_THROWS_WITH_AS(is_asked(by_table, true, true),
                         "matmul: HALFTONE_MATMUL is other; this device has mine in addition to halftone",
                         ht::argument_error);
}

}  // namespace exec_matmul_engine_tests
