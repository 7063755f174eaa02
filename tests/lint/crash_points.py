"""Crash points have names of one form, module.what_was_done, and each name stands at one place; each
has its line in tests/crash/points.txt, which says where somebody dies there."""
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


LIST = "tests/crash/points.txt"
ROLES = ("worker", "client", "daemon")


def listed(files):
    """(line, name, rest of the line) of each entry of the list."""
    for number, line in enumerate(files[LIST].splitlines(), 1):
        words = line.split()
        if words and not line.startswith("#"):
            yield number, words[0], words[1:]


def uncovered(files, points_there):
    """Points that no test dies at, and lines that stand for none."""
    out, there = [], set()
    for number, name, how in listed(files):
        if name in there:
            out.append((LIST, number, f"{name} is listed twice"))
        there.add(name)
        if name not in points_there:
            out.append((LIST, number, f"there is no crash point {name}"))
        test = f"tests/{how[1]}.c" if how[:1] == ["elsewhere"] and len(how) > 2 else None
        if test and f'"{name}' not in files.get(test, ""):
            out.append((LIST, number, f"{test} does not name {name}"))
        elif not test and not (len(how) == 2 and how[0] in ROLES and how[1].isdigit()):
            out.append((LIST, number, f"{name}: say \"worker|client|daemon PASS\" or \"elsewhere TEST WHY\""))
    for name, at in points_there.items():
        if name not in there:
            out.append((*at, f"crash point {name} has no line in {LIST}: name who dies there in "
                             "tests/crash/test_everywhere, or the test elsewhere"))
    return out


def lint(files):
    out, seen = [], {}
    for path, line, name in points(files):
        if not NAME.fullmatch(name):
            out.append((path, line, f"{name}: a crash point is named \"module.what_was_done\""))
        elif name in seen:
            out.append((path, line, f"crash point {name} stands at {seen[name]} too"))
        seen.setdefault(name, f"{path}:{line}")
    if LIST in files:
        out += uncovered(files, {n.strip('"'): (p, l) for p, l, n in points(files)})
    return out


if __name__ == "__main__":
    macro = "#define SPW_CRASH_POINT(name) ((void)0)\n"
    main(lint,
         bad=[("twice", {"shm/a.c": 'SPW_CRASH_POINT("a.b");\n', "tier/b.c": 'SPW_CRASH_POINT("a.b");\n'}),
              ("forgotten", {"shm/a.c": 'SPW_CRASH_POINT("a.b");\n', LIST: "# none\n"}),
              ("gone", {"shm/a.c": "", LIST: "a.b worker 1\n"}),
              ("not named", {"shm/a.c": 'SPW_CRASH_POINT("a.b");\n', LIST: "a.b elsewhere crash/test_a why\n",
                             "tests/crash/test_a.c": ""}),
              ("nowhere", {"shm/a.c": 'SPW_CRASH_POINT("a.b");\n', LIST: "a.b nobody 1\n"}),
              ("form", {"shm/a.c": 'SPW_CRASH_POINT("Gate Stored");\n'}), ("no literal", {"shm/a.c": "SPW_CRASH_POINT(name);\n"})],
         good=[("listed", {"shm/a.c": 'SPW_CRASH_POINT("a.b");\nSPW_CRASH_POINT("a.c");\n',
                           LIST: "a.b worker 2\na.c elsewhere crash/test_a why\n",
                           "tests/crash/test_a.c": '"a.c"'}), ("different", {"shm/a.h": macro, "shm/a.c": 'SPW_CRASH_POINT("a.b");\nSPW_CRASH_POINT("a.c_d");\n'})])
