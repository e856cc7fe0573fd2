// SPDX-License-Identifier: MIT
/// \file
/// Talks to somebody's model: loads it, renders the conversation by its template, and writes the answer as it is generated.
/// `chat --help` lists the options.
///
///     chat Qwen2.5-0.5B-Instruct
///     chat Llama-3.2-1B-Instruct-Q8_0.gguf --prompt "Why is the sky blue?"
///     chat gpt2 --raw                                  // continues each line as it is
///
/// Answers alone are on stdout; what was read and written, and how fast, on stderr. Exit codes: 0; 2 for invalid arguments and bad
/// data, with one line; 3 where there is no GPU; 1 for everything else.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <halftone/data/read_chat_template.hpp>
#include <halftone/io/pretrained/generation_options.hpp>

#include "../parse.hpp"
#include "../signals.hpp"
#include "model.hpp"

namespace {

struct options {
    model_options model;
    std::string device = "cpu", cache = "as_computed", template_name, system, date;
    std::optional<std::string> prompt;
    bool is_raw = false, is_greedy = false, is_quiet = false, thinks = true;
    ht::extent max_new_tokens = 512;
    std::uint64_t seed = 0;
    std::optional<double> temperature, top_p, repetition_penalty;
    std::optional<ht::extent> top_k;

    bool is_interactive() const { return !prompt && isatty(STDIN_FILENO) != 0; }
};

std::unique_ptr<language_model> load(const options& o) {
    if (o.device == "cuda") return load_on_gpu(o.model);
    return o.model.policy == "full_fp32" ? load_full_fp32(o.model) : load_pure_bf16(o.model);
}

/// Tells what is no model before anything else that it lacks.
void check_model(const std::filesystem::path& path) {
    if (!ht::detail::is_there(path))
        refuse("there is no ", path.string(), "; expected a folder with a model of transformers, or a GGUF file");
    if (!ht::detail::is_folder(path) && !ht::detail::is_gguf(path))
        refuse(path.string(), " is a file; expected the folder of a model of transformers, or a GGUF file");
    if (ht::detail::is_folder(path) && !ht::detail::is_there(path / "config.json"))
        refuse("there is no config.json in ", path.string(), "; expected a folder with a model of transformers");
}

/// The last word of a path, which may end with a slash.
std::string name_of(const std::filesystem::path& path) {
    return (path.has_filename() ? path : path.parent_path()).filename().string();
}

/// How the model generates: as its authors say, unless the command line says otherwise.
ht::generation_options generation(const options& o) {
    ht::generation_options how = ht::read_generation_options(o.model.path);
    how.max_new_tokens = o.max_new_tokens;
    how.seed = o.seed;
    how.temperature = o.is_greedy ? 0 : o.temperature.value_or(how.temperature);
    how.top_k = o.top_k.value_or(how.top_k);
    how.top_p = o.top_p.value_or(how.top_p);
    how.repetition_penalty = o.repetition_penalty.value_or(how.repetition_penalty);
    ht::detail::check_generation(how);  // before a large model is loaded
    return how;
}

/// The template of the model, or that of --template; none: texts are continued as they are.
std::optional<ht::chat_template> template_of(const options& o) {
    if (o.is_raw) return std::nullopt;
    if (!o.template_name.empty()) return ht::chat_template_of(o.template_name);
    const auto found = ht::read_chat_template(o.model.path);
    if (!found)
        refuse(o.model.path.string(),
               ": has no template of conversations; --raw continues texts as they are, --template NAME "
               "is one of ",
               ht::detail::names_of_chat_templates());
    return found;
}

/// A question could not be asked: the model and the conversation before it are as they were.
struct refused_question : exit_with {
    explicit refused_question(const std::string& line) : exit_with(2, line) {}
};

class conversation {
  public:
    conversation(const options& o, std::optional<ht::chat_template> of, ht::generation_options how)
        : options_(o),
          template_(of),
          how_(std::move(how)),
          model_(load(o)),
          tokenizer_(ht::tokenizer::from_file(o.model.path, {.vocabulary = model_->vocabulary()})) {
        if (template_) {
            const std::string end(ht::end_of_turn(*template_));
            if (const auto id = tokenizer_.id(end)) how_.eos.push_back(*id);
        }
        clear();
    }

    const language_model& model() const { return *model_; }
    void clear() {
        messages_.clear();
        if (!options_.system.empty()) messages_.push_back({"system", options_.system});
    }

    /// Writes the answer to a question, or what follows a text.
    void ask(const std::string& question) {
        std::vector<ht::chat_message> asked = messages_;
        asked.push_back({"user", question});
        const ids text = tokens(asked);
        ht::generation_options how = how_;
        const ht::extent room = model_->context() - static_cast<ht::extent>(text.size());
        if (room < 1)
            throw refused_question(ht::detail::sentence("the conversation has ", text.size(),
                                                        " tokens, and the context ", model_->context(),
                                                        "; no answer fits"));
        how.max_new_tokens = std::min(how.max_new_tokens, room);
        asked.push_back({"assistant", answer(text, how)});
        if (template_) messages_ = std::move(asked);
    }

  private:
    ids tokens(const std::vector<ht::chat_message>& messages) const {
        if (!template_) {
            ids text = tokenizer_.encode(messages.back().content);
            if (text.empty()) throw refused_question("the text has no tokens");
            return text;
        }
        const ht::chat_options rendered{
            .add_generation_prompt = true, .enable_thinking = options_.thinks, .date = options_.date};
        return ht::encode_chat(tokenizer_, ht::render_chat(*template_, messages, rendered)).tokens;
    }

    /// Writes each piece of text as soon as it is certain. At a terminal Ctrl-C ends the answer, not the program.
    std::string answer(const ids& text, const ht::generation_options& how) {
        using clock = std::chrono::steady_clock;
        const auto seconds = [](clock::duration d) { return std::chrono::duration<double>(d).count(); };
        ht::decode_stream stream{tokenizer_, {.skip_special_tokens = true}};
        std::string all;
        const auto tell = [&](const std::string& piece) {
            all += piece;
            std::cout << piece << std::flush;
        };
        const auto began = clock::now();
        clock::time_point first, last;
        if (options_.is_interactive()) note_signals();
        const ids made = model_->follow(text, how, [&](std::int32_t token) {
            last = clock::now();
            if (first == clock::time_point{}) first = last;
            tell(stream(token));
            return received_signal == 0 && std::cout.good();
        });
        const int signal = options_.is_interactive() ? forget_signals() : 0;
        tell(stream.finish());
        std::cout << std::endl;
        if (!options_.is_quiet) {
            std::cerr << std::setprecision(3) << "[" << text.size() << " tokens and the first new one in "
                      << seconds(first - began) << " s";
            if (made.size() > 1)
                std::cerr << ", then " << made.size() - 1 << ": "
                          << static_cast<double>(made.size() - 1) / seconds(last - first) << " a second";
            std::cerr << "]" << std::endl;
        }
        if (signal != 0 && signal != SIGINT) std::raise(signal);
        return all;
    }

    const options& options_;
    std::optional<ht::chat_template> template_;
    ht::generation_options how_;
    std::unique_ptr<language_model> model_;
    ht::tokenizer tokenizer_;
    std::vector<ht::chat_message> messages_;
};

/// Asks each line of stdin. At a terminal a question that is refused is told, and the next one may follow.
void ask_lines(conversation& with, bool is_terminal) {
    std::string line;
    while (true) {
        if (is_terminal) std::cerr << "> " << std::flush;
        if (!std::cout || !std::getline(std::cin, line)) return;
        if (line.ends_with('\r')) line.pop_back();
        if (line == "/quit") return;
        if (line == "/clear") {
            with.clear();
        } else if (!line.empty()) {
            try {
                with.ask(line);
            } catch (const refused_question& e) {
                if (!is_terminal) throw;
                std::cerr << e.what() << "; /clear forgets what was said\n";
            } catch (const ht::data_error& e) {
                if (!is_terminal) throw;
                std::cerr << e.what() << '\n';
            }
        }
    }
}

int run(options& o) {
    check_range("--threads", o.model.threads, 0, 4096);
    check_range("--context", o.model.context, 0, 2147483647);
    check_range("--max-new-tokens", o.max_new_tokens, 1, 2147483647);
    if (o.is_raw && !(o.system.empty() && o.template_name.empty()))
        refuse("--raw continues texts as they are; leave out --system and --template");
    if (o.is_greedy && o.temperature) refuse("--greedy is a temperature of 0; leave out --temperature");
    if (o.cache == "int8") o.model.cache = ht::cache_type::int8;
    check_model(o.model.path);
    conversation with{o, template_of(o), generation(o)};
    if (o.is_interactive() && !o.is_quiet)
        std::cerr << name_of(o.model.path) << ", " << o.model.policy << " on " << with.model().device()
                  << ", a context of " << with.model().context()
                  << " tokens. /clear forgets the conversation, Ctrl-C ends an answer, /quit or Ctrl-D the program.\n";
    if (o.prompt)
        with.ask(*o.prompt);
    else
        ask_lines(with, o.is_interactive());
    if (!std::cout) refuse("cannot write the answer");
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    return run_main("chat", "this model, and its keys and values", [&] {
        options o;
        CLI::App app{"Talks to a language model of transformers or llama.cpp"};
        app.add_option("model", o.model.path, "a folder with config.json, weights and tokenizer.json, or a GGUF file")
            ->required();
        app.add_option("--prompt", o.prompt, "one question; without it, each line of the input is one");
        app.add_option("--system", o.system, "the system message");
        app.add_flag("--raw", o.is_raw, "each text is continued as it is, without a template and without those before");
        app.add_option("--template", o.template_name,
                       "how conversations are rendered: " + ht::detail::names_of_chat_templates() +
                           "; by default as the model's files say");
        app.add_option("--date", o.date, "what Llama 3.2 is told, as 26 Jul 2024; by default today's");
        app.add_flag("!--no-thinking", o.thinks, "Qwen3 answers at once");
        app.add_option("--max-new-tokens", o.max_new_tokens, "of an answer")->capture_default_str();
        app.add_flag("--greedy", o.is_greedy, "the most likely tokens; by default as generation_config.json says");
        app.add_option("--temperature", o.temperature, "divides the logits; 0: the most likely tokens");
        app.add_option("--top-k", o.top_k, "draws from so many of the most likely tokens; 0: from all");
        app.add_option("--top-p", o.top_p, "draws from the most likely tokens of this probability");
        app.add_option("--repetition-penalty", o.repetition_penalty,
                       "above 1: tokens that the text has already are less likely");
        app.add_option("--seed", o.seed, "of the draws")->capture_default_str();
        app.add_option("--policy", o.model.policy, "how the model is computed, and its weights stored")
            ->check(CLI::IsMember({"pure_bf16", "full_fp32"}))
            ->capture_default_str();
        app.add_option("--context", o.model.context,
                       "the most tokens of a conversation; 0: as many as the model takes, but at most 4096")
            ->capture_default_str();
        app.add_option("--cache", o.cache, "how keys and values are stored")
            ->check(CLI::IsMember({"as_computed", "int8"}))
            ->capture_default_str();
        app.add_option("--device", o.device, "")->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
        app.add_option("--threads", o.model.threads, "0: all cores")->capture_default_str();
        app.add_flag("--quiet", o.is_quiet, "no rates");
        return parse(app, argc, argv) ? run(o) : 0;
    });
}
