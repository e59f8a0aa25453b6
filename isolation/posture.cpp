// What the sandbox's own process is, read back; and how it is made as private as it has to be. See qualification.hpp.
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>

#include "isolation/broker_impl.hpp"
#include "isolation/qualification.hpp"
#include "isolation/socket_address.hpp"

namespace openshell::isolation {

namespace {

/// A field of /proc/self/status that holds a mask in hex.
std::uint64_t status_mask(const std::string& field) {
  std::ifstream status{"/proc/self/status"};
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field + ":")) return std::stoull(line.substr(field.size() + 1), nullptr, 16);
  return ~0ULL;  // unreadable counts as all set
}

bool only_loopback() {
  struct if_nameindex* names = ::if_nameindex();
  if (names == nullptr) return false;
  bool only = true;
  for (const struct if_nameindex* name = names; name->if_index != 0; ++name) only = only && std::strcmp(name->if_name, "lo") == 0;
  ::if_freenameindex(names);
  return only;
}

/// Binds a documentation address and connects to it: true where every address is local.
bool has_anyip() {
  for (const char* literal : {"198.51.100.77", "2001:db8:77::1"}) {
    const bool ipv6 = std::strchr(literal, ':') != nullptr;
    const FileDescriptor server{::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    const FileDescriptor client{::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    if (!server && ipv6 && errno == EAFNOSUPPORT) continue;  // a kernel without IPv6
    if (!server || !client) return false;
    sockaddr_storage storage;
    socklen_t size = SocketAddress::parse(literal, 0)->to_sockaddr(storage);
    if (::bind(server.get(), reinterpret_cast<sockaddr*>(&storage), size) != 0 || ::listen(server.get(), 1) != 0) return false;
    if (::getsockname(server.get(), reinterpret_cast<sockaddr*>(&storage), &size) != 0) return false;
    if (::connect(client.get(), reinterpret_cast<sockaddr*>(&storage), size) != 0 && errno != EINPROGRESS) return false;
    const FileDescriptor accepted{::accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    if (!accepted) return false;
  }
  return true;
}

int yama_scope() {
  std::ifstream file{"/proc/sys/kernel/yama/ptrace_scope"};
  int scope = 0;
  return file >> scope ? scope : 0;
}

}  // namespace

absl::Status harden_self() {
  if (auto status = reserve_interrupt_signal(); !status.ok()) return status;
  const rlimit none{0, 0};
  if (::setrlimit(RLIMIT_CORE, &none) != 0) return absl::InternalError("core dumps can not be switched off");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return absl::InternalError("no_new_privs can not be set");
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return absl::InternalError("the process can not become a subreaper");
  // Last: a non-dumpable process can not even write its own oom_score_adj.
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return absl::InternalError("the process can not be made non-dumpable");
  return absl::OkStatus();
}

absl::StatusOr<Posture> read_posture() {
  Posture posture;
  posture.capabilities = {status_mask("CapInh"), status_mask("CapPrm"), status_mask("CapEff"), status_mask("CapBnd"),
                          status_mask("CapAmb")};
  uid_t real = 0, effective = 0, saved = 0;
  gid_t real_group = 0, effective_group = 0, saved_group = 0;
  if (::getresuid(&real, &effective, &saved) != 0 || ::getresgid(&real_group, &effective_group, &saved_group) != 0)
    return absl::InternalError("own identity can not be read");
  if (real != effective || real != saved)
    return absl::FailedPreconditionError(absl::StrCat("real, effective and saved uid differ: ", real, " ", effective, " ", saved));
  if (real_group != effective_group || real_group != saved_group)
    return absl::FailedPreconditionError(
        absl::StrCat("real, effective and saved gid differ: ", real_group, " ", effective_group, " ", saved_group));
  posture.uid = real;
  posture.gid = real_group;
  const int count = ::getgroups(0, nullptr);
  if (count < 0) return absl::InternalError("supplementary groups can not be read");
  posture.groups.resize(static_cast<std::size_t>(count));
  if (::getgroups(count, posture.groups.data()) != count) return absl::InternalError("supplementary groups can not be read");
  std::sort(posture.groups.begin(), posture.groups.end());
  std::erase(posture.groups, posture.gid);
  auto landlock = probe_landlock();
  if (!landlock.ok()) return landlock.status();
  posture.landlock = *landlock;
  posture.loopback_only = only_loopback();
  posture.anyip = posture.loopback_only && has_anyip();
  return posture;
}

absl::Status check_posture(const Posture& posture) {
  if (posture.uid == 0 || posture.gid == 0)
    return absl::FailedPreconditionError(absl::StrCat("the sandbox runs as ", posture.uid, ":", posture.gid, " and must not be root"));
  if (!posture.capabilities.empty())
    return absl::FailedPreconditionError("the sandbox holds capabilities, and must hold none, the bounding set included");
  if (const int scope = yama_scope(); scope >= 2)
    return absl::FailedPreconditionError(absl::StrCat("kernel.yama.ptrace_scope is ", scope, "; the broker needs 0 or 1"));
  return absl::OkStatus();
}

}  // namespace openshell::isolation
