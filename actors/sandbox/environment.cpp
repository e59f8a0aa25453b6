#include "actors/sandbox/environment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

namespace openshell::sandbox {

namespace {

constexpr std::size_t kMaxAccountLine = 8'192;
constexpr std::size_t kMaxAccountField = 1'024;

// A process that needs no proxy must find none: the connection itself is decided.
constexpr std::array<std::string_view, 12> kProxyNames{"ALL_PROXY",  "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
                                                       "all_proxy",  "http_proxy", "https_proxy", "no_proxy",
                                                       "grpc_proxy", "FTP_PROXY",  "ftp_proxy",   "NODE_USE_ENV_PROXY"};
constexpr std::array<std::string_view, 3> kLoaderNames{"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"};
constexpr std::array<std::string_view, 4> kIdentityNames{"HOME", "USER", "SHELL", "TERM"};

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

using Layer = std::map<std::string, std::string>;

void put(Layer& into, const std::string& name, const std::string& value, bool loader_allowed) {
  const bool sane =
      !name.empty() && name.find('=') == std::string::npos && name.find('\0') == std::string::npos && value.find('\0') == std::string::npos;
  if (!sane || is_stripped(name) || (!loader_allowed && contains(kLoaderNames, name))) return;
  into[name] = value;
}

void put_trust(Layer& into) {
  const std::string certificate = fmt::format("{}/material/ca.crt", kCaDirectory),
                    bundle = fmt::format("{}/material/ca-bundle.crt", kCaDirectory);
  into["NODE_EXTRA_CA_CERTS"] = into["DENO_CERT"] = certificate;
  into["SSL_CERT_FILE"] = into["REQUESTS_CA_BUNDLE"] = into["CURL_CA_BUNDLE"] = into["GIT_SSL_CAINFO"] = bundle;
}

void put_identity(Layer& into, const EnvironmentInputs& inputs) {
  into["HOME"] = inputs.home;
  into["USER"] = inputs.user_name;
  if (!inputs.shell.empty()) into["SHELL"] = inputs.shell;
  into["TERM"] = inputs.terminal ? "xterm-256color" : "dumb";
}

}  // namespace

bool is_stripped(std::string_view name) { return name.starts_with("OPENSHELL_") || contains(kProxyNames, name); }

std::vector<std::string> build_environment(const EnvironmentInputs& inputs) {
  static const boundary::Environment none;
  const auto& image = inputs.image ? *inputs.image : none;
  const auto& user = inputs.user ? *inputs.user : none;
  const auto& provider = inputs.provider ? *inputs.provider : none;
  Layer all;
  if (inputs.main) {
    for (const auto& [name, value] : image) put(all, name, value, true);
    for (const auto& [name, value] : user) put(all, name, value, false);
    for (const auto& [name, value] : provider) put(all, name, value, false);
    Layer identity;
    put_identity(identity, inputs);
    for (const auto& name : kIdentityNames) {
      if (const auto it = identity.find(std::string(name)); it != identity.end() && !user.contains(it->first)) all[it->first] = it->second;
    }
    all.try_emplace("PATH", path_of(image, user));
    if (inputs.trust) put_trust(all);
  } else {
    all["PATH"] = path_of(image, user);
    put_identity(all, inputs);
    for (const auto& [name, value] : user) put(all, name, value, false);
    for (const auto& [name, value] : inputs.exec) put(all, name, value, false);
    if (inputs.trust) put_trust(all);
    for (const auto& [name, value] : provider) put(all, name, value, false);
  }
  all["OPENSHELL_SANDBOX"] = "1";
  std::vector<std::string> lines;
  lines.reserve(all.size());
  for (const auto& [name, value] : all) lines.push_back(name + "=" + value);
  return lines;
}

std::string user_of(const std::optional<std::string>& run_as_user) {
  return run_as_user && !run_as_user->empty() ? *run_as_user : "sandbox";
}

std::string home_of(const std::optional<std::string>& workdir, const std::optional<std::string>& run_as_user, std::string_view passwd) {
  if (workdir && !workdir->empty()) return *workdir;
  const std::string name = run_as_user ? *run_as_user : "";
  if (name.empty() || std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) return "/sandbox";
  if (auto account = find_account(passwd, name); account && !account->home.empty()) return account->home;
  return "/home/" + name;
}

std::string path_of(const boundary::Environment& image, const boundary::Environment& user) {
  std::string path;
  if (const auto it = user.find("PATH"); it != user.end())
    path = it->second;
  else if (const auto at = image.find("PATH"); at != image.end())
    path = at->second;
  if (path.empty()) return std::string(kDefaultPath);
  for (const std::string_view directory : {"/usr/local/sbin", "/usr/sbin", "/sbin"}) {
    const std::string padded = ":" + path + ":";
    if (padded.find(fmt::format(":{}:", directory)) == std::string::npos) path += fmt::format(":{}", directory);
  }
  return path;
}

std::optional<Account> find_account(std::string_view passwd, std::string_view name) {
  while (!passwd.empty()) {
    const std::size_t end = passwd.find('\n');
    const std::string_view line = passwd.substr(0, end);
    passwd.remove_prefix(end == std::string_view::npos ? passwd.size() : end + 1);
    if (line.empty() || line.front() == '#' || line.size() > kMaxAccountLine) continue;
    std::vector<std::string_view> parts;
    std::string_view rest = line;
    for (std::size_t colon = 0; (colon = rest.find(':')) != std::string_view::npos; rest.remove_prefix(colon + 1))
      parts.push_back(rest.substr(0, colon));
    parts.push_back(rest);
    if (parts.size() != 7 || parts[0] != name) continue;
    if (std::any_of(parts.begin(), parts.end(), [](std::string_view part) { return part.size() > kMaxAccountField; })) continue;
    Account account;
    const auto [stop, error] = std::from_chars(parts[2].data(), parts[2].data() + parts[2].size(), account.uid);
    if (error != std::errc{} || stop != parts[2].data() + parts[2].size()) continue;
    account.home = std::string(parts[5]);
    return account;
  }
  return std::nullopt;
}

}  // namespace openshell::sandbox
