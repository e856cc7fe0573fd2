// SPDX-License-Identifier: MIT
#include <cctype>
#include <string>

#include "ptx/source.hpp"

namespace halftone::ptx {

bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' || c == '.';
}

std::string_view trim(std::string_view s) {
    while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front())) != 0) s.remove_prefix(1);
    while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back())) != 0) s.remove_suffix(1);
    return s;
}

std::vector<std::string_view> split(std::string_view s) {
    std::vector<std::string_view> parts;
    int depth = 0;
    std::size_t begin = 0;
    for (std::size_t i = 0; i <= s.size(); ++i) {
        if (i == s.size() || (s[i] == ',' && depth == 0)) {
            if (const auto part = trim(s.substr(begin, i - begin)); !part.empty()) parts.push_back(part);
            begin = i + 1;
        } else if (s[i] == '{' || s[i] == '[' || s[i] == '(') {
            ++depth;
        } else if (s[i] == '}' || s[i] == ']' || s[i] == ')') {
            --depth;
        }
    }
    return parts;
}

std::vector<std::string_view> words(std::string_view s) {
    std::vector<std::string_view> all;
    for (s = trim(s); !s.empty(); s = trim(s)) {
        std::size_t n = 0;
        while (n < s.size() && std::isspace(static_cast<unsigned char>(s[n])) == 0) ++n;
        all.push_back(s.substr(0, n));
        s.remove_prefix(n);
    }
    return all;
}

std::uint64_t whole(std::string_view s) { return std::stoull(std::string(s), nullptr, 0); }

std::optional<std::uint64_t> number(std::string_view s) {
    if (s.size() > 2 && s[0] == '0' && (s[1] == 'f' || s[1] == 'F' || s[1] == 'd' || s[1] == 'D'))
        return std::stoull(std::string(s.substr(2)), nullptr, 16);
    const bool is_negative = !s.empty() && s[0] == '-';
    if (is_negative) s.remove_prefix(1);
    if (s.empty() || std::isdigit(static_cast<unsigned char>(s[0])) == 0) return std::nullopt;
    if (s.back() == 'U') s.remove_suffix(1);
    const std::uint64_t value = whole(s);
    return is_negative ? 0 - value : value;
}

declaration read_declaration(std::string_view text) {
    declaration d;
    std::uint64_t element = 1;
    if (const auto equals = text.find('='); equals != text.npos) {
        d.values = trim(text.substr(equals + 1));
        text = text.substr(0, equals);
    }
    const auto parts = words(text);
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        if (parts[i] == ".align") {
            d.alignment = whole(parts[++i]);
        } else if (parts[i].front() == '.' && parts[i].size() > 2 &&
                   std::isdigit(static_cast<unsigned char>(parts[i][2])) != 0) {
            element = whole(parts[i].substr(2)) / 8;
        }
    }
    d.name = parts.back();
    d.bytes = element;
    if (const auto bracket = d.name.find('['); bracket != d.name.npos) {
        const auto count = d.name.substr(bracket + 1, d.name.find(']') - bracket - 1);
        d.is_open = count.empty();
        d.bytes = count.empty() ? 0 : element * whole(count);
        d.name = d.name.substr(0, bracket);
    }
    d.alignment = d.alignment < element ? element : d.alignment;
    return d;
}

}  // namespace halftone::ptx
