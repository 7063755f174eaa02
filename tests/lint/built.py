"""What is built holds the names of its crash points exactly if they were asked for.

usage: built.py SOURCE_ROOT BUILD_ROOT present|absent

Looks into every ELF file of the build but those of tests/ (a crash test names its points).
"""
import os
import sys

from common import read_tree
from crash_points import points


def elf_files(build):
    for folder, folders, names in os.walk(build):
        if folder == build:
            folders[:] = [f for f in folders if f not in ("tests", "meson-private", "meson-logs")]
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                with open(path, "rb") as f:
                    data = f.read()
                if data[:4] == b"\x7fELF":
                    yield os.path.relpath(path, build), data


def main():
    source, build, wanted = sys.argv[1:]
    names = sorted({name.strip('"') for _, _, name in points(read_tree(source))})
    looked, found = 0, []
    for path, data in elf_files(build):
        looked += 1
        found += [(name, path) for name in names if name.encode() in data]
    missing = sorted(set(names) - {name for name, _ in found})
    print(f"{len(names)} crash points, {looked} files")
    if looked == 0 or not names:
        print("nothing to look at")
        sys.exit(77)
    if wanted == "present":
        print(*(f"in no file: {name}" for name in missing), sep="\n")
        sys.exit(1 if missing else 0)
    print(*(f"{name} is in {path}" for name, path in found), sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
