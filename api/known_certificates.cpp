#include "api/known_certificates.hpp"

#include "pki/certificate.hpp"

namespace openshell::api {

absl::StatusOr<CertificateHolder> KnownCertificates::holder_of(const std::string& pem) {
  {
    const std::lock_guard lock{mutex_};
    if (const auto found = known_.find(pem); found != known_.end()) return found->second;
  }
  auto certificate = pki::Certificate::from_pem(pem);
  if (!certificate.ok()) return absl::UnauthenticatedError("client certificate can not be read");
  CertificateHolder holder;
  holder.identity.display_name = certificate->common_name();
  holder.identity.subject = holder.identity.display_name.empty() ? "unknown" : holder.identity.display_name;
  holder.identity.roles = certificate->organizational_units();
  holder.identity.source = Identity::Source::kMtls;
  holder.sha256 = certificate->sha256();
  const std::lock_guard lock{mutex_};
  if (known_.size() >= kMax) known_.clear();
  known_.emplace(pem, holder);
  return holder;
}

std::size_t KnownCertificates::size() const {
  const std::lock_guard lock{mutex_};
  return known_.size();
}

}  // namespace openshell::api
