// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in capture_dependency.hpp that are no templates.
#pragma once

#include <halftone/memory/capture_dependency.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE capture_dependency::capture_dependency(capture_dependency_list* list, const char* what)
    : list_(list), what_(what) {
    if (list_ == nullptr) return;
    list_->all_.push_back(this);
    change();
}

HALFTONE_OUT_OF_LINE capture_dependency_list::snapshot capture_dependency_list::now() const {
    snapshot all;
    for (const capture_dependency* f : all_) all.push_back({f->number_, f->what_});
    return all;
}

HALFTONE_OUT_OF_LINE const char* capture_dependency_list::first_change_since(const snapshot& before) const {
    for (const state& old : before) {
        const auto is_it = [&](const capture_dependency* f) { return f->number_ == old.number; };
        if (std::none_of(all_.begin(), all_.end(), is_it)) return old.what;
    }
    return nullptr;
}

HALFTONE_OUT_OF_LINE bool capture_dependency_list::settle() const {
    bool wants_more = false;
    for (capture_dependency* f : all_) wants_more = f->settle() || wants_more;
    return wants_more;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
