#include "programs/supervisor/interception_ca.hpp"

#include <chrono>
#include <fstream>
#include <sstream>

#include "pki/certificate.hpp"

namespace openshell::supervisor {
namespace {

using namespace std::chrono_literals;

std::string system_bundle() {
  for (const char* path :
       {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    auto text = read_text(path);
    if (text.ok() && !text->empty()) return *text + (text->ends_with('\n') ? "" : "\n");
  }
  return {};
}

}  // namespace

absl::StatusOr<std::string> read_text(const std::string& path) {
  std::ifstream file{path};
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return absl::NotFoundError("'" + path + "' cannot be read");
  return text.str();
}

absl::StatusOr<InterceptionCa> make_interception_ca(const std::string& additional_bundle) {
  InterceptionCa out;
  if (!additional_bundle.empty()) {
    auto text = read_text(additional_bundle);
    if (!text.ok()) return absl::InvalidArgumentError("--additional-ca-bundle: " + std::string{text.status().message()});
    if (auto roots = pki::certificates_from_pem(*text); !roots.ok())
      return absl::InvalidArgumentError("--additional-ca-bundle: " + std::string{roots.status().message()});
    out.additional_pem = *std::move(text);
  }
  // Clients whose clock is behind take it too.
  const auto yesterday = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now() - 24h);
  auto ca =
      pki::CertificateAuthority::create({.common_name = "OpenShell Sandbox CA", .organization = "OpenShell", .not_before = yesterday});
  if (!ca.ok()) return ca.status();
  out.published.certificate_pem = ca->certificate().to_pem();
  out.published.bundle_pem = system_bundle() + out.published.certificate_pem + out.additional_pem;
  out.authority = std::make_shared<const pki::CertificateAuthority>(*std::move(ca));
  return out;
}

}  // namespace openshell::supervisor
