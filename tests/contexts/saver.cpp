// SPDX-License-Identifier: MIT
/// \file
/// A checkpoint is copied by a thread while the program goes on: what changes parameters waits for it, and each checkpoint
/// holds one moment.
#include <filesystem>

#include <doctest/doctest.h>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/io/checkpoint.hpp>
#include <halftone/policy.hpp>

#include "support/temporary_folder.hpp"

namespace contexts_saver_tests {

namespace ht = halftone;

struct model {
    using policy = ht::amp_bf16;
    ht::cpu device{{.threads = 1}};
    ht::store store{device.memory()};
    ht::parameter<ht::storage_signature<ht::at<policy, "up">, ht::op::linear>, 2> weight;
    ht::parameter<ht::state_signature<ht::at<policy, "norm">>, 1> mean;
    model()
        : weight(store.add<ht::at<policy, "up">, ht::op::linear>("weight", ht::shape<2>{300, 200}, {})),
          mean(store.add_state<ht::at<policy, "norm">>("mean", ht::shape<1>{100}, {})) {
        store.commit();
    }
    ht::store& parameters() { return store; }
    static auto visit(auto&&, auto&& f) { return f(); }
};

TEST_CASE("a checkpoint that is saved beside the program holds one moment") {
    const support::temporary_folder folder;
    model m;
    ht::checkpoint_saver saver(folder.path());
    for (int i = 1; i <= 20; ++i) {
        m.weight.assign(std::vector<float>(60000, static_cast<float>(i)));
        saver.save({.step = i}, m);
        // A layer's state is written to without waiting, by the next forward pass; reading parameters needs no wait, either.
        for (int k = 0; k < 100; ++k) m.mean.master()(k) = static_cast<float>(i);
        CHECK(static_cast<float>(m.weight.values()(7, 7)) == static_cast<float>(i));
    }
    saver.wait();
    for (int i = 1; i <= 20; ++i) {
        model loaded;
        ht::load_checkpoint(folder.path() / ("checkpoint-" + std::to_string(i)), {}, loaded);
        CHECK(loaded.weight.master()(0, 0) == static_cast<float>(i));
        CHECK(loaded.weight.master()(299, 199) == static_cast<float>(i));
        CHECK(loaded.mean.master()(99) == static_cast<float>(i - 1));
    }
}

TEST_CASE("parameters outlive the copy of their checkpoint, and a saver that ends waits for its file") {
    const support::temporary_folder folder;
    for (int i = 1; i <= 20; ++i) {
        ht::checkpoint_saver saver(folder.path());
        model m;  // is destroyed first
        saver.save({.step = i, .save_total_limit = 1}, m);
    }
    CHECK(ht::list_checkpoints(folder.path()).size() == 1);
    CHECK(ht::verify_checkpoint(folder.path() / "checkpoint-20").step == 20);
}

}  // namespace contexts_saver_tests
