"""Every C file is named by the meson.build of its folder or of one above: none lies there unbuilt."""
import os
import re

from common import c_files, main


def names_in(build_file):
    """What a meson.build quotes; a table of tests may leave out `test_` and the ending."""
    return set(re.findall(r"'([^'\n]+)'", re.sub(r"#[^\n]*", "", build_file)))


def lint(files):
    out = []
    for path in c_files(files):
        folder, name = os.path.split(path)
        stem = os.path.splitext(name)[0]
        quoted, inner = set(), []
        while folder:
            quoted |= {n if not inner else n.removeprefix("/".join(inner) + "/")
                       for n in names_in(files.get(folder + "/meson.build", ""))}
            folder, last = os.path.split(folder)
            inner.insert(0, last)
        prefixes = ("test_", "bench_", "stress_", "fuzz_", "crash_", "model_", "process_", "spw_")
        short = {stem} | {stem.removeprefix(p) for p in prefixes}
        if path.endswith(".c") and not quoted & ({name} | short):
            out.append((path, 1, "no meson.build names this file"))
    return out


if __name__ == "__main__":
    main(lint,
         bad=[("no meson.build", {"shm/a.c": ""}), ("only in a comment", {"shm/a.c": "", "shm/meson.build": "# 'a.c'\n"}),
              ("another one", {"shm/a.c": "", "shm/meson.build": "x = files('b.c')\n"})],
         good=[("named", {"shm/a.c": "", "shm/meson.build": "x = files('a.c')\n"}),
               ("in a table", {"tests/unit/test_a.c": "", "tests/unit/meson.build": "t = {'a': [dep]}\n"}),
               ("from above", {"tests/unit/x/a.c": "", "tests/unit/meson.build": "files('x/a.c')\n"})])
