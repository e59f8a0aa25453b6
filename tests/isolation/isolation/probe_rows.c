/* The acts of the bypass tables, one function each; see probe.h. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"

static int result(long value) { return value < 0 ? errno : 0; }
static int call0(long nr) { return result(syscall(nr, 0L, 0L, 0L, 0L, 0L, 0L)); }
static int call3(long nr, long a, long b, long c) { return result(syscall(nr, a, b, c, 0L, 0L, 0L)); }
#define HIGH (1L << 40)

static struct sockaddr_in outside(void) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(443)};
  inet_pton(AF_INET, "203.0.113.9", &a.sin_addr);
  return a;
}
static int option(int level, int name) {
  char value[256] = {0};
  const int fd = tcp();
  const int r = setsockopt(fd, level, name, value, sizeof value) < 0 ? errno : 0;
  close(fd);
  return r;
}

/* ---- bypasses: one function a row ---- */
static int fastopen_sendto(void) {
  struct sockaddr_in a = outside();
  return result(sendto(tcp(), "x", 1, MSG_FASTOPEN, (void*)&a, sizeof a));
}
static int fastopen_sendto_high(void) {
  struct sockaddr_in a = outside();
  return result(syscall(SYS_sendto, tcp(), "x", 1L, HIGH | MSG_FASTOPEN, &a, sizeof a));
}
static int fastopen_sendmsg(void) {
  struct sockaddr_in a = outside();
  struct iovec v = {"x", 1};
  struct msghdr m = {.msg_name = &a, .msg_namelen = sizeof a, .msg_iov = &v, .msg_iovlen = 1};
  return result(sendmsg(tcp(), &m, MSG_FASTOPEN));
}
static int fastopen_sendmmsg(void) {
  struct sockaddr_in a = outside();
  struct iovec v = {"x", 1};
  struct mmsghdr m = {.msg_hdr = {.msg_name = &a, .msg_namelen = sizeof a, .msg_iov = &v, .msg_iovlen = 1}};
  return result(sendmmsg(tcp(), &m, 1, MSG_FASTOPEN));
}
static int tcp_sendto_address(void) {
  struct sockaddr_in a = outside();
  signal(SIGPIPE, SIG_IGN);
  return result(sendto(tcp(), "x", 1, 0, (void*)&a, sizeof a));
}
static int uring_setup(void) { return call0(SYS_io_uring_setup); }
static int uring_enter(void) { return call0(SYS_io_uring_enter); }
static int uring_register(void) { return call0(SYS_io_uring_register); }
#ifdef __x86_64__
static int int80(int nr, int a, int b, int c) {
  long r;
  __asm__ volatile("int $0x80" : "=a"(r) : "a"((long)nr), "b"((long)a), "c"((long)b), "d"((long)c) : "memory", "r8", "r9", "r10", "r11");
  return r < 0 ? (int)-r : 0;
}
static int int80_socket(void) { return int80(359, AF_INET, SOCK_STREAM, 0); }
static int int80_connect(void) { return int80(362, 0, 0, 0); }
static int int80_socketcall(void) { return int80(102, 1, 0, 0); }
static int x32_socket(void) { return call3(0x40000000 | SYS_socket, AF_INET, SOCK_STREAM, 0); }
static int x32_connect(void) { return call3(0x40000000 | SYS_connect, 0, 0, 0); }
#endif
#define SOCKET_ROW(name, family, type, protocol) \
  static int name(void) { return result(syscall(SYS_socket, (long)(family), (long)(type), (long)(protocol))); }
SOCKET_ROW(mptcp, AF_INET, SOCK_STREAM, 262)
SOCKET_ROW(mptcp6, AF_INET6, SOCK_STREAM, 262)
SOCKET_ROW(udplite, AF_INET, SOCK_DGRAM, 136)
SOCKET_ROW(sctp, AF_INET, SOCK_STREAM, 132)
SOCKET_ROW(sctp_seqpacket, AF_INET, SOCK_SEQPACKET, 132)
SOCKET_ROW(dccp, AF_INET, 6, 33)
SOCKET_ROW(raw4, AF_INET, SOCK_RAW, 255)
SOCKET_ROW(raw6, AF_INET6, SOCK_RAW, 255)
SOCKET_ROW(sock_packet, AF_INET, SOCK_PACKET, 0)
SOCKET_ROW(af_packet, AF_PACKET, SOCK_RAW, 0)
SOCKET_ROW(af_xdp, 44, SOCK_RAW, 0)
SOCKET_ROW(ping4, AF_INET, SOCK_DGRAM, 1)
SOCKET_ROW(ping6, AF_INET6, SOCK_DGRAM, 58)
SOCKET_ROW(af_smc, 43, SOCK_STREAM, 0)
SOCKET_ROW(af_alg, 38, SOCK_SEQPACKET, 0)
SOCKET_ROW(af_key, 15, SOCK_RAW, 2)
SOCKET_ROW(af_can, 29, SOCK_RAW, 1)
SOCKET_ROW(af_tipc, 30, SOCK_STREAM, 0)
SOCKET_ROW(af_rds, 21, SOCK_SEQPACKET, 0)
SOCKET_ROW(af_bluetooth, 31, SOCK_RAW, 1)
SOCKET_ROW(af_vsock_stream, 40, SOCK_STREAM, 0)
SOCKET_ROW(af_vsock_seqpacket, 40, SOCK_SEQPACKET, 0)
SOCKET_ROW(af_vsock_high, HIGH | 40, SOCK_STREAM, 0)
SOCKET_ROW(af_unknown, 77, SOCK_STREAM, 0)
SOCKET_ROW(af_huge, 0x10002, SOCK_STREAM, 0)
SOCKET_ROW(netlink_audit, AF_NETLINK, SOCK_RAW, 9)
SOCKET_ROW(netlink_netfilter, AF_NETLINK, SOCK_RAW, 12)
SOCKET_ROW(netlink_route, AF_NETLINK, SOCK_RAW, 0)
SOCKET_ROW(unix_stream, AF_UNIX, SOCK_STREAM, 0)
SOCKET_ROW(inet_odd_flags, AF_INET, SOCK_STREAM | 0x100000, 0)
static int socketpair_inet(void) {
  int p[2];
  return result(socketpair(AF_INET, SOCK_STREAM, 0, p));
}
static int socketpair_unix(void) {
  int p[2];
  return result(socketpair(AF_UNIX, SOCK_STREAM, 0, p));
}
static int opt_fastopen_connect(void) { return option(IPPROTO_TCP, 30); }
static int opt_md5sig(void) { return option(IPPROTO_TCP, 14); }
static int opt_md5sig_ext(void) { return option(IPPROTO_TCP, 32); }
static int opt_tcp_ao(void) { return option(IPPROTO_TCP, 38); }
static int opt_bindtodevice(void) { return option(SOL_SOCKET, SO_BINDTODEVICE); }
static int opt_bindtoifindex(void) { return option(SOL_SOCKET, 62); }
static int opt_multicast_if(void) { return option(IPPROTO_IP, 32); }
static int opt_unicast_if(void) { return option(IPPROTO_IP, 50); }
static int opt_addrform(void) { return option(IPPROTO_IPV6, 1); }
static int opt_nodelay(void) { return option(IPPROTO_TCP, TCP_NODELAY); }
static int do_ptrace(void) { return result(ptrace(PTRACE_ATTACH, 1, 0, 0)); }
static int traceme(void) { return result(ptrace(PTRACE_TRACEME, 0, 0, 0)); }
static int vm_read(void) { return call3(SYS_process_vm_readv, 1, 0, 0); }
static int vm_write(void) { return call3(SYS_process_vm_writev, 1, 0, 0); }
static int getfd(void) { return call0(438); }
static int pidfd_open_row(void) { return call3(434, 1, 0, 0); }
static int pidfd_signal(void) { return call0(424); }
static int do_kcmp(void) { return call0(SYS_kcmp); }
static int madvise_other(void) { return call0(440); }
static int mrelease(void) { return call0(448); }
static int memfd(void) { return result(memfd_create("x", 0)); }
static int do_bpf(void) { return call0(SYS_bpf); }
static int perf(void) { return call0(SYS_perf_event_open); }
static int uffd(void) { return call0(SYS_userfaultfd); }
static int do_mount(void) { return call0(SYS_mount); }
static int do_umount(void) { return call0(SYS_umount2); }
static int do_pivot(void) { return call0(SYS_pivot_root); }
static int do_chroot(void) { return result(chroot("/tmp")); }
static int do_fsopen(void) { return call0(430); }
static int do_open_tree(void) { return call0(428); }
static int do_open_tree_attr(void) { return call0(467); }
static int do_move_mount(void) { return call0(429); }
static int do_mount_setattr(void) { return call0(442); }
static int do_setns(void) { return call3(SYS_setns, 0, 0, 0); }
static int do_capset(void) { return call0(SYS_capset); }
static int do_sethostname(void) { return call0(SYS_sethostname); }
static int handle_open(void) { return call0(SYS_open_by_handle_at); }
static int handle_name(void) { return call0(SYS_name_to_handle_at); }
static int do_keyctl(void) { return call0(SYS_keyctl); }
static int do_add_key(void) { return call0(SYS_add_key); }
static int do_request_key(void) { return call0(SYS_request_key); }
static int do_syslog(void) { return call3(SYS_syslog, 3, 0, 0); }
static int do_quotactl(void) { return call0(SYS_quotactl); }
static int do_reboot(void) { return call0(SYS_reboot); }
static int unknown_470(void) { return call0(470); }
static int unknown_1000(void) { return call0(1000); }
static int clone3_row(void) { return call0(435); }
static int clone_flags(unsigned long flags) {
  const long child = syscall(SYS_clone, flags, 0L, 0L, 0L, 0L);
  if (child == 0) _exit(0);
  if (child > 0) waitpid((pid_t)child, NULL, 0);
  return result(child);
}
static int clone_newuser(void) { return clone_flags(CLONE_NEWUSER | SIGCHLD); }
static int clone_newuser_high(void) { return clone_flags(HIGH | CLONE_NEWUSER | SIGCHLD); }
static int clone_newnet(void) { return clone_flags(CLONE_NEWNET | SIGCHLD); }
static int clone_newpid(void) { return clone_flags(CLONE_NEWPID | SIGCHLD); }
static int clone_plain(void) { return clone_flags(SIGCHLD); }
static int clone_thread_no_files(void) { return clone_flags(CLONE_VM | CLONE_SIGHAND | CLONE_THREAD); }
static int unshare_newuser(void) { return result(unshare(CLONE_NEWUSER)); }
static int unshare_newuser_high(void) { return call3(SYS_unshare, HIGH | CLONE_NEWUSER, 0, 0); }
static int unshare_newnet(void) { return result(unshare(CLONE_NEWNET)); }
static int unshare_time(void) { return result(unshare(0x80)); }
static int unshare_files(void) { return result(unshare(CLONE_FILES)); }
static int close_range_unshare(void) { return call3(SYS_close_range, 500, 501, 2); }
static int close_range_plain(void) { return call3(SYS_close_range, 500, 501, 0); }
static int execveat_empty(void) {
  const int fd = open("/bin/true", O_PATH);
  char* argv[] = {"true", NULL};
  return result(syscall(SYS_execveat, fd, "", argv, NULL, 0x1000));
}
static int seccomp_filter(void) { return call3(SYS_seccomp, 1, 0, 0); }
static int seccomp_listener(void) { return call3(SYS_seccomp, 1, 8, 0); }
static int prctl_seccomp(void) { return result(prctl(PR_SET_SECCOMP, 2, 0, 0, 0)); }
static int prctl_mm(void) { return result(prctl(PR_SET_MM, PR_SET_MM_EXE_FILE, 0, 0, 0)); }
static int prctl_mm_high(void) { return result(syscall(SYS_prctl, HIGH | PR_SET_MM, (long)PR_SET_MM_EXE_FILE, 0L, 0L, 0L)); }
static int dumpable_zero(void) {
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return errno;
  return prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1 ? 0 : 9999;
}
static int prlimit_other(void) {
  struct rlimit l = {1, 1};
  return result(prlimit(1, RLIMIT_NOFILE, &l, NULL));
}
static int prlimit_own(void) {
  struct rlimit l;
  if (getrlimit(RLIMIT_NOFILE, &l) != 0) return errno;
  return result(prlimit(0, RLIMIT_NOFILE, &l, NULL));
}
static int prlimit_tag(void) {
  struct rlimit l = {1, 1};
  return result(prlimit(0, RLIMIT_LOCKS, &l, NULL));
}
static int setrlimit_tag(void) {
  struct rlimit l = {1, 1};
  return call3(SYS_setrlimit, RLIMIT_LOCKS, (long)&l, 0);
}
static int setscheduler_other(void) {
  struct sched_param p = {0};
  return result(sched_setscheduler(1, SCHED_BATCH, &p));
}
static int setparam_other(void) {
  struct sched_param p = {0};
  return result(sched_setparam(1, &p));
}
static int setattr_other(void) { return call3(SYS_sched_setattr, 1, 0, 0); }
static int setpriority_other(void) { return result(setpriority(PRIO_PROCESS, 1, 19)); }
static int setpriority_user(void) { return result(setpriority(PRIO_USER, 0, 19)); }
static int setpriority_own(void) { return result(setpriority(PRIO_PROCESS, 0, 19)); }
static int ioprio_other(void) { return call3(SYS_ioprio_set, 1, 1, 0x6000); }
static int ioprio_user(void) { return call3(SYS_ioprio_set, 3, 0, 0x6000); }
static int affinity_sandbox(void) {
  cpu_set_t s;
  CPU_ZERO(&s);
  CPU_SET(0, &s);
  return result(sched_setaffinity(1, sizeof s, &s));
}
static int affinity_own(void) {
  cpu_set_t s;
  sched_getaffinity(0, sizeof s, &s);
  return result(sched_setaffinity(getpid(), sizeof s, &s));
}
static int kill_sandbox(void) { return result(kill(1, SIGTERM)); }
static int kill_sandbox_probe(void) { return result(kill(1, 0)); }
static int tkill_sandbox(void) { return call3(SYS_tkill, 1, SIGKILL, 0); }
static int tgkill_sandbox(void) { return call3(SYS_tgkill, 1, 1, SIGKILL); }
static int sigqueue_sandbox(void) {
  siginfo_t i = {.si_code = SI_QUEUE};
  return call3(SYS_rt_sigqueueinfo, 1, SIGTERM, (long)&i);
}
/* Every other thread of the sandbox: kill() takes a thread id too. */
static int kill_all_threads(void) {
  int worst = 0;
  for (int tid = 2; tid < 40; ++tid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/1/task/%d", tid);
    if (access(path, F_OK) != 0) continue;
    if (kill(tid, SIGKILL) == 0 || errno != EPERM) worst = 9000 + errno;
    if (syscall(SYS_tkill, tid, SIGKILL) == 0 || errno != EPERM) worst = 9200 + errno;
    if (syscall(SYS_tgkill, 1, tid, SIGKILL) == 0 || errno != EPERM) worst = 9400 + errno;
  }
  return worst ? worst : EPERM;
}
static int setown(void) { return result(fcntl(0, F_SETOWN, 1)); }
static int setown_ex(void) {
  struct f_owner_ex o = {F_OWNER_PID, 1};
  return result(fcntl(0, F_SETOWN_EX, &o));
}
static int setsig(void) { return result(fcntl(0, F_SETSIG, SIGKILL)); }
static int fiosetown(void) {
  int pid = 1;
  return result(ioctl(0, 0x8901, &pid));
}
static int siocspgrp(void) {
  int pid = 1;
  return result(ioctl(0, 0x8902, &pid));
}
static int tiocsti(void) { return result(ioctl(0, TIOCSTI, "x")); }
static int tiocsti_high(void) { return result((int)syscall(SYS_ioctl, 0, 0x100000000UL | TIOCSTI, "x")); }
static int tiocsetd(void) {
  const int discipline = 0;
  return result(ioctl(0, TIOCSETD, &discipline));
}
static int tioclinux(void) { return result(ioctl(0, TIOCLINUX, "x")); }
static int open_file(const char* path, int flags) {
  const int fd = open(path, flags, 0600);
  if (fd >= 0) close(fd);
  return result(fd);
}
static int proc_mem(void) { return open_file("/proc/1/mem", O_RDONLY); }
static int proc_environ(void) { return open_file("/proc/1/environ", O_RDONLY); }
static int proc_maps(void) { return open_file("/proc/1/maps", O_RDONLY); }
static int proc_fd(void) { return open_file("/proc/1/fd/0", O_RDONLY); }
static int proc_root(void) { return open_file("/proc/1/root/.openshell/secret", O_RDONLY); }
static int proc_exe(void) { return open_file("/proc/1/exe", O_RDONLY); }
static int secret_read(void) { return open_file("/.openshell/secret", O_RDONLY); }
static int secret_write(void) { return open_file("/.openshell/secret", O_WRONLY); }
static int secret_truncate(void) { return result(truncate("/.openshell/secret", 0)); }
static int secret_create(void) { return open_file("/.openshell/new", O_WRONLY | O_CREAT); }
static int secret_rename_out(void) { return result(rename("/.openshell/secret", "/tmp/out")); }
static int secret_link_out(void) { return result(link("/.openshell/secret", "/tmp/out")); }
static int secret_dir_rename(void) { return result(rename("/.openshell", "/tmp/moved")); }
static int secret_symlink(void) {
  unlink("/tmp/alias");
  if (symlink("/.openshell/secret", "/tmp/alias") != 0) return errno;
  return open_file("/tmp/alias", O_RDONLY);
}
static int secret_dotdot(void) { return open_file("/tmp/../.openshell/secret", O_RDONLY); }
static int secret_through_proc(void) { return open_file("/proc/self/root/.openshell/secret", O_RDONLY); }
static int root_create(void) { return open_file("/new-file", O_WRONLY | O_CREAT); }
static int tmp_create(void) {
  const int r = open_file("/tmp/fresh", O_WRONLY | O_CREAT);
  return r;
}
static int udp_external(void) {
  struct sockaddr_in a = outside();
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  return result(connect(fd, (void*)&a, sizeof a));
}
static int udp_resolver(void) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(53), .sin_addr.s_addr = htonl(0x7f000035)};
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  return result(connect(fd, (void*)&a, sizeof a));
}
static int connect_bad_pointer(void) { return result(connect(tcp(), (void*)8, 16)); }
static int connect_null(void) { return result(connect(tcp(), NULL, 16)); }
static int connect_short(void) {
  struct sockaddr_in a = outside();
  return result(connect(tcp(), (void*)&a, 1));
}
static int connect_negative(void) {
  struct sockaddr_in a = outside();
  return call3(SYS_connect, tcp(), (long)&a, -1);
}
static int connect_long(void) {
  char big[256] = {0};
  return result(connect(tcp(), (void*)big, 129));
}
static int connect_wrong_family(void) {
  struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(1)};
  return result(connect(tcp(), (void*)&a, sizeof a));
}
static int connect_bad_fd(void) {
  struct sockaddr_in a = outside();
  return result(connect(999, (void*)&a, sizeof a));
}
static int connect_not_socket(void) {
  struct sockaddr_in a = outside();
  return result(connect(0, (void*)&a, sizeof a));
}
static int connect_refused(void) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  return result(connect(tcp(), (void*)&a, sizeof a));
}
/* An abstract socket that the sandbox's own process listens on. */
static int abstract_unix(void) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  memcpy(a.sun_path, "\0sandbox-control", 16);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  return result(connect(fd, (void*)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 16)));
}

#define ROW(name) \
  { #name, name }
static const struct {
  const char* name;
  int (*act)(void);
} kRows[] = {
    ROW(fastopen_sendto),
    ROW(fastopen_sendto_high),
    ROW(fastopen_sendmsg),
    ROW(fastopen_sendmmsg),
    ROW(tcp_sendto_address),
    ROW(uring_setup),
    ROW(uring_enter),
    ROW(uring_register),
#ifdef __x86_64__
    ROW(int80_socket),
    ROW(int80_connect),
    ROW(int80_socketcall),
    ROW(x32_socket),
    ROW(x32_connect),
#endif
    ROW(mptcp),
    ROW(mptcp6),
    ROW(udplite),
    ROW(sctp),
    ROW(sctp_seqpacket),
    ROW(dccp),
    ROW(raw4),
    ROW(raw6),
    ROW(sock_packet),
    ROW(af_packet),
    ROW(af_xdp),
    ROW(ping4),
    ROW(ping6),
    ROW(af_smc),
    ROW(af_alg),
    ROW(af_key),
    ROW(af_can),
    ROW(af_tipc),
    ROW(af_rds),
    ROW(af_bluetooth),
    ROW(af_vsock_stream),
    ROW(af_vsock_seqpacket),
    ROW(af_vsock_high),
    ROW(af_unknown),
    ROW(af_huge),
    ROW(netlink_audit),
    ROW(netlink_netfilter),
    ROW(netlink_route),
    ROW(unix_stream),
    ROW(inet_odd_flags),
    ROW(socketpair_inet),
    ROW(socketpair_unix),
    ROW(opt_fastopen_connect),
    ROW(opt_md5sig),
    ROW(opt_md5sig_ext),
    ROW(opt_tcp_ao),
    ROW(opt_bindtodevice),
    ROW(opt_bindtoifindex),
    ROW(opt_multicast_if),
    ROW(opt_unicast_if),
    ROW(opt_addrform),
    ROW(opt_nodelay),
    {"ptrace", do_ptrace},
    ROW(traceme),
    ROW(vm_read),
    ROW(vm_write),
    ROW(getfd),
    ROW(pidfd_open_row),
    ROW(pidfd_signal),
    {"kcmp", do_kcmp},
    ROW(madvise_other),
    ROW(mrelease),
    ROW(memfd),
    {"bpf", do_bpf},
    ROW(perf),
    ROW(uffd),
    {"mount", do_mount},
    {"umount", do_umount},
    {"pivot_root", do_pivot},
    {"chroot", do_chroot},
    {"fsopen", do_fsopen},
    {"open_tree", do_open_tree},
    {"open_tree_attr", do_open_tree_attr},
    {"move_mount", do_move_mount},
    {"mount_setattr", do_mount_setattr},
    {"setns", do_setns},
    {"capset", do_capset},
    {"sethostname", do_sethostname},
    ROW(handle_open),
    ROW(handle_name),
    {"keyctl", do_keyctl},
    {"add_key", do_add_key},
    {"request_key", do_request_key},
    {"syslog", do_syslog},
    {"quotactl", do_quotactl},
    {"reboot", do_reboot},
    ROW(unknown_470),
    ROW(unknown_1000),
    ROW(clone3_row),
    ROW(clone_newuser),
    ROW(clone_newuser_high),
    ROW(clone_newnet),
    ROW(clone_newpid),
    ROW(clone_plain),
    ROW(clone_thread_no_files),
    ROW(unshare_newuser),
    ROW(unshare_newuser_high),
    ROW(unshare_newnet),
    ROW(unshare_time),
    ROW(unshare_files),
    ROW(close_range_unshare),
    ROW(close_range_plain),
    ROW(execveat_empty),
    ROW(seccomp_filter),
    ROW(seccomp_listener),
    ROW(prctl_seccomp),
    ROW(prctl_mm),
    ROW(prctl_mm_high),
    ROW(dumpable_zero),
    ROW(prlimit_other),
    ROW(prlimit_own),
    ROW(prlimit_tag),
    ROW(setrlimit_tag),
    ROW(setscheduler_other),
    ROW(setparam_other),
    ROW(setattr_other),
    ROW(setpriority_other),
    ROW(setpriority_user),
    ROW(setpriority_own),
    ROW(ioprio_other),
    ROW(ioprio_user),
    ROW(affinity_sandbox),
    ROW(affinity_own),
    ROW(kill_sandbox),
    ROW(kill_sandbox_probe),
    ROW(tkill_sandbox),
    ROW(tgkill_sandbox),
    ROW(sigqueue_sandbox),
    ROW(kill_all_threads),
    ROW(setown),
    ROW(setown_ex),
    ROW(setsig),
    ROW(fiosetown),
    ROW(siocspgrp),
    ROW(tiocsti),
    ROW(tioclinux),
    ROW(tiocsti_high),
    ROW(tiocsetd),
    ROW(proc_mem),
    ROW(proc_environ),
    ROW(proc_maps),
    ROW(proc_fd),
    ROW(proc_root),
    ROW(proc_exe),
    ROW(secret_read),
    ROW(secret_write),
    ROW(secret_truncate),
    ROW(secret_create),
    ROW(secret_rename_out),
    ROW(secret_link_out),
    ROW(secret_dir_rename),
    ROW(secret_symlink),
    ROW(secret_dotdot),
    ROW(secret_through_proc),
    ROW(root_create),
    ROW(tmp_create),
    ROW(udp_external),
    ROW(udp_resolver),
    ROW(connect_bad_pointer),
    ROW(connect_null),
    ROW(connect_short),
    ROW(connect_negative),
    ROW(connect_long),
    ROW(connect_wrong_family),
    ROW(connect_bad_fd),
    ROW(connect_not_socket),
    ROW(connect_refused),
    ROW(abstract_unix),
};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

int (*find_row(const char* name))(void) {
  for (size_t i = 0; i < COUNT(kRows); ++i)
    if (strcmp(kRows[i].name, name) == 0) return kRows[i].act;
  return NULL;
}

static int status_to_code(int status, int fd) {
  int code = 9990;
  if (WIFSIGNALED(status)) return 1000 + WTERMSIG(status);
  return read(fd, &code, sizeof code) == sizeof code ? code : 9991;
}
/* In a forked child, so that a row which kills costs only itself. */
static int in_child(int (*act)(void)) {
  int p[2], status = 0;
  if (pipe(p) != 0) return 9992;
  const pid_t child = fork();
  if (child == 0) {
    const int code = act();
    _exit(write(p[1], &code, sizeof code) == sizeof code ? 0 : 1);
  }
  close(p[1]);
  waitpid(child, &status, 0);
  const int code = status_to_code(status, p[0]);
  close(p[0]);
  return code;
}
/* A grandchild whose parent is gone, in a session of its own: a daemon. */
static int in_daemon(int (*act)(void)) {
  int p[2], code = 1000 + SIGSYS;
  if (pipe(p) != 0) return 9992;
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    if (fork() == 0) {
      const int c = act();
      _exit(write(p[1], &c, sizeof c) == sizeof c ? 0 : 1);
    }
    _exit(0);
  }
  waitpid(child, NULL, 0);
  close(p[1]);
  if (read(p[0], &code, sizeof code) != sizeof code) code = 1000 + SIGSYS;
  close(p[0]);
  return code;
}
static int in_exec(const char* name) {
  int p[2], status = 0, code = 9993;
  if (pipe(p) != 0) return 9992;
  const pid_t child = fork();
  if (child == 0) {
    dup2(p[1], 1);
    execl("/proc/self/exe", "isolation-probe", "row", name, (char*)NULL);
    _exit(127);
  }
  close(p[1]);
  waitpid(child, &status, 0);
  char text[128] = {0};
  if (WIFSIGNALED(status))
    code = 1000 + WTERMSIG(status);
  else if (read(p[0], text, sizeof text - 1) > 0 && strchr(text, '='))
    code = atoi(strchr(text, '=') + 1);
  close(p[0]);
  return code;
}
static void* thread_main(void* argument) {
  int (**slot)(void) = argument;
  static int code;
  code = (*slot)();
  return &code;
}
static int in_thread(int (*act)(void)) {
  pthread_t t;
  void* out = NULL;
  if (pthread_create(&t, NULL, thread_main, &act) != 0) return 9994;
  pthread_join(t, &out);
  return *(int*)out;
}

int rows(const char* how) {
  for (size_t i = 0; i < COUNT(kRows); ++i) {
    int (*act)(void) = kRows[i].act;
    int code = 0;
    if (strcmp(how, "child") == 0)
      code = in_child(act);
    else if (strcmp(how, "daemon") == 0)
      code = in_daemon(act);
    else if (strcmp(how, "exec") == 0)
      code = in_exec(kRows[i].name);
    else if (strcmp(how, "thread") == 0) {
      int p[2];
      if (pipe(p) != 0) return 1;
      const pid_t child = fork();
      int status = 0;
      if (child == 0) {
        const int c = in_thread(act);
        _exit(write(p[1], &c, sizeof c) == sizeof c ? 0 : 1);
      }
      close(p[1]);
      waitpid(child, &status, 0);
      code = status_to_code(status, p[0]);
      close(p[0]);
    }
    printf("%s=%d\n", kRows[i].name, code);
    fflush(stdout);
  }
  return 0;
}
