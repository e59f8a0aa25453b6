// The public keys of an issuer: a JSON Web Key Set (RFC 7517), each key with the one algorithm that it may be used with (RFC 7518, RFC
// 8037).
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/oidc/token.hpp"

struct evp_pkey_st;

namespace openshell::oidc {

/// Keys of one set that are looked at; an issuer publishes a handful.
constexpr std::size_t kMaxKeys = 64;
constexpr int kMinRsaBits = 2048;
constexpr int kMaxRsaBits = 8192;

/// Immutable after parse(), so any thread may ask it.
class KeySet {
 public:
  /// Keys that are not for signatures, contradict themselves or can not be read are left out, each with a line in `left_out`.
  /// INVALID_ARGUMENT: the document is no key set. A set without a usable key is no error.
  static absl::StatusOr<KeySet> parse(std::string_view document, std::vector<std::string>* left_out = nullptr);

  [[nodiscard]] bool empty() const { return keys_.empty(); }
  [[nodiscard]] std::size_t size() const { return keys_.size(); }
  [[nodiscard]] bool has(std::string_view key_id) const { return keys_.find(key_id) != keys_.end(); }

  /// The algorithm is the key's; a token that names another is refused. UNAUTHENTICATED `invalid token: unknown signing key`,
  /// `... InvalidAlgorithm` or `... InvalidSignature`.
  [[nodiscard]] absl::Status verify(const SignedToken& token) const;

 private:
  struct Key {
    std::string algorithm;
    std::shared_ptr<evp_pkey_st> key;
  };
  static absl::StatusOr<Key> read(const boost::json::object& jwk);
  std::map<std::string, Key, std::less<>> keys_;
};

}  // namespace openshell::oidc
