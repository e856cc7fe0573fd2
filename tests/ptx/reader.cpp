// SPDX-License-Identifier: MIT
/// \file
/// Parses a function: its registers, its variables, and the operands of its instructions.
#include <cctype>
#include <optional>
#include <unordered_map>

#include "ptx/module.hpp"
#include "ptx/source.hpp"

namespace halftone::ptx {

/// Parses one function.
class reader {
  public:
    reader(module& m, const module::place& p, std::string name) : m_(m) {
        f_->name = std::move(name);
        f_->is_entry = p.is_entry;
        begin_scope();
        head(std::string_view(m.source_).substr(p.head, p.body - 1 - p.head));
        body(std::string_view(m.source_).substr(p.body, p.end - p.body));
        for (const auto& [at, label] : jumps_) f_->code[at].target = place_of(label);
        for (const auto& [at, table] : table_jumps_)
            for (const auto& label : tables_.at(table)) f_->code[at].targets.push_back(place_of({{0}, label}));
        // The shared memory that a launch requests is behind that of the kernel's source.
        f_->shared_bytes = round_up(f_->shared_bytes, most_alignment_);
        for (const std::int32_t r : open_shared_) f_->constants.emplace_back(r, f_->shared_bytes);
        instruction end;
        end.kind = flow::leave;
        end.text = "ret";
        f_->code.push_back(end);
    }
    std::unique_ptr<function> take() {
        f_->executed.resize(f_->code.size());
        return std::move(f_);
    }

  private:
    void head(std::string_view text) {
        std::string_view rest = text.substr(text.find(f_->is_entry ? ".entry" : ".func"));
        if (const auto limit = rest.find(".maxntid"); limit != rest.npos)
            f_->threads_at_most = std::stoi(std::string(rest.substr(limit + 8)));
        std::vector<std::string_view> brackets;
        for (std::size_t open = rest.find('('); open != rest.npos; open = rest.find('(', open + 1))
            brackets.push_back(rest.substr(open + 1, rest.find(')', open) - open - 1));
        const bool has_results = trim(rest.substr(f_->is_entry ? 6 : 5)).front() == '(';
        for (std::size_t b = 0; b < brackets.size(); ++b) {
            for (const auto part : split(brackets[b])) {
                const variable v = place(read_declaration(part));
                (b == 0 && has_results ? f_->results : f_->parameters).push_back(v);
            }
        }
    }

    /// A parameter, possibly of a call.
    variable place(const declaration& d) {
        std::uint64_t& used =
            f_->is_entry && scopes_.size() == 1 && !is_body_ ? f_->kernel_parameter_bytes : f_->parameter_bytes;
        used = round_up(used, d.alignment);
        const variable v{used | (&used == &f_->kernel_parameter_bytes ? kernel_parameter : 0), d.bytes};
        used += d.bytes;
        parameters_[std::string(d.name)] = v;
        return v;
    }

    void body(std::string_view s) {
        is_body_ = true;
        std::size_t i = 0;
        while (i < s.size()) {
            const char c = s[i];
            if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == ';') {
                ++i;
            } else if (c == '{') {
                begin_scope();
                ++i;
            } else if (c == '}') {
                scopes_.pop_back();
                open_.pop_back();
                ++i;
            } else {
                std::size_t n = i;
                while (n < s.size() && is_word(s[n])) ++n;
                if (n + 1 < s.size() && s[n] == ':' && s[n + 1] != ':') {
                    label_ = std::string(s.substr(i, n - i));
                    labels_[{open_.back(), label_}] = static_cast<std::uint32_t>(f_->code.size());
                    i = n + 1;
                    continue;
                }
                const std::size_t end = s.find(';', i);
                statement(trim(s.substr(i, end - i)));
                i = end + 1;
            }
        }
    }

    void statement(std::string_view s) {
        if (s.starts_with(".reg")) {
            for (const auto name : split(s.substr(s.find_first_of(" \t", 5)))) {
                if (const auto open = name.find('<'); open != name.npos) {
                    const int count = std::stoi(std::string(name.substr(open + 1)));
                    for (int n = 0; n < count; ++n) define(std::string(name.substr(0, open)) + std::to_string(n));
                } else {
                    define(std::string(name));
                }
            }
        } else if (s.starts_with(".param")) {
            place(read_declaration(s.substr(6)));
        } else if (s.starts_with(".local")) {
            const declaration d = read_declaration(s.substr(6));
            f_->local_bytes = round_up(f_->local_bytes, d.alignment);
            locals_[std::string(d.name)] = f_->local_bytes;
            f_->local_bytes += d.bytes;
        } else if (s.starts_with(".shared")) {
            const declaration d = read_declaration(s.substr(7));
            m_.shared_[std::string(d.name)] = {d.bytes, d.alignment};
        } else if (s.starts_with(".branchtargets")) {
            for (const auto l : split(s.substr(14))) tables_[label_].emplace_back(l);
        } else if (s.front() != '.') {
            try {
                add(s);
            } catch (const failure& f) {
                throw failure(f.what() + (" in: " + std::string(s)));
            }
        }
    }

    void begin_scope() {
        scopes_.emplace_back();
        open_.push_back(scope_count_++);
    }
    /// Two pieces of inline assembly may have labels of the same name: the one in the innermost scope is used.
    struct jump {
        std::vector<int> scopes;
        std::string label;
    };
    std::uint32_t place_of(const jump& j) const {
        for (auto scope = j.scopes.rbegin(); scope != j.scopes.rend(); ++scope)
            if (const auto found = labels_.find({*scope, j.label}); found != labels_.end()) return found->second;
        throw failure("no label " + j.label + " in " + f_->name);
    }

    void define(const std::string& name) { scopes_.back()[name] = f_->registers++; }

    std::int32_t constant(std::uint64_t bits) {
        const auto [at, is_new] = constants_.try_emplace(bits, f_->registers);
        if (is_new) {
            f_->constants.emplace_back(f_->registers, bits);
            ++f_->registers;
        }
        return at->second;
    }

    /// The register of an operand: a named one, one that holds a number, or one that holds an address.
    std::int32_t operand(std::string_view name) {
        if (name == "_") return -1;
        if (!name.empty() && name.front() == '!') throw failure("a negated operand: " + std::string(name));
        for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
            if (const auto found = scope->find(std::string(name)); found != scope->end()) return found->second;
        if (const auto bits = number(name)) return constant(*bits);
        const std::string key(name);
        if (key == "WARP_SZ") return constant(lanes);
        if (key.front() == '%') {
            const auto [at, is_new] = places_.try_emplace(key, f_->registers);
            if (is_new) f_->special_registers.emplace_back(f_->registers++, special_register_named(key));
            return at->second;
        }
        if (const auto found = parameters_.find(key); found != parameters_.end()) return constant(found->second.offset);
        if (const auto found = locals_.find(key); found != locals_.end()) return constant(found->second);
        if (std::byte* const memory = m_.global(key)) return constant(reinterpret_cast<std::uint64_t>(memory));
        if (const auto found = m_.shared_.find(key); found != m_.shared_.end()) {
            const auto [at, is_new] = shared_.try_emplace(key, f_->registers);
            if (is_new) {
                const std::int32_t r = f_->registers++;
                most_alignment_ = std::max(most_alignment_, found->second.alignment);
                if (found->second.bytes == 0) {
                    open_shared_.push_back(r);
                } else {
                    f_->shared_bytes = round_up(f_->shared_bytes, found->second.alignment);
                    f_->constants.emplace_back(r, f_->shared_bytes);
                    f_->shared_bytes += found->second.bytes;
                }
            }
            return at->second;
        }
        throw failure("unknown operand " + key);
    }

    void operands(std::vector<std::int32_t>& list, std::string_view part) {
        if (part.front() == '{') {
            for (const auto each : split(part.substr(1, part.size() - 2))) list.push_back(operand(each));
        } else {
            list.push_back(operand(part));
        }
    }

    void add(std::string_view s) {
        instruction i;
        i.text = std::string(s);
        if (s.front() == '@') {
            const auto end = s.find_first_of(" \t");
            i.is_guard_negated = s[1] == '!';
            i.guard = operand(s.substr(i.is_guard_negated ? 2 : 1, end - (i.is_guard_negated ? 2 : 1)));
            s = trim(s.substr(end));
        }
        const auto end = s.find_first_of(" \t");
        const auto name = s.substr(0, end);
        auto parts = end == s.npos ? std::vector<std::string_view>{} : split(s.substr(end));
        std::vector<std::string_view> dots;
        for (std::size_t b = 0; b <= name.size();) {
            std::size_t e = b;
            while (e < name.size() && name[e] != '.') ++e;
            dots.push_back(name.substr(b, e - b));
            b = e + 1;
        }
        const auto op = dots[0];
        if (op == "bra") {
            i.kind = flow::branch;
            jumps_.emplace_back(f_->code.size(), jump{open_, std::string(parts[0])});
        } else if (op == "brx") {
            i.kind = flow::branch_table;
            i.from.push_back(operand(parts[0]));
            table_jumps_.emplace_back(f_->code.size(), std::string(parts[1]));
        } else if (op == "ret" || op == "exit") {
            i.kind = flow::leave;
        } else if (op == "call") {
            call(i, parts);
        } else {
            bool is_addressed = false;
            const auto of = [&](std::string_view part) {
                if (part.front() != '[') return operands(i.from, part);
                // After a comma: the position in a tensor.
                const auto pieces = split(part.substr(1, part.size() - 2));
                const auto plus = pieces[0].find('+');
                i.from.push_back(operand(trim(pieces[0].substr(0, plus))));
                if (plus != part.npos) {
                    if (is_addressed) throw failure("an offset of a second address");
                    i.offset = static_cast<std::int64_t>(number(trim(pieces[0].substr(plus + 1))).value());
                }
                is_addressed = true;
                for (std::size_t c = 1; c < pieces.size(); ++c) operands(i.from, pieces[c]);
            };
            // Stores, copies and barriers have no result; "a|b" are two.
            const bool has_result = op != "st" && op != "stmatrix" && op != "cp" && op != "red" && op != "membar" && op != "fence" &&
                                    op != "trap" && (op != "bar" || dots[1] == "red") && op != "prefetch" &&
                                    op != "nanosleep" && op != "setmaxnreg" &&
                                    (op != "wgmma" || dots[1] == "mma_async") &&
                                    (op != "mbarrier" || (dots[1] != "init" && dots[1] != "inval"));
            std::size_t first = 0;
            if (has_result && !parts.empty()) {
                if (const auto bar = parts[0].find('|'); bar != parts[0].npos) {
                    i.to.push_back(operand(trim(parts[0].substr(0, bar))));
                    i.to.push_back(operand(trim(parts[0].substr(bar + 1))));
                } else {
                    operands(i.to, parts[0]);
                }
                first = 1;
            }
            for (std::size_t p = first; p < parts.size(); ++p) of(parts[p]);
            decode(i, dots);
        }
        f_->code.push_back(std::move(i));
    }

    void call(instruction& i, const std::vector<std::string_view>& parts) {
        i.kind = flow::call;
        std::vector<variable> given;
        const auto list = [&](std::string_view s) {
            for (const auto each : split(s.substr(1, s.size() - 2))) given.push_back(parameters_.at(std::string(each)));
        };
        for (const auto part : parts) {
            if (part.front() == '(') {
                list(part);
            } else {
                i.callee = std::string(part);
            }
        }
        i.option = static_cast<std::int32_t>(f_->given.size());
        f_->given.push_back(std::move(given));
    }

    module& m_;
    std::unique_ptr<function> f_ = std::make_unique<function>();
    bool is_body_ = false;
    std::vector<std::unordered_map<std::string, std::int32_t>> scopes_;
    std::unordered_map<std::string, variable> parameters_;
    std::unordered_map<std::string, std::uint64_t> locals_;
    std::unordered_map<std::uint64_t, std::int32_t> constants_;
    std::unordered_map<std::string, std::int32_t> places_, shared_;
    std::vector<std::int32_t> open_shared_;
    std::uint64_t most_alignment_ = 1;
    std::string label_;
    std::map<std::pair<int, std::string>, std::uint32_t> labels_;
    std::vector<int> open_;  // scopes, by numbers that are unique in a function
    int scope_count_ = 0;
    std::vector<std::pair<std::size_t, jump>> jumps_;
    std::vector<std::pair<std::size_t, std::string>> table_jumps_;
    std::unordered_map<std::string, std::vector<std::string>> tables_;
};

const function& module::named(const std::string& name) {
    auto& f = functions_[name];
    if (f == nullptr) {
        const auto found = places_.find(name);
        if (found == places_.end()) throw failure("no function " + name);
        f = reader(*this, found->second, name).take();
    }
    return *f;
}

}  // namespace halftone::ptx
