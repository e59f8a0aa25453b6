#include "programs/gateway/places.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "observability/text.hpp"

namespace openshell::gateway {
namespace {

constexpr mode_t kPrivate = 0700;
constexpr mode_t kPassable = 0711;

absl::StatusOr<std::string> override_of(const Environment& environment, std::string_view name, std::string otherwise) {
  auto value = environment.find(name);
  if (!value) return otherwise;
  if (!value->starts_with('/')) return absl::InvalidArgumentError(cat(name, " must be an absolute path, got '", *value, "'"));
  while (value->size() > 1 && value->ends_with('/')) value->pop_back();
  return *value;
}

/// `$XDG_x/openshell`, or below the home directory. Empty: neither is set.
std::string xdg(const Environment& environment, std::string_view variable, std::string_view below_home) {
  if (const auto base = environment.find(variable)) return cat(*base, "/openshell");
  if (const auto home = environment.find("HOME")) return cat(*home, below_home, "/openshell");
  return {};
}

std::string user_run(const Environment& environment, unsigned uid) {
  if (const auto base = environment.find("XDG_RUNTIME_DIR")) return cat(*base, "/openshell");
  const std::string session = cat("/run/user/", uid);
  struct stat info {};
  if (::stat(session.c_str(), &info) == 0 && info.st_uid == uid) return cat(session, "/openshell");
  return cat("/tmp/openshell-", uid);
}

/// Parents are made as mkdir -p does; what exists must be a directory of ours and no symbolic link.
absl::Status make_directory(const std::string& path, mode_t mode, unsigned uid) {
  for (auto slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1))
    ::mkdir(path.substr(0, slash).c_str(), 0755);
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST)
    return absl::FailedPreconditionError(cat("failed to create ", path, ": ", std::strerror(errno)));
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return absl::FailedPreconditionError(cat(path, " is not a directory"));
  if (info.st_uid != uid) return absl::FailedPreconditionError(cat(path, " belongs to uid ", info.st_uid, ", not to this gateway's ", uid));
  if (::chmod(path.c_str(), mode) != 0)
    return absl::FailedPreconditionError(cat("failed to set the mode of ", path, ": ", std::strerror(errno)));
  return absl::OkStatus();
}

}  // namespace

Environment Environment::of_process() {
  std::map<std::string, std::string, std::less<>> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text{*entry};
    const auto equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return Environment{std::move(variables)};
}

std::optional<std::string> Environment::find(std::string_view name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

absl::StatusOr<Places> Places::find(const Environment& environment, unsigned effective_uid) {
  const bool root = effective_uid == 0;
  auto state =
      override_of(environment, "OPENSHELL_STATE_DIR", root ? "/var/lib/openshell" : xdg(environment, "XDG_STATE_HOME", "/.local/state"));
  if (!state.ok()) return state.status();
  if (state->empty()) return absl::FailedPreconditionError("HOME is not set");
  auto run = override_of(environment, "OPENSHELL_RUN_DIR", root ? "/run/openshell" : user_run(environment, effective_uid));
  if (!run.ok()) return run.status();
  Places places;
  places.state = *std::move(state);
  places.run = *std::move(run);
  places.user_config = xdg(environment, "XDG_CONFIG_HOME", "/.config");
  if (!places.user_config.empty()) places.config_file = cat(places.user_config, "/gateway.toml");
  places.tls = environment.find("OPENSHELL_LOCAL_TLS_DIR").value_or(cat(places.state, "/tls"));
  return places;
}

absl::Status Places::make(unsigned effective_uid) const {
  const mode_t base = effective_uid == 0 ? kPassable : kPrivate;
  for (const auto& [path, mode] :
       {std::pair{state, base}, {run, base}, {cat(state, "/gateway"), kPrivate}, {cat(run, "/gateway"), kPrivate}}) {
    if (auto status = make_directory(path, mode, effective_uid); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace openshell::gateway
