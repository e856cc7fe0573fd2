# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Downloads packages for the tests from Debian's archive with apt. Sourced.

# The first Debian archive among apt's own sources, be they of the one-line form or of the other.
debian_archive() {
    # shellcheck disable=SC2016  # apt-get expands these
    apt-get indextargets --format '$(SITE) $(ORIGIN) $(LABEL) $(RELEASE)' 'Created-By: Packages' |
        awk '$2 == "Debian" && $3 == "Debian" && !found { found = $1 } END { if (!found) exit 1; print found }'
}

# debian_package SUITE SECTION PACKAGE FOLDER: unpacks a package of any release there, without installing anything.
debian_package() {
    local suite=$1 section=$2 package=$3 folder=$4 archive apt options
    archive=$(debian_archive) || return
    apt=$(mktemp -d)
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    : >"$apt/status"
    echo "deb $archive $suite $section" >"$apt/sources.list"
    options=(-qq -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$apt/lists"
        -o "Dir::State::Status=$apt/status" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root)
    (cd "$apt" && apt-get "${options[@]}" update && apt-get "${options[@]}" download "$package" && dpkg-deb -x ./*.deb "$folder") </dev/null
    local status=$?
    rm -rf "$apt"
    return "$status"
}
