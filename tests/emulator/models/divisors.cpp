// SPDX-License-Identifier: MIT
/// \file
/// What losses are means over on the emulated GPU: in captured steps, with labels and weights in host memory or the device's.
#include <cmath>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "train/divisors.hpp"

namespace emulator_models_divisors_tests {

using namespace divisors;
using machine = ht::emulator::device;

/// The rows in another order in each step.
class turning_rows {
  public:
    explicit turning_rows(const golden& g) : rows_(g) {}
    labelled_rows sample(std::uint32_t step, extent) {
        const labelled_rows all = rows_.all();
        x_.clear(), labels_.clear();
        for (extent i = 0; i < all_rows; ++i) {
            const extent row = (i + static_cast<extent>(step)) % all_rows;
            for (extent k = 0; k < features; ++k) x_.push_back(all.x(row, k));
            labels_.push_back(all.labels(row));
        }
        return {{x_.data(), {all_rows, features}}, {labels_.data(), {all_rows}}};
    }

  private:
    eight_rows<labelled_rows> rows_;
    std::vector<float> x_;
    std::vector<std::int32_t> labels_;
};

struct losses_of_steps : ht::trainer_callback {
    std::vector<double> losses;
    void on_step(const ht::trainer_state& s) override { losses.push_back(s.step_loss); }
};

TEST_CASE(
    "divisors on the emulated machine: captured steps have PyTorch's loss, whatever labels count in each replay") {
    for_each_case([](const golden& want, auto how, const auto& rows) {
        if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(rows)>, eight_rows<masked_rows>>) {
            machine device{{.seed = 3, .check = ht::emulator::checking::values_only}};
            ht::tensor<float, 1> weight;
            if constexpr (requires { how.options; }) {
                if (how.options.weight.data() != nullptr) {
                    weight = ht::to_device(device, how.options.weight);
                    how.options.weight = weight.const_view();
                }
            }
            scorer model{device, how};
            turning_rows data(want);
            ht::training_arguments a = one_step(4);
            a.max_steps = 6;
            losses_of_steps kept;
            ht::trainer trainer{device, model, a, ht::sgd_options{.lr = 0}};
            trainer.add_callback(kept);
            trainer.train(data);
            REQUIRE(kept.losses.size() == 6);
            for (const double loss : kept.losses) check_loss(want, loss);
            CHECK(trainer.capture_refused().empty());
        }
    });
}

TEST_CASE(
    "divisors on the emulated machine: labels and weights in host memory, in the device's, and one here and one "
    "there") {
    machine device{{.seed = 4}};
    ht::inference eval{device};
    const std::vector<std::int32_t> labels{0, 1, 2, 2, -100, 1};
    const std::vector<float> weights{2, 3, 5};
    const ht::const_view<std::int32_t, 1> here(labels.data(), {6});
    const ht::const_view<float, 1> w_here(weights.data(), {3});
    const auto there = ht::to_device(device, here);
    const auto w_there = ht::to_device(device, w_here);
    const ht::loss_divisor part(ht::const_view<std::int32_t, 1>(labels.data(), {2}), -100, w_here);
    for (const auto& l : {here, there.const_view()}) {
        for (const auto& w : {w_here, w_there.const_view()}) {
            const ht::kernel::target_counts c = ht::share_of(eval, part, ht::loss_divisor(l, -100, w)).read();
            CHECK((c.counted == 5 && c.of == 18 && c.share == 5.0 / 18));
        }
        CHECK(ht::share_of(eval, ht::loss_divisor(l), ht::loss_divisor(10)).read().share == 0.5);
    }
    CHECK(ht::share_of(eval, ht::loss_divisor(w_here), ht::loss_divisor(w_there.const_view())).read().share == 1);
}

}  // namespace emulator_models_divisors_tests
