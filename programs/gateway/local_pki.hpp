// The gateway's own certificates and launch-signing key on disk: making them (`generate-certs`) and finding them at start.
//
//   DIR/ca.crt ca.key server/tls.{crt,key} client/tls.{crt,key} jwt/{signing.pem,public.pem,kid}
//
// Keys are 0600 from the moment they exist, directories 0700.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <string>
#include <vector>

namespace openshell::gateway {

enum class BundleState { kNone, kComplete };

/// The five TLS files a gateway needs (not `ca.key`). FAILED_PRECONDITION `partial local TLS state in DIR: ...`.
absl::StatusOr<BundleState> find_tls_bundle(const std::string& directory);
/// The three files below `jwt/`. FAILED_PRECONDITION `partial local sandbox JWT state in DIR: ...`.
absl::StatusOr<BundleState> find_jwt_bundle(const std::string& directory);

struct GenerateOptions {
  std::string directory;
  std::vector<std::string> server_names;  ///< besides the fixed ones; an IP literal becomes an IP name
  std::string client_copy;                ///< directory of the client bundle, `.../gateways/openshell/mtls`; empty: no copy
};

/// Makes what is missing, keeps what is complete, refuses what is partial. A server certificate that lacks a name is replaced together with
/// its CA and client, never the signing key. Returns lines for the user. A failed copy of the client bundle is a warning among them.
absl::StatusOr<std::vector<std::string>> generate_certs(const GenerateOptions& options);
/// CA, server and client certificates and keys as PEM, nothing written.
absl::StatusOr<std::string> dry_run(const GenerateOptions& options);

}  // namespace openshell::gateway
