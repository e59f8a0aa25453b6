// The filters as programs, run by a small interpreter of classic BPF: what no kernel call on this machine can show, foreign architectures
// above all.
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>

#include "isolation/seccomp_filter.hpp"

namespace openshell::isolation {
namespace {

#if defined(__x86_64__)
constexpr unsigned kNative = AUDIT_ARCH_X86_64;
#else
constexpr unsigned kNative = AUDIT_ARCH_AARCH64;
#endif

std::uint32_t run(const FilterProgram& program, const seccomp_data& data) {
  std::uint32_t accumulator = 0;
  for (std::size_t pc = 0; pc < program.instructions.size(); ++pc) {
    const sock_filter& op = program.instructions[pc];
    switch (op.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        std::memcpy(&accumulator, reinterpret_cast<const char*>(&data) + op.k, 4);
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        accumulator &= op.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        pc += accumulator == op.k ? op.jt : op.jf;
        break;
      case BPF_JMP | BPF_JGT | BPF_K:
        pc += accumulator > op.k ? op.jt : op.jf;
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        pc += accumulator >= op.k ? op.jt : op.jf;
        break;
      case BPF_JMP | BPF_JA:
        pc += op.k;
        break;
      case BPF_RET | BPF_K:
        return op.k;
      default:
        ADD_FAILURE() << "instruction " << op.code;
        return 0;
    }
  }
  ADD_FAILURE() << "ran off the end";
  return 0;
}

seccomp_data call(int number, std::initializer_list<__u64> arguments = {}, unsigned architecture = kNative) {
  seccomp_data data{};
  data.nr = number;
  data.arch = architecture;
  std::copy(arguments.begin(), arguments.end(), data.args);
  return data;
}
std::uint32_t error(int number) { return SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(number); }

TEST(Filter, IS_37_ForeignArchitecturesAreKilledByEveryProgram) {
  const pid_t threads[] = {1, 2};
  const auto notify = build_notify_filter({}), self = build_self_protection_filter(1, threads), workload = build_workload_filter({});
  ASSERT_TRUE(notify.ok() && self.ok() && workload.ok());
  for (const auto* program : {&*notify, &*self, &*workload})
    for (unsigned arch : {unsigned{AUDIT_ARCH_I386}, unsigned{AUDIT_ARCH_ARM}, unsigned{AUDIT_ARCH_PPC64LE}, 0U})
      EXPECT_EQ(run(*program, call(SYS_getpid, {}, arch)), SECCOMP_RET_KILL_PROCESS) << arch;
}

TEST(Filter, IS_37_OnlySocketAndConnectAreNotified) {  // IS-40
  const auto program = build_notify_filter({});
  ASSERT_TRUE(program.ok());
  for (int number = 0; number < 470; ++number) {
    const bool notified = number == SYS_connect;
    EXPECT_EQ(run(*program, call(number, {0})), notified ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ALLOW) << number;
  }
  EXPECT_EQ(run(*program, call(SYS_socket, {2})), SECCOMP_RET_USER_NOTIF);
  EXPECT_EQ(run(*program, call(SYS_socket, {10})), SECCOMP_RET_USER_NOTIF);
  EXPECT_EQ(run(*program, call(SYS_socket, {2 | 1ULL << 40})), SECCOMP_RET_USER_NOTIF) << "the kernel ignores the upper half";
  EXPECT_EQ(run(*program, call(SYS_socket, {1})), SECCOMP_RET_ALLOW);
  NotifyFilterOptions more;
  more.notify_getpeername = true;
  more.signals = SignalMode::Mediated;
  const auto mediated = build_notify_filter(more);
  for (int number : {SYS_getpeername, SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo})
    EXPECT_EQ(run(*mediated, call(number)), SECCOMP_RET_USER_NOTIF) << number;
}

TEST(Filter, Spec_8_UpperHalvesNeverOpenAnything) {
  const auto program = build_workload_filter({});
  ASSERT_TRUE(program.ok());
  constexpr __u64 kHigh = 1ULL << 40;
  EXPECT_NE(run(*program, call(SYS_socket, {kHigh | 40, 1, 0})), SECCOMP_RET_ALLOW);
  EXPECT_EQ(run(*program, call(SYS_clone, {kHigh | 0x10000000})), error(EPERM));
  EXPECT_EQ(run(*program, call(SYS_prctl, {kHigh | PR_SET_SECCOMP})), error(EPERM));
  EXPECT_EQ(run(*program, call(SYS_sendto, {3, 0, 0, kHigh | 0x20000000})), error(EOPNOTSUPP));
  EXPECT_EQ(run(*program, call(SYS_seccomp, {kHigh | 1})), error(EPERM));
  EXPECT_EQ(run(*program, call(SYS_setsockopt, {3, kHigh | 1, kHigh | 25})), error(EPERM));
  EXPECT_EQ(run(*program, call(SYS_prlimit64, {kHigh | 1})), error(EPERM));
}

TEST(Filter, Spec_8_3_EveryFamily) {
  const auto program = build_workload_filter({});
  for (__u64 family = 0; family < 300; ++family) {
    const auto answer = run(*program, call(SYS_socket, {family, 1, 0}));
    if (family == 1 || family == 2 || family == 10 || family == 16)
      EXPECT_EQ(answer, SECCOMP_RET_ALLOW) << family;
    else if (family == 17 || family == 31 || family == 40)
      EXPECT_EQ(answer, error(EPERM)) << family;
    else
      EXPECT_EQ(answer, error(EAFNOSUPPORT)) << family;
  }
  WorkloadFilterOptions options;
  options.block_inet = true;
  const auto blocked = build_workload_filter(options);
  EXPECT_EQ(run(*blocked, call(SYS_socket, {2, 1, 0})), error(EPERM));
  EXPECT_EQ(run(*blocked, call(SYS_socket, {1, 1, 0})), SECCOMP_RET_ALLOW);
}

TEST(Filter, Notes_12_UnknownNumbersAnswerEnosys) {
  const auto program = build_workload_filter({});
  EXPECT_EQ(run(*program, call(469)), SECCOMP_RET_ALLOW);
  for (int number : {470, 500, 1000, 0x3fffffff, 0x40000000, 0x40000000 | SYS_connect, -1})
    EXPECT_EQ(run(*program, call(number)), error(ENOSYS)) << number;
}

}  // namespace
}  // namespace openshell::isolation
