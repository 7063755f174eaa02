"""What the lint scripts share: which files are looked at, C without its comments, and the runner.

A lint is a function that takes {path: text} and returns complaints as (path, line, words). It is
run over the tree (argument: its root) or, with --self-test, over samples: each bad sample must be
complained about and each good one must not, so a lint that sees nothing fails.
"""
import os
import re
import subprocess
import sys

LAYERS = ("shm", "tier", "gpu", "sched")
TOPS = ("tools", "bench", "tests")


def tree_paths(root):
    """Tracked and new files of the tree, without what git ignores."""
    try:
        out = subprocess.run(
            ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True, capture_output=True).stdout
        paths = [p for p in out.decode().split("\0") if p]
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive, or git refuses
        paths = []
        for folder, folders, names in os.walk(root):
            folders[:] = [f for f in folders if f not in (".git", "__pycache__", ".cache")
                          and not (folder == root and f.startswith("build"))]
            paths += [os.path.relpath(os.path.join(folder, n), root) for n in names]
    return sorted(set(p for p in paths if os.path.isfile(os.path.join(root, p))))


def read_tree(root):
    files = {}
    for path in tree_paths(root):
        with open(os.path.join(root, path), "rb") as f:
            data = f.read()
        if b"\0" not in data:
            files[path] = data.decode("utf-8", "replace")
    return files


def c_files(files, folders=LAYERS + TOPS):
    """Sources in C; what the Promela models include only looks like it."""
    return {p: t for p, t in files.items()
            if p.endswith((".c", ".h", ".cu")) and p.split("/")[0] in folders
            and not p.startswith("tests/model/")}


C_TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def blank(text, comments=True, strings=True):
    """The text with comments and string contents as spaces; lines and columns stay."""
    def one(m):
        s = m.group(0)
        if s[0] == "/":
            return re.sub(r"[^\n]", " ", s) if comments else s
        return s[0] + " " * (len(s) - 2) + s[-1] if strings else s
    return C_TOKEN.sub(one, text)


def comments_of(text):
    """(offset, comment) of each C comment; // comments of adjoining lines come one by one."""
    return [(m.start(), m.group(0)) for m in C_TOKEN.finditer(text) if m.group(0)[0] == "/"]


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def main(lint, bad, good):
    """bad, good: lists of (name, {path: text})."""
    if sys.argv[1:] == ["--self-test"]:
        wrong = [f"bad sample not reported: {name}" for name, files in bad if not lint(files)]
        for name, files in good:
            wrong += [f"good sample reported: {name}: {c}" for c in lint(files)]
        if not bad:
            wrong.append("no bad sample")
        print("\n".join(wrong) or f"{len(bad)} bad and {len(good)} good samples told apart")
        sys.exit(1 if wrong else 0)
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} SOURCE_ROOT | --self-test")
    files = read_tree(sys.argv[1])
    if not files:
        sys.exit(f"{sys.argv[1]}: no files found")
    complaints = sorted(set(lint(files)))
    for path, line, words in complaints:
        print(f"{path}:{line}: {words}")
    sys.exit(1 if complaints else 0)
