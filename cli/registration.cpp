#include "cli/registration.hpp"

#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "cli/document.hpp"
#include "cli/terminal.hpp"

namespace openshell::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::uintmax_t kMaxFileBytes = 1 << 20;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<std::string> read_file(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) return absl::NotFoundError(absl::StrCat(path.string(), ": ", error.message()));
  if (size > kMaxFileBytes) return absl::InvalidArgumentError(absl::StrCat(path.string(), " has more than ", kMaxFileBytes, " bytes"));
  std::ifstream file{path, std::ios::binary};
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return absl::PermissionDeniedError(absl::StrCat("cannot read ", path.string()));
  return text.str();
}

/// Writes beside the target and renames, so that a reader sees the old text or the new one.
absl::Status write_file(const fs::path& path, const std::string& text, mode_t mode) {
  const auto staged = path.string() + ".tmp";
  const auto previous = umask(0077);
  std::ofstream file{staged, std::ios::binary | std::ios::trunc};
  umask(previous);
  file << text;
  file.close();
  if (!file || chmod(staged.c_str(), mode) != 0 || ::rename(staged.c_str(), path.c_str()) != 0) {
    return absl::InternalError(absl::StrCat("cannot write ", path.string()));
  }
  return absl::OkStatus();
}

absl::Status make_private_folders(const fs::path& path) {
  std::error_code error;
  std::vector<fs::path> fresh;
  for (auto each = path; !each.empty() && !fs::exists(each, error); each = each.parent_path()) fresh.push_back(each);
  fs::create_directories(path, error);
  if (error) return absl::InternalError(absl::StrCat("cannot create ", path.string(), ": ", error.message()));
  for (const auto& each : fresh) fs::permissions(each, fs::perms::owner_all, error);
  return absl::OkStatus();
}

std::string text_of(const json::object& object, std::string_view key) {
  const auto* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string{value->get_string()} : "";
}

absl::StatusOr<Registration> parse(const std::string& text, const fs::path& path) {
  boost::system::error_code error;
  const auto document = json::parse(text, error);
  if (error || !document.is_object())
    return absl::InvalidArgumentError(absl::StrCat("gateway metadata ", path.string(), " is not a JSON object"));
  const auto& object = document.get_object();
  Registration result;
  result.name = text_of(object, "name");
  result.endpoint = text_of(object, "gateway_endpoint");
  result.auth_mode = text_of(object, "auth_mode");
  result.remote_host = text_of(object, "remote_host");
  result.resolved_host = text_of(object, "resolved_host");
  result.oidc_issuer = text_of(object, "oidc_issuer");
  result.oidc_client_id = text_of(object, "oidc_client_id");
  result.oidc_audience = text_of(object, "oidc_audience");
  result.oidc_scopes = text_of(object, "oidc_scopes");
  const auto* remote = object.if_contains("is_remote");
  const auto* port = object.if_contains("gateway_port");
  if (result.name.empty() || result.endpoint.empty() || remote == nullptr || !remote->is_bool() || port == nullptr || !port->is_int64()) {
    return absl::InvalidArgumentError(
        absl::StrCat("gateway metadata ", path.string(), " must have name, gateway_endpoint, is_remote and gateway_port"));
  }
  result.is_remote = remote->get_bool();
  return result;
}

}  // namespace

absl::StatusOr<Registry> Registry::from_environment() {
  auto base = environment("XDG_CONFIG_HOME");
  if (base.empty()) {
    const auto home = environment("HOME");
    if (home.empty())
      return absl::FailedPreconditionError("neither XDG_CONFIG_HOME nor HOME is set, so there is no place for gateway registrations");
    base = home + "/.config";
  }
  fs::path system = "/etc/openshell";
  if (const auto other = environment("OPENSHELL_SYSTEM_GATEWAY_DIR"); !other.empty()) {
    if (other.front() == '/') {
      system = other;
    } else {
      note("Warning: OPENSHELL_SYSTEM_GATEWAY_DIR is not an absolute path and is ignored");
    }
  }
  return Registry{fs::path{base} / "openshell", system};
}

absl::Status Registry::check_name(const std::string& name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("invalid gateway name '", name, "': expected a single path component"));
  }
  return absl::OkStatus();
}

fs::path Registry::folder(const std::string& name) const { return user_ / "gateways" / name; }

absl::StatusOr<Registration> Registry::find(const std::string& name) const {
  if (auto valid = check_name(name); !valid.ok()) return valid;
  for (const bool system : {false, true}) {
    const auto path = (system ? system_ / "gateways" / name : folder(name)) / "metadata.json";
    std::error_code error;
    if (!fs::exists(path, error) && !error) continue;
    auto text = read_file(path);
    if (!text.ok()) return text.status();
    auto result = parse(*text, path);
    if (result.ok()) result->from_system = system;
    return result;
  }
  return absl::NotFoundError(absl::StrCat("Unknown gateway '", name, "'.\nRegister it first: openshell gateway add <endpoint> --name ",
                                          name, "\nOr list available gateways: openshell gateway select"));
}

std::vector<Registration> Registry::list() const {
  std::map<std::string, Registration> found;
  const auto chosen = active();
  for (const auto& root : {user_, system_}) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator{root / "gateways", error}) {
      const auto name = entry.path().filename().string();
      if (found.contains(name)) continue;
      if (auto registration = find(name); registration.ok()) {
        registration->active = chosen == name;
        found.emplace(name, *std::move(registration));
      }
    }
  }
  std::vector<Registration> all;
  for (auto& [name, registration] : found) all.push_back(std::move(registration));
  return all;
}

std::optional<std::string> Registry::active() const {
  for (const auto& root : {user_, system_}) {
    auto text = read_file(root / "active_gateway");
    if (!text.ok()) continue;
    const std::string name{absl::StripAsciiWhitespace(*text)};
    if (name.empty()) continue;
    if (check_name(name).ok()) return name;
    note(absl::StrCat("Warning: ", (root / "active_gateway").string(), " names no valid gateway and is ignored"));
  }
  return std::nullopt;
}

absl::Status Registry::save(const Registration& registration) const {
  if (auto valid = check_name(registration.name); !valid.ok()) return valid;
  if (auto made = make_private_folders(folder(registration.name)); !made.ok()) return made;
  json::object document{
      {"name", registration.name}, {"gateway_endpoint", registration.endpoint}, {"is_remote", registration.is_remote}, {"gateway_port", 0}};
  if (!registration.remote_host.empty()) document["remote_host"] = registration.remote_host;
  if (!registration.resolved_host.empty()) document["resolved_host"] = registration.resolved_host;
  if (!registration.auth_mode.empty()) document["auth_mode"] = registration.auth_mode;
  const std::pair<const char*, const std::string&> optional[] = {{"oidc_issuer", registration.oidc_issuer},
                                                                 {"oidc_client_id", registration.oidc_client_id},
                                                                 {"oidc_audience", registration.oidc_audience},
                                                                 {"oidc_scopes", registration.oidc_scopes}};
  for (const auto& [key, value] : optional) {
    if (!value.empty()) document[key] = value;
  }
  return write_file(folder(registration.name) / "metadata.json", to_json_text(document), 0644);
}

absl::Status Registry::set_active(const std::string& name) const {
  if (auto made = make_private_folders(user_); !made.ok()) return made;
  return write_file(user_ / "active_gateway", name, 0644);
}

absl::Status Registry::remove(const std::string& name) const {
  if (auto valid = check_name(name); !valid.ok()) return valid;
  std::error_code error;
  if (!fs::exists(folder(name) / "metadata.json", error)) {
    if (find(name).ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("Gateway registration '", name, "' is installed by the system and cannot be removed from user config."));
    }
    return absl::NotFoundError(absl::StrCat("No gateway metadata found for '", name, "'."));
  }
  for (const char* file : {"edge_token", "cf_token", "oidc_token.json", "oidc_login_prompt_required", "metadata.json"})
    fs::remove(folder(name) / file, error);
  if (auto text = read_file(user_ / "active_gateway"); text.ok() && absl::StripAsciiWhitespace(*text) == name)
    fs::remove(user_ / "active_gateway", error);
  return absl::OkStatus();
}

ClientBundle Registry::bundle(const std::string& name) const {
  std::string safe = name;
  for (char& c : safe) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '_' && c != '-') c = '_';
  }
  const auto root = folder(safe) / "mtls";
  return {root / "ca.crt", root / "tls.crt", root / "tls.key"};
}

absl::Status Registry::import_bundle(const std::string& name, const ClientBundle& from) const {
  if (auto made = make_private_folders(folder(name)); !made.ok()) return made;
  const auto target = folder(name) / "mtls";
  const auto staged = folder(name) / "mtls.tmp";
  const auto backup = folder(name) / "mtls.bak";
  std::error_code error;
  fs::remove_all(staged, error);
  if (auto made = make_private_folders(staged); !made.ok()) return made;
  const std::pair<fs::path, const char*> files[] = {{from.ca, "ca.crt"}, {from.certificate, "tls.crt"}, {from.key, "tls.key"}};
  for (const auto& [source, file] : files) {
    auto text = read_file(source);
    if (!text.ok()) return text.status();
    if (text->empty()) return absl::InvalidArgumentError(absl::StrCat(source.string(), " is empty"));
    if (auto written = write_file(staged / file, *text, std::string_view{file} == "tls.key" ? 0600 : 0644); !written.ok()) return written;
  }
  fs::remove_all(backup, error);
  if (fs::exists(target, error)) fs::rename(target, backup, error);
  fs::rename(staged, target, error);
  if (error) {
    std::error_code ignored;
    fs::rename(backup, target, ignored);
    return absl::InternalError(absl::StrCat("cannot put the certificates in ", target.string(), ": ", error.message()));
  }
  fs::remove_all(backup, error);
  return absl::OkStatus();
}

absl::StatusOr<Secret> Registry::read_token(const std::string& name) const {
  if (auto valid = check_name(name); !valid.ok()) return valid;
  auto text = read_file(folder(name) / "oidc_token.json");
  if (!text.ok()) return text.status();
  return Secret{*std::move(text)};
}

absl::Status Registry::write_token(const std::string& name, const Secret& token) const {
  if (auto valid = check_name(name); !valid.ok()) return valid;
  if (auto made = make_private_folders(folder(name)); !made.ok()) return made;
  if (auto written = write_file(folder(name) / "oidc_token.json", std::string{token.reveal()}, 0600); !written.ok()) return written;
  std::error_code error;
  fs::remove(folder(name) / "oidc_login_prompt_required", error);
  return absl::OkStatus();
}

absl::Status Registry::forget_token(const std::string& name) const {
  if (auto valid = check_name(name); !valid.ok()) return valid;
  std::error_code error;
  if (!fs::remove(folder(name) / "oidc_token.json", error))
    return absl::NotFoundError(absl::StrCat("no token is stored for gateway '", name, "'"));
  return write_file(folder(name) / "oidc_login_prompt_required", "1\n", 0600);
}

std::optional<std::string> Registry::last_sandbox(const std::string& gateway, const std::string& workspace) const {
  if (!check_name(gateway).ok()) return std::nullopt;
  auto text = read_file(folder(gateway) / "last_sandbox");
  if (!text.ok()) return std::nullopt;
  std::istringstream lines{*text};
  std::string where, name;
  std::getline(lines, where);
  std::getline(lines, name);
  if (where != workspace || name.empty()) return std::nullopt;
  return name;
}

void Registry::remember_sandbox(const std::string& gateway, const std::string& workspace, const std::string& sandbox) const {
  // A convenience: what cannot be written is not worth failing a command that succeeded.
  if (!check_name(gateway).ok() || !make_private_folders(folder(gateway)).ok()) return;
  write_file(folder(gateway) / "last_sandbox", workspace + "\n" + sandbox + "\n", 0600).IgnoreError();
}

void Registry::forget_sandbox(const std::string& gateway, const std::string& workspace, const std::string& sandbox) const {
  if (last_sandbox(gateway, workspace) != sandbox) return;
  std::error_code error;
  fs::remove(folder(gateway) / "last_sandbox", error);
}

absl::StatusOr<ClientBundle> find_local_bundle(const std::string& gateway) {
  std::vector<fs::path> candidates;
  if (const auto only = environment("OPENSHELL_LOCAL_TLS_DIR"); !only.empty()) {
    candidates.emplace_back(only);
  } else {
    if (geteuid() == 0) candidates.emplace_back("/var/lib/openshell/tls");
    auto state = environment("XDG_STATE_HOME");
    if (state.empty() && !environment("HOME").empty()) state = environment("HOME") + "/.local/state";
    if (!state.empty()) candidates.emplace_back(fs::path{state} / "openshell" / "tls");
  }
  std::string searched;
  for (const auto& root : candidates) {
    ClientBundle bundle{root / "ca.crt", root / "client" / "tls.crt", root / "client" / "tls.key"};
    std::error_code error;
    if (fs::exists(bundle.ca, error) && fs::exists(bundle.certificate, error) && fs::exists(bundle.key, error)) return bundle;
    absl::StrAppend(&searched, "\n  searched ", root.string());
  }
  return absl::NotFoundError(absl::StrCat("mTLS certificates for gateway '", gateway, "' were not found.", searched,
                                          "\nMake them with: openshell-gateway generate-certs, or point OPENSHELL_LOCAL_TLS_DIR at them"));
}

}  // namespace openshell::cli
