// Every known way around the broker, tried from a confined program, its children, its daemons, its threads and what it executes; and what
// must stay possible beside them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <sstream>

#include "tests/isolation/isolation/sandbox_fixture.hpp"

namespace openshell::isolation::testing {
namespace {

constexpr int kKilled = 1000 + SIGSYS;

/// What each act of probe.c must answer: 0 success, an errno value, or death.
const std::map<std::string, int> kExpected = {
    // ways to connect without connect()
    {"fastopen_sendto", EOPNOTSUPP},
    {"fastopen_sendto_high", EOPNOTSUPP},
    {"fastopen_sendmsg", EOPNOTSUPP},
    {"fastopen_sendmmsg", EOPNOTSUPP},
    {"tcp_sendto_address", EPIPE},
    {"uring_setup", EPERM},
    {"uring_enter", EPERM},
    {"uring_register", EPERM},
    {"opt_fastopen_connect", EPERM},
#ifdef __x86_64__
    {"int80_socket", kKilled},
    {"int80_connect", kKilled},
    {"int80_socketcall", kKilled},
    {"x32_socket", ENOSYS},
    {"x32_connect", ENOSYS},
#endif
    // other protocols and families
    {"mptcp", EPROTONOSUPPORT},
    {"mptcp6", EPROTONOSUPPORT},
    {"udplite", EPROTONOSUPPORT},
    {"sctp", EPROTONOSUPPORT},
    {"sctp_seqpacket", EPROTONOSUPPORT},
    {"dccp", EPROTONOSUPPORT},
    {"raw4", EPERM},
    {"raw6", EPERM},
    {"sock_packet", EPERM},
    {"ping4", EPROTONOSUPPORT},
    {"ping6", EPROTONOSUPPORT},
    {"inet_odd_flags", EINVAL},
    {"af_packet", EPERM},
    {"af_bluetooth", EPERM},
    {"af_vsock_stream", EPERM},
    {"af_vsock_seqpacket", EPERM},
    {"af_vsock_high", EPERM},
    {"af_xdp", EAFNOSUPPORT},
    {"af_smc", EAFNOSUPPORT},
    {"af_alg", EAFNOSUPPORT},
    {"af_key", EAFNOSUPPORT},
    {"af_can", EAFNOSUPPORT},
    {"af_tipc", EAFNOSUPPORT},
    {"af_rds", EAFNOSUPPORT},
    {"af_unknown", EAFNOSUPPORT},
    {"af_huge", EAFNOSUPPORT},
    {"netlink_audit", EPERM},
    {"netlink_netfilter", EPERM},
    {"socketpair_inet", EOPNOTSUPP},
    // socket options that undo the confinement or stop the handshake
    {"opt_md5sig", EPERM},
    {"opt_md5sig_ext", EPERM},
    {"opt_tcp_ao", EPERM},
    {"opt_bindtodevice", EPERM},
    {"opt_bindtoifindex", EPERM},
    {"opt_multicast_if", EPERM},
    {"opt_unicast_if", EPERM},
    {"opt_addrform", EPERM},
    // other processes, the sandbox above all
    {"ptrace", EPERM},
    {"traceme", EPERM},
    {"vm_read", EPERM},
    {"vm_write", EPERM},
    {"getfd", EPERM},
    {"pidfd_open_row", ENOSYS},
    {"pidfd_signal", EPERM},
    {"kcmp", EPERM},
    {"madvise_other", EPERM},
    {"mrelease", EPERM},
    {"prlimit_other", EPERM},
    {"setscheduler_other", EPERM},
    {"setparam_other", EPERM},
    {"setattr_other", EPERM},
    {"setpriority_other", EPERM},
    {"setpriority_user", EPERM},
    {"ioprio_other", EPERM},
    {"ioprio_user", EPERM},
    {"affinity_sandbox", EPERM},
    {"kill_sandbox", EPERM},
    {"kill_sandbox_probe", EPERM},
    {"tkill_sandbox", EPERM},
    {"tgkill_sandbox", EPERM},
    {"sigqueue_sandbox", EPERM},
    {"kill_all_threads", EPERM},
    {"setown", EPERM},
    {"setown_ex", EPERM},
    {"setsig", EPERM},
    {"fiosetown", EPERM},
    {"siocspgrp", EPERM},
    {"tiocsti", EPERM},
    {"tioclinux", EPERM},
    {"abstract_unix", EPERM},
    {"proc_mem", EACCES},
    {"proc_environ", EACCES},
    {"proc_maps", EACCES},
    {"proc_fd", EACCES},
    {"proc_root", EACCES},
    {"proc_exe", EACCES},
    // kernel surfaces
    {"memfd", EPERM},
    {"bpf", EPERM},
    {"perf", EPERM},
    {"uffd", EPERM},
    {"mount", EPERM},
    {"umount", EPERM},
    {"pivot_root", EPERM},
    {"chroot", EPERM},
    {"fsopen", EPERM},
    {"open_tree", EPERM},
    {"open_tree_attr", EPERM},
    {"move_mount", EPERM},
    {"mount_setattr", EPERM},
    {"setns", EPERM},
    {"capset", EPERM},
    {"sethostname", EPERM},
    {"handle_open", EPERM},
    {"handle_name", EPERM},
    {"keyctl", EPERM},
    {"add_key", EPERM},
    {"request_key", EPERM},
    {"syslog", EPERM},
    {"quotactl", EPERM},
    {"reboot", EPERM},
    {"unknown_470", ENOSYS},
    {"unknown_1000", ENOSYS},
    // namespaces, descriptor tables, filters, identity
    {"clone3_row", ENOSYS},
    {"clone_newuser", EPERM},
    {"clone_newuser_high", EPERM},
    {"clone_newnet", EPERM},
    {"clone_newpid", EPERM},
    {"clone_thread_no_files", EPERM},
    {"unshare_newuser", EPERM},
    {"unshare_newuser_high", EPERM},
    {"unshare_newnet", EPERM},
    {"unshare_time", EPERM},
    {"unshare_files", EPERM},
    {"close_range_unshare", EPERM},
    {"execveat_empty", EPERM},
    {"seccomp_filter", EPERM},
    {"seccomp_listener", EPERM},
    {"prctl_seccomp", EPERM},
    {"prctl_mm", EPERM},
    {"prctl_mm_high", EPERM},
    {"prlimit_tag", EPERM},
    {"setrlimit_tag", EPERM},
    // /.openshell by every name
    {"secret_read", EACCES},
    {"secret_write", EACCES},
    {"secret_truncate", EACCES},
    {"secret_create", EACCES},
    {"secret_rename_out", EACCES},
    {"secret_link_out", EXDEV},
    {"secret_dir_rename", EACCES},
    {"secret_symlink", EACCES},
    {"secret_dotdot", EACCES},
    {"secret_through_proc", EACCES},
    {"root_create", EACCES},
    // odd connects
    {"udp_external", ENETUNREACH},
    {"connect_bad_pointer", EFAULT},
    {"connect_null", EFAULT},
    {"connect_short", EINVAL},
    {"connect_negative", EINVAL},
    {"connect_long", EINVAL},
    {"connect_wrong_family", EAFNOSUPPORT},
    {"connect_bad_fd", EBADF},
    {"connect_not_socket", ENOTSOCK},
    {"connect_refused", ECONNREFUSED},
    // and what ordinary programs do
    {"netlink_route", 0},
    {"unix_stream", 0},
    {"socketpair_unix", 0},
    {"opt_nodelay", 0},
    {"clone_plain", 0},
    {"close_range_plain", 0},
    {"dumpable_zero", 0},
    {"prlimit_own", 0},
    {"setpriority_own", 0},
    {"affinity_own", 0},
    {"tmp_create", 0},
    {"udp_resolver", 0},
};

std::map<std::string, int> parse(const std::string& text) {
  std::map<std::string, int> rows;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);)
    if (const auto at = line.find('='); at != std::string::npos) rows[line.substr(0, at)] = std::atoi(line.c_str() + at + 1);
  return rows;
}

/// The sandbox's own abstract socket, which the workload must not reach.
FileDescriptor listen_abstract() {
  FileDescriptor fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, "\0sandbox-control", 16);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), offsetof(sockaddr_un, sun_path) + 16), 0);
  EXPECT_EQ(::listen(fd.get(), 4), 0);
  return fd;
}

struct Way {
  const char* how;
  bool anyip, rootless;
  bool mediated = false;
};
class Bypass : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, Bypass,
                         ::testing::Values(Way{"child", true, false}, Way{"daemon", true, false}, Way{"exec", true, false},
                                           Way{"thread", true, false}, Way{"child", false, false}, Way{"child", true, true},
                                           Way{"daemon", true, true}, Way{"child", true, false, true}, Way{"thread", true, false, true},
                                           Way{"daemon", true, true, true}),
                         [](const auto& param) {
                           return std::string{param.param.how} + (param.param.anyip ? "AnyIp" : "Notified") +
                                  (param.param.rootless ? "Rootless" : "") + (param.param.mediated ? "MediatedSignals" : "");
                         });

TEST_P(Bypass, IS_70_EveryRowOfTheTables) {
  in_sandbox({GetParam().anyip, GetParam().rootless}, [] {
    Workload::Options options;
    options.anyip = GetParam().anyip;
    options.mediated_signals = GetParam().mediated;
    const FileDescriptor control = listen_abstract();
    Workload sandbox{options};
    const auto result = sandbox.probe({"rows", GetParam().how});
    ASSERT_TRUE(result.launch.ok()) << result.launch;
    const auto rows = parse(result.out);
    for (const auto& [name, code] : rows) {
      const auto expected = kExpected.find(name);
      if (expected == kExpected.end()) {
        ADD_FAILURE() << "row " << name << " has no expectation";
        continue;
      }
      // Below ABI 6 abstract sockets are scoped by the network namespace alone, which the sandbox shares.
      if (GetParam().mediated && name == "abstract_unix") continue;
      EXPECT_EQ(code, expected->second) << name << ": " << std::strerror(code) << ", expected " << std::strerror(expected->second);
    }
    for (const auto& [name, code] : kExpected) EXPECT_TRUE(rows.contains(name)) << name << " was not tried";
    EXPECT_TRUE(sandbox.broker->healthy());
    EXPECT_TRUE(sandbox.decider.seen().empty()) << "an act of the table reached the decider";
  });
}

TEST(BypassRace, IS_68_RepointedNumberNeverConnectsNatively) {
  in_sandbox({true, false}, [] {
    Workload sandbox;
    ASSERT_TRUE(sandbox.start_probe({"server", "7007"}).ok());
    const auto result = sandbox.probe({"race", "203.0.113.44", "2000", "2000"});
    SCOPED_TRACE(result.out);
    EXPECT_THAT(result.out, ::testing::HasSubstr(" won=0 "));
  });
}

}  // namespace
}  // namespace openshell::isolation::testing
