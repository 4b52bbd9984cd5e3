"""The numbers in the rules are those of the kernel's own headers, as far as the installed ones know them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from callgate.kernel.confinement import bpf
from callgate.kernel.confinement import filter as seccomp_filter
from callgate.kernel.syscalls.arguments import devices, files, network, processes

INCLUDES = """
#define _GNU_SOURCE
#include <stdio.h>
#include <fcntl.h>
#include <sched.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <asm/termbits.h>
#include <asm/termios.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/fscrypt.h>
#include <linux/fsverity.h>
#include <linux/fiemap.h>
#include <linux/netlink.h>
#include <linux/netfilter_arp/arp_tables.h>
#include <linux/netfilter_bridge/ebtables.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
#include <linux/personality.h>
#include <linux/prctl.h>
#include <linux/random.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <linux/udp.h>
"""

# Newer than the headers a supported system may have; the number is then only stated once, in the rule.
MAY_BE_MISSING = {"TCP_AO_REPAIR", "F_SETDELEG", "PR_GET_AUXV", "PR_SET_MDWE", "PR_GET_MDWE", "PR_SET_VMA"}
NOT_A_NAME = {"IPV6_IPSEC_POLICY", "IP_IPSEC_POLICY"}  # in headers that cannot be included beside those above


def values_of(names: Iterable[str], compile_c: Callable[..., Path]) -> dict[str, int]:
    """What the headers say, for those names that they know."""
    lines = [f'#ifdef {name}\n    printf("{name} %llu\\n", (unsigned long long)({name}));\n#endif' for name in names]
    program = compile_c(INCLUDES + "int main(void) {\n" + "\n".join(lines) + "\n}\n")
    output = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    return {name: int(value) & 0xFFFF_FFFF for name, value in (line.split() for line in output.splitlines())}


def assert_as_in_headers(stated: dict[str, int], compile_c: Callable[..., Path]) -> None:
    found = values_of(stated, compile_c)
    assert found == {name: value for name, value in stated.items() if name in found}
    assert set(stated) - set(found) <= MAY_BE_MISSING | NOT_A_NAME


def test_ioctl_commands(compile_c: Callable[..., Path]) -> None:
    stated = (
        devices.TERMINAL | devices.FILE | devices.SOCKET | devices.SIGNALLING | devices.TERMINAL_ATTACKS | devices.FILE_ATTRIBUTES
    )
    # Only a kernel with both word sizes has the *32 commands, and these two have no name of their own in every header.
    unnamed = {"FS_IOC_SETVERSION", "FS_IOC_GETVERSION", "SIOCGSTAMP_OLD"}
    assert_as_in_headers({name: value for name, value in stated.items() if name not in unnamed}, compile_c)


def test_prctl_options(compile_c: Callable[..., Path]) -> None:
    others = ("PR_SET_DUMPABLE", "PR_SET_MM", "PR_CAP_AMBIENT", "PR_SET_PTRACER", "PR_CAP_AMBIENT_RAISE")
    assert_as_in_headers(processes.PRCTL_ALLOWED | {name: getattr(processes, name) for name in others}, compile_c)


def test_clone_flags(compile_c: Callable[..., Path]) -> None:
    assert_as_in_headers(processes.NAMESPACE_FLAGS, compile_c)


def test_socket_options(compile_c: Callable[..., Path]) -> None:
    stated = {reason.split()[0]: option for options in network.DANGEROUS_OPTIONS.values() for option, reason in options.items()}
    shared = {"MCAST_JOIN_GROUP", "MCAST_JOIN_SOURCE_GROUP"}  # of IP and IPv6, under the same number
    assert len(stated) + len(shared) == sum(len(options) for options in network.DANGEROUS_OPTIONS.values())
    assert_as_in_headers(stated, compile_c)


def test_open_and_fcntl_constants(compile_c: Callable[..., Path]) -> None:
    names = (
        "O_WRONLY",
        "O_RDWR",
        "O_ACCMODE",
        "O_CREAT",
        "O_TRUNC",
        "O_DIRECTORY",
        "O_PATH",
        "O_ASYNC",
        "F_OFD_SETLK",
        "F_OFD_SETLKW",
    )
    stated = {
        name: getattr(files, name)
        for name in (*names, "F_SETFL", "F_SETOWN", "F_SETOWN_EX", "F_SETLEASE", "F_SETDELEG", "S_ISUID", "S_ISGID")
    }
    assert_as_in_headers(stated | {"O_TMPFILE": files.O_TMPFILE_BIT | files.O_DIRECTORY}, compile_c)


def test_socket_constants(compile_c: Callable[..., Path]) -> None:
    names = ("AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK", "SOL_SOCKET", "SOL_NETLINK", "NETLINK_ROUTE")
    assert_as_in_headers({name: getattr(network, name) for name in names}, compile_c)
    enumerated = ("IPPROTO_IP", "IPPROTO_TCP", "IPPROTO_UDP", "IPPROTO_IPV6", "MSG_FASTOPEN", "SOCK_STREAM", "SOCK_DGRAM")
    assert {name: getattr(network, name) for name in enumerated} == {
        "IPPROTO_IP": 0, "IPPROTO_TCP": 6, "IPPROTO_UDP": 17, "IPPROTO_IPV6": 41, "MSG_FASTOPEN": 1 << 29, "SOCK_STREAM": 1,
        "SOCK_DGRAM": 2,
    }  # fmt: skip


def test_seccomp_and_personality_constants(compile_c: Callable[..., Path]) -> None:
    names = ("SECCOMP_SET_MODE_STRICT", "SECCOMP_SET_MODE_FILTER", "SECCOMP_GET_ACTION_AVAIL", "SECCOMP_GET_NOTIF_SIZES")
    stated = {name: getattr(processes, name) for name in (*names, "SECCOMP_FILTER_FLAG_NEW_LISTENER")}
    assert_as_in_headers(stated, compile_c)
    answers = ("RET_KILL_PROCESS", "RET_USER_NOTIF", "RET_ALLOW", "RET_ERRNO")
    assert_as_in_headers({f"SECCOMP_{name}": getattr(seccomp_filter, name) for name in answers}, compile_c)
    assert_as_in_headers({"AUDIT_ARCH_X86_64": bpf.ARCH_X86_64, "AUDIT_ARCH_I386": bpf.ARCH_I386}, compile_c)


def test_bpf_codes(compile_c: Callable[..., Path]) -> None:
    stated = {
        "BPF_LD | BPF_W | BPF_ABS": bpf.LOAD,
        "BPF_ALU | BPF_AND | BPF_K": bpf.AND,
        "BPF_JMP | BPF_JA": bpf.JUMP,
        "BPF_JMP | BPF_JEQ | BPF_K": bpf.EQUAL,
        "BPF_JMP | BPF_JGT | BPF_K": bpf.GREATER,
        "BPF_JMP | BPF_JGE | BPF_K": bpf.AT_LEAST,
        "BPF_JMP | BPF_JSET | BPF_K": bpf.ANY_BIT,
        "BPF_RET | BPF_K": bpf.RETURN,
    }
    lines = "".join(f'    printf("%d\\n", {code});\n' for code in stated)
    program = compile_c(INCLUDES + "int main(void) {\n" + lines + "}\n")
    output = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    assert list(map(int, output.split())) == list(stated.values())
