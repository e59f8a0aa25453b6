#include "programs/gateway/local_pki.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "messages/secret.hpp"
#include "observability/text.hpp"
#include "pki/certificate.hpp"
#include "pki/keys.hpp"

namespace openshell::gateway {
namespace {

namespace fs = std::filesystem;

constexpr std::array kTlsFiles{"ca.crt", "ca.key", "server/tls.crt", "server/tls.key", "client/tls.crt", "client/tls.key"};
constexpr std::array kBundleFiles{"ca.crt", "server/tls.crt", "server/tls.key", "client/tls.crt", "client/tls.key"};
constexpr std::array kJwtFiles{"jwt/signing.pem", "jwt/public.pem", "jwt/kid"};
constexpr std::array kServerNames{"openshell",
                                  "openshell.openshell.svc",
                                  "openshell.openshell.svc.cluster.local",
                                  "localhost",
                                  "openshell.localhost",
                                  "*.openshell.localhost",
                                  "host.docker.internal",
                                  "host.containers.internal"};
constexpr std::array kServerAddresses{"127.0.0.1", "::1"};

struct File {
  std::string name;  // below the directory
  Secret content;
  bool secret = false;
};

template <std::size_t N>
std::size_t present(const std::string& directory, const std::array<const char*, N>& names) {
  return static_cast<std::size_t>(std::count_if(names.begin(), names.end(), [&](const char* name) {
    struct stat info {};
    return ::stat(cat(directory, "/", name).c_str(), &info) == 0;
  }));
}

bool is_address(const std::string& text) {
  std::array<unsigned char, 16> bytes{};
  return ::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 || ::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

bool is_ascii(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

void add_names(const std::vector<std::string>& wanted, pki::LeafProfile& profile) {
  profile.dns_names.assign(kServerNames.begin(), kServerNames.end());
  profile.ip_addresses.assign(kServerAddresses.begin(), kServerAddresses.end());
  for (const auto& name : wanted) {
    auto& list = is_address(name) ? profile.ip_addresses : profile.dns_names;
    if (is_ascii(name) && std::find(list.begin(), list.end(), name) == list.end()) list.push_back(name);
  }
}

absl::Status failed(std::string_view what, const std::string& path) {
  return absl::UnavailableError(cat("failed to ", what, " ", path, ": ", std::strerror(errno)));
}

absl::Status write_file(const std::string& path, const Secret& content, mode_t mode) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) return failed("create", path);
  std::string_view rest = content.reveal();
  while (!rest.empty()) {
    const ssize_t done = ::write(fd, rest.data(), rest.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) break;
    rest.remove_prefix(static_cast<std::size_t>(done));
  }
  const bool ok = rest.empty() && ::fsync(fd) == 0;
  ::close(fd);
  return ok ? absl::OkStatus() : failed("write", path);
}

absl::Status make_private(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return absl::UnavailableError(cat("failed to create ", path, ": ", error.message()));
  return ::chmod(path.c_str(), 0700) == 0 ? absl::OkStatus() : failed("set the mode of", path);
}

/// Writes all files beside their places first, then renames each: a crash leaves either the old file or the new one, and no half of any.
absl::Status write_all(const std::string& directory, const std::vector<File>& files) {
  const std::string staging = cat(directory, "/.certgen.tmp");
  std::error_code error;
  fs::remove_all(staging, error);
  if (auto status = make_private(directory); !status.ok()) return status;
  if (auto status = make_private(staging); !status.ok()) return status;
  for (const auto& file : files) {
    const std::string path = cat(staging, "/", file.name);
    if (auto status = make_private(fs::path{path}.parent_path()); !status.ok()) return status;
    if (auto status = write_file(path, file.content, file.secret ? 0600 : 0644); !status.ok()) return status;
  }
  for (const auto& file : files) {
    const std::string target = cat(directory, "/", file.name);
    if (auto status = make_private(fs::path{target}.parent_path()); !status.ok()) return status;
    if (::rename(cat(staging, "/", file.name).c_str(), target.c_str()) != 0) return failed("put into place", target);
  }
  fs::remove_all(staging, error);
  return absl::OkStatus();
}

absl::Status add_identity(std::vector<File>& files, const std::string& folder, const pki::Identity& identity) {
  auto key = identity.key.to_pem();
  if (!key.ok()) return key.status();
  files.push_back({cat(folder, "/tls.crt"), Secret{identity.certificate.to_pem()}, false});
  files.push_back({cat(folder, "/tls.key"), *std::move(key), true});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<File>> make_tls(const std::vector<std::string>& names) {
  pki::AuthorityProfile authority;
  authority.common_name = "openshell-ca";
  authority.organization = "openshell";
  auto ca = pki::CertificateAuthority::create(authority);
  if (!ca.ok()) return ca.status();
  auto ca_key = ca->key().to_pem();
  if (!ca_key.ok()) return ca_key.status();
  std::vector<File> files;
  files.push_back({"ca.crt", Secret{ca->certificate().to_pem()}, false});
  files.push_back({"ca.key", *std::move(ca_key), true});
  pki::LeafProfile server;
  server.common_name = "openshell-server";
  add_names(names, server);
  auto server_identity = ca->issue(server, pki::KeyKind::kP256);
  if (!server_identity.ok()) return server_identity.status();
  if (auto status = add_identity(files, "server", *server_identity); !status.ok()) return status;
  pki::LeafProfile client;
  client.common_name = "openshell-client";
  client.organizational_units = {"openshell-user"};
  client.usage = pki::Usage::kClient;
  auto client_identity = ca->issue(client, pki::KeyKind::kP256);
  if (!client_identity.ok()) return client_identity.status();
  if (auto status = add_identity(files, "client", *client_identity); !status.ok()) return status;
  return files;
}

absl::StatusOr<std::vector<File>> make_jwt() {
  auto key = pki::PrivateKey::generate(pki::KeyKind::kEd25519);
  if (!key.ok()) return key.status();
  auto signing = key->to_pem();
  auto verifying = key->public_pem();
  auto id = pki::key_id(*key);
  if (!signing.ok()) return signing.status();
  if (!verifying.ok()) return verifying.status();
  if (!id.ok()) return id.status();
  std::vector<File> files;
  files.push_back({"jwt/signing.pem", *std::move(signing), true});
  files.push_back({"jwt/public.pem", Secret{*std::move(verifying)}, false});
  files.push_back({"jwt/kid", Secret{*std::move(id)}, false});
  return files;
}

std::string read_file(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// Does the server certificate on disk have every name that is wanted?
absl::StatusOr<bool> names_complete(const std::string& directory, const std::vector<std::string>& names) {
  auto certificate = pki::Certificate::from_pem(read_file(cat(directory, "/server/tls.crt")));
  if (!certificate.ok()) return certificate.status();
  pki::LeafProfile wanted;
  add_names(names, wanted);
  const auto covers = [](const std::vector<std::string>& have, const std::vector<std::string>& want) {
    return std::all_of(want.begin(), want.end(),
                       [&](const std::string& name) { return std::find(have.begin(), have.end(), name) != have.end(); });
  };
  return covers(certificate->dns_names(), wanted.dns_names) && covers(certificate->ip_addresses(), wanted.ip_addresses);
}

void append(std::vector<File>& to, std::vector<File> more) { std::move(more.begin(), more.end(), std::back_inserter(to)); }

/// Replaces the directory `target` by one with the three client files, whole or not at all.
absl::Status copy_client(const std::string& directory, const std::string& target) {
  const std::string fresh = cat(target, ".tmp");
  const std::string old = cat(target, ".bak");
  std::error_code error;
  fs::remove_all(fresh, error);
  if (auto status = make_private(fresh); !status.ok()) return status;
  struct Part {
    const char* from;
    const char* to;
    mode_t mode;
  };
  for (const auto& part :
       {Part{"ca.crt", "ca.crt", 0644}, Part{"client/tls.crt", "tls.crt", 0644}, Part{"client/tls.key", "tls.key", 0600}}) {
    const Secret content{read_file(cat(directory, "/", part.from))};
    if (content.empty()) return absl::FailedPreconditionError(cat(directory, "/", part.from, " is empty"));
    if (auto status = write_file(cat(fresh, "/", part.to), content, part.mode); !status.ok()) return status;
  }
  fs::remove_all(old, error);
  const bool replaces = fs::exists(target, error);
  if (replaces && ::rename(target.c_str(), old.c_str()) != 0) return failed("set aside", target);
  if (::rename(fresh.c_str(), target.c_str()) != 0) {
    const auto status = failed("put into place", target);
    if (replaces) ::rename(old.c_str(), target.c_str());
    return status;
  }
  fs::remove_all(old, error);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BundleState> find_tls_bundle(const std::string& directory) {
  const std::size_t count = present(directory, kBundleFiles);
  if (count == 0) return BundleState::kNone;
  if (count == kBundleFiles.size()) return BundleState::kComplete;
  return absl::FailedPreconditionError(cat("partial local TLS state in ", directory,
                                           ": expected ca.crt, server/tls.crt, server/tls.key, client/tls.crt, and client/tls.key"));
}

absl::StatusOr<BundleState> find_jwt_bundle(const std::string& directory) {
  const std::size_t count = present(directory, kJwtFiles);
  if (count == 0) return BundleState::kNone;
  if (count == kJwtFiles.size()) return BundleState::kComplete;
  return absl::FailedPreconditionError(
      cat("partial local sandbox JWT state in ", directory, ": expected jwt/signing.pem, jwt/public.pem, and jwt/kid"));
}

absl::StatusOr<std::vector<std::string>> generate_certs(const GenerateOptions& options) {
  const std::string& directory = options.directory;
  const std::size_t tls = present(directory, kTlsFiles);
  const std::size_t jwt = present(directory, kJwtFiles);
  const bool all_tls = tls == kTlsFiles.size();
  const bool all_jwt = jwt == kJwtFiles.size();
  if (!((all_tls && (all_jwt || jwt == 0)) || (tls == 0 && jwt == 0))) {
    return absl::FailedPreconditionError(cat("partial PKI state in ", directory, ": some files exist but not all. Recover with: rm -rf ",
                                             directory, " (the gateway will regenerate on next start)"));
  }
  bool new_tls = !all_tls;
  if (all_tls) {
    auto complete = names_complete(directory, options.server_names);
    if (!complete.ok()) return complete.status();
    new_tls = !*complete;
  }
  std::vector<File> files;
  std::vector<std::string> said;
  if (new_tls) {
    auto made = make_tls(options.server_names);
    if (!made.ok()) return made.status();
    append(files, *std::move(made));
    said.push_back(all_tls ? "TLS certificates renewed: the server certificate lacked a name" : "TLS certificates made");
  }
  if (!all_jwt) {
    auto made = make_jwt();
    if (!made.ok()) return made.status();
    append(files, *std::move(made));
    said.push_back("sandbox launch-signing key made");
  }
  if (files.empty()) {
    said.push_back(cat("certificates and keys in ", directory, " are complete and stay"));
  } else {
    if (auto status = write_all(directory, files); !status.ok()) return status;
    said.push_back(cat("written to ", directory));
  }
  if (options.client_copy.empty()) return said;
  const auto copied = copy_client(directory, options.client_copy);
  said.push_back(copied.ok() ? cat("client bundle copied to ", options.client_copy)
                             : cat("warning: client bundle not copied: ", copied.message()));
  return said;
}

absl::StatusOr<std::string> dry_run(const GenerateOptions& options) {
  auto files = make_tls(options.server_names);
  if (!files.ok()) return files.status();
  std::string out;
  for (const auto& file : *files) {
    if (file.name != "ca.key") out += file.content.reveal();
  }
  return out;
}

}  // namespace openshell::gateway
