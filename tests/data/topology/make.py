"""Writes the topologies beside it, which hwloc reads as files of lstopo; run it in this folder.

hwloc's synthetic strings name no PCI devices, so hosts with GPUs are made here. A GPU is at bus
0x10 + 0x10 * its number, and stands below its package, or below the machine where its node is unknown."""
MIB = 1 << 20


def bits(numbers):
    mask = sum(1 << n for n in set(numbers))
    words = []
    while True:
        words.append("0x%08x" % (mask & 0xffffffff))
        mask >>= 32
        if not mask:
            return ",".join(reversed(words))


class Host:
    def __init__(self):
        self.lines, self.index = [], 0

    def open(self, kind, cpus, nodes, more="", close=False):
        self.index += 1
        c, n = bits(cpus), bits(nodes)
        self.lines.append(f'<object type="{kind}" gp_index="{self.index}" cpuset="{c}" complete_cpuset="{c}" '
                          f'nodeset="{n}" complete_nodeset="{n}" {more}{"/" if close else ""}>')

    def node(self, number, cpus, mib=65536):
        self.open("NUMANode", cpus, [number], f'os_index="{number}" local_memory="{mib * MIB}"', True)

    def cores(self, cpus, nodes):
        for cpu in cpus:
            self.open("Core", [cpu], nodes, f'os_index="{cpu}"')
            self.open("PU", [cpu], nodes, f'os_index="{cpu}"', True)
            self.lines.append("</object>")

    def gpu(self, number):
        self.index += 2
        bus = 0x10 + 0x10 * number
        self.lines.append(f'<object type="Bridge" gp_index="{self.index - 1}" bridge_type="0-1" depth="0" '
                          f'bridge_pci="0000:[{bus:02x}-{bus:02x}]"><object type="PCIDev" gp_index="{self.index}" '
                          f'pci_busid="0000:{bus:02x}:00.0" pci_type="0302 [10de:2335] [10de:0000] a1" '
                          f'pci_link_speed="63.0"/></object>')

    def close(self):
        self.lines.append("</object>")

    def write(self, name):
        with open(name + ".xml", "w") as out:
            out.write('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
                      '<topology version="2.0">\n' + "\n".join(self.lines) + "\n</topology>\n")


def machine(gpus, cpus_each, below=True, allowed=None, memory_only=(), allowed_nodes=None):
    """Packages with a node and so many @gpus each; @memory_only: nodes without CPUs, near to package 0."""
    host = Host()
    packages, made = len(gpus), 0
    cpus, nodes = range(packages * cpus_each), [*range(packages), *memory_only]
    host.open("Machine", cpus, nodes, 'os_index="0" '
              f'allowed_cpuset="{bits(allowed or cpus)}" allowed_nodeset="{bits(allowed_nodes or nodes)}"')
    for p in range(packages):
        own = range(p * cpus_each, (p + 1) * cpus_each)
        near = [p, *(memory_only if p == 0 else ())]
        host.open("Package", own, near, f'os_index="{p}"')
        for number in near:
            host.node(number, own)
        host.cores(own, near)
        for _ in range(gpus[p] if below else 0):
            host.gpu(made)
            made += 1
        host.close()
    for g in range(0 if below else sum(gpus)):
        host.gpu(g)
    host.close()
    return host


if __name__ == "__main__":
    machine([4, 4], 8).write("two_packages")
    machine([4, 4], 8, below=False).write("node_unknown")
    machine([1, 1, 1, 1], 4).write("four_nodes")
    machine([2, 0, 2, 0], 4).write("gpus_of_nodes_0_and_2")
    machine([0, 2], 8).write("gpus_of_node_1")
    machine([4, 4], 8, allowed=range(8)).write("cpus_of_node_0")
    machine([4, 4], 8, allowed=[4, 5, 6, 7, 12]).write("some_cpus")
    machine([4, 4], 8, allowed=range(8), allowed_nodes=[0]).write("node_0_alone")
    machine([1, 1], 8, memory_only=(2, 3)).write("memory_nodes")
    machine([0, 0], 8).write("no_devices")
