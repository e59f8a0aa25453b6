#include "isolation/seccomp_filter.hpp"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>

namespace openshell::isolation {

namespace {

#if defined(__x86_64__)
constexpr unsigned kNativeArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kNativeArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "openshell-sandbox knows x86_64 and aarch64"
#endif

constexpr unsigned kX32Bit = 0x40000000;
/// The last system call that the deny list was written for (file_setattr, 6.17, the same on both architectures). Newer ones answer ENOSYS
/// until somebody looked at them.
constexpr unsigned kLastKnownSyscall = 469;
constexpr scmp_datum_t kLow = 0xffffffff;  ///< the kernel ignores the upper half of int arguments, so every comparison does too

struct ContextReleaser {
  void operator()(void* context) const { seccomp_release(context); }
};

/// Collects rules; the first failure sticks and is reported with its rule.
class Builder {
 public:
  Builder() : context_{seccomp_init(SCMP_ACT_ALLOW)} {
    if (!context_) {
      status_ = absl::ResourceExhaustedError("seccomp filter: no context");
      return;
    }
    // The prologue catches foreign architectures and x32 first; a binary tree keeps the cost for unrelated calls at a few compares.
    seccomp_attr_set(context_.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    seccomp_attr_set(context_.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
  }

  /// A call this architecture does not have is skipped.
  void rule(std::uint32_t action, int number, const char* name, std::initializer_list<scmp_arg_cmp> comparisons = {}) {
    if (!status_.ok() || number < 0) return;
    const std::vector<scmp_arg_cmp> copy{comparisons};
    const int result = seccomp_rule_add_array(context_.get(), action, number, static_cast<unsigned>(copy.size()), copy.data());
    if (result < 0) status_ = absl::InternalError(absl::StrCat("seccomp filter: rule for ", name, ": ", std::strerror(-result)));
  }

  absl::StatusOr<FilterProgram> finish(bool deny_unknown_numbers) {
    if (!status_.ok()) return status_;
    const FileDescriptor memory{::memfd_create("seccomp", MFD_CLOEXEC)};
    if (!memory || seccomp_export_bpf(context_.get(), memory.get()) != 0) return absl::InternalError("seccomp filter: export failed");
    const off_t size = ::lseek(memory.get(), 0, SEEK_END);
    FilterProgram program{prologue(deny_unknown_numbers)};
    const std::size_t head = program.instructions.size();
    program.instructions.resize(head + static_cast<std::size_t>(size) / sizeof(sock_filter));
    if (size <= 0 || ::pread(memory.get(), program.instructions.data() + head, static_cast<std::size_t>(size), 0) != size)
      return absl::InternalError("seccomp filter: export can not be read back");
    if (program.instructions.size() > BPF_MAXINSNS) return absl::InternalError("seccomp filter: too many instructions");
    return program;
  }

 private:
  static std::vector<sock_filter> prologue(bool deny_unknown_numbers) {
    std::vector<sock_filter> code{
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kNativeArchitecture, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
    };
    const unsigned first_denied = deny_unknown_numbers ? kLastKnownSyscall + 1 : kX32Bit;
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first_denied, 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS));
    return code;
  }

  std::unique_ptr<void, ContextReleaser> context_;
  absl::Status status_;
};

constexpr std::uint32_t deny(int error) { return SCMP_ACT_ERRNO(static_cast<std::uint32_t>(error)); }
scmp_arg_cmp equals(unsigned argument, scmp_datum_t value) { return SCMP_CMP(argument, SCMP_CMP_MASKED_EQ, kLow, value & kLow); }
scmp_arg_cmp has_bit(unsigned argument, scmp_datum_t bit) { return SCMP_CMP(argument, SCMP_CMP_MASKED_EQ, bit, bit); }
/// True for any set bit of the whole register: an upper half that is not zero counts as "not the value", so it errs to the closed side.
scmp_arg_cmp differs(unsigned argument, scmp_datum_t value) { return SCMP_CMP(argument, SCMP_CMP_NE, value); }

#define CALL(name) SCMP_SYS(name), #name

// Numbers newer than libseccomp 2.5.4; equal on x86_64 and aarch64.
constexpr int kOpenTreeAttr = 467;
constexpr int kMemfdSecret = 447;
constexpr int kProcessMrelease = 448;
constexpr int kQuotactlFd = 443;

void deny_always(Builder& builder) {
  struct Call {
    int number;
    const char* name;
  };
  const Call calls[] = {
      // other processes
      {CALL(ptrace)},
      {CALL(process_vm_readv)},
      {CALL(process_vm_writev)},
      {CALL(pidfd_getfd)},
      {CALL(pidfd_send_signal)},
      {CALL(kcmp)},
      {CALL(process_madvise)},
      {kProcessMrelease, "process_mrelease"},
      // code and kernel surfaces
      {CALL(memfd_create)},
      {kMemfdSecret, "memfd_secret"},
      {CALL(bpf)},
      {CALL(perf_event_open)},
      {CALL(userfaultfd)},
      {CALL(init_module)},
      {CALL(finit_module)},
      {CALL(delete_module)},
      {CALL(kexec_load)},
      {CALL(kexec_file_load)},
      {CALL(lookup_dcookie)},
      // io_uring makes and connects sockets that no filter sees
      {CALL(io_uring_setup)},
      {CALL(io_uring_enter)},
      {CALL(io_uring_register)},
      // mounts and namespaces
      {CALL(mount)},
      {CALL(umount2)},
      {CALL(pivot_root)},
      {CALL(chroot)},
      {CALL(fsopen)},
      {CALL(fsconfig)},
      {CALL(fsmount)},
      {CALL(fspick)},
      {CALL(move_mount)},
      {CALL(open_tree)},
      {CALL(mount_setattr)},
      {kOpenTreeAttr, "open_tree_attr"},
      {CALL(setns)},
      // handles reach pidfs and nsfs without a capability; keys are shared by every sandbox of one kernel uid
      {CALL(open_by_handle_at)},
      {CALL(name_to_handle_at)},
      {CALL(add_key)},
      {CALL(request_key)},
      {CALL(keyctl)},
      // administration
      {CALL(capset)},
      {CALL(sethostname)},
      {CALL(setdomainname)},
      {CALL(acct)},
      {CALL(swapon)},
      {CALL(swapoff)},
      {CALL(reboot)},
      {CALL(syslog)},
      {CALL(quotactl)},
      {kQuotactlFd, "quotactl_fd"},
  };
  for (const auto& call : calls) builder.rule(deny(EPERM), call.number, call.name);
  // Launchers fall back on ENOSYS only: glibc to clone, whose flags a filter can see; uv, Go and Python to wait.
  builder.rule(deny(ENOSYS), CALL(clone3));
  builder.rule(deny(ENOSYS), CALL(pidfd_open));
}

void restrict_sockets(Builder& builder, bool block_inet) {
  // Families 1 UNIX, 2 INET, 10 INET6 and 16 NETLINK are left; VSOCK above all is not confined by a network namespace.
  constexpr int kFirstUnlisted = AF_NETLINK + 1;
  for (int family = 0; family < kFirstUnlisted; ++family) {
    if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK) continue;
    builder.rule(deny(EAFNOSUPPORT), CALL(socket), {equals(0, static_cast<scmp_datum_t>(family))});
  }
  for (int family : {AF_PACKET, AF_BLUETOOTH, AF_VSOCK})
    builder.rule(deny(EPERM), CALL(socket), {equals(0, static_cast<scmp_datum_t>(family))});
  for (int family = kFirstUnlisted; family < 64; ++family)
    if (family != AF_PACKET && family != AF_BLUETOOTH && family != AF_VSOCK)
      builder.rule(deny(EAFNOSUPPORT), CALL(socket), {equals(0, static_cast<scmp_datum_t>(family))});
  for (scmp_datum_t bit = 64; bit != 0 && bit <= 0x80000000; bit <<= 1) builder.rule(deny(EAFNOSUPPORT), CALL(socket), {has_bit(0, bit)});

  builder.rule(deny(EPERM), CALL(socket), {equals(0, AF_NETLINK), differs(2, 0)});  // NETLINK_ROUTE stays for getifaddrs
  for (int family : {AF_INET, AF_INET6}) {
    if (block_inet) builder.rule(deny(EPERM), CALL(socket), {equals(0, static_cast<scmp_datum_t>(family))});
    for (scmp_datum_t type : {SOCK_RAW, SOCK_PACKET})
      builder.rule(deny(EPERM), CALL(socket), {equals(0, static_cast<scmp_datum_t>(family)), SCMP_CMP(1, SCMP_CMP_MASKED_EQ, 0xf, type)});
  }
  // socketpair makes the same families; INET pairs do not exist, and nothing but AF_UNIX (and TIPC) does.
  builder.rule(deny(EOPNOTSUPP), CALL(socketpair), {differs(0, AF_UNIX)});
  // TCP Fast Open connects without connect().
  builder.rule(deny(EOPNOTSUPP), CALL(sendto), {has_bit(3, MSG_FASTOPEN)});
  builder.rule(deny(EOPNOTSUPP), CALL(sendmsg), {has_bit(2, MSG_FASTOPEN)});
  builder.rule(deny(EOPNOTSUPP), CALL(sendmmsg), {has_bit(3, MSG_FASTOPEN)});

  struct Option {
    unsigned level, name;
  };
  constexpr Option kOptions[] = {
      {1, 25}, {1, 62},           // SO_BINDTODEVICE, SO_BINDTOIFINDEX: undo the confinement to lo
      {6, 14}, {6, 32}, {6, 30},  // TCP_MD5SIG(_EXT), TCP_FASTOPEN_CONNECT: stop or skip the handshake that the broker makes
      {6, 38}, {6, 39}, {6, 40}, {6, 41},  {6, 42},  {6, 43},  // TCP-AO, like MD5SIG
      {0, 32}, {0, 50}, {41, 1}, {41, 17}, {41, 76},           // interface choice past the confinement; ADDRFORM changes the family
  };
  for (const auto& option : kOptions) builder.rule(deny(EPERM), CALL(setsockopt), {equals(1, option.level), equals(2, option.name)});
}

void restrict_processes(Builder& builder) {
  constexpr scmp_datum_t kNamespaceFlags[] = {0x80,      0x20000,    0x2000000,  0x4000000,
                                              0x8000000, 0x10000000, 0x20000000, 0x40000000};  // CLONE_NEWTIME .. CLONE_NEWNET
  for (scmp_datum_t flag : kNamespaceFlags) {
    builder.rule(deny(EPERM), CALL(unshare), {has_bit(0, flag)});
    if (flag != 0x80) builder.rule(deny(EPERM), CALL(clone), {has_bit(0, flag)});  // in clone the low byte is the exit signal
  }
  builder.rule(deny(EPERM), CALL(unshare), {has_bit(0, CLONE_FILES)});
  // A thread with descriptors of its own would have numbers that the group's table does not know.
  builder.rule(deny(EPERM), CALL(clone), {SCMP_CMP(0, SCMP_CMP_MASKED_EQ, CLONE_THREAD | CLONE_FILES, CLONE_THREAD)});
  builder.rule(deny(EPERM), CALL(close_range), {has_bit(2, 2)});    // CLOSE_RANGE_UNSHARE
  builder.rule(deny(EPERM), CALL(execveat), {has_bit(4, 0x1000)});  // AT_EMPTY_PATH: runs what has no name
  builder.rule(deny(EPERM), CALL(seccomp), {equals(0, SECCOMP_SET_MODE_FILTER)});
  builder.rule(deny(EPERM), CALL(prctl), {equals(0, PR_SET_SECCOMP)});
  builder.rule(deny(EPERM), CALL(prctl), {equals(0, PR_SET_MM)});  // exe_fd would forge /proc/<pid>/exe
  builder.rule(deny(0), CALL(prctl),
               {equals(0, PR_SET_DUMPABLE), equals(1, 0)});  // reports success, and the broker can still read the task

  // All of these succeed against a non-dumpable process of the same uid, the sandbox included.
  builder.rule(deny(EPERM), CALL(prlimit64), {differs(0, 0)});
  builder.rule(deny(EPERM), CALL(sched_setparam), {differs(0, 0)});
  builder.rule(deny(EPERM), CALL(sched_setscheduler), {differs(0, 0)});
  builder.rule(deny(EPERM), CALL(sched_setattr), {differs(0, 0)});
  builder.rule(deny(EPERM), CALL(setpriority), {differs(0, 0)});  // PRIO_PROCESS
  builder.rule(deny(EPERM), CALL(setpriority), {differs(1, 0)});
  builder.rule(deny(EPERM), CALL(ioprio_set), {differs(0, 1)});  // IOPRIO_WHO_PROCESS
  builder.rule(deny(EPERM), CALL(ioprio_set), {differs(1, 0)});
  builder.rule(deny(EPERM), CALL(migrate_pages), {differs(0, 0)});
  builder.rule(deny(EPERM), CALL(move_pages), {differs(0, 0)});
  // RLIMIT_LOCKS carries the launch's tag (JobTag).
  builder.rule(deny(EPERM), CALL(prlimit64), {equals(1, 10), differs(2, 0)});
  builder.rule(deny(EPERM), CALL(setrlimit), {equals(0, 10)});

  // Signals with a chosen owner would be sent by the kernel.
  for (scmp_datum_t command : {8, 10, 15}) builder.rule(deny(EPERM), CALL(fcntl), {equals(1, command)});  // F_SETOWN, F_SETSIG, F_SETOWN_EX
  // FIOSETOWN, SIOCSPGRP; TIOCSTI and TIOCLINUX type for others; TIOCSETD reaches line disciplines that no program here needs.
  for (scmp_datum_t request : {0x8901, 0x8902, 0x5412, 0x541c, 0x5423}) builder.rule(deny(EPERM), CALL(ioctl), {equals(1, request)});
}

}  // namespace

absl::StatusOr<FilterProgram> build_notify_filter(const NotifyFilterOptions& options) {
  Builder builder;
  builder.rule(SCMP_ACT_NOTIFY, CALL(socket), {equals(0, AF_INET)});
  builder.rule(SCMP_ACT_NOTIFY, CALL(socket), {equals(0, AF_INET6)});
  builder.rule(SCMP_ACT_NOTIFY, CALL(connect));
  if (options.notify_getpeername) builder.rule(SCMP_ACT_NOTIFY, CALL(getpeername));
  if (options.signals == SignalMode::Mediated) {
    builder.rule(SCMP_ACT_NOTIFY, CALL(kill));
    builder.rule(SCMP_ACT_NOTIFY, CALL(tkill));
    builder.rule(SCMP_ACT_NOTIFY, CALL(tgkill));
    builder.rule(SCMP_ACT_NOTIFY, CALL(rt_sigqueueinfo));
    builder.rule(SCMP_ACT_NOTIFY, CALL(rt_tgsigqueueinfo));
  }
  return builder.finish(false);
}

absl::StatusOr<FilterProgram> build_self_protection_filter(pid_t sandbox, std::span<const pid_t> threads) {
  Builder builder;
  const auto protect = [&builder](pid_t id) {
    const auto target = static_cast<scmp_datum_t>(id);
    builder.rule(deny(EPERM), CALL(kill), {equals(0, target)});  // takes a thread id too, and signals its process
    builder.rule(deny(EPERM), CALL(tkill), {equals(0, target)});
    builder.rule(deny(EPERM), CALL(rt_sigqueueinfo), {equals(0, target)});
  };
  protect(sandbox);
  builder.rule(deny(EPERM), CALL(tgkill), {equals(0, static_cast<scmp_datum_t>(sandbox))});
  builder.rule(deny(EPERM), CALL(rt_tgsigqueueinfo), {equals(0, static_cast<scmp_datum_t>(sandbox))});
  for (pid_t thread : threads) {
    // The launcher thread shares the workload's Landlock domain, so the signal scope does not cover it.
    if (thread != sandbox) protect(thread);
    builder.rule(deny(EPERM), CALL(sched_setaffinity), {equals(0, static_cast<scmp_datum_t>(thread))});
  }
  return builder.finish(false);
}

absl::StatusOr<FilterProgram> build_workload_filter(const WorkloadFilterOptions& options) {
  Builder builder;
  deny_always(builder);
  restrict_sockets(builder, options.block_inet);
  restrict_processes(builder);
  return builder.finish(true);
}

namespace {
sock_fprog as_fprog(const FilterProgram& program) {
  return {static_cast<unsigned short>(program.instructions.size()), const_cast<sock_filter*>(program.instructions.data())};
}
}  // namespace

absl::StatusOr<NotifyListener> install_notify_filter(const FilterProgram& program, bool allow_killable) {
  seccomp_notif_sizes sizes{};
  if (::syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) != 0 || sizes.seccomp_notif != sizeof(seccomp_notif) ||
      sizes.seccomp_notif_resp != sizeof(seccomp_notif_resp) || sizes.seccomp_data != sizeof(seccomp_data))
    return absl::FailedPreconditionError("seccomp notification structures of this kernel differ from those this program was built for");
  const sock_fprog fprog = as_fprog(program);
  if (allow_killable) {
    const long fd =
        ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &fprog);
    if (fd >= 0) return NotifyListener{FileDescriptor{static_cast<int>(fd)}, CancellationMode::Killable};
    if (errno != EINVAL)
      return absl::FailedPreconditionError(absl::StrCat("seccomp listener can not be installed: ", std::strerror(errno)));
  }
  const long fd = ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &fprog);
  if (fd < 0)
    return absl::FailedPreconditionError(absl::StrCat("seccomp listener can not be installed: ", std::strerror(errno),
                                                      errno == EBUSY ? " (an outer process has one already)" : ""));
  return NotifyListener{FileDescriptor{static_cast<int>(fd)}, CancellationMode::LegacyReadOnly};
}

int install_filter(const FilterProgram& program) noexcept {
  const sock_fprog fprog = as_fprog(program);
  return ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &fprog) == 0 ? 0 : errno;
}

}  // namespace openshell::isolation
