"""Folders are layers: includes point down only, are written from the root, and name real files."""
import re

from common import c_files, line_of, blank, main

BELOW = {
    "shm": {"shm"},
    "tier": {"shm", "tier"},
    "gpu": {"shm", "tier", "gpu"},
    "sched": {"shm", "tier", "sched"},
    "tools": {"shm", "tier", "gpu", "sched", "tools"},
    "bench": {"shm", "tier", "gpu", "sched", "bench"},
    "tests": {"shm", "tier", "gpu", "sched", "tools", "bench", "tests"},
}
PUBLIC = "sched/spillway.h"
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+(?:"([^"]+)"|<([^>]+)>)', re.M)
LAYOUT = re.compile(r"\b(_Atomic|alignas|_Alignas|SPW_LAYOUT_\w+)\b")


def public_headers(files):
    """The installed header and all that it includes from this tree."""
    found, todo = [], [PUBLIC]
    while todo:
        path = todo.pop()
        if path in files and path not in found:
            found.append(path)
            todo += [m.group(1) for m in INCLUDE.finditer(files[path]) if m.group(1)]
    return found


def lint(files):
    out = []
    sources = c_files(files)
    for path, text in sources.items():
        top = path.split("/")[0]
        for m in INCLUDE.finditer(blank(text, strings=False)):
            line, quoted, angled = line_of(text, m.start()), m.group(1), m.group(2)
            if quoted and quoted not in files:
                out.append((path, line, f'"{quoted}" is no file from the root of the tree'))
            elif quoted and quoted.split("/")[0] not in BELOW[top]:
                out.append((path, line, f"{top} must not include {quoted}"))
            if angled in ("cuda.h", "cudaTypedefs.h") and top not in ("gpu", "tests"):
                out.append((path, line, f"only gpu names CUDA types, not {top}"))
    for path in public_headers(files):
        text = blank(files[path])
        for m in LAYOUT.finditer(text):
            out.append((path, line_of(text, m.start()), f"an installed header shows layout: {m.group(1)}"))
        for m in INCLUDE.finditer(files[path]):
            if m.group(1) and m.group(1).endswith("layout.h"):
                out.append((path, line_of(text, m.start()), "an installed header includes a layout"))
    return out


if __name__ == "__main__":
    empty = {"shm/a.h": "", "tier/a.h": "", "gpu/a.h": "", "sched/a.h": "", "tools/a.h": "", "tests/a.h": "",
             "shm/layout.h": ""}

    def with_file(path, text):
        return {**empty, path: text}
    main(lint,
         bad=[(f"{path} {text}", with_file(path, text)) for path, text in (
             ("shm/b.c", '#include "tier/a.h"\n'), ("tier/b.c", '#include "sched/a.h"\n'),
             ("gpu/b.c", '#include "sched/a.h"\n'), ("sched/b.c", '#include "gpu/a.h"\n'),
             ("sched/b.c", '#  include "tools/a.h"\n'), ("tools/b.c", '#include "tests/a.h"\n'),
             ("shm/b.c", '#include "a.h"\n'), ("tier/b.c", '#include "../shm/a.h"\n'),
             ("tier/b.c", '#include <cuda.h>\n'),
             ("sched/spillway.h", '#include "shm/layout.h"\n'),
             ("sched/spillway.h", 'struct s { _Atomic(int) x; };\n'))],
         good=[(f"{path} {text}", with_file(path, text)) for path, text in (
             ("tier/b.c", '#include "shm/a.h"\n#include <stdio.h>\n'), ("sched/b.c", '#include "tier/a.h"\n'),
             ("tests/unit/b.c", '#include "tools/a.h"\n'), ("shm/b.c", '/* #include "tier/a.h" */\n'),
             ("sched/spillway.h", '/* alignas */\n#include <stdint.h>\n'))])
