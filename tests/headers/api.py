# SPDX-License-Identifier: MIT
"""The checks of api.sh, which has the rules.

    tests/headers/api.py             compares, and prints what is wrong
    tests/headers/api.py update      updates docs/api.md from the headers: adds rows for new names, with the first sentence of their
                                     comment; updates headers of moved names; removes rows of removed names
"""
import collections
import os
import re
import subprocess
import sys

PUBLIC = ('halftone', 'halftone::nn', 'halftone::reference')
CLASSES = ('class', 'struct', 'union')
NAMED = CLASSES + ('enum', 'typedef', 'function', 'prototype', 'variable', 'concept', 'using')
SCOPES = ('namespace', 'class', 'struct', 'union', 'enum', 'function')
PAGE = 'docs/api.md'

# Where a name stands in docs/api.md: the first heading one of whose folders has the header that comes first below.
TOPICS = (
    ('Numbers', ('number',)),
    ('Policies', ('policy',)),
    ('Errors', ('error.hpp',)),
    ('Views and tensors', ('tensor',)),
    ('Memory and the parameter store', ('memory',)),
    ('Devices', ('exec',)),
    ('Pointwise functions', ('kernel/map',)),
    ('Kernels over your own memory', ('kernel',)),
    ('Tapes and contexts', ('autodiff/engine', 'autodiff/double_backward', 'autodiff/')),
    ('Operations on a tape', ('autodiff/op',)),
    ('Layers and models', ('nn',)),
    ('Loss scaling and gradients', ('scale',)),
    ('Optimizers', ('optim',)),
    ('Data', ('data', 'io')),
    ('Watching a run', ('observe',)),
    ('Training', ('train',)),
    ('Several ranks', ('ranks',)),
    ('Definitions in double', ('reference',)),
)
Tag = collections.namedtuple('Tag', 'name file kind line scope scope_kind access')


def lines_of(file, cache={}):
    if file not in cache:
        with open(file, encoding='utf-8') as stream:
            cache[file] = stream.read().splitlines()
    return cache[file]


def tags(with_bodies=False):
    """The tags of all headers, with scopes as users write them; of NAME.body.hpp, which declares nothing for others, only if asked."""
    command = ['ctags', '-R', '--languages=C++', '--langmap=C++:+.cuh', '--fields=+sKna', '--kinds-C++=+p', '-f', '-',
               'include']
    found = []
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        name, file, rest = line.split('\t', 2)
        if not file.endswith(('.hpp', '.cuh')) or file.endswith('.body.hpp') and not with_bodies:
            continue
        fields = rest[rest.index(';"') + 3:].split('\t')
        values = dict(field.split(':', 1) for field in fields[1:] if ':' in field)
        kind, scope = next(((k, values[k]) for k in SCOPES if k in values), ('', ''))
        scope = scope.replace('::HALFTONE_ABI', '')
        found.append(Tag(name, file, fields[0], int(values['line']), scope, kind, values.get('access', 'public')))
    return found


def others(files):
    """Names that ctags does not list: concepts, and names from using-declarations."""
    for file in files:
        scope = []
        for number, line in enumerate(lines_of(file), 1):
            where = '::'.join(name for name in scope if name != 'HALFTONE_ABI')
            if opened := re.match(r'(?:inline )?namespace ([\w:]+) \{', line):
                scope.append(opened.group(1))
            elif line.startswith('}  // namespace') and scope:
                scope.pop()
            elif concept := re.match(r'concept (\w+) =', line):
                yield Tag(concept.group(1), file, 'concept', number, where, 'namespace', 'public')
            elif using := re.match(r'using [\w:]+::(\w+);', line):
                yield Tag(using.group(1), file, 'using', number, where, 'namespace', 'public')


def requirements(file, cache={}):
    """The lines of concepts and of `requires requires` expressions, where ctags sees functions."""
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
    """The declaration on one line, with the first lines of its body."""
    return ' '.join(line.strip() for line in lines_of(tag.file)[beginning(tag):tag.line + 5])


def refuses(tag):
    """An overload that only produces an error message."""
    return re.search(r'= delete;|\{ (\w+::)*refuse_\w+<?.*\}|\) (const )?\{ static_assert\((sizeof\(([\w*]+\) == 0|detail::not_)|!?detail::always)',
                     statement(tag)) is not None


def is_public(tag, classes):
    if tag.name.startswith(('__anon', '~', 'HALFTONE_')) or tag.access in ('private', 'protected'):
        return False
    if tag.kind in ('function', 'prototype', 'variable'):
        guide = r'\) (noexcept )?-> ' + re.escape(tag.name) + r'\b'
        if tag.line in requirements(tag.file) or refuses(tag) or re.search(guide, statement(tag)):
            return False
    if tag.name.startswith('operator') and tag.name != 'operator ()':
        return False
    if tag.scope_kind == 'namespace':
        return tag.scope in PUBLIC and tag.kind in NAMED
    return tag.scope in classes and tag.kind in CLASSES + ('enum', 'function', 'prototype')


def comment(tag):
    """The comment with three slashes directly above the declaration, or after the name; empty if there is none."""
    lines = lines_of(tag.file)
    if '///<' in lines[tag.line - 1]:
        return lines[tag.line - 1].split('///<')[1].strip()
    above = beginning(tag) - 1
    text = []
    while above >= 0 and lines[above].strip().startswith('///'):
        text.insert(0, lines[above].strip()[3:].strip())
        above -= 1
    return ' '.join(text).strip()


def is_specialisation(tag):
    return tag.kind in CLASSES and re.search(r'\b' + tag.name + r'<', lines_of(tag.file)[tag.line - 1]) is not None


def explained_by_class(tag, documented_classes):
    """A constructor, `visit`, an overriding function, or an accessor on one line."""
    if tag.scope not in documented_classes:
        return False
    text = ' '.join(line.strip() for line in lines_of(tag.file)[tag.line - 1:tag.line + 3])
    if tag.name in (tag.scope.split('::')[-1], 'visit') or re.search(r'\boverride\b', text.split('{')[0].split(';')[0]):
        return True
    return re.search(r'\b' + re.escape(tag.name) + r'\(\) (const )?(noexcept )?\{ return [^;]*; \}',
                     lines_of(tag.file)[tag.line - 1]) is not None


def undocumented(found, public):
    declared = {declaration.group(1)  # with a comment, before it is defined or specialised
                for file in sorted({tag.file for tag in found})
                for number, line in enumerate(lines_of(file), 1)
                if (declaration := re.match(r'(?:struct|class) (\w+);', line)) and
                comment(Tag(declaration.group(1), file, 'class', number, '', 'namespace', 'public'))}
    documented_classes = {tag.scope + '::' + tag.name for tag in public
                          if tag.kind in CLASSES and (comment(tag) or tag.name in declared)}
    previous, previous_is_fine = None, False
    for tag in public:
        fine = tag.kind == 'using' or comment(tag) or explained_by_class(tag, documented_classes)
        if not fine and is_specialisation(tag):
            fine = tag.scope + '::' + tag.name in documented_classes
        if not fine and previous and (previous.name, previous.scope, previous.file) == (tag.name, tag.scope, tag.file):
            between = lines_of(tag.file)[previous.line:tag.line]
            fine = previous_is_fine and all(line.strip() for line in between)
        if not fine and tag.scope_kind != 'namespace':
            fine = '::' + tag.name in lines_of(tag.file)[tag.line - 1]  # a definition outside of its class
        if not fine:
            yield tag
        previous, previous_is_fine = tag, fine


def spelled(tag):
    return tag.scope.replace('halftone', 'ht', 1) + '::' + tag.name


def listed():
    """The rows of docs/api.md: names with their headers and meanings."""
    rows = {}
    twice = []
    for line in lines_of(PAGE) if os.path.exists(PAGE) else []:
        if row := re.match(r'\| `(ht::[\w:]+)` \| (.*?) \| (.*) \|$', line):
            if row.group(1) in rows:
                twice.append(row.group(1))
            rows[row.group(1)] = (re.findall(r'`([^`]+)`', row.group(2)), row.group(3))
    return rows, twice


def topic_of(name, headers):
    if name.startswith('ht::reference::'):
        return 'Definitions in double'
    places = {topic: len(folder) for header in headers[:1] for topic, folders in TOPICS for folder in folders
              if header.startswith('halftone/' + folder)}
    return max(places, key=places.get)


def update(headers_of, comments):
    rows, _ = listed()
    page = '\n'.join(lines_of(PAGE)) if os.path.exists(PAGE) else ''
    head = page.split('\n## ')[0].rstrip() + '\n'
    for topic, _ in TOPICS:
        names = sorted(name for name in headers_of if topic_of(name, headers_of[name]) == topic)
        if names:
            head += f'\n## {topic}\n\n| name | header | meaning |\n| --- | --- | --- |\n'
        for name in names:
            first = re.split(r'(?<!et al)\.(?= +[A-Z0-9`]| +\w+(?:,? (?:and )?\w+)*: |\s*$)', comments.get(name, ''))[0].strip().replace('|', '\\|')
            meaning = rows[name][1] if name in rows else first
            head += f'| `{name}` | {", ".join(f"`{h}`" for h in headers_of[name])} | {meaning} |\n'
    with open(PAGE, 'w', encoding='utf-8') as stream:
        stream.write(head)


def main():
    found = tags()
    found += others(sorted({tag.file for tag in found}))
    found.sort(key=lambda tag: (tag.file, tag.line))
    classes = set()
    for _ in range(3):  # classes within classes
        classes |= {tag.scope + '::' + tag.name for tag in found if tag.kind in CLASSES and is_public(tag, classes)}
    public = [tag for tag in found if is_public(tag, classes)]

    order = ('error', 'number', 'policy', 'tensor', 'memory', 'exec', 'kernel')
    headers_of = collections.defaultdict(list)
    comments = {}
    for tag in sorted((tag for tag in public if tag.scope_kind == 'namespace'),
                      key=lambda tag: [not tag.file.startswith('include/halftone/' + floor) for floor in order]):
        header = tag.file[len('include/'):]
        if tag.name != 'operator ()' and header not in headers_of[spelled(tag)]:
            headers_of[spelled(tag)].append(header)
        comments.setdefault(spelled(tag), comment(tag))
    if sys.argv[1:] == ['update']:
        return update(headers_of, comments)

    wrong = 0
    rows, twice = listed()
    for name in twice:
        print(f'{PAGE}: {name} stands there twice')
    for name in sorted(headers_of.keys() - rows.keys()):
        print(f'{PAGE} lacks {name} of {headers_of[name][0]}: add a row, or move the name to `detail`')
    for name in sorted(rows.keys() - headers_of.keys()):
        print(f'{PAGE} has {name}, which no header does')
    for name in sorted(rows.keys() & headers_of.keys()):
        if sorted(rows[name][0]) != sorted(headers_of[name]):
            print(f'{PAGE}: {name} is in {", ".join(headers_of[name])}; the row says {", ".join(rows[name][0])}')
            wrong += 1
        if not rows[name][1].strip():
            print(f'{PAGE}: {name} has no meaning')
            wrong += 1
    for tag in undocumented(found, public):
        print(f'{tag.file}:{tag.line}: {tag.scope}::{tag.name} ({tag.kind}) has no comment right above it')
        wrong += 1
    wrong += len(twice) + len(headers_of.keys() ^ rows.keys())
    print(f'{len(headers_of)} public names, each in {PAGE}; {len(public)} declarations, each with a comment'
          if wrong == 0 else f'{wrong} faults; "tests/headers/api.py update" puts right what the headers tell')
    return wrong != 0


os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
if __name__ == '__main__':
    sys.exit(main())
