"""Calls that wait, measure time and handle signals.

They concern the caller alone. Setting a clock is refused: clocks are the host's.
"""

from __future__ import annotations

from errno import ENOSYS, EPERM

from ..decision import Errno
from ..row import Syscall

ROWS = (
    Syscall(7, "poll"),
    Syscall(13, "rt_sigaction"),
    Syscall(14, "rt_sigprocmask"),
    Syscall(15, "rt_sigreturn"),
    Syscall(22, "pipe"),
    Syscall(23, "select"),
    Syscall(34, "pause"),
    Syscall(35, "nanosleep"),
    Syscall(36, "getitimer"),
    Syscall(37, "alarm"),
    Syscall(38, "setitimer"),
    Syscall(96, "gettimeofday"),
    Syscall(127, "rt_sigpending"),
    Syscall(128, "rt_sigtimedwait"),
    Syscall(130, "rt_sigsuspend"),
    Syscall(131, "sigaltstack"),
    Syscall(159, "adjtimex", otherwise=Errno(EPERM), why="the clocks are the host's"),
    Syscall(164, "settimeofday", otherwise=Errno(EPERM), why="the clocks are the host's"),
    Syscall(201, "time"),
    Syscall(202, "futex"),
    Syscall(213, "epoll_create"),
    Syscall(214, "epoll_ctl_old", otherwise=Errno(ENOSYS), why="never implemented"),
    Syscall(215, "epoll_wait_old", otherwise=Errno(ENOSYS), why="never implemented"),
    Syscall(222, "timer_create"),
    Syscall(223, "timer_settime"),
    Syscall(224, "timer_gettime"),
    Syscall(225, "timer_getoverrun"),
    Syscall(226, "timer_delete"),
    Syscall(227, "clock_settime", otherwise=Errno(EPERM), why="the clocks are the host's"),
    Syscall(228, "clock_gettime"),
    Syscall(229, "clock_getres"),
    Syscall(230, "clock_nanosleep"),
    Syscall(232, "epoll_wait"),
    Syscall(233, "epoll_ctl"),
    Syscall(270, "pselect6"),
    Syscall(271, "ppoll"),
    Syscall(281, "epoll_pwait"),
    Syscall(282, "signalfd"),
    Syscall(283, "timerfd_create"),
    Syscall(284, "eventfd"),
    Syscall(286, "timerfd_settime"),
    Syscall(287, "timerfd_gettime"),
    Syscall(289, "signalfd4"),
    Syscall(290, "eventfd2"),
    Syscall(291, "epoll_create1"),
    Syscall(293, "pipe2"),
    Syscall(305, "clock_adjtime", otherwise=Errno(EPERM), why="the clocks are the host's"),
    Syscall(318, "getrandom"),
    Syscall(441, "epoll_pwait2"),
    Syscall(449, "futex_waitv"),
    Syscall(454, "futex_wake"),
    Syscall(455, "futex_wait"),
    Syscall(456, "futex_requeue"),
)
