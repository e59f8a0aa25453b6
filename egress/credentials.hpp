// Provider credentials as the data plane uses them: placeholders on one side, secrets on the other.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "messages/secret.hpp"
#include "messages/values.hpp"

namespace openshell::egress {

/// Where a bound credential may be used.
struct CredentialEndpoint {
  std::string host;  ///< name, or DNS-label glob
  std::uint32_t port = 0;
  std::string path;  ///< path glob; "", "**" and "/**" mean every path
};

/// Where in a request a bound credential may stand besides the Authorization header, as its profile declares it. All empty: nowhere.
struct CredentialPlacement {
  std::string header;         ///< field name, case ignored
  std::string query;          ///< parameter name, exact
  std::string path_template;  ///< path glob with `{credential}` once; here a trailing `/**` covers the bare prefix too
};

/// What one environment key is bound to.
struct CredentialBinding {
  std::vector<CredentialEndpoint> endpoints;
  std::string identity;  ///< equal identities survive a change of value
  std::string handle;    ///< 64 lower-case hex digits: stable placeholder; empty: revision placeholder
  CredentialPlacement placement = {};
};

/// GetSandboxProviderEnvironment's answer, without protobuf.
struct ProviderEnvironment {
  std::uint64_t revision = 0;  ///< opaque: compared for equality only
  std::map<std::string, Secret> values;
  std::map<std::string, std::chrono::system_clock::time_point> expires;
  std::map<std::string, CredentialBinding> bindings;  ///< a key in neither `bindings` nor `non_secret` is generic (unbound)
  std::vector<std::string> non_secret;
};

class CredentialTable;  ///< immutable; belongs to one Generation

/// Remembers what was handed out, so that a placeholder issued earlier still means the same credential. One per supervisor.
/// Thread-safe. `prepare` and `commit` are two steps because the new table becomes visible only with the generation it belongs to.
class CredentialLedger {
 public:
  CredentialLedger();
  ~CredentialLedger();
  CredentialLedger(const CredentialLedger&) = delete;
  CredentialLedger& operator=(const CredentialLedger&) = delete;

  static constexpr std::size_t kMaxGenerations = 8;  ///< retained tables of revision placeholders

  struct Candidate {
    std::shared_ptr<const CredentialTable> table;  ///< for Generation::credentials
    std::map<std::string, std::string> child_env;  ///< what workload processes see: placeholders, and real values of non-secret keys
    std::vector<std::string> warnings;             ///< skipped keys, by name
  };
  /// Refuses the whole environment when its metadata is invalid (the static part is then to be revoked with `revoked()`).
  [[nodiscard]] absl::StatusOr<Candidate> prepare(const ProviderEnvironment& environment) const;
  /// Call right after the generation that holds `candidate` was published.
  void commit(const Candidate& candidate);
  /// Nothing resolves, but known keys stay known and identities recover. For a failed fetch or invalid metadata.
  [[nodiscard]] Candidate revoked() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace openshell::egress
