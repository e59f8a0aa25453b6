// What the driver and the monitor of one sandbox say to each other over their socket pair. Both come from one build; the version in front
// of a plan refuses another.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/process/process_driver.hpp"

namespace openshell::drivers::process {

/// One step of putting the root of a sandbox together. Steps are taken in order; every mount is nosuid.
struct MountStep {
  enum class Kind : std::uint8_t {
    kTmpfs,      ///< A new file system at `target`.
    kDirectory,  ///< An empty directory on what is there already.
    kSymlink,    ///< `target` -> `source`
    kFile,       ///< A file with `source` as its content.
    kBind,       ///< The host's `source` (directory or file) at `target`, with all mounts below it if `recursive`.
    kBindInner,  ///< The path `source` of the new root, bound once more at `target`.
    kProc,       ///< A proc of the new PID namespace.
    kDevpts,     ///< A devpts of its own.
    kImage,      ///< The ext4 file system in the host's file `source`.
    kSysctl,     ///< Writes `source` into the file `target` below /proc/sys, of the new network namespace.
  };
  Kind kind = Kind::kDirectory;
  std::string target = {};  ///< Absolute, inside the new root; no symlink on the way.
  std::string source = {};
  bool recursive = false;
  bool read_only = false;  ///< A tmpfs is sealed after the last step, since the steps write to it.
  bool no_exec = false;
  bool devices = false;      ///< Device nodes work below this mount; only for single nodes of /dev, and a devpts of its own.
  bool of_workload = false;  ///< Owned by the workload instead of the owner of the namespace.
  std::uint32_t mode = 0755;
  std::uint64_t size_bytes = 0;  ///< Of a tmpfs; 0: the kernel's default.
  std::uint64_t inodes = 0;
};

/// One line of a uid or gid map.
struct IdMapLine {
  std::uint32_t inside = 0;
  std::uint32_t outside = 0;
  std::uint32_t count = 1;
};

/// Everything up to the gate before which PID 1 waits. Holds no secret.
struct LaunchPlan {
  static constexpr std::uint32_t kVersion = 1;
  std::uint32_t version = kVersion;
  LaunchMode mode = LaunchMode::kRoot;
  std::string sandbox_id;
  std::string generation;
  std::string hostname;
  std::string root_directory;   ///< Where the root is put together, in the new mount namespace only.
  std::string state_directory;  ///< S/driver: exit.json and the logs go here.
  std::vector<MountStep> mounts;
  std::vector<std::string> cgroup_procs;  ///< `cgroup.procs` files that the launcher enters.
  std::vector<IdMapLine> uid_map, gid_map;
  std::uint32_t uid = 0, gid = 0;              ///< As the workload sees them.
  std::uint32_t owner_uid = 0, owner_gid = 0;  ///< Of the workload's files, as the one who mounts sees them.
  std::vector<std::uint32_t> groups;
  std::uint64_t max_processes = 0;            ///< RLIMIT_NPROC where no cgroup limits; 0: not set.
  std::uint64_t max_address_space = 0;        ///< RLIMIT_AS likewise.
  std::vector<std::string> init_argv;         ///< Paths inside the sandbox.
  std::vector<std::string> init_environment;  ///< Empty outside of tests.
  std::string newuidmap, newgidmap;           ///< Of mode subordinate.
};

/// A listener outside that must not be reachable from inside.
struct OutsideListener {
  bool ipv6 = false;
  std::string address;
  std::uint16_t tcp_port = 0, udp_port = 0;
};

/// How one connect or datagram from inside ended: errno, 0 for success.
struct ProbeResult {
  std::string what;
  std::int32_t error = 0;
};
/// One link, address, route or rule of the namespace.
struct LinkFact {
  std::int32_t index = 0;
  std::string name;
  std::uint32_t type = 0;  ///< ARPHRD_*
  bool up = false;
};
struct AddressFact {
  std::int32_t index = 0;
  std::string address;
  std::uint32_t prefix = 0;
};
struct RouteFact {
  bool ipv6 = false;
  std::string destination;  ///< Empty: the default.
  std::uint32_t prefix = 0;
  std::uint32_t table = 0, type = 0, protocol = 0;
  std::int32_t out_index = 0;
  bool gateway = false;
};
struct RuleFact {
  bool ipv6 = false;
  std::uint32_t priority = 0, table = 0, action = 0;
  bool selective = false;  ///< Has a source, destination, mark or interface.
};
/// What a helper inside the network namespace saw.
struct NetworkFacts {
  std::vector<LinkFact> links;
  std::vector<AddressFact> addresses;
  std::vector<RouteFact> routes;
  std::vector<RuleFact> rules;
  std::vector<ProbeResult> probes;
  std::vector<std::string>
      descriptors;  ///< Link texts of /proc/<pid>/fd of PID 1, which only its own user namespace may list without root.
};

/// The supervisor, started after the gate has opened.
struct SupervisorPlan {
  std::string path;
  std::vector<std::string> argv;
  std::vector<std::string> environment;  ///< `NAME=value`, all of it.
  std::uint32_t uid = 0, gid = 0;
  bool change_identity = false;
};

/// The namespace in which a helper works on files of mapped ids, as the driver (0) and as the workload.
struct IdMapping {
  std::vector<IdMapLine> uid_map, gid_map;
  std::uint32_t uid = 0, gid = 0;  ///< The workload's, inside.
};

/// One call of SandboxFiles, carried out by a helper in such a namespace.
struct FileCall {
  enum class Method : std::uint8_t { kMakeState, kMakeRuntime, kResetForGeneration, kWriteRuntimeFile, kRemoveRuntime, kRemoveState };
  Method method = Method::kMakeState;
  std::string state_dir, runtime_dir;
  std::string id, party, name, content;
  std::uint32_t mode = 0;
  std::uint32_t uid = 0, gid = 0;  ///< The workload's, inside.
};

/// Messages. The driver asks, the monitor answers each with kOk-like or kFailed.
enum class Word : std::uint8_t {
  kPrepare = 1,  ///< LaunchPlan -> kPrepared(pid) | kFailed(text)
  kProbe,        ///< list of OutsideListener -> kFacts(NetworkFacts)
  kEndLauncher,  ///< -> kDone
  kRelease,      ///< SupervisorPlan -> kStarted(pid)
  kFileCall,     ///< FileCall -> kDone; to a helper, which first says kNeedMaps
  kPrepared = 64,
  kFacts,
  kDone,
  kStarted,
  kNeedMaps,
  kFailed,
};

/// Encoding: fixed-width little-endian numbers, strings and lists with their length in front.
template <class T>
std::string encode(const T& value);
/// INVALID_ARGUMENT where bytes are missing or left over.
template <class T>
absl::StatusOr<T> decode(std::string_view bytes);

/// One message on the socket.
struct Frame {
  Word word = Word::kFailed;
  std::string body;
};
inline constexpr std::size_t kMaxFrameBytes = 4 * 1024 * 1024;  ///< A plan with a few hundred mounts is 50 KiB.

/// Blocking, whole frames. UNAVAILABLE when the other end is gone.
absl::Status send_frame(int socket, Word word, std::string_view body);
absl::StatusOr<Frame> receive_frame(int socket);

}  // namespace openshell::drivers::process
