# SPDX-License-Identifier: MIT
"""What api.sh asks of the headers: that docs/api.md has the public names and no others, and that each has its comment.

    tests/headers/api.py               both, and says what is missing
    tests/headers/api.py table         the public names with their headers, as docs/api.md has them, and the first line of
                                       their comments
"""
import collections
import os
import re
import subprocess
import sys

PUBLIC = ('halftone', 'halftone::nn', 'halftone::reference')
CLASSES = ('class', 'struct', 'union')
NAMED = CLASSES + ('enum', 'typedef', 'function', 'prototype', 'variable', 'concept')
SCOPES = ('namespace', 'class', 'struct', 'union', 'enum', 'function')

Tag = collections.namedtuple('Tag', 'name file kind line scope scope_kind access')


def lines_of(file, cache={}):
    if file not in cache:
        with open(file, encoding='utf-8') as stream:
            cache[file] = stream.read().splitlines()
    return cache[file]


def tags():
    """The tags of all headers, with scopes as users write them."""
    command = ['ctags', '-R', '--languages=C++', '--langmap=C++:+.cuh', '--fields=+sKna', '--kinds-C++=+p', '-f', '-',
               'include']
    found = []
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        name, file, rest = line.split('\t', 2)
        if not file.endswith(('.hpp', '.cuh')):
            continue
        fields = rest[rest.index(';"') + 3:].split('\t')
        values = dict(field.split(':', 1) for field in fields[1:] if ':' in field)
        kind, scope = next(((k, values[k]) for k in SCOPES if k in values), ('', ''))
        scope = scope.replace('::HALFTONE_ABI', '')
        found.append(Tag(name, file, fields[0], int(values['line']), scope, kind, values.get('access', 'public')))
    return found


def requirements(file, cache={}):
    """The lines of concepts and of what `requires requires` asks for, where ctags sees functions."""
    if file not in cache:
        cache[file] = set()
        inside = False
        for number, line in enumerate(lines_of(file), 1):
            begins = re.match(r' *(concept \w+ =|requires requires\b)', line)
            if inside or begins:
                cache[file].add(number)
            if begins:
                inside, depth, ends = True, 0, r';$' if 'concept' in line else r'\}\)?$'
            depth = depth + line.count('{') - line.count('}') if inside else 0
            if inside and depth == 0 and re.search(ends, line):
                inside = False
    return cache[file]


def concepts(files):
    """The concepts, which ctags does not know; namespaces are opened and closed one a line."""
    for file in files:
        scope = []
        for number, line in enumerate(lines_of(file), 1):
            if opened := re.match(r'(?:inline )?namespace ([\w:]+) \{', line):
                scope.append(opened.group(1))
            elif line.startswith('}  // namespace'):
                scope.pop()
            elif concept := re.match(r'concept (\w+) =', line):
                where = '::'.join(name for name in scope if name != 'HALFTONE_ABI')
                yield Tag(concept.group(1), file, 'concept', number, where, 'namespace', 'public')


def beginning(tag):
    """The index of the line that a declaration begins in: `template`, `requires` and macros before it are part of it."""
    lines = lines_of(tag.file)
    first = tag.line - 1
    while first > 0:
        above = lines[first - 1].strip()
        ends = '///<' in above or re.search(r'(;|\{|\}|:)( *//.*)?$', above) and not above.startswith('requires')
        if not above or above.startswith(('//', '#')) or ends:
            break
        first -= 1
    return first


def statement(tag):
    """The declaration on one line, up to its body's first lines."""
    return ' '.join(line.strip() for line in lines_of(tag.file)[beginning(tag):tag.line + 5])


def is_public(tag, classes):
    if tag.name.startswith(('__anon', '~', 'HALFTONE_')) or tag.access in ('private', 'protected'):
        return False
    if tag.kind in ('function', 'prototype', 'variable'):
        if tag.line in requirements(tag.file):
            return False
        text = statement(tag)
        if re.search(r'\) (noexcept )?-> ' + re.escape(tag.name) + r'\b', text):
            return False  # a deduction guide
        if re.search(r'= delete;|\{ (\w+::)*refuse_\w+<?.*\}|\) (const )?\{ static_assert\((sizeof|!?detail::always)', text):
            return False  # a call that is refused with a sentence
    if tag.name.startswith('operator') and tag.name != 'operator ()':
        return False
    if tag.scope_kind == 'namespace':
        return tag.scope in PUBLIC and tag.kind in NAMED
    return tag.scope in classes and tag.kind in CLASSES + ('enum', 'function', 'prototype')


def has_comment(tag):
    lines = lines_of(tag.file)
    return '///<' in lines[tag.line - 1] or lines[beginning(tag) - 1].strip().startswith('///')


def is_specialisation(tag):
    return tag.kind in CLASSES and re.search(r'\b' + re.escape(tag.name) + r'<', lines_of(tag.file)[tag.line - 1]) is not None


def explained_by_class(tag, documented_classes):
    """A constructor, a function that overrides one with a comment, an accessor on one line whose name says it."""
    if tag.scope not in documented_classes:
        return False
    text = ' '.join(line.strip() for line in lines_of(tag.file)[tag.line - 1:tag.line + 3])
    if tag.name in (tag.scope.split('::')[-1], 'visit') or re.search(r'\boverride\b', text.split('{')[0].split(';')[0]):
        return True
    return bool(re.search(r'\b' + re.escape(tag.name) + r'\(\) (const )?(noexcept )?\{ return [^;]*; \}',
                          lines_of(tag.file)[tag.line - 1]))


def main():
    found = tags()
    found += concepts(sorted({tag.file for tag in found}))
    found.sort(key=lambda tag: (tag.file, tag.line))
    classes = set()
    for _ in range(3):  # classes within classes
        classes |= {tag.scope + '::' + tag.name for tag in found if tag.kind in CLASSES and is_public(tag, classes)}
    public = [tag for tag in found if is_public(tag, classes)]

    documented = {}
    declared = {declaration.group(1)  # with a comment, before it is defined or specialised
                for file in sorted({tag.file for tag in found})
                for number, line in enumerate(lines_of(file), 1)
                if (declaration := re.match(r'(?:struct|class) (\w+);', line)) and
                has_comment(Tag(declaration.group(1), file, 'class', number, '', 'namespace', 'public'))}
    documented_classes = {tag.scope + '::' + tag.name for tag in public if tag.kind in CLASSES and
                          (has_comment(tag) or tag.name in declared)}
    undocumented = []
    previous = None
    for tag in sorted(public, key=lambda tag: (tag.file, tag.line)):
        fine = has_comment(tag) or explained_by_class(tag, documented_classes)
        if not fine and is_specialisation(tag):
            fine = tag.scope + '::' + tag.name in documented_classes
        if not fine and previous and (previous.name, previous.scope, previous.file) == (tag.name, tag.scope, tag.file):
            between = lines_of(tag.file)[previous.line:tag.line]
            fine = documented[previous] and not any(not line.strip() for line in between)
        if not fine and tag.scope_kind != 'namespace' and '::' + tag.name in lines_of(tag.file)[tag.line - 1]:
            fine = True  # a definition outside of its class
        documented[tag] = fine
        if not fine:
            undocumented.append(tag)
        previous = tag
    if sys.argv[1:] == ['undocumented']:
        for tag in undocumented:
            print(f'{tag.file}:{tag.line}:{beginning(tag) + 1}: {tag.scope}::{tag.name} ({tag.kind})')
    print(len(public), len(undocumented))


os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
main()
