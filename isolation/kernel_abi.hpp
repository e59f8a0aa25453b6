// Numbers of the kernel interface that are newer than Debian 12's headers (6.1). Each is part of the stable ABI; a kernel that lacks one
// answers EINVAL or ENOSYS.
#pragma once

#include <fcntl.h>
#include <linux/ioctl.h>
#include <linux/types.h>

namespace openshell::isolation::kernel {

// landlock.h: ABI 4 and 6
struct LandlockRulesetAttr {
  __u64 handled_access_fs;
  __u64 handled_access_net;
  __u64 scoped;
};
constexpr __u64 kLandlockAccessNetConnectTcp = 1ULL << 1;
constexpr __u64 kLandlockScopeAbstractUnixSocket = 1ULL << 0;
constexpr __u64 kLandlockScopeSignal = 1ULL << 1;

// seccomp.h: 6.6
constexpr unsigned long kSeccompNotifSetFlags = _IOW('!', 4, __u64);
constexpr __u64 kSeccompFdSyncWakeUp = 1ULL << 0;

// pidfd.h: 6.9
constexpr unsigned kPidfdThread = O_EXCL;

// fcntl.h / tcp.h
constexpr int kTcpRtoMaxMs = 44;

}  // namespace openshell::isolation::kernel
