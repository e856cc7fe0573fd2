// SPDX-License-Identifier: MIT
/// \file
/// The positions of functions and variables in a module's text.
#include <cctype>
#include <cstring>

#include "ptx/module.hpp"
#include "ptx/source.hpp"

namespace halftone::ptx {

module::module(std::string source) :source_(std::move(source)) {
    // Comments have one line each; they are replaced by blanks, so that positions do not change.
    for (std::size_t i = 0; (i = source_.find("//", i)) != source_.npos;)
        while (i < source_.size() && source_[i] != '\n') source_[i++] = ' ';
    const std::string_view s = source_;
    std::size_t i = 0;
    const auto next_line = [&] { i = s.find('\n', i) == s.npos ? s.size() : s.find('\n', i) + 1; };
    while (i < s.size()) {
        if (std::isspace(static_cast<unsigned char>(s[i])) != 0) {
            ++i;
            continue;
        }
        const auto rest = s.substr(i);
        if (rest.starts_with(".target")) {
            architecture_ = static_cast<int>(whole(trim(rest.substr(rest.find("sm_") + 3, 2))));
            next_line();
        } else if (rest.starts_with(".version") || rest.starts_with(".address_size")) {
            next_line();
        } else {
            const std::size_t end = s.find_first_of(";{", i);
            if (end == s.npos) break;
            const auto head = s.substr(i, end - i);
            const bool is_entry = head.find(".entry") != head.npos;
            if (is_entry || head.find(".func") != head.npos) {
                if (s[end] == ';') {  // a declaration
                    i = end + 1;
                    continue;
                }
                std::size_t close = end + 1;
                for (int depth = 1; depth != 0; ++close) depth += s[close] == '{' ? 1 : s[close] == '}' ? -1 : 0;
                // A function's results are in brackets before its name.
                std::string_view name =
                    trim(head.substr(head.find(is_entry ? ".entry" : ".func") + (is_entry ? 6 : 5)));
                if (name.front() == '(') name = trim(name.substr(name.find(')') + 1));
                std::size_t n = 0;
                while (n < name.size() && is_word(name[n])) ++n;
                places_[std::string(name.substr(0, n))] = {i, end + 1, close - 1, is_entry};
                i = close;
            } else {
                const std::size_t semicolon = s.find(';', i);
                const auto statement = s.substr(i, semicolon - i);
                const auto at =
                    statement.find(".global") != s.npos ? statement.find(".global") : statement.find(".const");
                if (at != s.npos) {
                    const declaration d = read_declaration(statement.substr(at + 6));
                    auto& memory = globals_[std::string(d.name)];
                    memory.assign(d.bytes / 8 + 1, 0);
                    if (!d.values.empty() && d.values.front() == '{') {
                        const auto values = split(d.values.substr(1, d.values.find('}') - 1));
                        const std::uint64_t each = values.empty() ? 1 : d.bytes / values.size();
                        for (std::size_t v = 0; v < values.size(); ++v) {
                            const std::uint64_t bits = number(values[v]).value_or(0);
                            std::memcpy(reinterpret_cast<std::byte*>(memory.data()) + v * each, &bits, each);
                        }
                    }
                } else if (const auto place = statement.find(".shared"); place != s.npos) {
                    const declaration d = read_declaration(statement.substr(place + 7));
                    shared_[std::string(d.name)] = {d.bytes, d.alignment};
                }
                i = semicolon == s.npos ? s.size() : semicolon + 1;
            }
        }
    }
}

std::byte* module::global(const std::string& name) {
    const auto found = globals_.find(name);
    return found == globals_.end() ? nullptr : reinterpret_cast<std::byte*>(found->second.data());
}

}  // namespace halftone::ptx
