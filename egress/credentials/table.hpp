// What the placeholders of one generation mean, and for which request.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "egress/credentials.hpp"
#include "egress/credentials/pattern.hpp"
#include "egress/credentials/placeholder.hpp"
#include "messages/secret.hpp"

namespace openshell::egress {

/// The request that wants a credential.
struct CredentialScope {
  std::string_view host;
  Port port;
  std::string_view path;           ///< canonical, without query, placeholders redacted
  bool explicit_endpoint = false;  ///< a user rule names this host and port literally and inspects: generic keys resolve here
};

class CredentialTable {
 public:
  using Now = std::chrono::system_clock::time_point;

  /// PERMISSION_DENIED: bound to other endpoints. FAILED_PRECONDITION: unknown, revoked, expired or not usable. No message holds the key.
  [[nodiscard]] absl::StatusOr<Secret> resolve(const Placeholder& token, const CredentialScope& scope, Now now) const;

  /// True where any key could resolve for this request.
  [[nodiscard]] bool any_for(const CredentialScope& scope) const;
  /// Equal under two tables: the credential is the same, whatever its value. Empty: the key is not there.
  [[nodiscard]] std::string identity(const std::string& key) const;
  /// `key` is there and may be used for this request.
  [[nodiscard]] bool allows(const std::string& key, const CredentialScope& scope) const;
  /// A placeholder of this form was handed out for this key, now or before; else the text merely looks like one.
  [[nodiscard]] bool was_issued(const Placeholder& token) const;
  /// `key` is bound to endpoints by its provider.
  [[nodiscard]] bool is_bound(const std::string& key) const;
  /// Whether a value of `key` may be written there. The Authorization header is always such a place.
  [[nodiscard]] bool placed_in_header(const std::string& key, std::string_view field_name) const;
  [[nodiscard]] bool placed_in_query(const std::string& key, std::string_view parameter) const;
  /// `path`: canonical, with kPathSlot where the placeholder stood, and no other in it.
  [[nodiscard]] bool placed_in_path(const std::string& key, std::string_view path) const;
  static constexpr char kPathSlot = '\x01';  ///< in no canonical path and in no template
  [[nodiscard]] std::uint64_t revision() const noexcept { return revision_; }

 private:
  friend class CredentialLedger;
  struct Value {
    Secret secret;
    std::optional<Now> expires;
  };
  struct Endpoint {
    PartsPattern host;
    std::uint32_t port;
    PartsPattern path;
  };
  struct Key {
    Value current;
    bool bound = false;
    std::string identity;
    std::string handle;
    std::vector<Endpoint> endpoints;
    std::string header;  // placement
    std::string query;
    std::vector<PartsPattern> paths;
  };
  struct Retained {
    std::uint64_t revision = 0;
    std::map<std::string, Value> values;
  };
  struct Epoch {
    std::string identity;
    std::set<std::uint64_t> revisions;
  };

  static bool place(Key& key, const CredentialPlacement& placement);
  [[nodiscard]] static bool covers(const Key& key, const CredentialScope& scope);

  bool revoked_ = false;
  std::uint64_t revision_ = 0;
  std::map<std::string, Key> keys_;
  std::deque<Retained> retained_;        // oldest first, the current one included
  std::map<std::string, Epoch> epochs_;  // bound keys without a stable handle
  std::set<std::string> ever_bound_;
};

}  // namespace openshell::egress
