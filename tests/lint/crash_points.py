"""Crash points have names of one form, module.what_was_done, and each name stands at one place."""
import re

from common import c_files, line_of, blank, main

POINT = re.compile(r"\bSPW_CRASH_POINT\s*\(\s*([^)]*?)\s*\)")
NAME = re.compile(r'"[a-z][a-z0-9_]*\.[a-z0-9_.]+"')


def points(files):
    """(path, line, argument) of each use; the definition of the macro is none."""
    for path, text in c_files(files, ("shm", "tier", "gpu", "sched", "tools")).items():
        code = blank(text, strings=False)
        for m in POINT.finditer(code):
            if not re.search(r"#\s*define\s*$", code[:m.start()]):
                yield path, line_of(text, m.start()), m.group(1)


def lint(files):
    out, seen = [], {}
    for path, line, name in points(files):
        if not NAME.fullmatch(name):
            out.append((path, line, f"{name}: a crash point is named \"module.what_was_done\""))
        elif name in seen:
            out.append((path, line, f"crash point {name} stands at {seen[name]} too"))
        seen.setdefault(name, f"{path}:{line}")
    return out


if __name__ == "__main__":
    macro = "#define SPW_CRASH_POINT(name) ((void)0)\n"
    main(lint,
         bad=[("twice", {"shm/a.c": 'SPW_CRASH_POINT("a.b");\n', "tier/b.c": 'SPW_CRASH_POINT("a.b");\n'}),
              ("form", {"shm/a.c": 'SPW_CRASH_POINT("Gate Stored");\n'}), ("no literal", {"shm/a.c": "SPW_CRASH_POINT(name);\n"})],
         good=[("different", {"shm/a.h": macro, "shm/a.c": 'SPW_CRASH_POINT("a.b");\nSPW_CRASH_POINT("a.c_d");\n'})])
