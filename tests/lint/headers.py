"""Every header compiles alone; the installed ones also as strict C11 and as C++17."""
import os
import shutil
import subprocess
import sys
import tempfile

from common import c_files, main
from includes import public_headers

WARN = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
AS_OURS = ["-x", "c", "-std=gnu17", "-D_GNU_SOURCE"]
AS_C = ["-x", "c", "-std=c11", "-pedantic"]
AS_CXX = ["-x", "c++", "-std=c++17", "-pedantic"]


def compile_alone(root, header, language, compiler):
    source = f'#include "{header}"\n' + ("typedef int nothing_else;\n" if "c" in language else "")
    done = subprocess.run([compiler, *language, *WARN, "-I", root, "-"], input=source,
                          text=True, capture_output=True, cwd=root)
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines() or ["failed without a word"]
    return next((line for line in lines if "error" in line), lines[0])


def lint_tree(root, files):
    out = []
    public = public_headers(files)
    jobs = [(h, AS_OURS, ("gcc",)) for h in c_files(files) if h.endswith(".h") and h.split("/")[0] != "gpu"]
    jobs += [(h, AS_C, ("gcc", "clang")) for h in public] + [(h, AS_CXX, ("g++", "clang++")) for h in public]
    for header, language, compilers in jobs:
        there = [c for c in compilers if shutil.which(c)]
        if not there:
            out.append((header, 1, f"none of these compilers is there: {', '.join(compilers)}"))
        for compiler in there:
            error = compile_alone(root, header, language, compiler)
            if error:
                out.append((header, 1, f"{compiler} {' '.join(language)}: {error}"))
    return out


def lint(files):
    if len(sys.argv) == 2 and os.path.isdir(sys.argv[1]):
        return lint_tree(sys.argv[1], files)
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
        return lint_tree(root, files)


if __name__ == "__main__":
    main(lint,
         bad=[("needs another header", {"shm/a.h": "uint32_t f(void);\n"}),
              ("no C++", {"sched/spillway.h": "#include <stdint.h>\nuint32_t f(int class);\n"}),
              ("no C11", {"sched/spillway.h": "#include <stdint.h>\nint f(__typeof__(1) x, typeof(2) y);\n"})],
         good=[("plain", {"shm/a.h": "#include <stdint.h>\nuint32_t f(void);\n",
                          "sched/spillway.h": "#include <stdint.h>\nuint32_t f(void);\n"})])
