// The three JSON files with which a sandbox starts: descriptor and auth bundle for the supervisor, bootstrap for `openshell-sandbox`. A
// driver writes them (serialise), the two programs read them (read_launch_file, then parse). Unknown keys, missing keys and wrong types are
// refused; there is one spelling of each file.
#pragma once

#include "isolation/boundary/fence.hpp"
#include "messages/secret.hpp"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace openshell::boundary {

inline constexpr std::size_t kMaxLaunchFileBytes = 262'144;   ///< each of the three files
inline constexpr std::uint32_t kMaxIdentity = 4'294'967'294;  ///< highest uid or gid of a workload; the lowest is 1

using Claims = std::map<std::string, std::string>;       ///< keys and values: not empty, no white space
using Environment = std::map<std::string, std::string>;  ///< names to values of process environment

/// Whom the workload runs as, resolved by the driver before the launch; the sandbox only compares.
struct WorkloadIdentity {
  std::uint32_t uid = 0;                          ///< 1..kMaxIdentity, as the workload sees it
  std::uint32_t gid = 0;                          ///< 1..kMaxIdentity
  std::vector<std::uint32_t> supplementary_gids;  ///< without the primary group, sorted, distinct, none 0
  std::string source;                             ///< where the numbers come from ("driver", "oci", "policy"); for people
  std::string resource_digest;                    ///< digest of the image or root tree; for people and records; may be empty
  friend bool operator==(const WorkloadIdentity&, const WorkloadIdentity&) = default;
};

/// How the supervisor reaches the sandbox.
struct UnixTransport {
  std::string socket_path;  ///< absolute
  friend bool operator==(const UnixTransport&, const UnixTransport&) = default;
};
struct TcpTransport {
  std::string authority;               ///< only a name
  std::vector<std::string> addresses;  ///< "IP:port", at least one, tried in order
  friend bool operator==(const TcpTransport&, const TcpTransport&) = default;
};
struct VsockTransport {
  std::uint32_t guest_cid = 0;  ///< 3 or more
  std::uint32_t port = 0;       ///< not 0
  friend bool operator==(const VsockTransport&, const VsockTransport&) = default;
};
using Transport = std::variant<UnixTransport, TcpTransport, VsockTransport>;

/// The supervisor's view of one launch (`--backend-descriptor-file`).
struct Descriptor {
  std::string boundary_id;  ///< the sandbox id
  std::string generation;
  std::string session_id;  ///< UUID
  WorkloadIdentity workload_identity;
  Transport transport;
  std::string tls_server_name;       ///< `tls.server_name`: sandbox.<session_id>.openshell.internal
  std::string tls_trust_anchor_pem;  ///< the per-session CA
  std::string tls_client_certificate_pem;
  Secret tls_client_private_key_pem;
  std::optional<std::string> host_gateway_ip;  ///< what host.openshell.internal means; an IP address
  Claims resource_claims;
  OuterFence outer_fence;
};

/// The supervisor's tokens (`--auth-bundle-file`).
struct AuthBundle {
  std::string session_id;
  std::string runtime_generation;
  std::uint64_t session_rotation = 1;  ///< 1 or more
  std::uint64_t auth_epoch = 1;        ///< 1 or more
  Secret gateway_token;
  std::uint64_t gateway_expires_at = 0;  ///< Unix seconds; 0: does not expire
  Secret sandbox_token;
  std::uint64_t sandbox_expires_at = 0;  ///< Unix seconds; 0: does not expire
};

/// Server side of the channel.
struct ListenerTls {
  std::string certificate_chain_path;      ///< absolute, like all of these
  std::string private_key_path;            ///< unlinked by the sandbox before it listens
  std::string client_ca_certificate_path;  ///< the session CA: only a client it signed gets past the handshake
  friend bool operator==(const ListenerTls&, const ListenerTls&) = default;
};
struct UnixListener {
  std::string socket_path;  ///< absolute; at most 107 bytes
  friend bool operator==(const UnixListener&, const UnixListener&) = default;
};
struct TcpListener {
  std::string address;  ///< "IP:port"
  friend bool operator==(const TcpListener&, const TcpListener&) = default;
};
struct VsockListener {
  std::uint32_t control_port = 0;
  friend bool operator==(const VsockListener&, const VsockListener&) = default;
};
struct Listener {
  std::variant<UnixListener, TcpListener, VsockListener> endpoint;
  ListenerTls tls;
  friend bool operator==(const Listener&, const Listener&) = default;
};

/// An Ed25519 key of the gateway with which session tokens are verified.
struct VerificationKey {
  std::string key_id;
  std::string public_key_pem;
  friend bool operator==(const VerificationKey&, const VerificationKey&) = default;
};

enum class PeerNames {
  notified,  ///< getpeername is answered by the broker
  anyip  ///< the driver set up AnyIP: the kernel's own answer is right. The sandbox measures it; a declaration that does not hold is exit 3
};

/// Everything `openshell-sandbox` learns from outside before the channel is up. It reads no environment variable.
struct Bootstrap {
  std::string boundary_id;
  std::string generation;
  std::string session_id;                          ///< UUID
  std::uint64_t session_rotation = 1;              ///< 1 or more
  std::uint64_t auth_epoch = 1;                    ///< 1 or more
  std::string gateway_id;                          ///< tokens must say `iss=openshell-gateway:<gateway_id>`
  std::vector<VerificationKey> verification_keys;  ///< at least one, ids distinct
  Listener listener;
  Claims resource_claims;
  std::map<std::string, std::string> resource_claim_files;  ///< claim -> absolute file whose trimmed content must equal the claim
  WorkloadIdentity workload_identity;
  OuterFence outer_fence;
  Environment child_env;  ///< the user's environment (template, then spec), for workload processes only
  // Optional keys, ours:
  Environment image_env;               ///< the image's own environment, lowest layer; default empty
  bool require_pid_limit = false;      ///< an unlimited or unknown pids.max ends the start (exit 3)
  std::uint32_t stop_grace_secs = 10;  ///< SIGTERM to SIGKILL, 0..3600
  PeerNames peer_names = PeerNames::notified;
  std::uint32_t recovery_window_ms = 30'000;  ///< how long a frozen tree waits for its supervisor; 100..30,000, tests shorten it
};

/// Strict parsers. InvalidArgument names the file kind and the key, never a value that could be secret.
[[nodiscard]] absl::StatusOr<Descriptor> parse_descriptor(std::string_view json);
[[nodiscard]] absl::StatusOr<AuthBundle> parse_auth_bundle(std::string_view json);
[[nodiscard]] absl::StatusOr<Bootstrap> parse_bootstrap(std::string_view json);

/// What the parsers take, keys in a fixed order. The caller writes it with the owner and mode its reader needs; descriptor and bundle hold
/// secrets.
[[nodiscard]] std::string serialise(const Descriptor& descriptor);
[[nodiscard]] std::string serialise(const AuthBundle& bundle);
[[nodiscard]] std::string serialise(const Bootstrap& bootstrap);

/// The content of a launch file: opened with O_NOFOLLOW and O_CLOEXEC, a regular file, not writable by group or others, owned by the
/// caller's uid or by root (or the overflow uid that stands for an unmapped one), at most kMaxLaunchFileBytes. NotFound when there is no
/// such file, else FailedPrecondition naming the path and the rule.
[[nodiscard]] absl::StatusOr<std::string> read_launch_file(const std::string& path);

/// The bundle must be of the descriptor's generation and session: "supervisor authentication bundle does not match runtime generation".
[[nodiscard]] absl::Status check_match(const Descriptor& descriptor, const AuthBundle& bundle);

/// Well-known claims.
inline constexpr std::string_view kClaimGpu = "openshell.gpu";
inline constexpr std::string_view kClaimExtraGroups = "openshell.identity.allow_extra_supplementary_groups";

/// "sandbox.<session_id>.openshell.internal": the server name of the channel's certificate.
[[nodiscard]] std::string tls_server_name(std::string_view session_id);

}  // namespace openshell::boundary
