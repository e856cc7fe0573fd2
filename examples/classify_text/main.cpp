// SPDX-License-Identifier: MIT
/// \file
/// Trains the same small encoder to tell the class of a text, on a folder of labelled texts (as aclImdb/train of the IMDb
/// reviews), from the same weights under full_fp32, amp_fp16, amp_bf16, and amp_bf16 with less memory, and compares accuracy
/// and cost. `classify_text --help` lists the options; without --data it writes invented reviews to a folder, and trains on
/// them.
///
/// Exit codes: 0; 2 for invalid arguments, data or output folder, with one line and nothing left behind; 3 for a device that
/// does not exist; 1 for everything else.
#include <chrono>
#include <optional>

#include <halftone/data/labelled_text.hpp>
#include <halftone/data/synthetic_reviews.hpp>
#include <halftone/data/vocabulary.hpp>
#include <halftone/exec/cpu/cpu.hpp>

#include "../classify/report.hpp"
#include "model.hpp"

extern template classifier_result run<ht::full_fp32, memory_use::usual>(ht::cpu&, const std::string&, const text_data&,
                                                                        const text_options&);
extern template classifier_result run<ht::amp_fp16, memory_use::usual>(ht::cpu&, const std::string&, const text_data&,
                                                                       const text_options&);
extern template classifier_result run<ht::amp_bf16, memory_use::usual>(ht::cpu&, const std::string&, const text_data&,
                                                                       const text_options&);
extern template classifier_result run<ht::amp_bf16, memory_use::small>(ht::cpu&, const std::string&, const text_data&,
                                                                       const text_options&);

namespace {

classifier_result run_policy(const std::string& name, const text_data& data, text_options o, seen_runs::run& seen) {
    o.seen = &seen;
    if (o.device == "cuda") return run_on_gpu(name, data, o);
    ht::cpu device{{.threads = o.threads, .executor = seen.view.executor()}};
    return run_named(device, name, data, o);
}

void check(const text_options& o, ht::extent words) {
    check(static_cast<const run_options&>(o));
    check_range("--length", o.length, 2, 1 << 16);
    check_range("--layers", o.layers, 1, 1024);
    check_range("--heads", o.heads, 1, 1024);
    check_range("--width", o.width, 1, 1 << 14);
    check_range("--words", words, 4, 1 << 24);
    if (o.width % o.heads != 0)
        refuse("--heads is ", o.heads, "; expected a divisor of --width, ", o.width);
}

/// A folder that did not exist, removed at the end of the scope.
struct temporary_folder {
    std::filesystem::path path = std::filesystem::temp_directory_path() /
                                 ("classify_text_" + std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()));
    ~temporary_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
};

/// Texts as ids of the training texts' words.
void train(const ht::labelled_text& texts, const std::optional<ht::labelled_text>& test, ht::extent size, double held_out,
           const std::string& source, const text_options& o) {
    const ht::word_vocabulary words{texts, size};
    std::optional<ht::encoded_texts> test_ids;
    if (test) {
        if (test->class_names() != texts.class_names())
            refuse("--test: the folders of the classes differ from those of --data");
        test_ids.emplace(*test, words, o.length);
    }
    const ht::random_split parts{texts.size(), test ? 0.0 : held_out, o.seed};
    const text_data data{{texts, words, o.length}, parts,           test ? &*test_ids : nullptr, words.size(),
                         texts.classes(),          words.padding};
    std::cout << parts.training.size() << " training texts, " << (test ? test->size() : static_cast<ht::extent>(parts.held_out.size()))
              << " test texts, " << texts.classes() << " classes, " << words.size() << " ids\n";
    run_all("classify_text", o, {{"data", source}, {"length", o.length}, {"layers", o.layers}, {"heads", o.heads}, {"width", o.width}},
            [&](const std::string& name, seen_runs::run& seen) { return run_policy(name, data, o, seen); });
}

}  // namespace

int main(int argc, char** argv) {
    return run_main("classify_text", "these sizes and this data", [&] {
        text_options o;
        o.out = "classify_text_out";
        o.epochs = 4;
        o.batch = 16;
        std::filesystem::path folder, test_folder;
        std::vector<std::string> classes;
        ht::extent words = 10000, reviews = 400;
        double held_out = 0.1;
        CLI::App app{"Trains a small encoder to tell the class of a text under several policies, and compares them."};
        app.add_option("--data", folder, "folder with a folder for each class and a .txt file for each text; without it, invented reviews");
        app.add_option("--test", test_folder, "another such folder for the test; without it, a part of --data is held out");
        app.add_option("--classes", classes, "names of the classes' folders, separated by commas; without them, all but unsup")->delimiter(',');
        app.add_option("--held-out", held_out, "fraction of the texts for the test");
        app.add_option("--reviews", reviews, "invented reviews of each class");
        app.add_option("--words", words, "ids of the vocabulary: the most frequent words");
        app.add_option("--length", o.length, "words of a text that are read");
        app.add_option("--layers", o.layers, "blocks of the encoder");
        app.add_option("--heads", o.heads, "attention heads; a divisor of the width");
        app.add_option("--width", o.width, "channels");
        add_run_options(app, o);
        if (!parse(app, argc, argv)) return 0;
        check(o, words);
        check_range("--reviews", reviews, 2, 1000000);
        if (!(held_out > 0 && held_out < 1)) refuse("--held-out is ", held_out, "; expected more than 0 and less than 1");
        std::string source = folder.string();
        std::optional<ht::labelled_text> texts, test;
        if (folder.empty()) {
            source = "invented reviews";
            const temporary_folder written;
            ht::write_synthetic_reviews(written.path, {.texts_per_class = reviews, .seed = o.seed});
            texts.emplace(written.path);
        } else {
            texts.emplace(folder, ht::labelled_text_options{.classes = classes});
        }
        if (!test_folder.empty()) test.emplace(test_folder, ht::labelled_text_options{.classes = classes});
        train(*texts, test, words, held_out, source, o);
        return 0;
    });
}
