// The authority in whose name inspected TLS is ended, made anew by each supervisor. Its key never leaves the process.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

namespace openshell::pki {
class CertificateAuthority;
}

namespace openshell::supervisor {

/// What clients are given to trust.
struct PublicCa {
  std::string certificate_pem;
  std::string bundle_pem;  ///< the system's roots, the CA, the operator's additional roots
};

struct InterceptionCa {
  std::shared_ptr<const pki::CertificateAuthority> authority;
  PublicCa published;
  std::string additional_pem;  ///< the operator's roots, as read
};

/// `additional_bundle`: path of `--additional-ca-bundle`; empty: none. INVALID_ARGUMENT where it holds no certificates.
absl::StatusOr<InterceptionCa> make_interception_ca(const std::string& additional_bundle);

/// NOT_FOUND where it cannot be read.
absl::StatusOr<std::string> read_text(const std::string& path);

}  // namespace openshell::supervisor
