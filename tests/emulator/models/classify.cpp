// SPDX-License-Identifier: MIT
/// \file
/// The runs of classify_images and classify_text on the emulated GPU, by the programs' own code, compared with the same runs on
/// the CPU. The host accesses no memory of the device, which is closed to it.
#include <cmath>
#include <string>
#include <utility>

#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/amp.hpp>
#include <halftone/data/labelled_text.hpp>
#include <halftone/data/synthetic_reviews.hpp>
#include <halftone/data/vocabulary.hpp>
#include <halftone/kernel/device.hpp>
#include <halftone/kernel/optimizer_step/eight_bit/device.hpp>
#include <halftone/kernel/quantize/device.hpp>

#include "../../../examples/classify_images/run_policy.hpp"
#include "../../../examples/classify_text/run_policy.hpp"
#include "support/temporary_folder.hpp"

namespace emulator_models_classify_tests {

/// Images of 8 x 8 whose upper or lower half is bright.
ht::labelled_images squares(ht::extent count) {
    ht::idx_array images{{count, 8, 8}, {}, "images"}, labels{{count}, {}, "labels"};
    for (ht::extent i = 0; i < count; ++i) {
        const bool is_lower = i % 3 == 0;
        labels.bytes += static_cast<char>(is_lower);
        for (int pixel = 0; pixel < 64; ++pixel) images.bytes += static_cast<char>((pixel >= 32) == is_lower ? 200 + i % 40 : i % 50);
    }
    return {images, labels, 2};
}

/// Runs on both machines, each of which tells what the programs' runs tell: steps, memory, the test's figures.
template <memory_use Use, class Data, class Options>
std::pair<classifier_result, classifier_result> runs_on(ht::emulator::device& device, ht::cpu& cpu, const Data& data,
                                                        Options o) {
    const support::temporary_folder folder;
    file_writes writes("test", o.on_write_error);
    seen_runs seen(folder.path(), o, writes);
    const auto on = [&](auto& machine, const std::string& name) {
        o.seen = &seen.begin(name, {.out = folder.path(), .threads = 1, .is_alone = false});
        return run<ht::amp_bf16, Use>(machine, name, data, o);
    };
    const classifier_result there = on(device, "emulated");
    return {there, on(cpu, "cpu")};
}

void same(const std::pair<classifier_result, classifier_result>& runs) {
    const auto& [there, here] = runs;
    CHECK(there.parameters == here.parameters);
    CHECK(there.steps == here.steps);
    CHECK(std::fabs(there.train_loss - here.train_loss) <= 0.02);
    CHECK(std::fabs(there.accuracy - here.accuracy) <= 0.1);
}

TEST_CASE("classify_images on the emulated machine: the CPU's loss within 0.02 nats, with less memory, too") {
    const image_data data{squares(30), squares(12), 2};
    run_options o;
    o.epochs = 2, o.batch = 10, o.workers = 1;
    ht::emulator::device device{{.seed = 3, .check = ht::emulator::checking::values_only}};
    ht::cpu cpu{{.threads = 1}};
    same(runs_on<memory_use::usual>(device, cpu, data, o));
    same(runs_on<memory_use::small>(device, cpu, data, o));
}

TEST_CASE("classify_text on the emulated machine: the CPU's loss within 0.02 nats") {
    const support::temporary_folder folder;
    ht::write_synthetic_reviews(folder.path() / "reviews", {.texts_per_class = 12, .seed = 1});
    const ht::labelled_text texts{folder.path() / "reviews"};
    const ht::word_vocabulary words{texts, 200};
    text_options o;
    o.epochs = 1, o.batch = 6, o.workers = 1, o.length = 12, o.layers = 1, o.heads = 2, o.width = 32;
    const ht::random_split parts{texts.size(), 0.25, o.seed};
    const text_data data{{texts, words, o.length}, parts, nullptr, words.size(), texts.classes(), words.padding};
    ht::emulator::device device{{.seed = 4, .check = ht::emulator::checking::values_only}};
    ht::cpu cpu{{.threads = 1}};
    const auto [there, here] = runs_on<memory_use::usual>(device, cpu, data, o);
    CHECK(there.steps == here.steps);
    CHECK(std::fabs(there.train_loss - here.train_loss) <= 0.02);
}

}  // namespace emulator_models_classify_tests
