// SPDX-License-Identifier: MIT
#include "options.hpp"

#include "../parse.hpp"

namespace ht = halftone;

namespace {

void check(const options& o) {
    check_range("--texts", o.texts, 10, 1'000'000);
    check_range("--layers", o.layers, 1, 1000);
    check_range("--width", o.width, 1, 1 << 16);
    check_range("--heads", o.heads, 1, o.width);
    check_range("--length", o.length, 2, 1 << 20);
    check_range("--vocabulary", o.vocabulary, 4, 1 << 24);
    check_range("--batch", o.batch, 1, 1 << 20);
    check_range("--steps", o.steps, 1, 1'000'000'000);
    check_range("--checkpointing", o.checkpointing, 1, 1000);
    check_range("--threads", o.threads, 0, 4096);
    if (o.width % o.heads != 0) refuse("--heads: ", o.heads, " do not divide a --width of ", o.width);
    if (!(o.held_out > 0 && o.held_out < 1)) refuse("--held-out is ", o.held_out, "; expected more than 0 and less than 1");
    if (!(o.learning_rate >= 0 && o.learning_rate <= 1e6)) refuse("--lr is ", o.learning_rate, "; expected 0 to 1e6");
}

}  // namespace

std::optional<options> parse_options(int argc, char** argv) {
    options o;
    CLI::App app{"Trains the same classifier of texts in fp32, in bf16, and in bf16 with checkpointing, with 8-bit AdamW and "
                 "with both, and shows what each saves in memory and costs in time and loss."};
    app.name("tradeoff");
    app.allow_windows_style_options(false);  // a path may begin with a slash there, too
    app.option_defaults()->always_capture_default();
    app.add_option("--text", o.text,
                   "folder with the folders pos and neg of .txt files, as aclImdb/train; without it reviews are invented");
    app.add_option("--texts", o.texts, "number of invented reviews of each class");
    app.add_option("--out", o.out, "folder for metrics.jsonl, summary.json, tradeoff.html and report.html, and for the invented reviews");
    app.add_option("--layers", o.layers, "transformer blocks");
    app.add_option("--heads", o.heads, "attention heads; a divisor of the width");
    app.add_option("--width", o.width, "channels");
    app.add_option("--length", o.length, "words of a text that are read");
    app.add_option("--vocabulary", o.vocabulary, "the most frequent words that the model knows");
    app.add_option("--held-out", o.held_out, "fraction of the texts for validation");
    app.add_option("--batch", o.batch, "texts in a step");
    app.add_option("--steps", o.steps, "optimizer steps of each row");
    app.add_option("--checkpointing", o.checkpointing, "in the rows with checkpoints every n-th block is computed again");
    app.add_option("--lr", o.learning_rate, "learning rate after warm-up; it falls to a tenth by the last step");
    app.add_option("--seed", o.seed, "seed of weights, batches and invented reviews");
    app.add_option("--threads", o.threads, "0: all cores");
    app.add_flag("--plan", o.plan, "do not train: print the memory that each row would need, to the byte");
    add_seeing_options(app, o);
    if (!parse(app, argc, argv)) return std::nullopt;
    check(o);
    return o;
}
