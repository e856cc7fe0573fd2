// SPDX-License-Identifier: MIT
#include <charconv>

#include "../parse.hpp"
#include "options.hpp"

namespace {

/// "96MiB", "1.5GiB", "4096KiB" or a number of bytes.
std::size_t parse_bytes(const std::string& text) {
    double number = 0;
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, number);
    const std::string unit(end, last);
    const double each = unit.empty() || unit == "B" ? 1
                        : unit == "KiB"             ? 0x1p10
                        : unit == "MiB"             ? 0x1p20
                        : unit == "GiB"             ? 0x1p30
                                                    : 0;
    if (error != std::errc{} || each == 0 || !(number * each >= 1 && number * each < 0x1p62))
        refuse("--budget is '", text, "'; expected bytes, for example 96MiB or 1.5GiB");
    return static_cast<std::size_t>(number * each);
}

void check(const options& o) {
    if (o.method != "lora" && o.method != "qlora" && o.method != "full")
        refuse("--method is '", o.method, "'; expected lora, qlora or full");
    if (!o.folder.empty() && o.data.empty())
        refuse("there is no DATA; expected a folder of transformers and a file of conversations, or neither");
    if (!o.plan.empty() && !o.folder.empty()) refuse("--plan needs no FOLDER; leave out one of them");
    check_range("--length", o.length, 2, 1 << 20);
    check_range("--batch", o.batch, 1, 1 << 16);
    check_range("--rank", o.rank, 1, 1 << 16);
    check_range("--steps", o.steps, 0, 1'000'000'000);
    check_range("--save-steps", o.save_steps, 0, 1'000'000'000);
    check_range("--answers", o.questions, 0, 1'000'000);
    check_range("--threads", o.threads, 0, 4096);
    if (!(o.epochs > 0 && o.epochs <= 1e6)) refuse("--epochs is ", o.epochs, "; expected more than 0, 1e6 at most");
    if (!(o.held_out > 0 && o.held_out < 1))
        refuse("--held-out is ", o.held_out, "; expected a fraction between 0 and 1");
    if (!(o.learning_rate >= 0 && o.learning_rate <= 1e6)) refuse("--lr is ", o.learning_rate, "; expected 0 to 1e6");
    if (!(o.alpha >= 0 && o.alpha <= 1e6)) refuse("--alpha is ", o.alpha, "; expected 0 to 1e6");
}

}  // namespace

std::optional<options> parse_options(int argc, char** argv) {
    options o;
    CLI::App app{
        "Tunes somebody's Llama, Mistral, Qwen2 or Qwen3 on conversations, on the CPU: adapters (lora), adapters over "
        "a base in four "
        "bits (qlora), or all weights (full). Without arguments it makes a small model and a task of its own."};
    app.name("finetune");
    app.allow_windows_style_options(false);
    app.option_defaults()->always_capture_default();
    std::string budget;
    app.add_option("FOLDER", o.folder, "the model: a folder of transformers");
    app.add_option("DATA", o.data, "JSON lines, each with messages, or with a prompt and a completion");
    app.add_option("--out", o.out, "folder for checkpoints, adapter, merged, model.gguf, summary.json and report.html");
    app.add_option("--method", o.method, "lora, qlora or full");
    app.add_option("--budget", budget,
                   "memory that the run may use, for example 8GiB: it chooses smaller micro-batches and what is "
                   "computed again, or says "
                   "what would fit; without it the machine's memory");
    app.add_option("--plan", o.plan,
                   "do not train: print the bytes of each method for a model, by its config.json alone");
    app.add_option("--epochs", o.epochs, "how often each conversation is seen");
    app.add_option("--steps", o.steps, "optimizer steps in place of --epochs; 0: by epochs");
    app.add_option("--batch", o.batch, "rows in a step");
    app.add_option("--length", o.length, "tokens in a row, which holds several conversations; longer ones are cut");
    app.add_option("--rank", o.rank, "of the adapters, which all linear layers have");
    app.add_option("--alpha", o.alpha, "of the adapters; 0: twice the rank");
    app.add_option("--lr", o.learning_rate, "learning rate; 0: 2e-4 with adapters, 2e-5 without");
    app.add_option("--held-out", o.held_out, "the fraction of the conversations that is not trained on");
    app.add_option("--answers", o.questions, "held-out questions that are answered before and after, at most");
    app.add_option("--template", o.template_name, "how conversations are rendered; by default as the folder says");
    app.add_option("--save-steps", o.save_steps,
                   "steps between two checkpoints, from which a run goes on; 0: a tenth of the run");
    app.add_option("--seed", o.seed, "seed of adapters, held-out conversations and the order of the others");
    app.add_option("--threads", o.threads, "0: all cores");
    if (!parse(app, argc, argv)) return std::nullopt;
    if (!budget.empty()) o.budget = parse_bytes(budget);
    check(o);
    return o;
}
