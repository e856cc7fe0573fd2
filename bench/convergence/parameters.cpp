// SPDX-License-Identifier: MIT
/// \file
/// The cost of 16-bit parameters in loss: trains the same GPT from the same weights on the same batches, with its
/// parameters in fp32 masters (with bf16 copies, and split in two halves), in bf16 with stochastic rounding (moments in
/// fp32 and in bf16), and in bf16 rounded to nearest. In the last one most updates are smaller than half a step of
/// their parameter and are lost, so that training stalls.
///
///     bench_parameters --text FILE --json OUT
///     bench_parameters --streams --steps 1000 --lr 1e-3 --text FILE --json OUT
///
/// With --streams instead the cost of a residual stream in bf16: full_fp32, amp_bf16, whose stream is fp32, and amp_bf16
/// with its stream in bf16.
///
/// The library's optimizers reject the last one at compile time ("have so few bits that an optimizer's updates round
/// away"), so this file has a special optimizer, which passes the other rounding to the kernel.
#include <cstdio>
#include <exception>
#include <iostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/data/text.hpp>
#include <halftone/observe/metrics/machine.hpp>
#include <halftone/observe/metrics/output_file.hpp>

namespace ht = halftone;

namespace {

struct settings {
    std::vector<std::filesystem::path> text;
    std::string json_file, commit = "unknown", isa;
    std::int64_t layers = 2, heads = 4, width = 128, context = 64, batch = 8, steps = 4000, windows = 512;
    double lr = 1e-4;
    int threads = 0;
    std::uint64_t seed = 1;
    bool streams = false;
};

/// AdamW as ht::adamw, with parameters rounded to nearest.
template <class Device, class Model>
class nearest_adamw : public ht::detail::optimizer<Device, Model> {
    using base = ht::detail::optimizer<Device, Model>;

  public:
    nearest_adamw(Device& device, Model& model, const ht::adamw_options& o)
        : base("nearest_adamw", device, model, o.lr, o.weight_decay, {}, ht::kernel::adamw_rule::moments, base::kept::yes, 0), options_(o) {}

    template <class G>
    void step(const G& g) {
        base::run_step(g, launch{this});
    }

  private:
    struct launch {
        const nearest_adamw* self;
        template <class Storage>
        void operator()(const ht::detail::update_segment& s, const ht::gradient_slabs& slabs,
                        const ht::kernel::gradient_factors* factors) const {
            using param = typename Storage::param;
            using copy = typename Storage::compute;
            using accumulate = typename Storage::accumulate;
            using state = typename Storage::state;
            const ht::store::group& g = self->group_of(s);
            const auto gradient = slabs.template group<Storage>(s.group);
            const auto size = static_cast<ht::extent>(s.count);
            ht::kernel::optimizer_step<Device>::template run<ht::rounding::nearest_even>(
                self->device(),
                ht::kernel::optimizer_step_arguments<ht::kernel::adamw_rule, param, copy, accumulate, state>{
                    .master = base::template part_of<param>(g.master.data(), s.master, s.count),
                    .copy = g.copy_bytes == 0 ? ht::view<copy, 1>{}
                                              : base::template part_of<copy>(g.copy.data(), s.copy, s.count),
                    .gradient = ht::const_view<accumulate, 1>(gradient.data() + s.gradient, {size}),
                    .moments = {base::template part_of<state>(self->moment(0, s.group).data(), s.state, s.count),
                                base::template part_of<state>(self->moment(1, s.group).data(), s.state, s.count)},
                    .rule = {self->options_.beta1, self->options_.beta2, self->options_.epsilon},
                    .rates = s.rates,
                    .factors = factors,
                    .step = self->step_data(s)});
        }
    };

    ht::adamw_options options_;
};

struct result {
    std::string parameters;
    double initial_loss = 0, train_loss = 0, validation_loss = 0;
    std::size_t parameter_bytes = 0, moment_bytes = 0;
    double unmoved = 0;  ///< fraction of the last steps' updates that changed nothing, of parameters with gradients
};

/// The bytes of a store's parameters, masters and copies.
std::vector<std::byte> bytes_of(ht::store& parameters) {
    std::vector<std::byte> all;
    for (const ht::store::group& g : parameters.groups()) {
        const std::size_t before = all.size();
        all.resize(before + g.master.bytes());
        parameters.memory().read(all.data() + before, g.master.data(), g.master.bytes());
    }
    return all;
}

template <class Policy, template <class, class> class Optimizer>
result train(const char* name, ht::cpu& device, const settings& o, const ht::token_view& corpus) {
    using model_type = ht::nn::gpt<Policy>;
    ht::language_data data{corpus, {.context = o.context, .most_windows = o.windows, .seed = o.seed}};
    model_type model{device, {.vocabulary = 256, .context = o.context, .layers = static_cast<int>(o.layers), .heads = o.heads, .width = o.width}, o.seed};
    Optimizer<ht::cpu, model_type> optimizer{
        device, model, {.lr = o.lr, .beta2 = 0.999, .weight_decay = 0.1, .seed = o.seed}};
    // A constant rate after the warm-up: with a schedule that falls to zero, narrow parameters would stop changing by
    // itself.
    optimizer.set_schedule({.total_steps = o.steps, .warmup_ratio = 0.05});
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    ht::inference eval{device};
    const auto validate = [&] {
        double sum = 0, tokens = 0;
        for (ht::extent first = 0; first < data.windows(); first += 32) {
            const ht::language_batch batch = data.window(first, 32);
            sum += static_cast<double>(model.loss(eval, batch).item()) * static_cast<double>(batch.size());
            tokens += static_cast<double>(batch.size());
        }
        return sum / tokens;
    };
    result r{.parameters = name, .initial_loss = validate()};
    const std::int64_t last = std::max<std::int64_t>(1, o.steps / 20);
    for (std::int64_t step = 0; step < o.steps; ++step) {
        const auto loss = model.loss(tape, data.sample(static_cast<std::uint32_t>(step), o.batch));
        if (step >= o.steps - last) r.train_loss += static_cast<double>(loss.item()) / static_cast<double>(last);
        tape.backward(loss, acc);
        auto grads = acc.take();
        ht::clip_grad_norm(device, grads, 1.0f);
        if (step + 1 < o.steps) {
            optimizer.step(grads);
            continue;
        }
        const auto before = bytes_of(model.parameters());
        optimizer.step(grads);
        const auto after = bytes_of(model.parameters());
        std::size_t changed = 0, all = 0, at = 0;  // for a split master, of its lower half
        for (const ht::store::group& g : model.parameters().groups()) {
            for (std::size_t end = at + g.master.bytes(); at < end; at += g.param_bytes, ++all) {
                changed += std::equal(before.begin() + static_cast<std::ptrdiff_t>(at),
                                      before.begin() + static_cast<std::ptrdiff_t>(at + g.param_bytes),
                                      after.begin() + static_cast<std::ptrdiff_t>(at))
                               ? 0
                               : 1;
            }
        }
        r.unmoved = 1 - static_cast<double>(changed) / static_cast<double>(all);
    }
    r.validation_loss = validate();
    r.parameter_bytes = model.parameters().bytes();
    for (std::size_t group = 0; group < model.parameters().groups().size(); ++group) {
        r.moment_bytes += optimizer.moment(0, group).size_bytes() + optimizer.moment(1, group).size_bytes();
    }
    std::printf(
        "%-34s loss %.4f -> %.4f, on held-out text %.4f; %5.1f%% of the last step's updates changed nothing; %zu bytes "
        "of parameters, %zu of moments\n",
        name, r.initial_loss, r.train_loss, r.validation_loss, 100 * r.unmoved, r.parameter_bytes, r.moment_bytes);
    std::fflush(stdout);
    return r;
}

int run(const settings& o) {
    using ht::amp_bf16, ht::pure_bf16, ht::bfloat16;
    const std::string corpus = ht::read_text(o.text);
    const ht::token_view tokens{corpus};
    ht::cpu device{{.threads = o.threads,
                    .instruction_set = o.isa.empty() ? std::nullopt : std::optional(ht::parse_isa(o.isa.c_str()))}};
    std::printf("%s; %zu bytes of text\n", device.description().c_str(), corpus.size());
    std::vector<result> results;
    if (o.streams) {
        results.push_back(train<ht::full_fp32, ht::adamw>("full_fp32", device, o, tokens));
        results.push_back(train<amp_bf16, ht::adamw>("amp_bf16, fp32 stream", device, o, tokens));
        results.push_back(train<ht::with_stream<amp_bf16, bfloat16>, ht::adamw>("amp_bf16, bf16 stream", device, o, tokens));
    } else {
        results.push_back(train<amp_bf16, ht::adamw>("fp32 masters", device, o, tokens));
        results.push_back(train<ht::with_split_master<amp_bf16>, ht::adamw>("fp32 masters, split", device, o, tokens));
        results.push_back(train<pure_bf16, ht::adamw>("bf16, stochastic", device, o, tokens));
        results.push_back(
            train<ht::with_state<pure_bf16, bfloat16>, ht::adamw>("bf16, stochastic, bf16 moments", device, o, tokens));
        results.push_back(train<pure_bf16, nearest_adamw>("bf16, nearest", device, o, tokens));
    }
    if (o.json_file.empty()) return 0;

    using json = nlohmann::ordered_json;
    json all{{"program", "bench_parameters"},
             {"commit", o.commit},
             {"machine", {{"cpu", ht::cpu_model()}, {"isa", ht::name(device.instruction_set())}, {"threads", device.threads()}}},
             {"arguments",
              {{"layers", o.layers}, {"heads", o.heads}, {"width", o.width}, {"context", o.context}, {"batch", o.batch}, {"steps", o.steps}, {"lr", o.lr}, {"seed", o.seed},
               {"text_bytes", corpus.size()}}},
             {"runs", json::array()}};
    for (const result& r : results) {
        all["runs"].push_back({{"parameters", r.parameters}, {"initial_validation_loss", r.initial_loss}, {"train_loss", r.train_loss}, {"validation_loss", r.validation_loss},
                               {"validation_loss_to_first", r.validation_loss / results.front().validation_loss}, {"updates_that_changed_nothing", r.unmoved},
                               {"parameter_bytes", r.parameter_bytes}, {"moment_bytes", r.moment_bytes}});
    }
    ht::output_file out(o.json_file);
    out.write(all.dump(1) + "\n");
    out.commit();
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    settings o;
    CLI::App app{
        "Trains one GPT with its parameters kept in fp32 masters and in bf16, rounded stochastically and to nearest."};
    app.add_option("--text", o.text, "files or folders of text")->required();
    app.add_option("--json", o.json_file, "a file to which the results are also written");
    app.add_option("--commit", o.commit, "written with the results");
    app.add_option("--isa", o.isa, "instruction set; the fastest by default");
    app.add_option("--threads", o.threads, "0: all cores")->capture_default_str();
    app.add_option("--layers", o.layers)->capture_default_str();
    app.add_option("--width", o.width)->capture_default_str();
    app.add_option("--context", o.context)->capture_default_str();
    app.add_option("--batch", o.batch)->capture_default_str();
    app.add_option("--steps", o.steps)->capture_default_str();
    app.add_option("--lr", o.lr, "after a warm-up over the first twentieth of the steps")->capture_default_str();
    app.add_option("--seed", o.seed)->capture_default_str();
    app.add_flag("--streams", o.streams, "instead: full_fp32, and amp_bf16 with its residual stream in fp32 and in bf16");
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& e) {
        return app.exit(e);
    } catch (const CLI::ParseError& e) {
        std::cerr << "bench_parameters: " << e.what() << '\n';
        return 2;
    }
    try {
        return run(o);
    } catch (const std::exception& e) {
        std::cerr << "bench_parameters: " << e.what() << '\n';
        return 1;
    }
}
