// SPDX-License-Identifier: MIT
/// \file
/// Handles: reference-counted like shared pointers, destroyed in any order; losses with factors.
#include <optional>
#include <utility>

#include <doctest/doctest.h>

#include <halftone/autodiff/engine/tape.hpp>
#include <halftone/autodiff/op/join.hpp>

namespace autodiff_variable_tests {

namespace ht = halftone;

/// A device of memory alone.
struct bare_device {
    ht::host_memory resource;
    ht::memory_resource& memory() { return resource; }
    template <class T>
    void fill(T* to, ht::extent n, T value) {
        std::fill_n(to, n, value);
    }
    void copy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
    void run(const auto& f) { f(); }
};

TEST_CASE("variable: copies and moves keep one value alive") {
    bare_device device;
    ht::inference context{device};
    auto a = context.make<float>(ht::shape<2>{4, 8}, true);
    CHECK(!a.wants_gradient());  // nothing is recorded here
    CHECK(context.memory().live() == 128);
    a.view()(3, 7) = 5;
    auto b = a;
    CHECK(b.view().data() == a.view().data());
    const auto c = std::move(a);
    CHECK(a.is_empty());
    b = c;
    auto& same = b;
    b = std::move(same);
    CHECK(c.view()(3, 7) == 5);
    a = b;
    CHECK(!a.is_empty());
    a = {};
    b = {};
    CHECK(context.memory().live() == 128);
    CHECK(c.size() == 32);
    b = context.make<float>(ht::shape<2>{1, 1}, false);
    b = c;
    CHECK(context.memory().live() == 128);
}

TEST_CASE("variable: no shape whose number of elements overflows") {
    bare_device device;
    ht::inference context{device};
    constexpr ht::extent large = ht::extent{1} << 32;
    CHECK_THROWS_WITH_AS(context.make<float>(ht::shape<2>{large, large}, false),
                         "tape: shape (4294967296, 4294967296) has more elements than fit in memory", ht::shape_error);
    CHECK_THROWS_AS(context.make<float>(ht::shape<3>{large, 0, large}, false), ht::shape_error);
    CHECK_THROWS_WITH_AS(context.make<float>(ht::shape<2>{2, -1}, false), "tape: shape (2, -1) has a negative extent",
                         ht::shape_error);
    const auto none = context.make<float>(ht::shape<2>{large, 0}, false);
    CHECK(ht::reshape(context, none, ht::shape<2>{0, large}).size() == 0);
    CHECK_THROWS_WITH_AS(ht::reshape(context, none, ht::shape<2>{large, large}),
                         "reshape: shape (4294967296, 4294967296) has more elements than fit in memory", ht::shape_error);
    CHECK_THROWS_AS(ht::reshape(context, none, ht::shape<3>{large, 0, large}), ht::shape_error);
}

TEST_CASE("variable: outlives its tape, and so does the gradient of a leaf") {
    bare_device device;
    float mine = 3;
    std::optional<ht::variable<float, 0>> kept, leaf;
    ht::gradient_of<float, 0> gradient;
    {
        ht::tape tape{device};
        kept = tape.make<float>(ht::shape<0>{}, true);
        *kept->view().data() = 7;
        leaf = tape.leaf(ht::view<float, 0>(&mine, {}));
        gradient = ht::gradient_of(*leaf);
        *tape.gradient_target(gradient).data = 2;
    }
    CHECK(kept->item() == 7);
    CHECK(leaf->item() == 3);
    CHECK(*gradient.view().data() == 2);
    CHECK(device.resource.usage().live() == 128);
    kept.reset();
    leaf.reset();
    CHECK(*gradient.view().data() == 2);
    gradient = {};
    CHECK(device.resource.usage().live() == 0);
    CHECK(device.resource.usage().held() == 0);
}

TEST_CASE("gradient_of: keeps the gradient and releases the value") {
    bare_device device;
    ht::tape tape{device};
    auto x = tape.make<float>(ht::shape<1>{1024}, true);
    const ht::gradient_of<float, 1> g(x);
    CHECK(tape.memory().live() == 4096);
    x = {};
    CHECK(tape.memory().live() == 0);
    CHECK(g.is_wanted());
    CHECK(!g.is_there());
    CHECK(tape.gradient_target(g).mode == ht::write_mode::overwrite);
    CHECK(tape.gradient_target(g).mode == ht::write_mode::add);
    CHECK(g.is_there());
    CHECK(tape.memory().live() == 4096);
    tape.finish(g);
    CHECK(tape.memory().live() == 0);
}

TEST_CASE("weighted losses: the factor goes into the seed of the backward pass") {
    bare_device device;
    ht::tape tape{device};
    const auto loss = tape.make<float>(ht::shape<0>{}, true);
    CHECK(loss_seed(loss).value() == 1.0f);
    CHECK(loss_seed(loss / 4).value() == 0.25f);
    CHECK(loss_seed(3 * loss).value() == 3.0f);
    CHECK(loss_seed(loss * 3 / 4).value() == 0.75f);
    CHECK(loss_seed(2 * (loss / 4) * 0.5f).value() == 0.25f);
    CHECK(loss_variable(2 * (loss / 4)).slot() == loss.slot());
}

}  // namespace autodiff_variable_tests
