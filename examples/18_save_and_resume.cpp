// SPDX-License-Identifier: MIT
/// \file
/// Lesson 18: save and resume.
///
/// A run that is interrupted should go on as if it had not been: with the same bits, which is how you know that nothing
/// was forgotten. What has to be saved is more than the weights: the masters in fp32, the optimizer's moments and step
/// count, the loss scale and its counter, the random numbers of dropout. Here a run of eight steps is compared with one
/// that is killed after five, of which a checkpoint has three. In the end weights go to Python and come back.
#include <cstdio>
#include <filesystem>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/io/checkpoint.hpp>

#include "with_device.hpp"

namespace ht = halftone;
namespace fs = std::filesystem;

/// Two layers with dropout between them, in fp16.
template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::linear<ht::at<P, "down">> down;

    explicit network(auto& device) : model{device}, up{parameters(), 3, 16}, down{parameters(), 16, 1} { commit(*this, 1); }
    auto operator()(auto&& ctx, const auto& x) const {
        return down(ctx, ht::dropout(ctx, ht::gelu(ctx, up(ctx, x)), {.p = 0.1f}));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};

/// All parts of a run. Everything that changes from step to step is in one of them.
template <class Device>
struct run {
    using model_type = network<ht::with_output<ht::amp_fp16, float>>;
    Device& device;
    model_type model{device};
    ht::adamw<Device, model_type> optimizer{device, model, {.lr = 1e-2}};
    ht::grad_scaler<Device> scaler{device, {.init_scale = 0x1p20f, .growth_interval = 4}};
    ht::accumulator<ht::through_scaler, ht::types<model_type>> acc{model};
    ht::tape<Device> tape{device};

    /// Step `number`: its batch is a function of its number, so that no position in the data has to be saved.
    float step(int number) {
        std::vector<float> x, y;
        for (int row = 0; row < 8; ++row) {
            for (int i = 0; i < 3; ++i) x.push_back(2 * ht::uniform(ht::random_bits(7, static_cast<std::uint32_t>(number), 0, x.size())) - 1);
            y.push_back(x[static_cast<std::size_t>(3 * row)] - x[static_cast<std::size_t>(3 * row + 1)]);
        }
        const auto out = model(tape, tape.to_device(ht::const_view<float, 2>(x.data(), {8, 3})));
        const auto loss = ht::mean_squared_error(tape, out, ht::const_view<float, 2>(y.data(), {8, 1}));
        const float value = loss.item();
        tape.backward(scaler.scale(loss), acc);
        auto grads = scaler.unscale(acc.take());
        optimizer.step(grads);
        scaler.update();
        return value;
    }
};

void lesson(auto& device) {
    using run_type = run<std::remove_reference_t<decltype(device)>>;
    const fs::path folder = fs::temp_directory_path() / "halftone_lesson_18";
    fs::remove_all(folder);

    // Eight steps without an interruption.
    std::vector<float> expected;
    {
        run_type straight{device};
        for (int i = 0; i < 8; ++i) expected.push_back(straight.step(i));
    }

    // 1. Save. A checkpoint is a folder, which has its name when it is complete: a crash at any moment leaves either the
    // old ones or the new one.
    {
        run_type first{device};
        for (int i = 0; i < 5; ++i) {
            first.step(i);
            if (i == 2) ht::save_checkpoint(folder, {.step = 3, .save_total_limit = 2}, first.model, first.optimizer, first.scaler, first.tape);
        }
    }  // the process is killed: steps 4 and 5 are lost
    std::printf("saved: %s, %s\n", fs::exists(folder / "checkpoint-3" / "model.safetensors") ? "weights that other programs read" : "no weights",
                fs::exists(folder / "checkpoint-3" / "checkpoint.json") ? "and everything else" : "nothing else");
    // Prints: saved: weights that other programs read, and everything else

    // 2. Resume: build the same parts, and load the newest good checkpoint into them.
    run_type second{device};
    const auto from = ht::load_newest_checkpoint(folder, {}, second.model, second.optimizer, second.scaler, second.tape);
    std::printf("resumed from step %lld\n", static_cast<long long>(from->step));
    int same = 0;
    for (int i = static_cast<int>(from->step); i < 8; ++i) same += second.step(i) == expected[static_cast<std::size_t>(i)] ? 1 : 0;
    std::printf("%d of 5 losses have the bits of the run without an interruption\n", same);
    // Prints: resumed from step 3
    // Prints: 5 of 5 losses have the bits of the run without an interruption

    // What is forgotten shows at once: the same with weights alone.
    run_type third{device};
    ht::load_checkpoint(folder / "checkpoint-3", {}, third.model);
    same = 0;
    for (int i = 3; i < 8; ++i) same += third.step(i) == expected[static_cast<std::size_t>(i)] ? 1 : 0;
    std::printf("with the weights alone %s\n", same < 5 ? "they have not" : "they have, too");
    // Prints: with the weights alone they have not

    // 3. Another policy is not taken by mistake.
    network<ht::with_output<ht::amp_bf16, float>> other{device};
    try {
        ht::load_checkpoint(folder / "checkpoint-3", {}, other);
    } catch (const ht::checkpoint_error& e) {
        const std::string why = e.what();
        std::printf("%s\n", why.substr(0, why.find(": the model")).c_str());
    }
    ht::load_checkpoint(folder / "checkpoint-3", {.policy = ht::policy_change::convert}, other);
    // Prints: checkpoint: it was saved under another policy: compute is float16 there, bfloat16 here

    // 4. Weights alone, for others: in Python, safetensors.torch.load_file("weights.safetensors").
    ht::save_weights(other, folder / "weights.safetensors", {.type = ht::dtype::bf16});
    const ht::safetensors_file file(folder / "weights.safetensors");
    for (const ht::tensor_info& t : file.tensors()) std::printf("%s %s, %zu numbers\n", t.name.c_str(), ht::name(t.type), t.count());
    // Prints: down.bias BF16, 1 numbers
    // Prints: up.weight BF16, 48 numbers

    // 5. And back. Say that Python has doubled all of them, and saved them in float32: safetensors.torch.save_file(tensors,
    // "changed.safetensors"). What is loaded is converted to the masters' type.
    std::vector<std::vector<float>> values;
    std::vector<ht::tensor_source> changed;
    values.reserve(file.tensors().size());
    for (const ht::tensor_info& t : file.tensors()) {
        values.push_back(file.read<float>(t.name));
        for (float& v : values.back()) v *= 2;
        changed.push_back(ht::tensor_source::of<float>(t.name, t.shape, values.back()));
    }
    ht::write_safetensors(folder / "changed.safetensors", changed);
    ht::load_weights(other, folder / "changed.safetensors");
    const bool doubled = ht::to_host(device, other.up.weight.master())(0, 0) == 2 * file.read<float>("up.weight")[0];
    std::printf("loaded again: %s\n", doubled ? "twice what they were" : "something else");
    // Prints: loaded again: twice what they were
    fs::remove_all(folder);
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}
