// What a client certificate says of its holder, remembered by its text: a client keeps its connection, and reading its certificate anew for
// each call was half of the time of a small one. The answer depends on nothing but the text, so that it never goes stale; whether the
// certificate is valid at all the TLS layer decides, for each connection.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_map>

#include "api/call_context.hpp"

namespace openshell::api {

struct CertificateHolder {
  Identity identity;
  std::string sha256;
};

/// Thread-safe.
class KnownCertificates {
 public:
  static constexpr std::size_t kMax = 256;  ///< certificates; a further one starts anew

  /// UNAUTHENTICATED for a text that is no certificate, which is not remembered.
  absl::StatusOr<CertificateHolder> holder_of(const std::string& pem);
  [[nodiscard]] std::size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, CertificateHolder> known_;
};

}  // namespace openshell::api
