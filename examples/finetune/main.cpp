// SPDX-License-Identifier: MIT
/// \file
/// Tunes somebody's model on conversations: plans its memory, trains, shows answers before and after, and writes what other programs
/// read. `finetune --help` lists the options.
///
///     finetune Qwen2.5-0.5B-Instruct train.jsonl --method qlora --budget 2GiB
///     finetune --plan config.json
///     finetune                                         // a small model and a task of its own
///
/// Exit codes: 0; 2 for invalid arguments, bad data, and too little memory, with one line; 128 + n after a signal n, with a checkpoint
/// from which the same command goes on; 1 for everything else.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <iostream>

#include <nlohmann/json.hpp>

#include <halftone/data/read_chat_template.hpp>
#include <halftone/io/checkpoint/folder.hpp>
#include <halftone/io/checkpoint/verify.hpp>
#include <halftone/io/pretrained.hpp>
#include <halftone/io/pretrained/generation_options.hpp>
#include <halftone/observe/metrics/machine.hpp>
#include <halftone/observe/metrics/output_file.hpp>

#include "../signals.hpp"
#include "example.hpp"
#include "options.hpp"
#include "page.hpp"
#include "plans.hpp"
#include "progress.hpp"
#include "results.hpp"

namespace fs = std::filesystem;
using json = nlohmann::json;

namespace {

/// Everything that a run reads.
struct inputs {
    ht::tokenizer tokenizer;
    conversations data;
    task t;
};

/// Tells what is no model before anything else that it lacks.
void check_model(const fs::path& path) {
    if (!ht::detail::is_there(path))
        refuse("there is no ", path.string(), "; expected a folder with a model of transformers");
    if (!ht::detail::is_folder(path))
        refuse(path.string(), " is a file; expected the folder of a model of transformers");
    if (!ht::detail::is_there(path / "config.json"))
        refuse("there is no config.json in ", path.string(), "; expected a folder with a model of transformers");
}

/// How conversations are rendered: by the folder's template. A folder without one takes prompts and completions alone.
ht::chat_data_options rendering(const options& o, const ht::tokenizer& tokenizer, ids& ends) {
    ht::chat_data_options how;
    const auto of = o.template_name.empty() ? ht::read_chat_template(o.folder) : ht::chat_template_of(o.template_name);
    how.format = of.value_or(ht::chat_template::chatml);
    if (const auto id = tokenizer.id(std::string(ht::end_of_turn(how.format))); of && id) ends.push_back(*id);
    if (!ends.empty()) how.end_of_text = std::string(tokenizer.token(ends.front()));
    return how;
}

std::int64_t steps_of(const options& o, std::size_t rows, ht::extent batch) {
    if (o.steps != 0) return o.steps;
    return std::max<std::int64_t>(
        1, std::llround(std::ceil(o.epochs * static_cast<double>(rows) / static_cast<double>(batch))));
}

inputs read_inputs(const options& o) {
    check_model(o.folder);
    task t = task_of(o, o.folder);
    auto tokenizer = ht::tokenizer::from_file(o.folder, {.vocabulary = t.config.vocab_size});
    t.ends = ht::read_generation_options(o.folder).eos;
    const ht::chat_data_options chat = rendering(o, tokenizer, t.ends);
    conversations data = read_conversations(tokenizer, o.data,
                                            {.chat = chat,
                                             .length = t.length,
                                             .held_out = o.held_out,
                                             .seed = o.seed,
                                             .most_questions = static_cast<std::size_t>(o.questions)});
    t.batch = std::min<ht::extent>(t.batch, static_cast<ht::extent>(data.training.size()));
    t.steps = steps_of(o, data.training.size(), t.batch);
    return {std::move(tokenizer), std::move(data), std::move(t)};
}

/// What a run that is resumed must have the same.
std::string arguments_of(const options& o, const task& t, const conversations& data) {
    return json{{"model", fs::absolute(o.folder).lexically_normal().string()},
                {"method", o.method},
                {"rank", t.rank},
                {"alpha", t.alpha},
                {"lr", t.learning_rate},
                {"steps", t.steps},
                {"batch", t.batch},
                {"length", t.length},
                {"seed", o.seed},
                {"held_out", o.held_out},
                {"conversations", data.lines},
                {"tokens", data.tokens}}
        .dump();
}

/// Throws exit_with if the newest checkpoint is that of a run with other arguments. Tells from where the run goes on.
void check_resumption(const fs::path& folder, const std::string& arguments) {
    for (const ht::checkpoint_place& c : ht::list_checkpoints(folder)) {
        try {
            const ht::checkpoint_info from = ht::verify_checkpoint(c.path);
            const json there = json::parse(from.arguments), here = json::parse(arguments);
            for (const auto& [name, value] : here.items()) {
                if (there.value(name, json()) != value)
                    refuse(folder.string(), " is of a run whose ", name, " is ", there.value(name, json()).dump(),
                           "; here it is ", value.dump(), "; give another --out, or remove it");
            }
            std::cout << "Goes on from step " << from.step << std::endl;
            return;
        } catch (const ht::io_error&) {  // the next one may be good
        }
    }
}

bool is_signalled() { return received_signal != 0; }

int tune(options o) {
    ht::cpu device{{.threads = o.threads}};
    if (o.is_example()) take_example(o, make_example(o.threads, o.out / "example"));
    inputs in = read_inputs(o);
    std::cout << in.data.lines << " conversations of " << in.data.tokens << " tokens; " << in.data.lines_held_out
              << " are held out";
    if (in.data.cut != 0) std::cout << "; " << in.data.cut << " are cut at " << in.t.length << " tokens";
    std::cout << '\n' << in.t.steps << " steps of " << in.t.batch << " rows of " << in.t.length << " tokens\n";
    const chosen_method chosen = choose(device, o, in.t, in.data.longest);
    std::cout << chosen.text << std::endl;
    const std::string arguments = arguments_of(o, in.t, in.data);
    ht::output_folder folder(o.out);
    check_resumption(o.out / "checkpoints", arguments);
    ht::run_report page{o.method};
    const auto seen = make_progress(o.method, in.t.steps, &page);
    note_signals();
    const std::int64_t save_steps = o.save_steps != 0 ? o.save_steps : std::max<std::int64_t>(1, in.t.steps / 10);
    task t = in.t;
    t.budget = chosen.budget;
    const tuning_result r = chosen.of->tune(device, t, in.data.training, in.data.held_out, in.data.questions,
                                            {*seen, o.out, arguments, save_steps, is_signalled});
    folder.keep();
    if (const int signal = forget_signals(); r.is_stopped) {
        told("stopped behind step " + std::to_string(r.training.steps) + "; the same command goes on from there");
        return 128 + signal;
    }
    if (o.method != "full") write_merged(device, in.t, o.out);
    const shown_run shown{o, in.t, in.data, in.tokenizer, chosen, r, page};
    print_results(std::cout, shown);
    write_results(shown);
    return 0;
}

int run(const options& o) {
    if (!o.plan.empty()) return print_plans(std::cout, o);
    return tune(o);
}

}  // namespace

int main(int argc, char** argv) {
    return run_main("finetune", "this model; --plan tells what it needs", [&] {
        const auto o = parse_options(argc, argv);
        return o ? run(*o) : 0;
    });
}
