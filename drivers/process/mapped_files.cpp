#include "drivers/process/mapped_files.hpp"

#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <fstream>
#include <sstream>

#include "drivers/process/directories.hpp"
#include "drivers/process/sandbox_files.hpp"

namespace openshell::drivers::process {
namespace {

constexpr std::uint64_t kMinimumIds = 65'536;
constexpr int kControl = 3;

absl::Status run(const std::vector<std::string>& words) {
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  char* environment[] = {nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environment);
  if (error != 0) return system_error("running " + words[0], error);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return absl::FailedPreconditionError(words[0] + " refused the id map");
  return absl::OkStatus();
}

std::vector<std::string> mapper_words(const std::string& program, pid_t process, const std::vector<IdMapLine>& lines) {
  std::vector<std::string> words{program, std::to_string(process)};
  for (const IdMapLine& line : lines) {
    for (const std::uint32_t number : {line.inside, line.outside, line.count}) words.push_back(std::to_string(number));
  }
  return words;
}

absl::StatusOr<std::uint32_t> first_of(const char* path, const std::string& name, const std::string& number) {
  std::ifstream file{path};
  for (std::string line; std::getline(file, line);) {
    std::istringstream parts{line};
    std::string user, first, count;
    if (!std::getline(parts, user, ':') || !std::getline(parts, first, ':') || !std::getline(parts, count, ':')) continue;
    if ((user == name || user == number) && std::strtoull(count.c_str(), nullptr, 10) >= kMinimumIds)
      return static_cast<std::uint32_t>(std::strtoull(first.c_str(), nullptr, 10));
  }
  return absl::NotFoundError(std::string(path) + " has no range of 65536 ids for this user");
}

absl::Status carry_out(const FileCall& call) {
  auto files = SandboxFiles::open(call.state_dir, call.runtime_dir, false);
  if (!files.ok()) return files.status();
  const Owner own{0, 0}, workload{call.uid, call.gid};
  const Parties parties{own, workload, own};
  switch (call.method) {
    case FileCall::Method::kMakeState:
      return files->make_state(call.id, parties);
    case FileCall::Method::kMakeRuntime:
      return files->make_runtime(call.id, parties, call.content);
    case FileCall::Method::kResetForGeneration:
      return files->reset_for_generation(call.id, parties);
    case FileCall::Method::kWriteRuntimeFile:
      return files->write_runtime_file(call.id, call.party, call.name, call.content, call.mode, workload);
    case FileCall::Method::kRemoveRuntime:
      return files->remove_runtime(call.id);
    case FileCall::Method::kRemoveState:
      return files->remove_state(call.id).status();
  }
  return absl::InvalidArgumentError("unknown call");
}

}  // namespace

absl::StatusOr<SubordinateIds> find_subordinate_ids() {
  SubordinateIds ids;
  for (const auto& [name, path] : {std::pair{"newuidmap", &ids.newuidmap}, std::pair{"newgidmap", &ids.newgidmap}}) {
    for (const char* directory : {"/usr/bin/", "/bin/", "/usr/local/bin/"}) {
      if (path->empty() && access((std::string(directory) + name).c_str(), X_OK) == 0) *path = std::string(directory) + name;
    }
    if (path->empty()) return absl::NotFoundError(std::string(name) + " is not installed (package uidmap)");
  }
  const std::string number = std::to_string(geteuid());
  std::string name = number;
  std::ifstream accounts{"/etc/passwd"};
  for (std::string line; std::getline(accounts, line);) {
    std::istringstream parts{line};
    std::string user, ignored, uid;
    if (std::getline(parts, user, ':') && std::getline(parts, ignored, ':') && std::getline(parts, uid, ':') && uid == number) name = user;
  }
  const auto uids = first_of("/etc/subuid", name, number), gids = first_of("/etc/subgid", name, number);
  if (!uids.ok()) return uids.status();
  if (!gids.ok()) return gids.status();
  ids.uid_first = *uids;
  ids.gid_first = *gids;
  return ids;
}

absl::Status map_process(const std::string& newuidmap, const std::string& newgidmap, pid_t process, const std::vector<IdMapLine>& uid_map,
                         const std::vector<IdMapLine>& gid_map) {
  if (auto status = run(mapper_words(newuidmap, process, uid_map)); !status.ok()) return status;
  return run(mapper_words(newgidmap, process, gid_map));
}

absl::Status call_in_namespace(const std::string& monitor, const SubordinateIds& ids, const FileCall& call, const IdMapping& mapping) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return system_error("making a socket pair");
  Descriptor ours{ends[0]}, theirs{ends[1]};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), kControl);
  posix_spawn_file_actions_addclosefrom_np(&actions, kControl + 1);
  std::string program = monitor, role = "files";
  char* argv[] = {program.data(), role.data(), nullptr};
  char* environment[] = {nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, monitor.c_str(), &actions, nullptr, argv, environment);
  posix_spawn_file_actions_destroy(&actions);
  theirs.reset();
  if (error != 0) return system_error("starting " + monitor, error);
  const auto converse = [&]() -> absl::Status {
    const auto asked = receive_frame(ours.get());
    if (!asked.ok() || asked->word != Word::kNeedMaps) return absl::InternalError("the file helper ended");
    if (auto status = map_process(ids.newuidmap, ids.newgidmap, pid, mapping.uid_map, mapping.gid_map); !status.ok()) return status;
    if (auto status = send_frame(ours.get(), Word::kFileCall, encode(call)); !status.ok()) return status;
    const auto answer = receive_frame(ours.get());
    if (!answer.ok()) return absl::InternalError("the file helper ended");
    return answer->word == Word::kDone ? absl::OkStatus() : absl::FailedPreconditionError(answer->body);
  };
  const absl::Status status = converse();
  ours.reset();
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return status;
}

int run_files_helper(int control) {
  const auto work = [control]() -> absl::Status {
    if (unshare(CLONE_NEWUSER) != 0) return system_error("making a user namespace");
    if (auto status = send_frame(control, Word::kNeedMaps, {}); !status.ok()) return status;
    const auto asked = receive_frame(control);
    if (!asked.ok()) return asked.status();
    const auto call = decode<FileCall>(asked->body);
    if (asked->word != Word::kFileCall || !call.ok()) return absl::InvalidArgumentError("no file call");
    if (setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0) return system_error("becoming root of the namespace");
    return carry_out(*call);
  };
  const absl::Status status = work();
  (void)send_frame(control, status.ok() ? Word::kDone : Word::kFailed, std::string(status.message()));
  return status.ok() ? 0 : 1;
}

}  // namespace openshell::drivers::process
