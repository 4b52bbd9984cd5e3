"""The rule on the command of ioctl: a list of what passes, because nobody can list what a driver accepts."""

from __future__ import annotations

from errno import EACCES, ENOTTY, EPERM

from ..decision import ALLOW, NOTIFY, Decision, Errno, Word, switch

TERMINAL = {
    "TCGETS": 0x5401, "TCSETS": 0x5402, "TCSETSW": 0x5403, "TCSETSF": 0x5404, "TCGETA": 0x5405, "TCSETA": 0x5406,
    "TCSETAW": 0x5407, "TCSETAF": 0x5408, "TCSBRK": 0x5409, "TCXONC": 0x540A, "TCFLSH": 0x540B, "TIOCEXCL": 0x540C,
    "TIOCNXCL": 0x540D, "TIOCSCTTY": 0x540E, "TIOCGPGRP": 0x540F, "TIOCSPGRP": 0x5410, "TIOCOUTQ": 0x5411,
    "TIOCGWINSZ": 0x5413, "TIOCSWINSZ": 0x5414, "TIOCPKT": 0x5420, "TIOCNOTTY": 0x5422, "TIOCGETD": 0x5424,
    "TCSBRKP": 0x5425, "TIOCSBRK": 0x5427, "TIOCCBRK": 0x5428, "TIOCGSID": 0x5429, "TCGETS2": 0x802C_542A,
    "TCSETS2": 0x402C_542B, "TCSETSW2": 0x402C_542C, "TCSETSF2": 0x402C_542D, "TIOCGPTN": 0x8004_5430,
    "TIOCSPTLCK": 0x4004_5431, "TIOCGDEV": 0x8004_5432, "TIOCGPKT": 0x8004_5438, "TIOCGPTLCK": 0x8004_5439,
    "TIOCGEXCL": 0x8004_5440, "TIOCGPTPEER": 0x5441,
}  # fmt: skip

FILE = {
    "FIGETBSZ": 2, "FIONREAD": 0x541B, "FIONBIO": 0x5421, "FIONCLEX": 0x5450, "FIOCLEX": 0x5451,
    "FIOQSIZE": 0x5460, "FICLONE": 0x4004_9409, "FICLONERANGE": 0x4020_940D, "FIDEDUPERANGE": 0xC018_9436,
    "FS_IOC_GETFLAGS": 0x8008_6601, "FS_IOC32_GETFLAGS": 0x8004_6601, "FS_IOC_GETVERSION": 0x8008_7601,
    "FS_IOC_FSGETXATTR": 0x801C_581F, "FS_IOC_FIEMAP": 0xC020_660B, "RNDGETENTCNT": 0x8004_5200,
}  # fmt: skip

SOCKET = {
    "FIOGETOWN": 0x8903,
    "SIOCGPGRP": 0x8904,
    "SIOCATMARK": 0x8905,
    "SIOCGSTAMP_OLD": 0x8906,
}

# O_ASYNC, its value in memory: of a terminal it makes those in the foreground the receivers of a signal of one's choice.
SIGNALLING = {"FIOASYNC": 0x5452}

# They tell of the interfaces of the socket's namespace, which is the host's where a connection has gone outside.
INTERFACE = {
    "SIOCGIFNAME": 0x8910, "SIOCGIFCONF": 0x8912, "SIOCGIFFLAGS": 0x8913, "SIOCGIFADDR": 0x8915, "SIOCGIFDSTADDR": 0x8917,
    "SIOCGIFBRDADDR": 0x8919, "SIOCGIFNETMASK": 0x891B, "SIOCGIFMETRIC": 0x891D, "SIOCGIFMTU": 0x8921,
    "SIOCGIFHWADDR": 0x8927, "SIOCGIFINDEX": 0x8933, "SIOCGIFCOUNT": 0x8938, "SIOCGIFTXQLEN": 0x8942,
    "SIOCGIFMAP": 0x8970,
}  # fmt: skip

# Input put into a terminal's queue as if typed, a console taken over, another line discipline loaded.
TERMINAL_ATTACKS = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C, "TIOCCONS": 0x541D, "TIOCSETD": 0x5423}
CONSOLE_GROUPS = {"KD*": 0x4B00, "VT_*": 0x5600}  # the first three bytes of the command

# What chmod would be if it were an ioctl: they work on a descriptor that is only open for reading.
FILE_ATTRIBUTES = {
    "FS_IOC_SETFLAGS": 0x4008_6602, "FS_IOC32_SETFLAGS": 0x4004_6602, "FS_IOC_SETVERSION": 0x4008_7602,
    "FS_IOC_FSSETXATTR": 0x401C_5820, "FS_IOC_SET_ENCRYPTION_POLICY": 0x800C_6613,
    "FS_IOC_ADD_ENCRYPTION_KEY": 0xC050_6617, "FS_IOC_REMOVE_ENCRYPTION_KEY": 0xC040_6618,
    "FS_IOC_REMOVE_ENCRYPTION_KEY_ALL_USERS": 0xC040_6619, "FS_IOC_ENABLE_VERITY": 0x4080_6685,
}  # fmt: skip


class IoctlCommands:
    """The commands in TERMINAL, FILE and SOCKET pass, and those in INTERFACE are notified when network is judged and pass when it
    is not; those in SIGNALLING are EACCES when process is judged and pass when it is not; those that inject input into a
    terminal or drive a console are EPERM, those that change file attributes are EACCES, all others are ENOTTY.

    The kernel takes the command as an unsigned int, so garbage in the high half neither helps nor harms (ioctl(2)). Setting
    the owner of a socket (FIOSETOWN, SIOCSPGRP) is left out because it sends signals; TIOCSIG likewise. Commands that open
    something not judged (namespaces from a descriptor, the file of a unix socket) or drive a device are not in the lists.
    """

    def __init__(self, command: int) -> None:
        self.command = Word(command)

    def decide(self, notified: frozenset[str]) -> Decision:
        console = switch(self.command, dict.fromkeys(CONSOLE_GROUPS.values(), Errno(EPERM)), Errno(ENOTTY), 0xFFFF_FF00)
        cases: dict[int, Decision] = dict.fromkeys((*TERMINAL.values(), *FILE.values(), *SOCKET.values()), ALLOW)
        cases |= dict.fromkeys(INTERFACE.values(), NOTIFY if "network" in notified else ALLOW)
        cases |= dict.fromkeys(SIGNALLING.values(), Errno(EACCES) if "process" in notified else ALLOW)
        cases |= dict.fromkeys(TERMINAL_ATTACKS.values(), Errno(EPERM))
        cases |= dict.fromkeys(FILE_ATTRIBUTES.values(), Errno(EACCES))
        return switch(self.command, cases, console)
