#include "isolation/boundary/launch_material.hpp"

#include "isolation/boundary/control_fields.hpp"

#include <absl/strings/ascii.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

namespace openshell {

// A secret inside a described type.
inline boost::json::value encode_json(const Secret& x) { return boost::json::value(x.reveal()); }
inline absl::Status decode_json(const boost::json::value& value, Secret& x, const std::string& where) {
  if (!value.is_string()) return boundary::internal::wrong(where, "not a string");
  x = Secret{std::string(value.get_string())};
  return absl::OkStatus();
}

}  // namespace openshell

namespace openshell::boundary {

namespace json = internal::json;
using internal::wrong;

namespace {

constexpr std::size_t kMaxUnixPathBytes = 107;
constexpr std::uint32_t kOverflowUid = 65'534;
constexpr std::uint32_t kMaxStopGraceSecs = 3'600;
constexpr std::uint32_t kMinRecoveryWindowMs = 100;
constexpr std::uint32_t kMaxRecoveryWindowMs = 30'000;

bool is_uuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    const char c = text[i];
    if (dash ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  return true;
}

bool is_absolute(std::string_view path) { return path.size() > 1 && path.front() == '/' && path.find('\0') == std::string_view::npos; }

/// "IP:port" or "[IPv6]:port" with a concrete address and a port that is not 0.
bool is_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == text.size() || text.size() - colon > 6) return false;
  std::uint32_t port = 0;
  for (const char c : text.substr(colon + 1)) {
    if (c < '0' || c > '9') return false;
    port = port * 10 + static_cast<std::uint32_t>(c - '0');
  }
  if (port == 0 || port > 65'535) return false;
  std::string host(text.substr(0, colon));
  in6_addr six{};
  in_addr four{};
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    return inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &six) == 1;
  return inet_pton(AF_INET, host.c_str(), &four) == 1;
}

absl::Status check_claims(const Claims& claims, const std::string& where) {
  const auto good = [](const std::string& text) {
    return !text.empty() && std::none_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isspace(c); });
  };
  for (const auto& [key, value] : claims) {
    if (!good(key) || !good(value)) return wrong(where, fmt::format("claim '{}' or its value is empty or has white space", key));
  }
  return absl::OkStatus();
}

absl::Status check_identity(const WorkloadIdentity& identity, const std::string& where) {
  if (identity.uid == 0 || identity.uid > kMaxIdentity) return wrong(where, "uid out of range 1..4294967294");
  if (identity.gid == 0 || identity.gid > kMaxIdentity) return wrong(where, "gid out of range 1..4294967294");
  for (std::size_t i = 0; i < identity.supplementary_gids.size(); ++i) {
    const std::uint32_t gid = identity.supplementary_gids[i];
    if (gid == 0 || gid > kMaxIdentity || gid == identity.gid)
      return wrong(where, "supplementary_gids holds 0, the primary group or a number out of range");
    if (i != 0 && gid <= identity.supplementary_gids[i - 1]) return wrong(where, "supplementary_gids is not sorted and distinct");
  }
  return absl::OkStatus();
}

/// Reads one file kind: parse, object, `fill` with a Reader, unknown keys.
template <class Fill>
absl::Status read_object(std::string_view text, const std::string& kind, Fill fill) {
  if (text.size() > kMaxLaunchFileBytes) return wrong(kind, "longer than 262144 bytes");
  auto value = internal::parse_strict(text);
  if (!value.ok()) return wrong(kind, std::string(value.status().message()));
  if (!value->is_object()) return wrong(kind, "not an object");
  internal::Reader reader{value->get_object(), kind};
  return fill(value->get_object(), reader);
}

/// The `kind` of a tagged object, or nothing.
std::string kind_of(const json::value& value) {
  const auto* object = value.if_object();
  const auto* kind = object ? object->if_contains("kind") : nullptr;
  return kind && kind->is_string() ? std::string(kind->get_string()) : std::string();
}

}  // namespace

json::value encode_json(const Transport& x) {
  if (const auto* at = std::get_if<UnixTransport>(&x)) return json::object{{"kind", "unix"}, {"socket_path", at->socket_path}};
  if (const auto* at = std::get_if<TcpTransport>(&x)) {
    return json::object{{"kind", "tcp"}, {"authority", at->authority}, {"addresses", internal::to_json(at->addresses)}};
  }
  const auto& at = std::get<VsockTransport>(x);
  return json::object{{"kind", "vsock"}, {"guest_cid", at.guest_cid}, {"port", at.port}};
}

absl::Status decode_json(const json::value& value, Transport& x, const std::string& where) {
  const std::string kind = kind_of(value);
  if (kind.empty()) return wrong(where, "no kind");
  internal::Reader reader{value.get_object(), where};
  reader.expect("kind");
  if (kind == "unix") {
    auto& at = x.emplace<UnixTransport>();
    reader("socket_path", at.socket_path);
    if (auto s = reader.finish(); !s.ok()) return s;
    if (!is_absolute(at.socket_path) || at.socket_path.size() > kMaxUnixPathBytes)
      return wrong(where, "socket_path is not absolute or longer than 107 bytes");
  } else if (kind == "tcp") {
    auto& at = x.emplace<TcpTransport>();
    reader("authority", at.authority);
    reader("addresses", at.addresses);
    if (auto s = reader.finish(); !s.ok()) return s;
    if (at.addresses.empty() || !std::all_of(at.addresses.begin(), at.addresses.end(), is_address))
      return wrong(where, "addresses must be IP:port, at least one");
  } else if (kind == "vsock") {
    auto& at = x.emplace<VsockTransport>();
    reader("guest_cid", at.guest_cid);
    reader("port", at.port);
    if (auto s = reader.finish(); !s.ok()) return s;
    if (at.guest_cid < 3 || at.port == 0) return wrong(where, "guest_cid must be 3 or more and port not 0");
  } else {
    return wrong(where, "kind is none of unix, tcp, vsock");
  }
  return absl::OkStatus();
}

template <class F>
void fields(F& f, ListenerTls& x) {
  f("certificate_chain_path", x.certificate_chain_path), f("private_key_path", x.private_key_path);
  f("client_ca_certificate_path", x.client_ca_certificate_path);
}
template <class F>
void fields(F& f, VerificationKey& x) {
  f("key_id", x.key_id), f("public_key_pem", x.public_key_pem);
}

json::value encode_json(const Listener& x) {
  json::object object;
  if (const auto* at = std::get_if<UnixListener>(&x.endpoint)) {
    object = {{"kind", "unix"}, {"socket_path", at->socket_path}};
  } else if (const auto* tcp = std::get_if<TcpListener>(&x.endpoint)) {
    object = {{"kind", "tls-tcp"}, {"address", tcp->address}};
  } else {
    object = {{"kind", "vsock"}, {"control_port", std::get<VsockListener>(x.endpoint).control_port}};
  }
  object["tls"] = internal::to_json(x.tls);
  return object;
}

absl::Status decode_json(const json::value& value, Listener& x, const std::string& where) {
  const std::string kind = kind_of(value);
  if (kind.empty()) return wrong(where, "no kind");
  internal::Reader reader{value.get_object(), where};
  reader.expect("kind");
  reader("tls", x.tls);
  bool good = false;
  if (kind == "unix") {
    auto& at = x.endpoint.emplace<UnixListener>();
    reader("socket_path", at.socket_path);
    good = is_absolute(at.socket_path) && at.socket_path.size() <= kMaxUnixPathBytes;
  } else if (kind == "tls-tcp") {
    auto& at = x.endpoint.emplace<TcpListener>();
    reader("address", at.address);
    good = is_address(at.address);
  } else if (kind == "vsock") {
    auto& at = x.endpoint.emplace<VsockListener>();
    reader("control_port", at.control_port);
    good = at.control_port != 0;
  } else {
    return wrong(where, "kind is none of unix, tls-tcp, vsock");
  }
  if (auto s = reader.finish(); !s.ok()) return s;
  if (!good) return wrong(where, "path not absolute or too long, or address or port not concrete");
  if (!is_absolute(x.tls.certificate_chain_path) || !is_absolute(x.tls.private_key_path) ||
      !is_absolute(x.tls.client_ca_certificate_path)) {
    return wrong(where + ".tls", "a path is not absolute");
  }
  return absl::OkStatus();
}

/// `tls{...}` of the descriptor is an object of its own in the file.
struct DescriptorTls {
  std::string server_name, trust_anchor_pem, client_certificate_pem;
  Secret client_private_key_pem;
};
template <class F>
void fields(F& f, DescriptorTls& x) {
  f("server_name", x.server_name), f("trust_anchor_pem", x.trust_anchor_pem), f("client_certificate_pem", x.client_certificate_pem);
  f("client_private_key_pem", x.client_private_key_pem);
}

template <class F>
void common_fields(F& f, Descriptor& x, DescriptorTls& tls) {
  f("boundary_id", x.boundary_id), f("generation", x.generation), f("session_id", x.session_id),
      f("workload_identity", x.workload_identity);
  f("transport", x.transport), f("tls", tls), f("host_gateway_ip", internal::optional_key(x.host_gateway_ip));
  f("resource_claims", x.resource_claims), f("outer_fence", x.outer_fence);
}

template <class F>
void fields(F& f, AuthBundle& x) {
  f("session_id", x.session_id), f("runtime_generation", x.runtime_generation), f("session_rotation", x.session_rotation);
  f("auth_epoch", x.auth_epoch), f("gateway_token", x.gateway_token), f("gateway_expires_at", x.gateway_expires_at);
  f("sandbox_token", x.sandbox_token), f("sandbox_expires_at", x.sandbox_expires_at);
}

template <class F>
void fields(F& f, Bootstrap& x) {
  f("boundary_id", x.boundary_id), f("generation", x.generation), f("session_id", x.session_id), f("session_rotation", x.session_rotation);
  f("auth_epoch", x.auth_epoch), f("gateway_id", x.gateway_id), f("verification_keys", x.verification_keys), f("listener", x.listener);
  f("resource_claims", x.resource_claims), f("resource_claim_files", x.resource_claim_files), f("workload_identity", x.workload_identity);
  f("outer_fence", x.outer_fence), f("child_env", x.child_env);
  f("image_env", internal::optional_key(x.image_env)), f("require_pid_limit", internal::optional_key(x.require_pid_limit));
  f("stop_grace_secs", internal::optional_key(x.stop_grace_secs)), f("peer_names", internal::optional_key(x.peer_names));
  f("recovery_window_ms", internal::optional_key(x.recovery_window_ms));
}

absl::StatusOr<Descriptor> parse_descriptor(std::string_view text) {
  Descriptor x;
  DescriptorTls tls;
  auto status = read_object(text, "descriptor", [&](const json::object&, internal::Reader& reader) {
    common_fields(reader, x, tls);
    return reader.finish();
  });
  if (!status.ok()) return status;
  x.tls_server_name = std::move(tls.server_name);
  x.tls_trust_anchor_pem = std::move(tls.trust_anchor_pem);
  x.tls_client_certificate_pem = std::move(tls.client_certificate_pem);
  x.tls_client_private_key_pem = std::move(tls.client_private_key_pem);
  if (x.boundary_id.empty() || x.generation.empty()) return wrong("descriptor", "boundary_id or generation is empty");
  if (!is_uuid(x.session_id)) return wrong("descriptor.session_id", "not a UUID in lower case");
  if (x.tls_server_name.empty() || x.tls_trust_anchor_pem.empty())
    return wrong("descriptor.tls", "server_name or trust_anchor_pem is empty");
  if (auto s = check_identity(x.workload_identity, "descriptor.workload_identity"); !s.ok()) return s;
  if (auto s = check_claims(x.resource_claims, "descriptor.resource_claims"); !s.ok()) return s;
  if (auto s = check_fence(x.outer_fence, x.generation); !s.ok()) return wrong("descriptor", std::string(s.message()));
  if (x.host_gateway_ip &&
      !is_address(fmt::format(
          "{}:1", x.host_gateway_ip->find(':') == std::string::npos ? *x.host_gateway_ip : fmt::format("[{}]", *x.host_gateway_ip)))) {
    return wrong("descriptor.host_gateway_ip", "not an IP address");
  }
  return x;
}

absl::StatusOr<AuthBundle> parse_auth_bundle(std::string_view text) {
  AuthBundle x;
  auto status = read_object(text, "auth bundle", [&](const json::object&, internal::Reader& reader) {
    fields(reader, x);
    return reader.finish();
  });
  if (!status.ok()) return status;
  if (!is_uuid(x.session_id)) return wrong("auth bundle.session_id", "not a UUID in lower case");
  if (x.runtime_generation.empty()) return wrong("auth bundle.runtime_generation", "empty");
  if (x.session_rotation == 0 || x.auth_epoch == 0) return wrong("auth bundle", "session_rotation and auth_epoch must be 1 or more");
  if (x.gateway_token.empty() || x.sandbox_token.empty()) return wrong("auth bundle", "a token is empty");
  return x;
}

absl::StatusOr<Bootstrap> parse_bootstrap(std::string_view text) {
  Bootstrap x;
  auto status = read_object(text, "bootstrap", [&](const json::object&, internal::Reader& reader) {
    fields(reader, x);
    return reader.finish();
  });
  if (!status.ok()) return status;
  if (x.boundary_id.empty() || x.generation.empty() || x.gateway_id.empty())
    return wrong("bootstrap", "boundary_id, generation or gateway_id is empty");
  if (!is_uuid(x.session_id)) return wrong("bootstrap.session_id", "not a UUID in lower case");
  if (x.session_rotation == 0 || x.auth_epoch == 0) return wrong("bootstrap", "session_rotation and auth_epoch must be 1 or more");
  if (x.verification_keys.empty()) return wrong("bootstrap.verification_keys", "empty");
  std::set<std::string> ids;
  for (const auto& key : x.verification_keys) {
    if (key.key_id.empty() || !ids.insert(key.key_id).second)
      return wrong("bootstrap.verification_keys", "a key_id is empty or stands twice");
  }
  if (auto s = check_identity(x.workload_identity, "bootstrap.workload_identity"); !s.ok()) return s;
  if (auto s = check_claims(x.resource_claims, "bootstrap.resource_claims"); !s.ok()) return s;
  for (const auto& [claim, path] : x.resource_claim_files) {
    if (!x.resource_claims.contains(claim)) return wrong("bootstrap.resource_claim_files", fmt::format("'{}' is no claim", claim));
    if (!is_absolute(path)) return wrong("bootstrap.resource_claim_files", fmt::format("path of '{}' is not absolute", claim));
  }
  if (auto s = check_fence(x.outer_fence, x.generation); !s.ok()) return wrong("bootstrap", std::string(s.message()));
  if (x.stop_grace_secs > kMaxStopGraceSecs) return wrong("bootstrap.stop_grace_secs", "more than 3600");
  if (x.recovery_window_ms < kMinRecoveryWindowMs || x.recovery_window_ms > kMaxRecoveryWindowMs) {
    return wrong("bootstrap.recovery_window_ms", "out of range 100..30000");
  }
  return x;
}

std::string serialise(const Descriptor& descriptor) {
  Descriptor& x = const_cast<Descriptor&>(descriptor);  // the writer only reads
  DescriptorTls tls{x.tls_server_name, x.tls_trust_anchor_pem, x.tls_client_certificate_pem, x.tls_client_private_key_pem};
  json::object object;
  internal::Writer writer{object};
  common_fields(writer, x, tls);
  return json::serialize(object);
}

std::string serialise(const AuthBundle& bundle) { return json::serialize(internal::to_json(bundle)); }
std::string serialise(const Bootstrap& bootstrap) { return json::serialize(internal::to_json(bootstrap)); }

absl::StatusOr<std::string> read_launch_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT) return absl::NotFoundError(fmt::format("{}: no such file", path));
    return absl::FailedPreconditionError(fmt::format("{}: {}", path, std::strerror(errno)));
  }
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } closer{fd};
  struct stat st {};
  if (::fstat(fd, &st) != 0) return absl::FailedPreconditionError(fmt::format("{}: {}", path, std::strerror(errno)));
  if (!S_ISREG(st.st_mode)) return absl::FailedPreconditionError(fmt::format("{}: not a regular file", path));
  if ((st.st_mode & 022) != 0) return absl::FailedPreconditionError(fmt::format("{}: writable by group or others", path));
  if (st.st_uid != ::geteuid() && st.st_uid != 0 && st.st_uid != kOverflowUid) {
    return absl::FailedPreconditionError(fmt::format("{}: owned by another user ({})", path, st.st_uid));
  }
  std::string bytes;
  char buffer[16'384];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::FailedPreconditionError(fmt::format("{}: {}", path, std::strerror(errno)));
    if (n == 0) break;
    bytes.append(buffer, static_cast<std::size_t>(n));
    if (bytes.size() > kMaxLaunchFileBytes) return absl::FailedPreconditionError(fmt::format("{}: longer than 262144 bytes", path));
  }
  ::explicit_bzero(buffer, sizeof buffer);
  return bytes;
}

absl::Status check_match(const Descriptor& descriptor, const AuthBundle& bundle) {
  if (descriptor.generation == bundle.runtime_generation && descriptor.session_id == bundle.session_id) return absl::OkStatus();
  return absl::FailedPreconditionError("supervisor authentication bundle does not match runtime generation");
}

std::string tls_server_name(std::string_view session_id) { return fmt::format("sandbox.{}.openshell.internal", session_id); }

}  // namespace openshell::boundary
