// SPDX-License-Identifier: MIT
/// \file
/// Checks that a run which is saved, destroyed, built anew and loaded goes on with the bits of one that was not interrupted, for
/// any device.
///
///     keeping::resumes<ht::amp_fp16, keeping::by_adamw>(3);
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/data/data_loader.hpp>
#include <halftone/train/checkpoints.hpp>
#include <halftone/train/trainer.hpp>

#include "io/run.hpp"
#include "support/temporary_folder.hpp"

namespace keeping {

/// Six steps straight, and three, a save, three: the same losses, and the same bytes of everything.
template <class P, class Optimizer, class Device = ht::cpu>
void resumes(int micro_batches) {
    const support::temporary_folder folder;
    run<P, Optimizer, Device> straight(micro_batches);
    std::vector<float> losses;
    for (int i = 0; i < 6; ++i) losses.push_back(straight.step(i));
    {
        run<P, Optimizer, Device> first(micro_batches);
        for (int i = 0; i < 3; ++i) CHECK(first.step(i) == losses[static_cast<std::size_t>(i)]);
        first.save(folder.path(), 3);
    }
    run<P, Optimizer, Device> second(micro_batches);
    second.step(7);  // what it did before does not matter
    CHECK(second.load(folder.path() / "checkpoint-3").step == 3);
    for (int i = 3; i < 6; ++i) CHECK(second.step(i) == losses[static_cast<std::size_t>(i)]);
    CHECK(second.bytes() == straight.bytes());
    CHECK(straight.optimizer.steps() + straight.optimizer.skipped_steps() == 6);
    CHECK(straight.optimizer.steps() >= 2);
    if (ht::model_needs_scaling<net<P>>) CHECK(straight.optimizer.skipped_steps() > 0);
}

/// The same with the batches of a loader, saved in the middle of an epoch, and loaded by one with other workers.
template <class P, class Optimizer, class Device = ht::cpu>
void resumes_in_an_epoch() {
    const support::temporary_folder folder;
    const rows_source rows;  // five batches of six
    const auto steps = [](auto& r, auto& loader, int count, std::vector<float>& losses) {
        while (count > 0) {
            const row_batch* batch = loader.next();
            if (batch == nullptr) continue;
            losses.push_back(r.step(*batch));
            --count;
        }
    };
    const auto options = [](int workers) { return ht::loader_options{.batch_size = 6, .num_workers = workers, .seed = 4}; };
    run<P, Optimizer, Device> straight(2);
    ht::data_loader all{straight.device, rows, options(0), collate};
    std::vector<float> expected, losses;
    steps(straight, all, 12, expected);
    {
        run<P, Optimizer, Device> first(2);
        ht::data_loader some{first.device, rows, options(2), collate};
        steps(first, some, 7, losses);
        first.with_parts([&](auto&... parts) { ht::save_checkpoint(folder.path(), {.step = 7}, parts..., some); });
    }
    run<P, Optimizer, Device> second(2);
    ht::data_loader rest{second.device, rows, options(1), collate};
    rest.next();
    second.with_parts([&](auto&... parts) { ht::load_checkpoint(folder.path() / "checkpoint-7", {}, parts..., rest); });
    CHECK(rest.position().epoch == 1);
    CHECK(rest.position().rows == 12);
    steps(second, rest, 5, losses);
    CHECK(losses == expected);
    CHECK(second.bytes() == straight.bytes());
    CHECK(rest.position() == all.position());
}

/// A trainer whose batches come from a loader; on a device that captures, its steps are captured.
template <class P, class Device = ht::cpu>
void trainer_resumes_in_an_epoch() {
    const support::temporary_folder folder;
    const rows_source rows;
    const auto train = [&](const std::string& name, std::int64_t until, int workers, bool is_resumed) {
        Device device = made_device<Device>();
        net<P> model{device};
        ht::trainer trainer{device, model,
                            {.per_device_train_batch_size = 3, .gradient_accumulation_steps = 2, .max_steps = 12, .learning_rate = 1e-2,
                             .logging_steps = 5, .output_dir = (folder.path() / name).string(), .save_steps = 100,
                             .resume_from_checkpoint = is_resumed ? "newest" : "", 
                             .scaler = {.init_scale = 0x1p19f, .growth_interval = 3}}};
        ht::data_loader loader{device, rows, {.batch_size = 6, .num_workers = workers, .seed = 4}, collate};
        ht::trainer_checkpoints checkpoints{trainer, loader};
        struct : ht::trainer_callback {
            decltype(trainer)* target = nullptr;
            std::int64_t until = 0;
            void on_step(const ht::trainer_state& s) override {
                if (s.step == until) target->stop();
            }
        } stopper;
        stopper.target = &trainer, stopper.until = until;
        trainer.add_callback(stopper);
        const ht::training_result result = trainer.train(loader);
        CHECK(checkpoints.resumed().has_value() == is_resumed);
        if (ht::capturing_device<Device>) CHECK(trainer.captured().replays() > 0);
        std::string bytes(reinterpret_cast<const char*>(&result.train_loss), sizeof result.train_loss);
        for (const std::byte b : support::bytes_of(model.parameters())) bytes += static_cast<char>(b);
        return bytes;
    };
    const std::string straight = train("straight", 99, 0, false);
    CHECK(train("other", 7, 2, false) != straight);
    CHECK(train("other", 99, 1, true) == straight);
}

}  // namespace keeping
