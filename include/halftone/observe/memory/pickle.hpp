// SPDX-License-Identifier: MIT
/// \file
/// A writer of Python's pickles, protocol 2: dicts, lists, strings and integers.
///
///     pickle p;
///     p.dict([&] { p.text("bytes"), p.integer(4096); });
///     file.write(p.finish());
///
/// The format is documented in Python's pickletools.py. A text that occurs several times is stored once, and then referred
/// to.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class pickle {
  public:
    pickle() : bytes_("\x80\x02") {}

    /// A dict: `items` writes a key, its value, the next key, and so on.
    template <class Items>
    void dict(const Items& items) {
        bytes_ += '}';
        bytes_ += '(';
        items();
        bytes_ += 'u';
    }
    /// A list of `count` elements, which element(i) writes. As Python does, in groups of a thousand, since readers append a
    /// group at a time.
    template <class Element>
    void list(std::size_t count, const Element& element) {
        bytes_ += ']';
        for (std::size_t first = 0; first < count; first += 1000) {
            bytes_ += '(';
            for (std::size_t i = first; i < count && i < first + 1000; ++i) element(i);
            bytes_ += 'e';
        }
    }
    /// UTF-8.
    void text(const std::string& t) {
        if (refer_to(t)) return;
        bytes_ += 'X';
        number(t.size(), 4);
        bytes_ += t;
        remember(t);
    }
    void integer(std::int64_t n) {
        if (n >= 0 && n < 256) {
            bytes_ += 'K';
            number(static_cast<std::uint64_t>(n), 1);
        } else if (n >= INT32_MIN && n <= INT32_MAX) {
            bytes_ += 'J';
            number(static_cast<std::uint64_t>(n), 4);
        } else {
            bytes_ += "\x8a\x08";
            number(static_cast<std::uint64_t>(n), 8);
        }
    }
    void boolean(bool b) { bytes_ += b ? '\x88' : '\x89'; }
    /// The tuple (a, b).
    void pair(std::int64_t a, std::int64_t b) {
        integer(a);
        integer(b);
        bytes_ += '\x86';
    }
    /// The object that write() writes; if one was written under this key before, a reference to that one.
    template <class Write>
    void once(const std::string& key, const Write& write) {
        if (refer_to('\0' + key)) return;
        write();
        remember('\0' + key);
    }

    /// Returns the pickle of the one object that was written.
    std::string finish() {
        bytes_ += '.';
        return std::move(bytes_);
    }

  private:
    void number(std::uint64_t n, int bytes) {
        for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>(n >> (8 * i) & 0xff);
    }
    bool refer_to(const std::string& key) {
        const auto found = memo_.find(key);
        if (found == memo_.end()) return false;
        bytes_ += 'j';
        number(found->second, 4);
        return true;
    }
    void remember(const std::string& key) {
        bytes_ += 'r';
        number(memo_.size(), 4);
        memo_.emplace(key, static_cast<std::uint32_t>(memo_.size()));
    }

    std::string bytes_;
    std::unordered_map<std::string, std::uint32_t> memo_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
