"""spw-gpu-check on the stand-in driver: all is found right, and every kind of fault is found in the
section that is there for it, so that it can't say "fine" of a GPU that isn't.

usage: check_gpu_check.py SPW_GPU_CHECK FAKE_CUDA
"""
import json
import os
import subprocess
import sys
import tempfile
import time

PROGRAM, DRIVER = sys.argv[1:3]
SECTIONS = ["layouts", "ipc", "fences", "pinning", "bandwidth", "kernel", "beside"]
HELD, WRONG, USAGE, MISSED, NO_GPU, INCOMPLETE = range(6)
wrong = []


def run(*options, driver=DRIVER, **env):
    """Exit status, what the JSON says, all output."""
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/found.json"
        done = subprocess.run([PROGRAM, "--short", "--driver", driver, "--json", path, *options],
                              env={**os.environ, **env}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False, timeout=100)
        found = None
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
    return done.returncode, found, done.stdout.decode()


def expect(what, status, want, output):
    if status != want:
        wrong.append(f"{what}: exit status {status} instead of {want}\n{output}")


def section(found, name):
    return next(s for s in found["sections"] if s["name"] == name)


def all_right():
    """Nothing wrong, every section there, every way to copy tried."""
    status, found, output = run()
    kernel = not [line for line in section(found, "kernel")["lines"] if line["verdict"] == "not run"]
    expect("a sound driver", status, HELD if kernel else INCOMPLETE, output)
    if [s["name"] for s in found["sections"]] != SECTIONS or found["schema"] != 1:
        wrong.append(f"sections are {[s['name'] for s in found['sections']]}")
    for s in found["sections"]:
        bad = [line for line in s["lines"] if line["verdict"] not in ("held", "measured", "skipped")
               and (kernel or "kernel" not in line["case"])]
        if bad or not s["lines"] or s["ns"] == 0:
            wrong.append(f"{s['name']}: {bad or 'no lines'}")
    if kernel and not isinstance(found.get("kernel_below_bytes"), int):
        wrong.append("no --gpu-kernel-below")
    if kernel and "--gpu-kernel-below" not in output:
        wrong.append("the table doesn't name --gpu-kernel-below")
    for line in section(found, "bandwidth")["lines"]:
        if not (line["value"] > 0 and line["ratio"] > 0 and line["beside_value"] > 0):
            wrong.append(f"no figures in {line}")
    return kernel


def finds(what, name, faults, words, **env):
    """With these faults the section is wrong and says so in these words."""
    status, found, output = run("--only", name, FAKE_CUDA_FAULTS=faults, **env)
    expect(what, status, WRONG, output)
    said = [line.get("words", "") for line in section(found, name)["lines"]
            if line["verdict"] == "wrong"]
    if found["verdict"] != "wrong" or section(found, name)["verdict"] != "wrong":
        wrong.append(f"{what}: not told as wrong\n{output}")
    if not [text for text in said if words in text]:
        wrong.append(f"{what}: said {said}, not {words}")
    if [s["name"] for s in found["sections"] if s["asked"]] != [name]:
        wrong.append(f"{what}: other sections ran")


def faults(kernel):
    finds("a wrong byte", "layouts", "byte:300:1", "wrong")
    finds("a byte behind a piece", "layouts", "behind:300-:1", "bytes are wrong")
    finds("wrong bytes at the trial", "layouts", "byte:1-:1", "other bytes")
    finds("ends that come too early", "layouts", "early:1-:1", "bytes are wrong",
          FAKE_CUDA_RATE="200000000")
    finds("a batch call that is refused", "layouts", "MemcpyBatchAsync:1-:1",
          "copies went another way")
    if kernel:
        finds("a kernel that can't be launched", "layouts", "LaunchKernel:1-:1",
              "copies went another way")
    finds("a GPU that is lost", "layouts", "copy:100:700", "CUDA_ERROR_ILLEGAL_ADDRESS")
    finds("a wrong byte of another process", "ipc", "byte:150:1", "wrong")
    finds("a wrong byte beside a seam", "pinning", "byte:300:1", "bytes are wrong")
    finds("a handle that can't be opened", "ipc", "IpcOpenMemHandle:1-:1",
          "CUDA_ERROR_INVALID_VALUE")
    finds("memory that can't be exported", "ipc", "IpcGetMemHandle:1-:801", "the second process")
    finds("fences that fire too early", "fences", "early:1-:1", "read too early")
    finds("an event that can't be opened", "fences", "IpcOpenEventHandle:1-:1",
          "CUDA_ERROR_INVALID_VALUE")
    finds("host memory that can't be registered", "pinning", "MemHostRegister:1-:2",
          "CUDA_ERROR_OUT_OF_MEMORY")
    finds("slots that can't be registered", "bandwidth", "MemHostRegister:1-:2",
          "can't be pinned")
    finds("a wrong byte in a sample", "bandwidth", "byte:400-:1", "wrong bytes")
    finds("loads that spoil", "beside", "byte:500-:1", "wrong bytes")
    if kernel:
        finds("a wrong byte of a sample by kernel", "kernel", "byte:300-:1", "bytes")


def time_is_up():
    """A GPU that is nearly stuck: it ends all the same, and nothing is told as fine."""
    begin = time.monotonic()
    status, found, output = run("--limit", "3", FAKE_CUDA_RATE="20000")
    expect("a GPU that is too slow", status, INCOMPLETE, output)
    if time.monotonic() - begin > 10:
        wrong.append(f"--limit 3 took {time.monotonic() - begin:.1f} s")
    if {s["verdict"] for s in found["sections"]} != {"not run"}:
        wrong.append(f"a GPU that is too slow: {output}")


def ends():
    status, _, output = run(driver="/nonexistent/libcuda.so.1")
    expect("no driver", status, NO_GPU, output)
    if output.count("\n") != 1 or "no GPU to check" not in output:
        wrong.append(f"no driver: {output}")
    expect("no GPU", run(CUDA_VISIBLE_DEVICES="")[0], NO_GPU, "")
    expect("another GPU", run("--gpu", "7")[0], NO_GPU, "")
    expect("an unknown section", run("--only", "layouts,speed")[0], USAGE, "")
    status, found, output = run("--only", "layouts", FAKE_CUDA_HIDE="cuMemcpyBatchAsync")
    expect("a driver without the batch call", status, INCOMPLETE, output)
    if not [line for line in section(found, "layouts")["lines"] if line["verdict"] == "not run"]:
        wrong.append(f"no batch call, and nothing is told as not run: {output}")


faults(all_right())
time_is_up()
ends()
print("\n".join(wrong) or "all found")
sys.exit(1 if wrong else 0)
