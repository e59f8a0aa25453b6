#include "drivers/process/sandbox_files.hpp"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <memory>

namespace openshell::drivers::process {
namespace {

struct Wanted {
  const char* name;
  std::uint32_t mode;
  Owner owner;
};

absl::StatusOr<Descriptor> walk(int parent, const std::string& path) {
  Descriptor at{openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  for (std::size_t from = 0; from < path.size();) {
    const auto slash = path.find('/', from);
    const std::string part = path.substr(from, slash == std::string::npos ? slash : slash - from);
    Descriptor next{openat(at.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (!next) return system_error("opening " + path);
    at = std::move(next);
    from = slash == std::string::npos ? path.size() : slash + 1;
  }
  return at;
}

absl::Status make_all(int parent, std::initializer_list<Wanted> wanted) {
  for (const Wanted& directory : wanted) {
    auto made = make_directory(parent, directory.name, directory.mode, directory.owner);
    if (!made.ok()) return made.status();
  }
  return absl::OkStatus();
}

std::string canonical(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real{realpath(path.c_str(), nullptr), free};
  return real == nullptr ? path : std::string(real.get());
}

}  // namespace

bool is_valid_id(const std::string& id) {
  const auto alnum = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  return !id.empty() && id.size() <= 64 && alnum(id.front()) &&
         std::all_of(id.begin(), id.end(), [&](char c) { return alnum(c) || c == '-'; });
}

absl::StatusOr<SandboxFiles> SandboxFiles::open(const std::string& state_dir, const std::string& runtime_dir, bool others_pass) {
  const std::uint32_t mode = others_pass ? 0711 : 0700;
  SandboxFiles files;
  for (const std::string& path : {state_dir, state_dir + "/sandboxes", runtime_dir}) {
    auto base = open_base(path, mode);
    if (!base.ok()) return base.status();
    if (others_pass) {
      if (auto status = check_passable(path); !status.ok()) return status;
    }
    if (path == runtime_dir)
      files.runtime_ = std::move(*base);
    else
      files.sandboxes_ = std::move(*base);
  }
  files.state_dir_ = canonical(state_dir);
  files.runtime_dir_ = canonical(runtime_dir);
  return files;
}

void SandboxFiles::delegate(const std::string& id, IdMapping mapping, Delegate run) const {
  const std::lock_guard lock{delegates_->mutex};
  delegates_->by_id[id] = {std::move(mapping), std::move(run)};
}

std::unique_ptr<absl::Status> SandboxFiles::delegated(FileCall call) const {
  Delegated found;
  {
    const std::lock_guard lock{delegates_->mutex};
    const auto at = delegates_->by_id.find(call.id);
    if (at == delegates_->by_id.end()) return nullptr;
    found = at->second;
  }
  call.state_dir = state_dir_;
  call.runtime_dir = runtime_dir_;
  call.uid = found.mapping.uid;
  call.gid = found.mapping.gid;
  return std::make_unique<absl::Status>(found.run(call, found.mapping));
}

absl::Status SandboxFiles::make_state(const std::string& id, const Parties& parties) const {
  if (const auto done = delegated({.method = FileCall::Method::kMakeState, .id = id})) return *done;
  auto state = make_directory(sandboxes_.get(), id, 0711, parties.driver);
  if (!state.ok()) return state.status();
  if (auto status = make_all(
          state->get(), {{"driver", 0700, parties.driver}, {"workload", 0700, parties.workload}, {"supervisor", 0700, parties.supervisor}});
      !status.ok()) {
    return status;
  }
  auto workload = walk(state->get(), "workload"), supervisor = walk(state->get(), "supervisor");
  if (!workload.ok()) return workload.status();
  if (!supervisor.ok()) return supervisor.status();
  if (auto status = make_all(workload->get(), {{"workspace", 0755, parties.workload}, {"tmp", 01777, parties.workload}}); !status.ok())
    return status;
  return make_all(supervisor->get(),
                  {{"state", 0700, parties.supervisor}, {"log", 0755, parties.supervisor}, {"ocsf", 0700, parties.supervisor}});
}

absl::Status SandboxFiles::make_runtime(const std::string& id, const Parties& parties, const std::string& bundle) const {
  if (const auto done = delegated({.method = FileCall::Method::kMakeRuntime, .id = id, .content = bundle})) return *done;
  if (auto status = remove_runtime(id); !status.ok()) return status;
  auto runtime = make_directory(runtime_.get(), id, 0711, parties.driver);
  if (!runtime.ok()) return runtime.status();
  const Owner channel{parties.workload.uid, parties.supervisor.gid};
  if (auto status = make_all(runtime->get(), {{"driver", 0700, parties.driver},
                                              {"supervisor", 0700, parties.supervisor},
                                              {"sandbox", 0700, parties.workload},
                                              {"channel", 02710, channel},
                                              {"ca", 0711, parties.workload}});
      !status.ok()) {
    return status;
  }
  auto driver = walk(runtime->get(), "driver");
  if (!driver.ok()) return driver.status();
  if (auto root = make_directory(driver->get(), "root", 0700, parties.driver); !root.ok()) return root.status();
  return write_runtime_file(id, "ca", "system-bundle.crt", bundle, 0644, parties.workload);
}

absl::Status SandboxFiles::reset_for_generation(const std::string& id, const Parties& parties) const {
  if (const auto done = delegated({.method = FileCall::Method::kResetForGeneration, .id = id})) return *done;
  for (const char* name : {"exit.json", "stopped", "generation", "evidence.json"}) {
    if (auto status = remove_driver_file(id, name); !status.ok()) return status;
  }
  auto state = walk(sandboxes_.get(), id + "/supervisor/state");
  if (!state.ok()) return state.status();
  if (unlinkat(state->get(), "confirmed", 0) != 0 && errno != ENOENT) return system_error("removing confirmed");
  auto workload = walk(sandboxes_.get(), id + "/workload");
  if (!workload.ok()) return workload.status();
  if (auto removed = remove_tree(workload->get(), "tmp"); !removed.ok()) return removed.status();
  return make_directory(workload->get(), "tmp", 01777, parties.workload).status();
}

absl::Status SandboxFiles::write_driver_file(const std::string& id, const std::string& name, std::string_view content) const {
  auto driver = walk(sandboxes_.get(), id + "/driver");
  if (!driver.ok()) return driver.status();
  return write_file(driver->get(), name, content, 0600, {geteuid(), getegid()});
}

absl::StatusOr<std::string> SandboxFiles::read_driver_file(const std::string& id, const std::string& name) const {
  auto driver = walk(sandboxes_.get(), id + "/driver");
  if (!driver.ok()) return driver.status();
  return read_file(driver->get(), name, kMaxStateFileBytes);
}

absl::Status SandboxFiles::remove_driver_file(const std::string& id, const std::string& name) const {
  auto driver = walk(sandboxes_.get(), id + "/driver");
  if (!driver.ok()) return driver.status();
  if (unlinkat(driver->get(), name.c_str(), 0) != 0 && errno != ENOENT) return system_error("removing " + name);
  return absl::OkStatus();
}

absl::Status SandboxFiles::write_runtime_file(const std::string& id, const std::string& party, const std::string& name,
                                              std::string_view content, std::uint32_t mode, Owner owner) const {
  if (party != "supervisor" && party != "driver") {
    FileCall call{.method = FileCall::Method::kWriteRuntimeFile,
                  .id = id,
                  .party = party,
                  .name = name,
                  .content = std::string(content),
                  .mode = mode};
    if (const auto done = delegated(std::move(call))) return *done;
  }
  auto directory = walk(runtime_.get(), id + "/" + party);
  if (!directory.ok()) return directory.status();
  return write_file(directory->get(), name, content, mode, owner);
}

std::string SandboxFiles::confirmed_generation(const std::string& id) const {
  auto state = walk(sandboxes_.get(), id + "/supervisor/state");
  if (!state.ok()) return {};
  auto text = read_file(state->get(), "confirmed", 4096);
  if (!text.ok()) return {};
  while (!text->empty() && (text->back() == '\n' || text->back() == ' ')) text->pop_back();
  return *text;
}

absl::Status SandboxFiles::remove_runtime(const std::string& id) const {
  if (const auto done = delegated({.method = FileCall::Method::kRemoveRuntime, .id = id})) return *done;
  return remove_tree(runtime_.get(), id).status();
}

absl::StatusOr<bool> SandboxFiles::remove_state(const std::string& id) const {
  const bool there = faccessat(sandboxes_.get(), id.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  if (const auto done = delegated({.method = FileCall::Method::kRemoveState, .id = id})) {
    const std::lock_guard lock{delegates_->mutex};
    if (done->ok()) delegates_->by_id.erase(id);
    return done->ok() ? absl::StatusOr<bool>(there) : absl::StatusOr<bool>(*done);
  }
  return remove_tree(sandboxes_.get(), id);
}

std::vector<std::string> SandboxFiles::known() const {
  std::vector<std::string> ids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(state_dir_ + "/sandboxes", error))
    ids.push_back(entry.path().filename().string());
  return ids;
}

std::vector<std::string> SandboxFiles::running_directories() const {
  std::vector<std::string> ids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(runtime_dir_, error)) ids.push_back(entry.path().filename().string());
  return ids;
}

}  // namespace openshell::drivers::process
